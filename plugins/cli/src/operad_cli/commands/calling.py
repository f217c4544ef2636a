"""The commands that call operations: ``operad call``, ``operad subscribe`` and ``operad trace``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from operad_cli.completion.candidates import complete_field, complete_id
from operad_cli.options import Command, Count, Seconds, chosen_profile, config_option, output_options, run


def input_options(command: Command) -> Command:
    """Add the arguments for the operation and its input, and ``--timeout``, to a command."""
    command = click.option(
        "--timeout",
        metavar="SECONDS",
        type=Seconds(min=0, min_open=True),
        help="Maximum time to wait for the result. Default: [calls] timeout.",
    )(command)
    command = click.option(
        "-i",
        "--input",
        "text",
        metavar="JSON",
        help="The input as JSON; - reads standard input. --json '{…}' is short for --json --input '{…}'.",
    )(command)
    command = click.argument("fields", metavar="[KEY=VALUE]...", nargs=-1, shell_complete=complete_field)(command)
    return click.argument("operation_id", metavar="ID", shell_complete=complete_id)(command)


def result_options(command: Command) -> Command:
    """Add ``--select`` and ``--data``, which choose the printed part of a result."""
    command = click.option(
        "--select",
        metavar="JMESPATH",
        help="Print the part of the data that this expression selects, such as 'items[].name'.",
    )(command)
    return click.option("--data", "bare", is_flag=True, help="Print only the data; a string without quotes.")(
        command
    )


@click.command()
@input_options
@result_options
@click.option("-o", "--output", metavar="FILE", help="Write the data to a file; bytes as they are.")
@click.option("--all", "all_pages", is_flag=True, help="Get all pages and print each item as a line of JSON.")
@click.option("--pages", metavar="COUNT", type=Count(min=1), help="As --all, but at most this many pages.")
@click.option("--explain", is_flag=True, help="Show what was changed in the result to match the output schema.")
@config_option
@output_options
def call(
    operation_id: str,
    fields: tuple[str, ...],
    text: str | None,
    timeout: float | None,
    bare: bool,
    select: str | None,
    output: str | None,
    all_pages: bool,
    pages: int | None,
    explain: bool,
    config: Path | None,
    as_json: bool,
) -> int:
    """Call an operation and print its envelope.

    KEY=VALUE is converted to the type in the input schema, KEY:=JSON is JSON, KEY@FILE is a file (text, bytes or
    an upload, as the schema requires), KEY:=@FILE is the JSON in a file, --json '{…}' is the whole input. A
    terminal prompts for missing fields. With --data, a pipe gets bytes as they are. With --all --json, each line
    is one page.

    \b
    operad call shop.getBook bookId=3
    operad call shop.listBooks --select 'items[].title'
    operad call shop.putCover bookId=3 body@cover.png --data
    operad call shop.getCover bookId=3 --output cover.png
    operad call shop.listBooks --all --select title
    """
    from operad_cli.output.progress import shown
    from operad_cli.output.results import print_changes, print_items, print_result, save_data
    from operad_cli.output.text import print_json, print_text
    from operad_cli.running.inputs import read_input
    from operad_cli.running.opening import open_registry
    from operad_cli.running.terminal import own_context

    if output is not None and (all_pages or pages is not None):
        raise click.UsageError(
            "--output writes one result, so it cannot be combined with --all or --pages; redirect standard output"
        )

    async def command() -> int:
        async with open_registry(config, operation_id, profile=chosen_profile()) as registry:
            value = await read_input(registry, operation_id, fields, text)
            if all_pages or pages is not None:
                how = registry.pages(operation_id)
                if how is None:
                    print_text(f'warning: "{operation_id}" has no known pages; this is one page', sys.stderr)
                async for page in registry.paginate(
                    operation_id, value, own_context(), max_pages=pages or sys.maxsize, timeout=timeout
                ):
                    if as_json:
                        print_json(page.to_wire(), compact=True)
                        continue
                    items = page.to_wire()["data"] if how is None else how.items(page)
                    print_items(items if isinstance(items, list) else [items], select)
                return 0
            with shown(registry):
                envelope = await registry.execute(operation_id, value, own_context(), timeout=timeout)
            spec = registry.get_spec(operation_id)
            assert spec is not None
            if spec.type == "subscription":
                print_text(f"this is the first item; for all of them: operad subscribe {operation_id}", sys.stderr)
            if output is not None:
                save_data(envelope, spec, output, select)
            else:
                print_result(envelope, as_json=as_json, bare=bare, select=select, compact=False, spec=spec)
            if explain:
                print_changes(spec.output_schema.cast_report(envelope.received)[1])
            return 1 if registry.plugins.envelope_kinds.is_error(envelope) else 0

    return run(command())


@click.command()
@input_options
@result_options
@click.option("-n", "--limit", metavar="COUNT", type=Count(min=1), help="Stop after this many envelopes.")
@config_option
@output_options
def subscribe(
    operation_id: str,
    fields: tuple[str, ...],
    text: str | None,
    timeout: float | None,
    bare: bool,
    select: str | None,
    limit: int | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Subscribe to an operation and print each envelope.

    The input is given as for `call`. --timeout limits the wait for each envelope. --json prints one line each.

    \b
    operad subscribe shop.orderEvents -n 10
    operad subscribe shop.orderEvents --select order.id
    """
    from operad_cli.output.results import print_result
    from operad_cli.running.inputs import read_input
    from operad_cli.running.opening import open_registry
    from operad_cli.running.terminal import own_context

    async def command() -> int:
        async with open_registry(config, operation_id, profile=chosen_profile()) as registry:
            value = await read_input(registry, operation_id, fields, text)
            context = own_context()
            count = 0
            async with registry.subscribe(operation_id, value, context, timeout=timeout) as envelopes:
                async for envelope in envelopes:
                    print_result(envelope, as_json=as_json, bare=bare, select=select, compact=True)
                    count += 1
                    if count == limit:
                        break
            return 0

    return run(command())


@click.command()
@input_options
@config_option
@output_options
def trace(
    operation_id: str,
    fields: tuple[str, ...],
    text: str | None,
    timeout: float | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Call an operation and show the tree of calls it made.

    Each call is shown with its duration, reports and outcome. The input is given as for `call`. Only calls of this
    process are shown, not the calls that a server makes.

    \b
    operad trace shop.checkout cartId=7
    """
    from contextlib import suppress

    from operad import CallError
    from operad_cli.output.calls import Calls
    from operad_cli.output.progress import shown
    from operad_cli.output.text import print_json
    from operad_cli.running.inputs import read_input
    from operad_cli.running.opening import open_registry
    from operad_cli.running.terminal import own_context

    async def command() -> int:
        async with open_registry(config, operation_id, profile=chosen_profile()) as registry:
            value = await read_input(registry, operation_id, fields, text)
            watched = Calls()
            stop = registry.observe(watched.started, watched.finished, watched.reported)
            failed = False
            with suppress(CallError), shown(registry):
                failed = True
                await registry.execute(operation_id, value, own_context(), timeout=timeout)
                failed = False
            stop()
            if as_json:
                print_json(watched.to_json())
            else:
                watched.draw()
            return int(failed)

    return run(command())

"""The commands of ``operad``."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import click

from operad import OperationContext, OperationRegistry
from operad_cli import render
from operad_cli.inputs import input_of
from operad_cli.login import login, logout
from operad_cli.new_plugin import new_plugin
from operad_cli.options import (
    Command,
    config_option,
    debug_option,
    load_plugins_quietly,
    output_options,
    quiet_plugins,
    require_configuration,
)
from operad_cli.serve import mcp_config, serve

T = TypeVar("T")


def application() -> click.Group:
    """The command line, with what plugins add to it."""
    for add_commands in load_plugins_quietly().implementations("operad_commands"):
        try:
            add_commands(cli=cli)
        except Exception as error:  # noqa: BLE001  # one plugin's mistake must not take the command line away
            logging.getLogger("operad").warning("%r could not add its commands: %s", add_commands, error)
    return cli


@asynccontextmanager
async def open_registry(config: Path | None) -> AsyncIterator[OperationRegistry]:
    """The registry of the configuration, its sources loaded; those that failed are in ``registry.failures``."""
    path = require_configuration(config)
    with quiet_plugins():
        registry = OperationRegistry.from_config(path)
    async with registry:
        yield registry


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine."""
    return asyncio.run(coroutine)


# --- options that several commands share ---------------------------------------------------------------


def input_options(command: Command) -> Command:
    """The operation's id and its input."""
    command = click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds.")(command)
    command = click.option(
        "-i",
        "--input",
        "text",
        metavar="JSON",
        help="The input as JSON; - reads it from standard input. Short for this and --json: --json '{…}'.",
    )(command)
    command = click.argument("fields", metavar="[KEY=VALUE]...", nargs=-1)(command)
    return click.argument("operation_id", metavar="ID")(command)


# --- commands ------------------------------------------------------------------------------------------


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(importlib.metadata.version("operad"), prog_name="operad")
def cli() -> None:
    """Operations of all kinds, called one way."""


@cli.command()
@output_options
def plugins(as_json: bool) -> int:
    """List plugins, and what is wrong with them.

    All that are installed, and what each contributes.
    """
    records = load_plugins_quietly().records
    if as_json:
        render.print_json([render.plugin_to_json(record) for record in records])
    else:
        render.print_plugins(records)
    return 1 if any(record.status in ("failed", "conflict", "incompatible") for record in records) else 0


@cli.command(name="list")
@click.argument("pattern", default="*")
@config_option
@output_options
def list_operations(pattern: str, config: Path | None, as_json: bool) -> int:
    """List the operations of all sources.

    With a PATTERN, such as "shop.*", those whose id fits it.
    """

    async def command() -> int:
        async with open_registry(config) as registry:
            render.print_specs([s for s in registry.specs() if fnmatchcase(s.id, pattern)], as_json=as_json)
            return render.report_failures(registry)

    return run(command())


@cli.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=10, show_default=True)
@config_option
@output_options
def search(words: tuple[str, ...], limit: int, config: Path | None, as_json: bool) -> int:
    """Find operations by words.

    Those of their id, title, description and tags.
    """

    async def command() -> int:
        async with open_registry(config) as registry:
            render.print_specs(registry.search(" ".join(words), limit=limit), as_json=as_json)
            return render.report_failures(registry)

    return run(command())


@cli.command()
@click.argument("operation_id", metavar="ID")
@config_option
@output_options
def describe(operation_id: str, config: Path | None, as_json: bool) -> int:
    """Show what an operation is, takes and answers."""

    async def command() -> int:
        async with open_registry(config) as registry:
            spec = await registry.describe(operation_id)
            if spec is None:
                raise render.not_found(registry, operation_id)
            render.print_spec(spec, as_json=as_json)
            return 0

    return run(command())


@cli.command()
@input_options
@config_option
@output_options
def call(
    operation_id: str,
    fields: tuple[str, ...],
    text: str | None,
    timeout: float | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Call an operation and print its envelope.

    KEY=VALUE is converted as the input schema says, KEY:=JSON is taken as JSON, --json '{…}' is the whole input.
    """

    async def command() -> int:
        async with open_registry(config) as registry:
            value = await _input(registry, operation_id, fields, text)
            # Whoever runs the command owns the configuration: the access check would protect nobody.
            context = OperationContext(trusted=True)
            envelope = await registry.execute(operation_id, value, context, timeout=timeout)
            render.print_envelope(envelope, as_json=as_json)
            return 1 if registry.plugins.envelope_kinds.is_error(envelope) else 0

    return run(command())


@cli.command()
@input_options
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Stop after so many envelopes.")
@config_option
@output_options
def subscribe(
    operation_id: str,
    fields: tuple[str, ...],
    text: str | None,
    timeout: float | None,
    limit: int | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Subscribe to an operation and print each envelope as it comes.

    Takes its input as `call` does; --timeout bounds the wait for each envelope; --json prints one a line.
    """

    async def command() -> int:
        async with open_registry(config) as registry:
            value = await _input(registry, operation_id, fields, text)
            context = OperationContext(trusted=True)
            count = 0
            async with registry.subscribe(operation_id, value, context, timeout=timeout) as envelopes:
                async for envelope in envelopes:
                    render.print_envelope(envelope, as_json=as_json, compact=True)
                    count += 1
                    if count == limit:
                        break
            return 0

    return run(command())


@cli.command()
@click.option("--keep", is_flag=True, help="Leave the API up afterwards, until Ctrl-C.")
@output_options
def demo(keep: bool, as_json: bool) -> int:
    """Show what operad is for, in seconds.

    An HTTP API, an MCP server and a folder of functions are called one way.
    """
    from operad_cli.demo import run_demo

    return run(run_demo(keep=keep, as_json=as_json))


cli.add_command(debug_option(new_plugin))
cli.add_command(login)
cli.add_command(logout)
cli.add_command(serve)
cli.add_command(mcp_config)


async def _input(registry: OperationRegistry, operation_id: str, fields: tuple[str, ...], text: str | None) -> Any:
    # Its schema, which a peer may not have told yet, is needed for KEY=VALUE only.
    spec = registry.get_spec(operation_id) if text is not None else await registry.describe(operation_id)
    if spec is None:
        raise render.not_found(registry, operation_id)
    if text is None:
        return input_of(fields, spec.input_schema)
    if fields:
        raise click.UsageError("give the input as KEY=VALUE or as JSON, not both")
    try:
        return json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise click.UsageError(f"the input is not JSON: {error}") from error

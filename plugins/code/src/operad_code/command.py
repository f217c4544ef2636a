"""The command ``operad run``. operad-cli imports it when it collects the commands of plugins."""

from __future__ import annotations

from pathlib import Path

import click

from operad_cli.options import chosen_profile, config_option, output_options, run


@click.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("fields", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--check", "only_check", is_flag=True, help="Only check syntax and types; run nothing.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Maximum time in seconds. Default: 60."
)
@config_option
@output_options
def run_program(
    file: Path,
    fields: tuple[str, ...],
    only_check: bool,
    timeout: float | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Run a program, which may call operations, in the sandbox.

    FILE is a program of code mode, or a saved program; KEY=VALUE are arguments of a saved program's main function.
    The limits are those of the first source of type "code" in the configuration, else the defaults.

    \b
    operad run report.py
    operad run report.py --check
    operad run recipes/oldest_issues.py owner=octocat count=3
    """
    import attrs

    from operad import ConfigError
    from operad.plugin import check_options
    from operad_cli.output.errors import report_failures
    from operad_cli.output.text import print_json
    from operad_cli.running.inputs import input_of
    from operad_cli.running.opening import open_registry
    from operad_cli.running.terminal import own_context
    from operad_code.config import CodeConfig
    from operad_code.running import Runner
    from operad_code.saved import LAST, Unusable, read

    source = file.read_text(encoding="utf-8")

    async def command() -> int:
        async with open_registry(config, profile=chosen_profile()) as registry:
            report_failures(registry)
            configuration = registry.configuration
            assert configuration is not None
            own = {field.name for field in attrs.fields(CodeConfig)}
            tables = (table for table in configuration.sources.values() if table["type"] == "code")
            table = {key: value for key, value in next(tables, {}).items() if key in own}
            options = check_options(table, CodeConfig, where=str(configuration.path))
            if timeout is not None:
                options = attrs.evolve(options, timeout=timeout)
            text = source
            is_saved = "async def main(" in text
            inputs = None
            if is_saved:
                try:
                    schema = read(file, "run", options.max_code).spec.input_schema
                except Unusable as error:
                    raise ConfigError(str(error)) from None
                inputs = input_of(fields, schema)
                if not only_check and (errors := schema.errors(inputs)):
                    raise click.UsageError(f"the input is invalid: {errors[0].message}; correct or add KEY=VALUE")
            elif fields:
                raise click.UsageError(
                    f"{file}: KEY=VALUE requires a saved program, but the file has no `async def main(…)`; "
                    "add the function, or remove KEY=VALUE"
                )
            runner = Runner(options)
            context = own_context()
            context.registry = registry
            try:
                result = await runner.run(
                    text,
                    context,
                    last=LAST if is_saved else "",
                    inputs=None if inputs is None else {"operad_input": inputs},
                    trusted=True,
                    only_check=only_check,
                )
            finally:
                await runner.aclose()
            if not only_check:
                print_json(result, compact=as_json)
            return 0

    return run(command())

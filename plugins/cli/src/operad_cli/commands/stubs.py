"""The command ``operad stubs``, which writes the types of operations for type checkers."""

from __future__ import annotations

from pathlib import Path

import click

from operad_cli.options import chosen_profile, config_option, output_options, run


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("operad_types"))
@click.option("--check", is_flag=True, help="Do not write; fail if the package is not up to date.")
@config_option
@output_options
def stubs(folder: Path, check: bool, config: Path | None, as_json: bool) -> int:
    """Write types of all operations for type checkers.

    FOLDER becomes a package of .pyi files, one for each namespace. If you import Registry and Context from it, not
    from operad, registry.client("shop").add(a=1) and context.env.shop.add(a=1) are type-checked.
    """

    from operad_cli.output.errors import report_failures
    from operad_cli.output.text import print_json
    from operad_cli.running.opening import open_registry
    from operad_cli.stubs.files import check_folder, stale, write
    from operad_cli.stubs.modules import package

    async def command() -> int:
        check_folder(folder)
        async with open_registry(config, profile=chosen_profile()) as registry:
            if registry.failures:
                click.echo("Nothing was written, because the types of failed sources would be missing.", err=True)
                return report_failures(registry)
            for spec in registry.specs():
                await registry.describe(spec.id)
            specs = registry.specs()
            files = package(specs)
        if check:
            if found := stale(folder, files):
                text = f"{folder} is not up to date ({', '.join(found[:5])}); run: operad stubs {folder}"
                click.echo(text, err=True)
            return 1 if found else 0
        write(folder, files)
        namespaces = len(files) - 3
        if as_json:
            print_json({"folder": str(folder), "operations": len(specs), "namespaces": namespaces})
        else:
            click.echo(f"{folder}: {_count(len(specs), 'operation')} in {_count(namespaces, 'namespace')}")
        return 0

    return run(command())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""``operad stubs``: what the operations of a configuration take and answer, for type checkers and editors."""

from __future__ import annotations

import asyncio
import keyword
from pathlib import Path

import click

from operad import ConfigError
from operad_cli import plain, render
from operad_cli._stub_modules import MARK, package
from operad_cli.opening import open_registry
from operad_cli.options import chosen_profile, config_option, output_options


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("operad_types"))
@click.option("--check", is_flag=True, help="Write nothing; fail if the package is not what would be written.")
@config_option
@output_options
def stubs(folder: Path, check: bool, config: Path | None, as_json: bool) -> int:
    """Write types of all operations, for type checkers.

    FOLDER becomes a package of .pyi files, one for each namespace. With its Registry and Context in the place of
    operad's, registry.client("shop").add(a=1) and context.env.shop.add(a=1) are checked.
    """

    async def command() -> int:
        _check_folder(folder)
        async with open_registry(config, profile=chosen_profile()) as registry:
            if registry.failures:
                click.echo("Nothing is written: types of the sources that failed would be missing.", err=True)
                return render.report_failures(registry)
            for spec in registry.specs():
                await registry.describe(spec.id)
            specs = registry.specs()
            files = package(specs)
        if check:
            return _compare(folder, files)
        _write(folder, files)
        namespaces = len(files) - 3
        if as_json:
            plain.print_json({"folder": str(folder), "operations": len(specs), "namespaces": namespaces})
        else:
            click.echo(f"{folder}: {_count(len(specs), 'operation')} in {_count(namespaces, 'namespace')}")
        return 0

    return asyncio.run(command())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _check_folder(folder: Path) -> None:
    """Raises `ConfigError` if a package cannot be written there."""
    name = folder.resolve().name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f'"{name}" is no name for a package: expected letters, digits and _, such as shop_types')
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder for the package")
    face = folder / "__init__.py"
    if any(folder.iterdir()) and not (face.is_file() and face.read_text("utf-8", "replace").startswith(MARK)):
        raise ConfigError(f"{folder} holds something else; name a new folder, or one that operad stubs wrote")


def _written(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    found = [*folder.glob("*.pyi"), folder / "__init__.py", folder / "py.typed"]
    return {path.name: path.read_text("utf-8", "replace") for path in found if path.is_file()}


def _compare(folder: Path, files: dict[str, str]) -> int:
    written = _written(folder)
    if written == files:
        return 0
    stale = sorted(name for name in {*written, *files} if written.get(name) != files.get(name))
    click.echo(f"{folder} is not up to date ({', '.join(stale[:5])}); run: operad stubs {folder}", err=True)
    return 1


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for gone in _written(folder).keys() - files.keys():
        (folder / gone).unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")

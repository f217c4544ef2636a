"""The command ``operad new-plugin``, which writes the skeleton of a source plugin with copier.

The template is in this package, so that an installed command finds it.
"""

from __future__ import annotations

import importlib
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import click

from operad import ConfigError
from operad_cli.options import output_options
from operad_cli.output.text import print_json

TEMPLATE = Path(__file__).parents[1] / "template"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def render_plugin(name: str, folder: Path | None = None, description: str | None = None) -> Path:
    """Write the skeleton of a plugin.

    Args:
        name: the service that the plugin adapts, in lower case. The distribution is ``operad-<name>``.
        folder: the new or empty folder to write to; None for ``operad-<name>`` in the current folder.
        description: one line about the plugin; None for the default of the template.

    Returns:
        The folder of the plugin.

    Raises:
        ConfigError: the name is invalid or taken, the folder is a file or not empty, or copier is not installed.
    """
    name = name.removeprefix("operad-")
    if not _NAME.fullmatch(name):
        near = "-".join(re.findall(r"[a-z0-9]+", name.lower())).lstrip("0123456789-")
        hint = f'; did you mean "{near}"?' if near else ""
        raise ConfigError(
            f'invalid plugin name "{name}": expected lower-case letters, digits and single hyphens{hint}'
        )
    if any(distributions(name=f"operad-{name}")):
        raise ConfigError(f"operad-{name} is already installed; choose another name")
    folder = Path(f"operad-{name}") if folder is None else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigError(f"{folder} {found}; choose another folder with --folder PATH")
    try:
        copier: Any = importlib.import_module("copier")  # optional: it has 17 dependencies
    except ImportError:
        raise ConfigError(
            "new-plugin requires copier, which is not installed; run: pip install 'operad-cli[new-plugin]'"
        ) from None
    data = {"name": name} if description is None else {"name": name, "description": description}
    copier.run_copy(str(TEMPLATE), str(folder), data=data, defaults=True, quiet=True)
    return folder


@click.command("new-plugin")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="The folder to create. Default: operad-NAME.")
@click.option("--description", help="One line about the plugin.")
@output_options
def new_plugin(name: str, folder: Path | None, description: str | None, as_json: bool) -> None:
    """Write the skeleton of a source plugin that adapts NAME."""
    written = render_plugin(name, folder, description)
    if as_json:
        print_json({"folder": str(written)})
        return
    click.echo(f"Wrote {written}, a plugin that passes the conformance kit. Next:\n")
    click.echo(f'  cd {written}\n  pip install -e ".[test]"\n  python -m pytest\n')
    click.echo(f"Then edit src/operad_{name.removeprefix('operad-').replace('-', '_')}/client.py.")

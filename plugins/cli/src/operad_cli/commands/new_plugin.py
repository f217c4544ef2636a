"""``operad new-plugin``: the skeleton of a source plugin, rendered by copier.

The template lies in this package, so that an installed command finds it; ``templates/plugin`` points to it.
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
        name: what it adapts, in lower case; ``operad-`` in front of it is the distribution's name.
        folder: where to write it; default: ``operad-<name>`` in the current folder. It has to be new or empty.
        description: one line about it.

    Returns:
        The folder.

    Raises:
        ConfigError: the name is not usable or taken, the folder is not empty, or copier is not installed.
    """
    name = name.removeprefix("operad-")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f'"{name}" is no name for a plugin: expected lower-case letters, digits and single hyphens'
        )
    if any(distributions(name=f"operad-{name}")):
        raise ConfigError(
            f"operad-{name} is installed here, and a plugin of that name would take its place; choose another name"
        )
    folder = Path(f"operad-{name}") if folder is None else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; name another folder: --folder PATH")
    try:
        copier: Any = importlib.import_module("copier")  # 17 distributions that nothing else here needs
    except ImportError:
        raise ConfigError("new-plugin needs copier; install it: pip install 'operad-cli[new-plugin]'") from None
    data = {"name": name} if description is None else {"name": name, "description": description}
    copier.run_copy(str(TEMPLATE), str(folder), data=data, defaults=True, quiet=True)
    return folder


@click.command("new-plugin")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write it. Default: operad-NAME.")
@click.option("--description", help="One line about it.")
@output_options
def new_plugin(name: str, folder: Path | None, description: str | None, as_json: bool) -> None:
    """Write the skeleton of a source plugin that adapts NAME."""
    written = render_plugin(name, folder, description)
    if as_json:
        print_json({"folder": str(written)})
        return
    click.echo(f"{written} is a plugin that passes the conformance kit. Next:\n")
    click.echo(f'  cd {written}\n  pip install -e ".[test]"\n  python -m pytest\n')
    click.echo(f"Then write src/operad_{name.removeprefix('operad-').replace('-', '_')}/client.py.")

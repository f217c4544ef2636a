"""The command ``operad pin``. This module is imported when operad-cli collects the commands of plugins."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import click

from operad import ConfigError
from operad_cli.options import config_option, output_options
from operad_mcp.pins import FILE, PinFile, changed

_COMPARED, _LINES, _WIDTH = 2_000, 60, 200
"""The lines of a definition that are compared, and the lines and their characters that are shown."""


@click.command()
@click.option("--accept", metavar="NAME", multiple=True, help="Accept a held tool, or all of a server.")
@config_option
@output_options
def pin(accept: tuple[str, ...], config: Path | None, as_json: bool) -> int:
    """List or accept tools that are held as new or changed.

    \b
    operad pin
    operad pin --accept crm.find_issues

    A running program uses an accepted definition after it has loaded the source again.
    """
    from operad.config import load_configuration
    from operad_cli.options import chosen_profile, require_configuration
    from operad_cli.output.text import print_json, print_text, printable

    configuration = load_configuration(require_configuration(config), chosen_profile())
    places = {
        configuration.folder(name) / Path(FILE if table["pin"] is True else table["pin"]).expanduser()
        for name, table in configuration.sources.items()
        if table.get("type") == "mcp" and table.get("pin")
    }
    if not places:
        raise ConfigError(f'{configuration.name}: expected `pin = true` in a source of type "mcp", found none')
    files = [PinFile.read(place) for place in sorted(places)]
    if accept:
        accepted = {each for file in files for name in accept for each in file.accept(name)}
        if unknown := [name for name in accept if not any(_is_of(each, name) for each in accepted)]:
            raise ConfigError(f'no tool is held as "{printable(unknown[0])}"; `operad pin` lists the held tools')
        for file in files:
            file.write()
        if as_json:
            print_json({"accepted": sorted(accepted)})
        else:
            print_text(printable(f"Accepted: {', '.join(sorted(accepted))}"))
        return 0
    waiting = [
        (name, file.approved.get(server, {}).get(tool), file.held[server][tool])
        for file in files
        for name, server, tool in file.waiting()
    ]
    if as_json:
        print_json(
            [
                {"name": name, "fields": changed(approved, sent), "approved": approved, "sent": sent}
                for name, approved, sent in waiting
            ]
        )
    elif not waiting:
        print_text("No tool is held.")
    else:
        for name, approved, sent in waiting:
            what = "new" if approved is None else f"{', '.join(changed(approved, sent))} changed"
            print_text(printable(f"{name}: {what}"))
            for line in _difference(approved, sent):
                print_text(printable(f"  {line}"))
    return 0


def _is_of(tool: str, name: str) -> bool:
    return tool == name or tool.startswith(f"{name}.")


def _difference(approved: Any, sent: Any) -> list[str]:
    """Return the lines of two definitions that differ, marked with ``-`` and ``+``."""
    texts = ("" if each is None else json.dumps(each, indent=2, sort_keys=True) for each in (approved, sent))
    before, after = (text.splitlines() for text in texts)
    changes = difflib.unified_diff(before[:_COMPARED], after[:_COMPARED], n=0, lineterm="")
    lines = [line for line in changes if line[0] in "+-" and line[:3] not in ("+++", "---")]
    shown = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in lines[:_LINES]]
    return shown if len(lines) <= _LINES else [*shown, f"… {len(lines) - _LINES} more lines, see --json"]

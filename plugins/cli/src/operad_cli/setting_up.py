"""``operad init`` and ``operad doctor``: a configuration from what is here, and what keeps it from working."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from operad import ConfigError
from operad_cli import checkup, plain, render
from operad_cli.options import Seconds, config_option, find_configuration, output_options
from operad_cli.writing import configuration_text, found_here

_MARK = {"ok": "[green]ok   [/]", "warning": "[yellow]warn [/]", "error": "[red]error[/]"}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--openapi", multiple=True, metavar="URL|FILE", help="An OpenAPI document; may be given again.")
@click.option("--mcp", multiple=True, metavar="FILE", help="An mcp.json of an MCP host; may be given again.")
@click.option("--force", is_flag=True, help="Overwrite an operad.toml that is there.")
@output_options
def init(folder: Path, openapi: tuple[str, ...], mcp: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Write an operad.toml with comments.

    It names what is in FOLDER (default: this one): OpenAPI documents, an mcp.json, a folder of functions.

    \b
    operad init
    operad init --openapi https://api.example.com/openapi.json
    """
    target = folder / "operad.toml"
    if target.exists() and not force:
        raise ConfigError(f"{target} exists; --force overwrites it")
    folder.mkdir(parents=True, exist_ok=True)
    sources = found_here(folder, openapi, mcp)
    target.write_text(configuration_text(sources), encoding="utf-8")
    if as_json:
        named = [{"name": source.name, "type": source.type, "what": source.what} for source in sources]
        plain.print_json({"configuration": str(target), "sources": named})
        return 0
    out = render.console()
    out.print(f"{escape(str(target))} is written. It names:")
    for source in sources:
        out.print(f"  [bold]{escape(source.name)}[/]  {source.type}, {escape(source.what)}")
    if not sources:
        out.print("  nothing yet: no OpenAPI document, mcp.json or folder of functions was found here")
    out.print("Next: operad doctor, then operad list")
    return 0


@click.command()
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=1),
    default=20.0,
    show_default=True,
    help="For each source.",
)
@config_option
@output_options
def doctor(timeout: float, config: Path | None, as_json: bool) -> int:
    """Check what is installed and configured, and say what to do.

    Plugins, the tables of the configuration, every source (it is opened), the transport, the clock. Exit code 1 if
    something is broken.

    \b
    operad doctor
    operad -c other.toml doctor --json
    """
    looking = (
        render.error_console().status("looking at plugins and sources …") if sys.stderr.isatty() else nullcontext()
    )
    with looking:
        found = asyncio.run(checkup.examine(find_configuration(config), timeout))
    if as_json:
        plain.print_json([check.to_json() for check in found])
    else:
        out = render.console()
        for check in found:
            row = Table.grid(padding=(0, 1))
            row.add_column()
            row.add_column(overflow="fold")  # a path that is longer than a line is shown whole
            row.add_row(_MARK[check.status], f"[bold]{escape(check.what)}[/]  {escape(check.says)}")
            if check.mend:
                row.add_row("", Text(check.mend, style="dim"))
            out.print(row)
    return int(any(check.status == "error" for check in found))

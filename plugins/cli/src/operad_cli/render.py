"""What the commands print: tables and envelopes for people, JSON for programs, one paragraph for an error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from operad import OperationRegistry, OperationSpec, PluginRecord
from operad_cli.plain import coloured, has_colours, print_json, tell_error

_STATUS = {"loaded": "green", "disabled": "dim", "failed": "red", "conflict": "red", "incompatible": "red"}
_TYPE = {"query": "green", "mutation": "yellow", "subscription": "magenta"}


def console() -> Console:
    """The console of standard output, as it is now."""
    # A pipe has no width: nothing is wrapped or cut there.
    terminal = Console(highlight=False, soft_wrap=False, color_system=_colours(sys.stdout))
    return terminal if terminal.is_terminal else Console(highlight=False, soft_wrap=True, width=100_000)


def error_console() -> Console:
    """The console of standard error."""
    # One paragraph is one line where nobody looks at a terminal's width.
    return Console(stderr=True, highlight=False, soft_wrap=True, color_system=_colours(sys.stderr))


def _colours(file: TextIO) -> Literal["auto"] | None:
    """Whether rich may write colours and bold letters: where the rest of the command does."""
    return "auto" if has_colours(file) else None


def report_failures(registry: OperationRegistry) -> int:
    """Print the sources that could not be loaded; the exit code that they make."""
    for failure in registry.failures:
        tell_error(f"source {label(registry, failure.name)} is not loaded: {with_place(registry, failure)}")
    return 1 if registry.failures else 0


def with_place(registry: OperationRegistry, failure: Any) -> str:
    """Why a source is not loaded, and the file and the line of its table."""
    text = " ".join(str(failure.error).split())
    if registry.configuration is None or " @ " in text:
        return text
    where = registry.configuration.where("sources", failure.name)
    return text if text.startswith(f"{where.partition(':')[0]}:") else f"{text} @ {where}"


def label(registry: OperationRegistry, source: str) -> str:
    """The header of a source's table, as it is written: ``[sources.shop]``."""
    configuration = registry.configuration
    place = f"sources.{source}" if configuration is None else configuration.where("sources", source)
    return f"[{place.rpartition(': ')[2]}]"


def plugin_to_json(record: PluginRecord) -> dict[str, Any]:
    """A plugin record for programs."""
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "error": record.error,
        "contributes": {kind: list(names) for kind, names in record.contributes.items()},
    }


def print_plugins(records: Sequence[PluginRecord]) -> None:
    """Print plugins as a table, and below it the error of each that failed."""
    out = console()
    if not records:
        out.print("No plugins are installed. Try: pip install operad-openapi operad-mcp operad-scanner")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("plugin", "distribution", "version", "status", "contributes"):
        table.add_column(column)
    for record in records:
        contributes = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in record.contributes.items()
        )
        status = Text(record.status, style=_STATUS[record.status])
        table.add_row(record.name, record.distribution or "", record.version or "", status, contributes)
    _print_table(out, table)
    for record in records:
        if record.error:
            out.print(f"\n[bold red]{escape(record.label)}[/] {record.status}: {escape(record.error)}")


def _print_table(out: Console, table: Table) -> None:
    """Print a table; for a pipe without the blanks that fill up its last column."""
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    out.out("\n".join(line.rstrip() for line in captured.get().splitlines()), highlight=False)


def print_specs(
    specs: Sequence[OperationSpec],
    *,
    as_json: bool = False,
    of: int | None = None,
    nothing: str = "No operations.",
    so_far: Sequence[str] = (),
    before: int = 0,
) -> None:
    """Print operations as a table.

    Args:
        specs: the operations.
        as_json: print JSON instead.
        of: how many they were chosen from.
        nothing: what is said where there are none.
        so_far: the sources whose operations come later.
        before: how many have been printed before.
    """
    if as_json:
        print_json([spec.to_wire(schemas=False) for spec in specs])
        return
    out = console()
    if not specs:
        out.print(nothing, markup=False)  # it may name a table such as [sources]
        return
    table = Table(box=None, pad_edge=False, header_style="bold", expand=out.is_terminal)
    # Ids and types are never cut, not even where the terminal is narrow: they are what one copies.
    table.add_column("operation", no_wrap=True, min_width=max(len(spec.id) for spec in specs))
    table.add_column("type", no_wrap=True, min_width=len("subscription"))
    table.add_column("description", overflow="ellipsis", no_wrap=True, ratio=1)
    for spec in specs:
        summary = spec.title or (spec.description.strip().splitlines() or [""])[0]
        name = Text(spec.id, style="strike dim" if spec.deprecated else "")
        table.add_row(name, Text(str(spec.type), style=_TYPE[str(spec.type)]), summary)
    _print_table(out, table)
    more = f" of {of}; --limit shows more" if of is not None and of > len(specs) else ""
    if so_far:
        more = f" so far; still starting: {', '.join(so_far)}"
    if before:
        more = f" more, {before + len(specs)} in all"
    plural = "" if len(specs) == 1 else "s"
    out.print(Text(f"{len(specs)} operation{plural}{more}", style="dim"))


def print_spec(spec: OperationSpec, *, as_json: bool) -> None:
    """Print all there is to know of an operation."""
    if as_json:
        print_json(spec.to_wire())
        return
    out = console()
    out.print(f"[bold]{escape(spec.id)}[/]  [{_TYPE[str(spec.type)]}]{spec.type}[/]  [dim]{spec.version}[/]")
    if spec.deprecated:
        out.print("[yellow]deprecated[/]")
    # Many documents repeat one as the other.
    for text in dict.fromkeys(text.strip() for text in (spec.title, spec.description) if text):
        out.print(escape(text))
    wire = spec.to_wire()
    for title, key in (
        ("input", "inputSchema"),
        ("output", "outputSchema"),
        ("errors", "errorSchemas"),
        ("requires", "accessControl"),
        ("tags", "tags"),
    ):
        if key in wire:
            out.print(f"\n[bold]{title}[/]")
            out.print(Text.from_ansi(coloured(wire[key])))

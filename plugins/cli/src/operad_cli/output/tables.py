"""Tables of operations and plugins. This is the only module that imports rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from operad import OperationSpec, PluginRecord
from operad_cli.output.results import TYPE_STYLES
from operad_cli.output.text import has_colours, paragraph, print_text, styled

_STATUS = {"loaded": "green", "disabled": "dim", "failed": "red", "conflict": "red", "incompatible": "red"}


def print_plugins(records: Sequence[PluginRecord]) -> None:
    """Print plugins as a table, and below it the errors of plugins."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("plugin", "distribution", "version", "status", "contributes"):
        table.add_column(column)
    for record in records:
        contributes = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in record.contributes.items()
        )
        status = Text(record.status, style=_STATUS[record.status])
        table.add_row(record.name, record.distribution or "", record.version or "", status, Text(contributes))
    _print(table)
    for record in records:
        if record.error:
            text = paragraph(f"{record.label} {record.status}: {record.error}", indent="")
            print_text(f"\n{styled(record.label, 'error')}{text[len(record.label) :]}")


def print_specs(specs: Sequence[OperationSpec]) -> None:
    """Print operations as a table. The list must not be empty."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=sys.stdout.isatty())
    # Ids and types are never cut, because users copy them.
    table.add_column("operation", no_wrap=True, min_width=max(len(spec.id) for spec in specs))
    table.add_column("type", no_wrap=True, min_width=len("subscription"))
    table.add_column("description", overflow="ellipsis", no_wrap=True, ratio=1)
    for spec in specs:
        summary = _summary(spec)
        name = Text(spec.id, style="strike dim" if spec.deprecated else "")
        table.add_row(name, Text(str(spec.type), style=TYPE_STYLES[str(spec.type)]), Text(summary))
    _print(table)


def _summary(spec: OperationSpec) -> str:
    """Return the title, or the first line of the description if the title only repeats the name."""
    title, first = spec.title or "", (spec.description.strip().splitlines() or [""])[0]
    repeats = _letters(title) == _letters(spec.name.rpartition(".")[2])
    return first if not title or (repeats and first) else title


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _print(table: Table) -> None:
    if sys.stdout.isatty():
        Console(highlight=False, color_system="auto" if has_colours(sys.stdout) else None).print(table)
        return
    # A pipe has no width. The blanks that pad the last column are removed.
    out = Console(highlight=False, soft_wrap=True, width=100_000)
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        print_text(line.rstrip())

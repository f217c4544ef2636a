"""The support table, which lists the declared capabilities of suites as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs


def support_table(suites: Iterable[type[Any]]) -> str:
    """Return a Markdown table of capabilities with one row per suite; an empty string without suites.

    All suites must declare their capabilities with the same class, such as `SourceCapabilities`.
    """
    rows = sorted((_subject(suite), suite.capabilities) for suite in suites)
    if not rows:
        return ""
    names = [field.name for field in attrs.fields(type(rows[0][1]))]
    lines = ["| | " + " | ".join(name.replace("_", " ") for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for subject, capabilities in rows:
        cells = [_cell(getattr(capabilities, name)) for name in names]
        lines.append(f"| `{subject}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _subject(suite: type[Any]) -> str:
    for attribute in ("source", "kind_source", "scheme", "name"):
        if isinstance(value := getattr(suite, attribute, None), str):
            return value
    return suite.__name__.removeprefix("Test")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "–"
    return "–" if value is None else f"`{value}`" if isinstance(value, str) else str(value)

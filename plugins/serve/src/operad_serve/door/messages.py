"""Messages of `operad serve` for the user who started it."""

from __future__ import annotations

import sys

from operad.words import printable


def report(line: object) -> None:
    """Write a line to standard error. Standard output may belong to MCP."""
    sys.stderr.write(f"{printable(str(line), 4_000)}\n")
    sys.stderr.flush()

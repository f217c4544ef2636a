"""What a call tells of itself, on the last line of a terminal while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operad import OperationRegistry
from operad_cli.plain import printable

_PAUSE = 0.1
"""Seconds between two changes of the line."""
_MEBIBYTE = 1024 * 1024


@contextmanager
def shown(registry: OperationRegistry) -> Iterator[None]:
    """Within it what calls report is shown, where standard error is a terminal; afterwards it is gone."""
    if not sys.stderr.isatty():
        yield
        return
    line = _Line()
    stop = registry.observe(reported=line.show)
    try:
        yield
    finally:
        stop()
        line.clear()


class _Line:
    """The line."""

    def __init__(self) -> None:
        self._is_written = False
        self._next = 0.0

    def show(self, call: Any, report: Any) -> None:
        """Show the latest report; of many that have a number, some are passed over."""
        now = time.monotonic()
        if now < self._next and report.progress is not None:
            return
        self._next = now + _PAUSE
        import shutil  # brings the modules of three archives along

        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{printable(f'{call.operation_id}: {in_words(report)}')[:width]}")
        sys.stderr.flush()
        self._is_written = True

    def clear(self) -> None:
        """Take it away."""
        if self._is_written:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def in_words(report: Any) -> str:
    """A report, such as ``upload 12.0 of 40.0 MiB, 30 %``."""
    words = [] if report.kind in ("progress", "log") else [report.kind]
    if report.progress is not None:
        words.append(_amount(report))
    if report.message:
        words.append(report.message)
    if "delay" in report.attributes:
        words.append(f"(again in {report.attributes['delay']:.1f} s)")
    return " ".join(words)


def _amount(report: Any) -> str:
    size, total, unit = report.progress, report.total, report.unit or ""
    if unit == "By":
        size, total, unit = size / _MEBIBYTE, total and total / _MEBIBYTE, "MiB"
    number = ".1f" if unit == "MiB" else "g"
    text = f"{size:{number}}" + (f" of {total:{number}}" if total else "") + (f" {unit}" if unit else "")
    return f"{text}, {100 * size / total:.0f} %" if total else text

"""The last line of a terminal, which shows the progress of a command and the reports of its calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from operad import OperationRegistry
from operad_cli.output.text import printable

CLEAR = "\r\x1b[2K"
"""The control sequence that clears the last line of a terminal."""
_PAUSE = 0.1
"""Seconds between two changes of the line."""
_MEBIBYTE = 1024 * 1024


class Line:
    """The last line of standard error. Leaving the context clears it."""

    def __init__(self) -> None:
        self._is_written = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_written:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def show(self, text: str) -> None:
        """Show a text in place of the current one, cut at the width of the terminal."""
        import shutil  # imports the modules of three archive formats

        width = shutil.get_terminal_size().columns - 1
        text = printable(text)
        sys.stderr.write(f"{CLEAR}{text if len(text) <= width else text[: width - 1] + '…'}")
        sys.stderr.flush()
        self._is_written = True


@contextmanager
def shown(registry: OperationRegistry) -> Iterator[None]:
    """While the context is open, show the reports of running calls, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    next_change = 0.0

    def show(call: Any, report: Any) -> None:
        nonlocal next_change
        now = time.monotonic()
        if now < next_change and report.progress is not None:
            return
        next_change = now + _PAUSE
        line.show(f"{call.operation_id}: {in_words(report)}")

    with Line() as line:
        stop = registry.observe(reported=show)
        try:
            yield
        finally:
            stop()


def in_words(report: Any) -> str:
    """Return a report as text, such as ``upload 12.0 of 40.0 MiB, 30 %``."""
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

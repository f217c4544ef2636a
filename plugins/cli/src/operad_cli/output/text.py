"""Text and JSON on standard output and standard error, with colours if the terminal shows them."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, TextIO

_STYLES = {
    "bold": "1", "dim": "2", "strike": "9", "error": "1;31", "red": "31", "green": "32", "warning": "33",
    "yellow": "33", "blue": "34", "magenta": "35", "cyan": "1;36",
}  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def has_colours(file: TextIO) -> bool:
    """Return False if ``NO_COLOR`` (https://no-color.org) is set, or ``TERM`` is ``dumb`` or ``unknown``.

    Otherwise return True for a terminal, and for any file if ``FORCE_COLOR`` is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or file.isatty()


def styled(text: str, style: str, file: TextIO | None = None) -> str:
    """Return the text in a style, such as ``bold``; unchanged if the file (default: stdout) has no colours."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if has_colours(file or sys.stdout) else text


def printable(text: str) -> str:
    """Replace control characters by spaces, so that text of a peer cannot control the terminal."""
    return _CONTROL.sub(" ", text)


def paragraph(text: str, file: TextIO | None = None, indent: str = "  ") -> str:
    """Return the text wrapped to the width of the terminal, or unchanged if the file is not a terminal.

    Args:
        text: the text to wrap.
        file: the file that the text is for; None for standard output.
        indent: the indentation of all lines except the first.
    """
    if not (file or sys.stdout).isatty():
        return text
    import shutil
    import textwrap

    # A word longer than a line is a path or a URL. Unbroken, it can be copied.
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_text(text: str = "", file: TextIO | None = None) -> None:
    """Write a text and a newline to ``file``; if it is ``None``, to standard output."""
    write(f"{text}\n", file or sys.stdout)


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print a value as JSON on standard output. A terminal gets the same text as a pipe."""
    print_text(to_json(value, None if compact else 2))


def to_json(value: Any, indent: int | None) -> str:
    """Return a value as JSON, in one line if ``indent`` is ``None``. Values that JSON lacks become text.

    If standard output cannot encode a character, such as half a surrogate pair, the JSON is ASCII only.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def write(text: str, file: TextIO) -> None:
    """Write all of the text to a file. Characters that its encoding lacks are escaped."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    write_bytes(text.encode(encoding, "backslashreplace"), file)


def write_bytes(data: bytes, file: TextIO) -> None:
    """Write all of the bytes to the descriptor, or else the buffer, of a text file, and flush the file."""
    file.flush()
    try:
        descriptor = file.fileno() if os.name == "posix" else None
    except (AttributeError, OSError, ValueError):  # a file in memory
        descriptor = None
    if descriptor is None:
        if hasattr(file, "buffer"):
            file.buffer.write(data)
        else:
            file.write(data.decode(getattr(file, "encoding", None) or "utf-8"))
        file.flush()
        return
    # file.write() loses data with PYTHONUNBUFFERED if a pipe takes a part of it, and fails on a pipe or terminal
    # that another process has made non-blocking.
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            import select

            select.select([], [descriptor], [])

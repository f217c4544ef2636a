"""What a call prints: envelopes, data, errors; in colours on a terminal that has them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from operad import CallError, ResponseEnvelope

_RESET, _BOLD, _DIM, _RED, _GREEN, _YELLOW, _BLUE, _CYAN = (
    f"\x1b[{code}m" for code in ("0", "1", "2", "1;31", "32", "33", "34", "1;36")
)


def has_colours(file: TextIO) -> bool:
    """Whether a file is a terminal that shows colours, and its user wants them (NO_COLOR, https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or file.isatty()


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print JSON, the same bytes to a terminal and a pipe."""
    _write(sys.stdout, _json(value, None if compact else 2) + "\n")


def _json(value: Any, indent: int | None) -> str:
    """JSON that standard output can hold: what its encoding lacks, and halves of pairs, are escapes of JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def print_data(data: Any, *, as_json: bool, compact: bool = False) -> None:
    """Print data alone: a text as it is, everything else as JSON."""
    if isinstance(data, str) and not as_json:
        _write(sys.stdout, data if data.endswith("\n") else data + "\n")
    else:
        print_json(data, compact=compact)


def print_envelope(envelope: ResponseEnvelope[Any], *, as_json: bool, compact: bool = False) -> None:
    """Print an envelope: where it came from, then the data."""
    wire = envelope.to_wire()
    if as_json:
        print_json(wire, compact=compact)
        return
    meta = wire["meta"]
    facts = [
        f"{key}: {_fact(key, value)}"
        for key, value in meta.items()
        if key != "source" and not isinstance(value, (dict, list))
    ]
    # What has parts of its own is only named: --json shows it.
    facts += [f"{key}: …" for key, value in meta.items() if isinstance(value, (dict, list)) and value]
    told = printable(", ".join(facts))
    source = printable(str(meta["source"]))
    told = paragraph(f"{source}  {told}", sys.stdout)
    if has_colours(sys.stdout):
        told = f"{_CYAN}{source}{_RESET}{_DIM}{told[len(source) :]}{_RESET}"
    _write(sys.stdout, f"{told}\n{coloured(wire['data'])}\n")


def print_result(
    envelope: ResponseEnvelope[Any], *, as_json: bool, bare: bool, select: str | None, compact: bool
) -> None:
    """Print an envelope, its data alone, or a part of these."""
    if select is not None:
        print_data(_selected(select, envelope.to_wire()["data"]), as_json=as_json, compact=compact)
    elif bare:
        print_data(envelope.to_wire()["data"], as_json=as_json, compact=compact)
    else:
        print_envelope(envelope, as_json=as_json, compact=compact)


def _selected(expression: str, data: Any) -> Any:
    """What a JMESPath expression (jmespath.org) finds in data. Raises `click.UsageError` for one that is none."""
    import click
    import jmespath

    try:
        return jmespath.search(expression, data)
    except jmespath.exceptions.JMESPathError as error:
        raise click.UsageError(f"--select: {' '.join(str(error).split())}") from error


def coloured(value: Any) -> str:
    """A value as JSON in several lines, in colours where standard output shows them."""
    text = _json(value, 2)
    return re.sub(_WORD, _paint, text) if has_colours(sys.stdout) else text


_WORD = r'("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*'


def _paint(found: re.Match[str]) -> str:
    if found[2] is not None:
        return f"{_BLUE}{found[1]}{_RESET}{found[2]}"
    return f"{_YELLOW if found[1] is None else _GREEN}{found[0]}{_RESET}"


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """One line that commands a terminal nothing: others write what is shown here."""
    return _CONTROL.sub(" ", text)


def print_changes(changes: Sequence[Any]) -> None:
    """Print what a cast changed, on standard error."""
    if not changes:
        _write(sys.stderr, "The answer fits its schema: nothing was changed.\n")
    for change in changes:
        before = json.dumps(change.before, ensure_ascii=False, default=str)[:60]
        after = json.dumps(change.after, ensure_ascii=False, default=str)[:60]
        told = printable(f"{change.path}: {before} -> {after}")
        action = f"{_YELLOW}{change.action}{_RESET}" if has_colours(sys.stderr) else change.action
        _write(sys.stderr, f"{action} {told}\n")


def print_error(error: BaseException, *, as_json: bool) -> None:
    """Print an error as one paragraph on standard error, or as JSON on standard output."""
    errors: Sequence[BaseException] = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
    for item in errors:
        if as_json:
            wire = (
                item.to_wire()
                if isinstance(item, CallError)
                else {"code": type(item).__name__, "message": str(item)}
            )
            print_json({"error": wire})
        else:
            tell_error(" ".join(str(item).split()) or type(item).__name__)


def tell_error(text: str) -> None:
    """Print one error on standard error."""
    _write(sys.stderr, f"{in_colours('error', paragraph(f'error: {printable(text)}', sys.stderr))}\n")


def in_colours(word: str, told: str) -> str:
    """A paragraph that begins with ``word:``, which is coloured where standard error shows colours."""
    if not told.startswith(f"{word}:") or not has_colours(sys.stderr):
        return told
    return f"{_YELLOW if word == 'warning' else _RED}{word}:{_RESET}{told[len(word) + 1 :]}"


def paragraph(text: str, file: TextIO) -> str:
    """A text in lines that fit a terminal, broken between words; one line where nobody looks at a width."""
    if not file.isatty():
        return text
    import shutil
    import textwrap

    # What is longer than a line is a path or an address: whole, it can be copied.
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _write(file: TextIO, text: str) -> None:
    # What the terminal's encoding lacks is shown by its number, instead of ending the command.
    encoding = getattr(file, "encoding", None) or "utf-8"
    data = text.encode(encoding, "backslashreplace")
    file.flush()
    try:
        descriptor = file.fileno() if os.name == "posix" else None
    except (AttributeError, OSError, ValueError):  # something in memory
        descriptor = None
    if descriptor is None:
        file.write(data.decode(encoding))
        file.flush()
        return
    # Not by the file: with PYTHONUNBUFFERED it leaves out what a pipe does not take at once, and without it gives
    # up where somebody has made a pipe or a terminal that does not wait.
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            import select

            select.select([], [descriptor], [])


def _fact(key: str, value: Any) -> Any:
    """A value of an envelope's meta, for people."""
    if key == "timestamp":
        return _moment(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _moment(value: Any) -> Any:
    """A point in time, for people."""
    if not isinstance(value, int):
        return value
    try:
        return datetime.fromtimestamp(value / 1000, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return value

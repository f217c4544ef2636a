"""The output of operations and their results."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from operad import OperationSpec, ResponseEnvelope
from operad_cli.output.text import (
    has_colours,
    paragraph,
    print_json,
    print_text,
    printable,
    styled,
    to_json,
    write,
    write_bytes,
)

TYPE_STYLES = {"query": "green", "mutation": "yellow", "subscription": "magenta"}
_WORD = r'("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*'


def print_result(
    envelope: ResponseEnvelope[Any],
    *,
    as_json: bool,
    bare: bool,
    select: str | None,
    compact: bool,
    spec: OperationSpec | None = None,
) -> None:
    """Print an envelope, its data alone, or a part of the data.

    Args:
        envelope: the envelope.
        as_json: whether to print JSON, also for an envelope and for a string.
        bare: whether to print the data alone.
        select: a JMESPath expression for the part of the data to print, also if ``bare`` is False; None for all.
        compact: whether to print JSON in one line.
        spec: the operation. If given, and ``bare`` is True, bytes are not printed as JSON, except on a terminal.

    Raises:
        click.UsageError: ``select`` is not valid.
    """
    raw = raw_data(envelope, spec) if spec is not None and bare and select is None and not as_json else None
    if raw is not None and not sys.stdout.isatty():  # bytes would garble a terminal
        write_bytes(raw, sys.stdout)
    elif select is not None:
        _print_data(_selected(select, envelope.to_wire()["data"]), as_json=as_json, compact=compact)
    elif bare:
        _print_data(envelope.to_wire()["data"], as_json=as_json, compact=compact)
    else:
        print_envelope(envelope, as_json=as_json, compact=compact)


def raw_data(envelope: ResponseEnvelope[Any], spec: OperationSpec) -> bytes | None:
    """Return the data of a result as bytes; None if the data are not bytes.

    Data that are base64 text by the output schema, such as those of a function that returns bytes, are decoded.
    """
    data = envelope.data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    schema = {} if spec.output_schema.is_unknown else spec.output_schema.bundled()
    if isinstance(data, str) and isinstance(schema, dict) and schema.get("contentEncoding") == "base64":
        try:
            return b64decode(data, validate=True)
        except ValueError:
            return None
    return None


def save_data(envelope: ResponseEnvelope[Any], spec: OperationSpec, path: str, select: str | None) -> None:
    """Write the data, or the part that ``select`` selects, to a file: bytes and text unchanged, the rest as JSON.

    The path ``-`` is standard output. Raises `OSError` if the file cannot be written, and `click.UsageError` if
    ``select`` is not valid.
    """
    content = raw_data(envelope, spec) if select is None else None
    if content is None:
        data = envelope.to_wire()["data"]
        data = data if select is None else _selected(select, data)
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2) + "\n"
        content = text.encode("utf-8", "surrogatepass")
    if path == "-":
        write_bytes(content, sys.stdout)
        return
    Path(path).expanduser().write_bytes(content)
    print_text(f"wrote {len(content)} bytes to {path}", sys.stderr)


def _print_data(data: Any, *, as_json: bool, compact: bool) -> None:
    """Print data: a string as it is, everything else as JSON."""
    if isinstance(data, str) and not as_json:
        write(data if data.endswith("\n") else data + "\n", sys.stdout)
    else:
        print_json(data, compact=compact)


def print_items(items: Sequence[Any], select: str | None) -> None:
    """Print each item of a page, or the part of it that ``select`` selects, as one line of JSON.

    Raises `click.UsageError` if ``select`` is not a JMESPath expression.
    """
    for item in items:
        print_json(item if select is None else _selected(select, item), compact=True)


def _selected(expression: str, data: Any) -> Any:
    """Apply a JMESPath expression (jmespath.org). Raises `click.UsageError` if it is not valid."""
    import click
    import jmespath

    try:
        return jmespath.search(expression, data)
    except jmespath.exceptions.JMESPathError as error:
        raise click.UsageError(f"--select: {' '.join(str(error).split())}") from error


def print_envelope(envelope: ResponseEnvelope[Any], *, as_json: bool, compact: bool = False) -> None:
    """Print an envelope: as JSON, or as a line with its metadata and then the data."""
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
    # Objects and lists are only named; --json shows them.
    facts += [f"{key}: …" for key, value in meta.items() if isinstance(value, (dict, list)) and value]
    source = printable(str(meta["source"]))
    line = paragraph(f"{source}  {printable(', '.join(facts))}")
    print_text(styled(source, "cyan") + styled(line[len(source) :], "dim"))
    print_text(coloured(wire["data"]))


def _fact(key: str, value: Any) -> Any:
    if key == "timestamp" and isinstance(value, int):
        try:
            return datetime.fromtimestamp(value / 1000, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
        except (OverflowError, OSError, ValueError):
            return value
    return value if isinstance(value, str) else json.dumps(value, default=str)


def coloured(value: Any) -> str:
    """Return a value as indented JSON, with colours if standard output shows them."""
    text = to_json(value, 2)
    return re.sub(_WORD, _paint, text) if has_colours(sys.stdout) else text


def _paint(found: re.Match[str]) -> str:
    if found[2] is not None:
        return styled(found[1], "blue") + found[2]
    return styled(found[0], "yellow" if found[1] is None else "green")


def print_changes(changes: Sequence[Any]) -> None:
    """Print the changes that a cast made, or that nothing was changed, on standard error."""
    if not changes:
        print_text("The result matches its schema; nothing was changed.", sys.stderr)
    for change in changes:
        before = json.dumps(change.before, ensure_ascii=False, default=str)[:60]
        after = json.dumps(change.after, ensure_ascii=False, default=str)[:60]
        text = printable(f"{change.path}: {before} -> {after}")
        print_text(f"{styled(change.action, 'yellow', sys.stderr)} {text}", sys.stderr)


def print_spec(spec: OperationSpec, *, as_json: bool) -> None:
    """Print the description and the schemas of an operation, as text or as JSON."""
    wire = spec.to_wire()
    if as_json:
        print_json(wire)
        return
    kind = str(spec.type)
    print_text(f"{styled(spec.id, 'bold')}  {styled(kind, TYPE_STYLES[kind])}  {styled(spec.version, 'dim')}")
    if spec.deprecated:
        print_text(styled("deprecated", "yellow"))
    # Many documents repeat the title as the description.
    for text in dict.fromkeys(text.strip() for text in (spec.title, spec.description) if text):
        for line in text.splitlines():
            print_text(paragraph(printable(line), indent=""))
    for title, key in (
        ("input", "inputSchema"),
        ("output", "outputSchema"),
        ("errors", "errorSchemas"),
        ("requires", "accessControl"),
        ("tags", "tags"),
    ):
        if key in wire:
            print_text(f"\n{styled(title, 'bold')}\n{coloured(wire[key])}")

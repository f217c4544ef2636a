"""The content of a file as the value of a field: bytes, text, or a file with its name and media type."""

from __future__ import annotations

import mimetypes
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from operad import Schema

_MOST_STEPS = 16
"""How many schemas are visited to find the alternatives of a field."""


def content_of(name: str) -> bytes:
    """Return the bytes of a file; for ``-``, of standard input. Raises `click.UsageError` if it is unreadable."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).expanduser().read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror}") from error


def value_of(key: str, name: str, shape: Any, root: Schema) -> Any:
    """Return the content of a file in the form that the schema of a field expects.

    A field of bytes gets base64. An upload gets an object with base64, the file's name and its media type. A list
    of bytes or uploads gets a list of one. Any other field gets text, or bytes if the content is not UTF-8.

    Args:
        key: the name of the field, for errors.
        name: the path of the file, or ``-`` for standard input.
        shape: the schema of the field; None if it is unknown.
        root: the schema of the input.

    Raises:
        click.UsageError: the file cannot be read, or is not text although the field expects text.
    """
    content = content_of(name)
    for node in _alternatives(shape, root):
        if node.get("type") == "array":
            inner = next(
                (
                    value
                    for each in _alternatives(node.get("items"), root)
                    if (value := _binary(each, name, content))
                ),
                None,
            )
            if inner is not None:
                return [inner]
        if (value := _binary(node, name, content)) is not None:
            return value
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if any(node.get("type") == "string" for node in _alternatives(shape, root)):
            raise click.UsageError(
                f"{key}: expected text in UTF-8, got other bytes in {name}, at byte {error.start}"
            ) from None
        return content


def _binary(node: dict[str, Any], name: str, content: bytes) -> Any:
    """Return the value of a field that takes bytes or a file; None if it takes neither."""
    if node.get("contentEncoding") == "base64" or node.get("format") == "byte":
        return b64encode(content).decode()
    properties = node.get("properties")
    if not isinstance(properties, dict) or not {"base64", "filename"} <= properties.keys():
        return None
    value = {"base64": b64encode(content).decode()}
    if name != "-":
        value["filename"] = Path(name).name
        if kind := mimetypes.guess_type(name)[0]:
            value["contentType"] = kind
    return value


def _alternatives(shape: Any, root: Schema) -> Iterator[dict[str, Any]]:
    """Yield a schema, the targets of its references, and its alternatives."""
    bundle = root.bundled() if not root.is_unknown else {}
    waiting = [shape]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return
        node = waiting.pop(0)
        if not isinstance(node, dict):
            continue
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: Any = bundle
            for step in reference[2:].split("/"):
                step = step.replace("~1", "/").replace("~0", "~")
                found = found.get(step) if isinstance(found, dict) else None
            waiting.append(found)
        yield node
        for word in ("anyOf", "oneOf", "allOf"):
            members = node.get(word)
            waiting += members if isinstance(members, list) else []

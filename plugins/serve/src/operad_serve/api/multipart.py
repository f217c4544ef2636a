"""Inputs as ``multipart/form-data`` (RFC 7578), for operations with a field of bytes, such as uploads.

The schema of a field decides how its part is read: bytes become base64, as in JSON; a file becomes an object with
its name and type; text is decoded like a parameter of a query string. A part of type ``application/json`` is JSON.
"""

from __future__ import annotations

from base64 import b64encode
from email.message import Message
from email.parser import HeaderParser
from typing import Any, NamedTuple

from operad import ErrorCode
from operad.wire import from_json
from operad_serve.api.queries import Root, field_of, resolved
from operad_serve.problems import Problem

MULTIPART = "multipart/form-data"
_MAX_PARTS = 1_000
_BINARY = {"type": "string", "contentMediaType": "application/octet-stream"}

Json = dict[str, Any]


class _Part(NamedTuple):
    name: str
    type: str
    data: bytes
    filename: str | None = None


def multipart_schema(schema: Any, root: Root) -> Json | None:
    """Return the schema of an input as ``multipart/form-data``; None if the input has no field of bytes."""
    properties = _properties(schema, root)
    replaced = {name: binary for name, node in properties.items() if (binary := _binary(node, root)) is not None}
    if not replaced:
        return None
    return {**resolved(schema, root), "properties": {**properties, **replaced}}


def read_multipart(body: bytes, content_type: str, schema: Any, root: Root) -> Json:
    """Return the input in a body. Raises `Problem` (400) if the body cannot be read.

    Args:
        body: the whole body of the request.
        content_type: the header ``Content-Type``, with the boundary.
        schema: the bundled input schema.
        root: the definitions that the schema refers to.
    """
    values: dict[str, list[_Part]] = {}
    for part in _parts(body, content_type):
        values.setdefault(part.name, []).append(part)
    properties = _properties(schema, root)
    return {name: _value(name, parts, properties.get(name, {}), root) for name, parts in values.items()}


def _parts(body: bytes, content_type: str) -> list[_Part]:
    boundary = _header(f"content-type: {content_type}").get_param("boundary")
    if not isinstance(boundary, str) or not 0 < len(boundary) <= 70:
        raise _unreadable(f"expected a boundary in Content-Type, got {content_type!r:.100}")
    # A delimiter is a line of its own (RFC 2046, 5.1.1). What is before the first one is ignored.
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), _MAX_PARTS + 1)[1:]
    if not pieces or not pieces[-1].startswith(b"--"):
        expected = f"expected at most {_MAX_PARTS} parts, and the boundary with -- after the last one"
        raise _unreadable(f"{expected}, got the boundary {len(pieces)} times")
    found = []
    for piece in pieces[:-1]:
        head, separator, data = piece.lstrip(b" \t").removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = _header(head.decode("utf-8", "replace"))
        name = headers.get_param("name", header="content-disposition")
        if not separator or not isinstance(name, str):
            raise _unreadable("expected Content-Disposition with a name in every part")
        found.append(_Part(name, headers.get_content_type(), data, headers.get_filename()))
    return found


def _header(text: str) -> Message:
    return HeaderParser().parsestr(text)


def _value(name: str, parts: list[_Part], node: Any, root: Root) -> Any:
    binary = _binary(node, root)
    if binary is not None:
        is_list = binary["type"] == "array"
        is_file = _is_file(resolved(node, root).get("items") if is_list else node, root)
        values = [_file(part) if is_file else b64encode(part.data).decode() for part in parts]
        if is_list:
            return values
    elif all(part.type == "application/json" for part in parts):
        values = [_json(name, part.data) for part in parts]
    else:
        return field_of(name, _without_null(node, root), root, required=False).read(
            [_text(name, part.data) for part in parts]
        )
    if len(values) > 1:
        raise _unreadable(f'expected the part "{name}" once, got it {len(values)} times')
    return values[0]


def _file(part: _Part) -> Json:
    """Return the content, the name and the type of a part, in the JSON form of a file."""
    found: Json = {"base64": b64encode(part.data).decode()}
    return found | ({} if part.filename is None else {"filename": part.filename, "contentType": part.type})


def _is_file(node: Any, root: Root) -> bool:
    """Return True for a field that takes a file: an object with ``base64`` and ``filename``, or an alternative."""
    node = resolved(node, root)
    nodes = [node, *(node.get("anyOf") or ())] if isinstance(node, dict) else []
    return any({"base64", "filename"} <= _properties(each, root).keys() for each in nodes)


def _without_null(node: Any, root: Root) -> Any:
    """Return the schema of a nullable field without null, which no part can contain; any other schema as it is."""
    members = resolved(node, root)
    members = members.get("anyOf") if isinstance(members, dict) else None
    rest = [each for each in members if each != {"type": "null"}] if isinstance(members, list) else []
    return rest[0] if len(rest) == 1 else node


def _json(name: str, data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError as error:
        raise _unreadable(f'the part "{name}" is {error}') from None


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _unreadable(f'the part "{name}": expected text in UTF-8, got other bytes') from None


def _unreadable(detail: str) -> Problem:
    return Problem(400, f"the body: {detail}", code=ErrorCode.VALIDATION_ERROR)


def _properties(schema: Any, root: Root) -> Json:
    node = resolved(schema, root)
    properties = node.get("properties") if isinstance(node, dict) else None
    return properties if isinstance(properties, dict) else {}


def _binary(node: Any, root: Root, depth: int = 4) -> Json | None:
    """Return the published schema of a field of bytes, or of a list of them; None for any other field."""
    node = resolved(node, root)
    if not isinstance(node, dict) or depth == 0:
        return None
    words = {"description": node["description"]} if isinstance(node.get("description"), str) else {}
    if node.get("contentEncoding") == "base64" or _is_file(node, root):
        return {**_BINARY, **words}
    if node.get("type") == "array" and _binary(node.get("items"), root, 1) is not None:
        return {"type": "array", "items": _BINARY, **words}
    members = node.get("anyOf")
    if isinstance(members, list):
        found = [binary for each in members if (binary := _binary(each, root, depth - 1)) is not None]
        if len(found) == 1 and len(members) == 1 + sum(each == {"type": "null"} for each in members):
            return {**found[0], **words}
    return None

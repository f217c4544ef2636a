"""Encode multipart/form-data (RFC 7578): one part for each field of an object."""

from __future__ import annotations

import mimetypes
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs

from operad_openapi._document.document import Json, PointerError
from operad_openapi._document.mediatypes import FORM, OCTETS, essence, is_json
from operad_openapi._document.schemas import SchemaView
from operad_openapi._request.files import Content, Files, is_binary, without_null
from operad_openapi._request.request import EncodedBody
from operad_openapi._request.text import SerializationError, check_header_value, encode_json, text_of

_MAX_DEPTH = 4


@attrs.frozen(eq=False, repr=False)
class Multipart:
    media_type: str
    schema: Any
    encoding: Json
    view: SchemaView
    files: Files

    def encode(self, value: Any) -> EncodedBody:
        """Return an object as a body with one part per field. Fields that are null are left out.

        Items of an array are parts of the same name, unless the document declares another encoding. Raises
        `SerializationError` if ``value`` is not an object, or a field cannot be encoded.
        """
        if not isinstance(value, Mapping):
            raise SerializationError(f"expected an object of form fields, got {type(value).__name__}")
        boundary = secrets.token_hex(16)
        pieces: list[Content] = []
        for name, item in value.items():
            if item is not None:
                self._field(str(name), item, boundary, pieces)
        pieces.append(Content(f"--{boundary}--\r\n".encode()))
        content_type = f"{self.media_type}; boundary={boundary}"
        if all(piece.data is not None for piece in pieces):
            return EncodedBody(content_type, b"".join([piece.data or b"" for piece in pieces]))
        lengths = [piece.length for piece in pieces]

        async def stream() -> AsyncIterator[bytes]:
            for piece in pieces:
                async for chunk in piece.chunks():
                    yield chunk

        return EncodedBody(
            content_type,
            stream=stream,
            length=None if None in lengths else sum(length or 0 for length in lengths),
            replayable=all(piece.reader is None for piece in pieces),
        )

    def _field(self, name: str, value: Any, boundary: str, pieces: list[Content]) -> None:
        how = self.encoding.get(name)
        how = how if isinstance(how, dict) else {}
        schema = self._property(name, self.schema, 0)
        content_type = str(how.get("contentType", ""))
        items = [value]
        if isinstance(value, (list, tuple)) and not is_json(essence(content_type)):
            collection = how.get("collectionFormat")
            if collection not in (None, "multi"):  # Swagger 2.0
                delimiter = {"ssv": " ", "tsv": "\t", "pipes": "|"}.get(collection, ",")
                items = [delimiter.join(text_of(item) for item in value)]
            else:
                items = [item for item in value if item is not None]
                schema = self._resolved(schema.get("items")) if isinstance(schema, dict) else None
        for item in items:
            part = self._part(name, item, schema, content_type)
            head = _part_head(boundary, name, part, how)
            pieces += [Content(head), part, Content(b"\r\n")]

    def _property(self, name: str, schema: Any, depth: int) -> Any:
        """Return the schema of a field of the form, or of its ``allOf``, ``anyOf`` or ``oneOf``; else ``None``."""
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return None
        properties = schema.get("properties")
        if isinstance(properties, dict) and name in properties:
            return self._resolved(properties[name])
        members = [m for word in ("allOf", "anyOf", "oneOf") for m in _list(schema.get(word))]
        found = (self._property(name, member, depth + 1) for member in members)
        return next((field for field in found if field is not None), None)

    def _resolved(self, schema: Any) -> Any:
        try:
            return without_null(schema, self.view)
        except PointerError:
            return None

    def _part(self, name: str, value: Any, schema: Any, content_type: str) -> Content:
        is_file = is_binary(schema) or not isinstance(value, (str, int, float, Mapping, list, tuple))
        if is_file or (_is_untyped(schema) and _is_binary_type(content_type)):
            content = self.files.content(value)
            chosen = content.content_type or _file_type(content_type, content.filename)
            return attrs.evolve(content, content_type=chosen, filename=content.filename or "file")
        kind = content_type if content_type and "," not in content_type and "*" not in content_type else ""
        if isinstance(value, (Mapping, list, tuple)) or is_json(essence(kind)):
            if kind and not is_json(essence(kind)):
                got = type(value).__name__
                raise SerializationError(f'part "{name:.100}": expected text for the type {kind}, got {got}')
            try:
                return Content(encode_json(value).encode(), content_type=kind or "application/json")
            except (TypeError, ValueError, RecursionError) as error:
                raise SerializationError(f'part "{name:.100}": cannot be converted to JSON: {error}') from error
        return Content(text_of(value).encode(), content_type=kind or "text/plain; charset=utf-8")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_untyped(schema: Any) -> bool:
    return not isinstance(schema, dict) or not schema.keys() & {"type", "properties", "items", "oneOf", "anyOf"}


def _is_binary_type(declared: str) -> bool:
    """Return True if the content type of an encoding is neither text nor JSON: a file in OpenAPI 3.1."""
    kinds = [essence(option) for option in declared.split(",") if option.strip()]
    return bool(kinds) and not any(
        kind.startswith("text/") or kind.endswith(("+xml", "/xml")) or is_json(kind) or kind == FORM
        for kind in kinds
    )


def _file_type(declared: str, filename: str | None) -> str:
    """Return the content type of a file: the declared type if there is exactly one, else a guess from its name."""
    options = [option.strip() for option in declared.split(",") if option.strip()]
    if len(options) == 1 and "*" not in options[0]:
        return options[0]
    guessed = mimetypes.guess_type(filename)[0] if filename else None
    if guessed and (not options or any(_covers(option, guessed) for option in options)):
        return guessed
    return next((option for option in options if "*" not in option), OCTETS)


def _covers(pattern: str, media_type: str) -> bool:
    return pattern in ("*/*", media_type) or (
        pattern.endswith("/*") and media_type.startswith(pattern.removesuffix("*"))
    )


def _part_head(boundary: str, name: str, part: Content, how: Json) -> bytes:
    disposition = f'form-data; name="{_quoted(name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quoted(part.filename)}"'
    lines = [f"--{boundary}", f"Content-Disposition: {disposition}"]
    lines.append(f"Content-Type: {check_header_value(part.content_type or OCTETS)}")
    declared = how.get("headers")
    known = {header.lower() for header in declared} if isinstance(declared, dict) else set()
    for header, value in part.headers.items():
        if header.lower() not in known:
            raise SerializationError(f'part "{name}": expected headers that the document declares, got "{header}"')
        lines.append(f"{header}: {check_header_value(str(value))}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _quoted(text: str) -> str:
    """Return a name as browsers write it (HTML Living Standard, "multipart/form-data encoding")."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")

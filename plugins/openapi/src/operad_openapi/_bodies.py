"""Request bodies: which media type, and the bytes of a value in it.

Sources: OpenAPI 3.0.4, 3.1.1, 3.2.0, "Media Type Object" and "Encoding Object"; RFC 7578 (multipart/form-data).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import mimetypes
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from operad_openapi._document import Json, PointerError
from operad_openapi._normalize import Body
from operad_openapi._schemas import SchemaView
from operad_openapi._serialize import (
    Encoder,
    Parameter,
    SerializationError,
    check_header_value,
    compile_parameter,
    encode_json,
    essence,
    form_encode,
    form_pairs,
    is_json,
    percent_encode,
    text_of,
)

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
OCTETS = "application/octet-stream"
_CHUNK = 256 * 1024

FILE_SCHEMA: Json = {
    "description": "A file: its content as base64, or an object.",
    "anyOf": [
        {"type": "string", "contentEncoding": "base64"},
        {
            "type": "object",
            "properties": {
                "base64": {"type": "string", "description": "The content."},
                "text": {"type": "string", "description": "The content, if it is text; sent as UTF-8."},
                "path": {"type": "string", "description": "A file of the configured upload folder."},
                "filename": {"type": "string"},
                "contentType": {"type": "string"},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        # Bytes, and objects that can be read: there is no JSON type for them, so they are none of JSON's.
        {"not": {"type": ["string", "object", "array", "number", "boolean", "null"]}},
    ],
}


@attrs.frozen(eq=False)
class EncodedBody:
    """A body, ready to be sent."""

    content_type: str
    data: bytes | None = None
    stream: Callable[[], AsyncIterator[bytes]] | None = None
    """Makes the chunks, where ``data`` is ``None``."""
    length: int | None = None
    """Of a stream, in bytes, where it is known."""
    replayable: bool = True
    """Whether it can be sent again."""


@attrs.frozen(eq=False)
class BodyPlan:
    """What the body of an operation is."""

    media_type: str
    """As the document writes it."""
    schema: Any
    """As a request sees it."""
    required: bool
    description: str
    encode: Callable[[Any], EncodedBody]

    @property
    def is_form(self) -> bool:
        """Whether the body consists of named fields that are not JSON."""
        return essence(self.media_type) in (FORM, MULTIPART)

    @property
    def is_mergeable(self) -> bool:
        """Whether the fields of an object can stand among the parameters."""
        return self.is_form or is_json(essence(self.media_type))

    def input_schema(self, view: SchemaView) -> Any:
        """The schema of the key that holds the whole body."""
        media_type = essence(self.media_type)
        if is_json(media_type) or self.is_form:
            return self.schema
        if media_type.startswith("text/") or media_type.endswith(("+xml", "/xml")):
            return {"type": "string", "description": f"The {media_type} text."}
        return FILE_SCHEMA


def is_binary(schema: Any) -> bool:
    """Whether ``schema`` stands for bytes: 3.0's ``format: binary``, or 3.1's media type without an encoding."""
    if not isinstance(schema, dict):
        return False
    if schema.get("format") == "binary":
        return True
    media_type = schema.get("contentMediaType")
    return isinstance(media_type, str) and "contentEncoding" not in schema and not is_json(essence(media_type))


def _rank(media_type: str) -> int:
    kind = essence(media_type)
    if is_json(kind):
        return 0 if kind == "application/json" else 1
    if kind == FORM:
        return 2
    if kind.startswith("multipart/"):
        return 3
    if kind in ("*/*", "application/*"):
        return 4
    if kind.startswith("text/"):
        return 5
    return 6 if kind == OCTETS else 7


def choose_media_type(media_types: list[str], preferred: list[str]) -> str:
    """The media type to send: the first preferred one that is offered, else the easiest to be right about."""
    for wanted in preferred:
        for media_type in media_types:
            if essence(media_type) == essence(wanted):
                return media_type
    return min(media_types, key=_rank)


def plan_body(body: Body, view: SchemaView, preferred: list[str], upload_root: str | None) -> BodyPlan:
    """How values of ``body`` are sent."""
    media_type = choose_media_type(list(body.content), preferred)
    media = body.content[media_type]
    schema = view.schema(media.get("schema", True))
    kind = essence(media_type)
    if kind in ("*/*", "application/*"):
        media_type = kind = "application/json"
    files = _Files(upload_root)
    encoding = media.get("encoding") if isinstance(media.get("encoding"), dict) else {}
    encode: Callable[[Any], EncodedBody]
    if is_json(kind):
        encode = _json_encoder(media_type)
    elif kind == FORM:
        encode = _form_encoder(media_type, encoding or {})
    elif kind.startswith("multipart/"):
        encode = _Multipart(kind, schema, encoding or {}, view, files).encode
    elif kind.startswith("text/") or kind.endswith(("+xml", "/xml")):
        encode = _text_encoder(media_type)
    else:
        encode = files.whole_body(media_type)
    return BodyPlan(media_type, schema, body.required, body.description, encode)


def _json_encoder(media_type: str) -> Callable[[Any], EncodedBody]:
    def encode(value: Any) -> EncodedBody:
        try:
            return EncodedBody(media_type, encode_json(value).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"the body has no JSON form: {error}") from error

    return encode


def _text_encoder(media_type: str) -> Callable[[Any], EncodedBody]:
    charset = charset_of(media_type) or "utf-8"

    def encode(value: Any) -> EncodedBody:
        if isinstance(value, (bytes, bytearray)):
            return EncodedBody(media_type, bytes(value))
        try:
            return EncodedBody(media_type, text_of(value).encode(charset))
        except (UnicodeEncodeError, LookupError) as error:
            raise SerializationError(f"the body cannot be written as {charset}: {error}") from error

    return encode


def charset_of(content_type: str) -> str | None:
    """The ``charset`` parameter of a content type, in lower case."""
    match = re.search(r';\s*charset\s*=\s*"?([^\s";]+)', content_type, re.IGNORECASE)
    return match[1].lower() if match else None


# --- application/x-www-form-urlencoded ---------------------------------------------------------------


def _form_encoder(media_type: str, encoding: Json) -> Callable[[Any], EncodedBody]:
    encoders: dict[str, Encoder] = {}
    for name, how in encoding.items():
        if encoder := _field_encoder(name, how):
            encoders[name] = encoder

    def encode(value: Any) -> EncodedBody:
        if not isinstance(value, Mapping):
            return EncodedBody(media_type, form_encode(value).encode())
        fragments: list[str] = []
        for name, item in value.items():
            if name in encoders:
                text = encoders[name](item)
                fragments += [] if text is None else [text]
            else:
                fragments += form_pairs(percent_encode(str(name)), item)
        return EncodedBody(media_type, "&".join(fragments).encode())

    return encode


def _field_encoder(name: str, how: Any) -> Encoder | None:
    """The encoder of a form field whose ``encoding`` says how; ``None`` for the default."""
    if not isinstance(how, dict):
        return None
    if "collectionFormat" in how:
        return compile_parameter(Parameter(name, "query", collection_format=how["collectionFormat"]))
    if how.keys() & {"style", "explode", "allowReserved"}:
        return compile_parameter(
            Parameter(
                name,
                "query",
                style=how.get("style", "form"),
                explode=how.get("explode") if isinstance(how.get("explode"), bool) else None,
                allow_reserved=how.get("allowReserved") is True,
            )
        )
    if is_json(essence(str(how.get("contentType", "")))):
        return compile_parameter(Parameter(name, "query", content_type="application/json"))
    return None


# --- files -------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Content:
    """The content of a file or part: bytes, or something to be read."""

    data: bytes | None = None
    path: Path | None = None
    reader: Any = None
    filename: str | None = None
    content_type: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def length(self) -> int | None:
        if self.data is not None:
            return len(self.data)
        return None if self.path is None else self.path.stat().st_size

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.data is not None:
            yield self.data
        elif self.path is not None:
            with await asyncio.to_thread(self.path.open, "rb") as file:
                while chunk := await asyncio.to_thread(file.read, _CHUNK):
                    yield chunk
        elif hasattr(self.reader, "__aiter__"):
            async for chunk in self.reader:
                yield chunk
        else:
            while chunk := await _read(self.reader):
                yield chunk


async def _read(reader: Any) -> bytes:
    if inspect.iscoroutinefunction(reader.read):
        chunk = await reader.read(_CHUNK)
    else:
        chunk = await asyncio.to_thread(reader.read, _CHUNK)
    return chunk.encode() if isinstance(chunk, str) else chunk


@attrs.frozen(eq=False)
class _Files:
    upload_root: str | None

    def content(self, value: Any) -> _Content:
        """The content that a file value of the input stands for. Raises `SerializationError`."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _Content(bytes(value))
        if isinstance(value, str):
            return _Content(_decode_base64(value))
        if hasattr(value, "read") or hasattr(value, "__aiter__"):
            name = getattr(value, "name", None)
            return _Content(reader=value, filename=Path(name).name if isinstance(name, str) else None)
        if not isinstance(value, Mapping):
            raise SerializationError(
                "expected a file (bytes, base64 text, an open file, or an object with base64, text or path), "
                f"got {type(value).__name__}"
            )
        sources = [key for key in ("base64", "text", "path", "stream") if value.get(key) is not None]
        if len(sources) != 1:
            raise SerializationError(
                f"expected exactly one of base64, text, path or stream in a file, got {sources or 'none'}"
            )
        source = value[sources[0]]
        common: Json = {"filename": value.get("filename"), "content_type": value.get("contentType")}
        common["headers"] = value.get("headers") or {}
        if sources[0] == "stream":
            return _Content(reader=source, **common)
        if not isinstance(source, str):
            raise SerializationError(f"{sources[0]}: expected text, got {type(source).__name__}")
        if sources[0] == "base64":
            return _Content(_decode_base64(source), **common)
        if sources[0] == "text":
            return _Content(source.encode(), **common)
        path = self._allowed(source)
        return _Content(path=path, **{**common, "filename": common["filename"] or path.name})

    def _allowed(self, name: str) -> Path:
        if self.upload_root is None:
            raise SerializationError(
                "path: files of this machine may not be named; set upload_root to a folder to allow those in it"
            )
        root = Path(self.upload_root).resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise SerializationError(f'path: "{name}" is outside the upload folder')
        if not path.is_file():
            raise SerializationError(f'path: there is no file "{name}" in the upload folder')
        return path

    def whole_body(self, media_type: str) -> Callable[[Any], EncodedBody]:
        """The encoder of a body that is one file."""

        def encode(value: Any) -> EncodedBody:
            content = self.content(value)
            sent_type = media_type
            if "*" in media_type:
                sent_type = content.content_type or OCTETS
            check_header_value(sent_type)
            if content.data is not None:
                return EncodedBody(sent_type, content.data)
            return EncodedBody(
                sent_type,
                stream=content.chunks,
                length=content.length,
                replayable=content.reader is None,
            )

        return encode


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SerializationError(
            f'expected the file\'s content as base64 ({error}); send plain text as {{"text": …}}'
        ) from error


# --- multipart ---------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Multipart:
    media_type: str
    schema: Any
    encoding: Json
    view: SchemaView
    files: _Files

    def encode(self, value: Any) -> EncodedBody:
        """The parts of an object, one per field; items of an array are parts of the same name."""
        if not isinstance(value, Mapping):
            raise SerializationError(f"expected an object of form fields, got {type(value).__name__}")
        boundary = secrets.token_hex(16)
        pieces: list[_Content] = []
        for name, item in value.items():
            if item is not None:
                self._field(str(name), item, boundary, pieces)
        pieces.append(_Content(f"--{boundary}--\r\n".encode()))
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

    def _field(self, name: str, value: Any, boundary: str, pieces: list[_Content]) -> None:
        how = self.encoding.get(name)
        how = how if isinstance(how, dict) else {}
        schema = self._property(name)
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
            part = self._part(item, schema, content_type)
            head = _part_head(boundary, name, part, how)
            pieces += [_Content(head), part, _Content(b"\r\n")]

    def _property(self, name: str) -> Any:
        schema = self._resolved(self.schema)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        return self._resolved(properties.get(name)) if isinstance(properties, dict) else None

    def _resolved(self, schema: Any) -> Any:
        try:
            return self.view.resolve(schema)
        except PointerError:
            return None

    def _part(self, value: Any, schema: Any, content_type: str) -> _Content:
        is_file = is_binary(schema) or not isinstance(value, (str, int, float, Mapping, list, tuple))
        if is_file or (_is_untyped(schema) and _is_binary_type(content_type)):
            content = self.files.content(value)
            chosen = content.content_type or _file_type(content_type, content.filename)
            return attrs.evolve(content, content_type=chosen, filename=content.filename or "file")
        kind = content_type if content_type and "," not in content_type and "*" not in content_type else ""
        if isinstance(value, (Mapping, list, tuple)) or is_json(essence(kind)):
            if kind and not is_json(essence(kind)):
                raise SerializationError(f"a part of {kind}: expected its text, got {type(value).__name__}")
            try:
                return _Content(encode_json(value).encode(), content_type=kind or "application/json")
            except (TypeError, ValueError, RecursionError) as error:
                raise SerializationError(f"a part has no JSON form: {error}") from error
        return _Content(text_of(value).encode(), content_type=kind or "text/plain; charset=utf-8")


def _is_untyped(schema: Any) -> bool:
    return not isinstance(schema, dict) or not schema.keys() & {"type", "properties", "items", "oneOf", "anyOf"}


def _is_binary_type(declared: str) -> bool:
    """Whether the content type of an encoding is neither text nor JSON: how OpenAPI 3.1 says "a file"."""
    kinds = [essence(option) for option in declared.split(",") if option.strip()]
    return bool(kinds) and not any(
        kind.startswith("text/") or kind.endswith(("+xml", "/xml")) or is_json(kind) or kind == FORM
        for kind in kinds
    )


def _file_type(declared: str, filename: str | None) -> str:
    """The content type of a file: what is declared, if that is one type; else what its name says."""
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


def _part_head(boundary: str, name: str, part: _Content, how: Json) -> bytes:
    disposition = f'form-data; name="{_quoted(name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quoted(part.filename)}"'
    lines = [f"--{boundary}", f"Content-Disposition: {disposition}"]
    lines.append(f"Content-Type: {check_header_value(part.content_type or OCTETS)}")
    declared = how.get("headers")
    known = {header.lower() for header in declared} if isinstance(declared, dict) else set()
    for header, value in part.headers.items():
        if header.lower() not in known:
            raise SerializationError(f'the part "{name}" has no header "{header}"')
        lines.append(f"{header}: {check_header_value(str(value))}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _quoted(text: str) -> str:
    """A name in a part's head, as browsers write it (HTML Living Standard, "multipart/form-data encoding")."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")

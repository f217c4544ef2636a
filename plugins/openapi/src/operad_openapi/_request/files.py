"""Files in inputs: bytes, base64, open files, and files of the upload folder."""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import attrs

from operad_openapi._document.document import Json
from operad_openapi._document.mediatypes import OCTETS, essence, is_json
from operad_openapi._document.schemas import SchemaView
from operad_openapi._request.request import EncodedBody
from operad_openapi._request.text import SerializationError, check_header_value

_SOURCES = ("base64", "text", "path", "stream", "content")
_CHUNK = 256 * 1024

FILE_SCHEMA: Json = {
    "description": "A file: its content as base64, text or path, and its name and type if they matter.",
    "type": "object",
    "properties": {
        "base64": {"type": "string", "description": "The content."},
        "text": {"type": "string", "description": "The content, if it is text; sent as UTF-8."},
        "path": {"type": "string", "description": "A file of the configured upload folder."},
        "filename": {"type": "string"},
        "contentType": {"type": "string"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    # Not which ones: Python callers may give ``stream`` or ``content``, and a plain schema is short.
    "minProperties": 1,
}


def is_file_schema(schema: Any) -> bool:
    """Return True if ``schema`` is `FILE_SCHEMA`, with any description."""
    return isinstance(schema, dict) and schema.get("properties") is FILE_SCHEMA["properties"]


def is_binary(schema: Any) -> bool:
    """Return True if a schema describes bytes.

    Such a schema has ``format: binary`` (3.0), or a ``contentMediaType`` other than JSON without
    ``contentEncoding`` (3.1).
    """
    if not isinstance(schema, dict):
        return False
    if schema.get("format") == "binary":
        return True
    media_type = schema.get("contentMediaType")
    return isinstance(media_type, str) and "contentEncoding" not in schema and not is_json(essence(media_type))


def without_null(schema: Any, view: SchemaView) -> Any:
    """Return a schema with its reference resolved. For a union of one schema and null, return that schema.

    Raises `PointerError` if a reference has no target.
    """
    node = view.resolve(schema)
    for word in ("anyOf", "oneOf"):
        members = node.get(word) if isinstance(node, dict) else None
        if isinstance(members, list) and len(members) == 2:
            found = [found for member in members if not _is_null(found := view.resolve(member))]
            if len(found) == 1:
                return found[0]
    return node


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("enum") == [None])


@attrs.frozen(eq=False, repr=False)
class Content:
    """The content of a file or part: bytes, a path, or an object to read from."""

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


@attrs.frozen(eq=False, repr=False)
class Files:
    upload_root: str | None

    def content(self, value: Any) -> Content:
        """Return the content of a file in an input. Raises `SerializationError` if the file cannot be sent."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return Content(bytes(value))
        if isinstance(value, PurePath):  # of Python's own: no JSON can name a file so
            return self._local(Path(value))
        if hasattr(value, "read") or hasattr(value, "__aiter__"):
            name = getattr(value, "name", None)
            return Content(reader=value, filename=Path(name).name if isinstance(name, str) else None)
        if not isinstance(value, Mapping):
            raise SerializationError(
                'expected a file: bytes, a pathlib.Path, an open file, or an object such as {"base64": …} or '
                f'{{"text": …}}, got {type(value).__name__}'
            )
        sources = [key for key in _SOURCES if value.get(key) is not None]
        if len(sources) != 1:
            raise SerializationError(
                f"expected exactly one of base64, text and path in a file, got {', '.join(sources) or 'none'}"
            )
        source = value[sources[0]]
        common: Json = {"filename": value.get("filename"), "content_type": value.get("contentType")}
        common["headers"] = value.get("headers") or {}
        if sources[0] in ("stream", "content"):
            return self._of_python(source, common)
        if not isinstance(source, str):
            raise SerializationError(f"{sources[0]}: expected text, got {type(source).__name__}")
        if sources[0] == "base64":
            return Content(decode_base64(source), **common)
        if sources[0] == "text":
            return Content(source.encode(), **common)
        return self._local(self._allowed(source), **common)

    def _of_python(self, source: Any, common: Json) -> Content:
        """Return the content of a Python value: bytes, text, a path, or an object to read from."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            return Content(bytes(source), **common)
        if isinstance(source, str):
            return Content(source.encode(), **common)
        if isinstance(source, PurePath):
            return self._local(Path(source), **common)
        if hasattr(source, "read") or hasattr(source, "__aiter__"):
            name = getattr(source, "name", None)
            if common.get("filename") is None and isinstance(name, str):
                common["filename"] = Path(name).name
            return Content(reader=source, **common)
        raise SerializationError(
            f"expected bytes, text, a path or an open file as the content of a file, got {type(source).__name__}"
        )

    @staticmethod
    def _local(path: Path, **common: Any) -> Content:
        if not path.is_file():
            raise SerializationError(f'expected an existing file, got "{path.name}"')
        return Content(path=path, **{**common, "filename": common.get("filename") or path.name})

    def _allowed(self, name: str) -> Path:
        if self.upload_root is None:
            raise SerializationError(
                "path: files cannot be sent by path; set upload_root to a folder to allow the files in it"
            )
        root = Path(self.upload_root).resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise SerializationError(f'path: expected a file in the upload folder, got "{name}" outside of it')
        if not path.is_file():
            raise SerializationError(f'path: file "{name}" does not exist in the upload folder')
        return path

    def whole_body(self, media_type: str) -> Callable[[Any], EncodedBody]:
        """Return the encoder of a body that is one file. It sends the type of the file for a type with ``*``."""

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


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SerializationError(
            f'expected the file\'s content as base64 ({error}); send plain text as {{"text": …}}'
        ) from error

"""Read streams of JSON values: JSON lines, JSON text sequences, and JSON values one after the other."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from operad import CallError, ErrorCode
from operad_openapi._document.mediatypes import LINE_TYPES
from operad_openapi._http.reading import chunks_of
from operad_openapi._http.responses import decode_json

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_OUTSIDE = re.compile(rb'["{}\[\]\n]')
_INSIDE = re.compile(rb'["\\]')


async def json_records(response: ClientResponse, kind: str, limit: int, where: str) -> AsyncGenerator[Any, None]:
    """Yield the values of a stream of JSON as they arrive.

    Args:
        response: the response.
        kind: its media type. JSON lines and JSON text sequences (RFC 7464) are split at their separators; any
            other type is read as JSON values one after the other, with or without line breaks between them.
        limit: the maximum size of a value in bytes (limit ``event_bytes``).
        where: the request, for messages.

    Raises:
        CallError: the connection is lost, or a value is too large or not JSON.
    """
    records = _cutter(kind, limit, where)
    async with aclosing(chunks_of(response)) as chunks:
        async for chunk in chunks:
            for record in records.feed(chunk):
                yield decode_json(record, kind, where)
    for record in records.close():
        yield decode_json(record, kind, where)


def all_records(body: bytes, kind: str, where: str) -> list[Any]:
    """Return the values in a whole body of JSON lines or of a JSON text sequence.

    Raises `CallError` if a value is not JSON; ``where`` is the request, for the message.
    """
    records = _cutter(kind, len(body), where)
    found = [decode_json(record, kind, where) for record in records.feed(body)]
    return found + [decode_json(record, kind, where) for record in records.close()]


def _cutter(kind: str, limit: int, where: str) -> _Records:
    if kind in LINE_TYPES:
        return _Records(b"\n", limit, where)
    return _Records(b"\x1e", limit, where) if kind.endswith("json-seq") else _Values(b"", limit, where)


class _Records:
    """A splitter of a stream at a separator."""

    def __init__(self, separator: bytes, limit: int, where: str) -> None:
        self._separator = separator
        self._limit = limit
        self._where = where
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        first, *rest = chunk.split(self._separator)
        self._keep(first)
        for piece in rest:
            yield from self.close()
            self._keep(piece)
        if self._separator == b"\x1e" and chunk.endswith(b"\n"):
            # A record ends where the next one begins. Do not wait for that if this one is a whole value already.
            record = b"".join(self._pieces)
            try:
                msgspec.json.decode(record)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return
            yield from self.close()

    def close(self) -> Iterator[bytes]:
        record = b"".join(self._pieces).strip()
        self._pieces.clear()
        self._size = 0
        if record:
            yield record

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            message = f"{self._where}: a record is larger than {self._limit} bytes (limit event_bytes)"
            raise CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {"limit": "event_bytes", "bytes": self._limit})
        if piece:
            self._pieces.append(piece)


class _Values(_Records):
    """A splitter of a stream after each object or array, and at line breaks outside of them.

    It only counts brackets outside of strings; the decoder of JSON checks the rest. Each byte is read once.
    """

    _depth = 0
    _in_string = False
    _is_escaped = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        start, at = 0, int(self._is_escaped)
        self._is_escaped = False
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(chunk, at):
            mark, at = found[0], found.end()
            if mark == b"\\":
                self._is_escaped = at == len(chunk)  # what it escapes comes with the next chunk
                at += 1
            elif mark == b'"':
                self._in_string = not self._in_string
            elif mark in b"{[":
                self._depth += 1
            else:
                self._depth = max(self._depth - (mark != b"\n"), 0)
                if self._depth == 0:
                    self._keep(chunk[start:at])
                    start = at
                    yield from self.close()
        self._keep(chunk[start:])

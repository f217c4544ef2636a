"""Server-sent events (WHATWG HTML, section 9.2), each below a limit: one that is larger fails alone."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from operad_mcp.wire.messages import EDGE


@attrs.frozen
class Event:
    """One event."""

    kind: str
    data: bytes
    """The data; of one above the limit only its beginning and end."""
    size: int
    """Bytes of the data."""


class EventDecoder:
    """Bytes into events.

    Args:
        limit: bytes of an event's data that are kept; a larger one comes with its `Event.size` and its edges.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._length = 0
        self._kind = b""
        self._data: list[bytes] = []
        self._size = 0
        self._field: bytes | None = None
        self._first = True
        self.last_id: str | None = None
        """The id of the last event that had one, to resume after."""
        self.retry: float | None = None
        """Seconds that the server asks to wait before a new connection."""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are complete with these bytes."""
        held = bool(self._pieces) and self._pieces[-1].endswith(b"\r")
        self._pieces.append(piece)
        self._length += len(piece)
        if not held and b"\n" not in piece and b"\r" not in piece:
            # A line above the limit is taken in parts: nobody needs its middle.
            if self._length > self._limit + EDGE:
                self._part(b"".join(self._pieces))
                self._pieces, self._length = [], 0
            return
        text = b"".join(self._pieces)
        start, carriages = 0, b"\r" in text
        while (found := _line_end(text, start, carriages))[0] >= 0:
            event = self._take(text[start : found[0]])
            start = found[1]
            if event is not None:
                yield event
        rest = text[start:]
        self._pieces, self._length = [rest] if rest else [], len(rest)

    def _part(self, part: bytes) -> None:
        if self._field is None:
            name, _, value = part.partition(b":")
            self._field, part = name, value.removeprefix(b" ")
        if self._field == b"data":
            self._collect(part)

    def _take(self, line: bytes) -> Event | None:
        if self._field is not None:  # the end of a line that was taken in parts
            if self._field == b"data":
                self._collect(line)
            self._field = None
            return None
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if self._data:
                self._collect(b"\n")
            self._collect(value)
            if not self._data:
                self._data.append(b"")
        elif name == b"event":
            self._kind = value
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace") or None
        elif name == b"retry" and value.isdigit():
            self.retry = min(int(value[:12]) / 1000, 3600.0)
        return None

    def _collect(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._data.append(piece)
            return
        whole = b"".join(self._data) + piece
        self._data = [whole[:EDGE], whole[-EDGE:]]

    def _dispatch(self) -> Event | None:
        data, size, kind = self._data, self._size, self._kind
        self._data, self._size, self._kind = [], 0, b""
        if not data:
            return None
        return Event(kind.decode("utf-8", "replace") or "message", b"".join(data), size)


def _line_end(text: bytes, start: int, carriages: bool) -> tuple[int, int]:
    """Where a line ends, and where the next begins; -1 if it does not end here."""
    newline = text.find(b"\n", start)
    carriage = text.find(b"\r", start, newline if newline >= 0 else len(text)) if carriages else -1
    if carriage < 0:
        return newline, newline + 1
    if carriage + 1 == len(text):
        return -1, start  # a line feed may follow
    return carriage, carriage + (2 if text[carriage + 1 : carriage + 2] == b"\n" else 1)

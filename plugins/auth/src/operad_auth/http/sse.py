"""An incremental parser of server-sent events that follows the WHATWG standard exactly.

Source: HTML Living Standard, section 9.2 "Server-sent events" (parsing and interpreting an event stream).
"""

from __future__ import annotations

import codecs

import msgspec

_MAX_RETRY_DIGITS = 15


class SSEEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    data: str
    """The ``data`` lines, joined with LF."""
    event: str = "message"
    """The event type."""
    id: str = ""
    """The last event id of the stream when the event was dispatched."""
    retry: int | None = None
    """The reconnection time in ms, or ``None`` if the event does not set it."""


class SSEEventTooLargeError(ValueError):
    """Raised if an event is larger than ``max_event_size`` of the parser."""


class SSEParser:
    """A parser of one stream: `feed` takes bytes as they arrive and returns the completed events.

    Malformed lines and unknown fields are ignored, as the standard requires. An event at the end of the stream
    without a blank line after it is never dispatched.

    Args:
        max_event_size: the maximum size of an event, in characters of input.

    Attributes:
        last_event_id: the value that a client sends as ``Last-Event-ID`` when it reconnects.
        retry: the reconnection time in ms that the server requested last; ``None`` if it requested none.
    """

    __slots__ = (
        "_bytes",
        "_data",
        "_event",
        "_id",
        "_limit",
        "_retry",
        "_size",
        "_skip_lf",
        "_started",
        "_tail",
        "_tail_size",
        "last_event_id",
        "retry",
    )

    def __init__(self, *, max_event_size: int = 4 * 1024 * 1024) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        self._limit = max_event_size
        self._started = False  # the first character, which may be a BOM, has been seen
        self._bytes = b""  # the beginning of a UTF-8 sequence
        self._skip_lf = False  # the last chunk ended with CR: an LF that follows belongs to it
        self._tail: list[str] = []  # the pieces of an unfinished line
        self._tail_size = 0
        self._data: list[str] = []
        self._size = 0
        self._event = ""
        self._id = ""
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        """Return the events that ``chunk`` completes, in order.

        Raises:
            SSEEventTooLargeError: an event exceeds ``max_event_size``; the parser cannot be used any more.
        """
        if self._bytes:
            chunk = self._bytes + chunk
        text, used = codecs.utf_8_decode(chunk, "replace", False)
        self._bytes = chunk[used:] if used != len(chunk) else b""
        if not self._started and text:
            self._started = True
            text = text.removeprefix("\ufeff")
        if self._skip_lf and text:
            self._skip_lf = False
            text = text.removeprefix("\n")
        if "\r" in text:
            self._skip_lf = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        tail = lines.pop()
        if not lines:
            self._keep(tail)
            return []
        if self._tail:  # an unfinished line has no LF in it, so it can be put in front after the split
            lines[0] = "".join((*self._tail, lines[0]))
            self._tail.clear()
            self._tail_size = 0
        events = self._lines(lines)
        self._keep(tail)
        return events

    def _keep(self, text: str) -> None:
        """Keep the beginning of a line that is not complete."""
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
            if self._size + self._tail_size > self._limit:
                raise self._too_large()

    def _lines(self, lines: list[str]) -> list[SSEEvent]:
        """Return the events that whole ``lines`` complete.

        The state is in local variables, because this loop runs for every line.
        """
        events: list[SSEEvent] = []
        data, event, size, limit = self._data, self._event, self._size, self._limit
        for line in lines:
            if line.startswith("data: "):
                data.append(line[6:])
                size += len(line)
                if size > limit:
                    raise self._too_large()
            elif not line:
                self.last_event_id = self._id
                if data:
                    text = data[0] if len(data) == 1 else "\n".join(data)
                    events.append(SSEEvent(text, event or "message", self._id, self._retry))
                    data.clear()
                    size = 0
                self._retry = None
                event = ""
            elif line.startswith("event: "):
                event = line[7:]
            elif line.startswith("id: "):
                self._set("id", line[4:])
            else:
                name, _, value = line.partition(":")
                if value.startswith(" "):  # one space after the colon is not part of the value
                    value = value[1:]
                if name == "data":
                    data.append(value)
                    size += len(line)
                    if size > limit:
                        raise self._too_large()
                elif name == "event":
                    event = value
                else:
                    self._set(name, value)
        self._event, self._size = event, size
        return events

    def _set(self, name: str, value: str) -> None:
        """Apply the field ``id`` or ``retry``; ignore unknown fields."""
        if name == "id":
            if "\0" not in value:
                self._id = value
        elif name == "retry" and _is_digits(value):
            self._retry = self.retry = int(value)

    def _too_large(self) -> SSEEventTooLargeError:
        return SSEEventTooLargeError(
            f"an event of the stream is larger than {self._limit} characters (limit max_event_size)"
        )


def _is_digits(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS

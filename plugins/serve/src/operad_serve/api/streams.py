"""Subscriptions as server-sent events (WHATWG HTML, 9.2).

An item is an event without a type whose data are JSON: the item's data, or the whole envelope. The last event is
``operad.end`` with ``{count}``, or ``operad.error`` with the problem; without it, the stream was interrupted. Ids
count the items, or are the ids of an upstream's events. ``Last-Event-ID`` reaches the handler as
``context.metadata["lastEventId"]``; the handler decides whether to resume.
"""

from __future__ import annotations

import asyncio
from typing import Any

from operad import CallError, ErrorCode, ResponseEnvelope, Subscription
from operad.wire import to_json
from operad_serve.api.responses import check_size, envelope_wire, meta_headers
from operad_serve.asgi import SECURITY, Exchange

STREAM_TYPE = b"text/event-stream"
_RESERVED = "operad."
MAX_EVENT_ID = 1_024
"""The longest ``Last-Event-ID`` that is accepted, and the longest id of an upstream's event that is forwarded."""


def last_event_id(exchange: Exchange) -> str | None:
    """Return the client's ``Last-Event-ID``; None if it is missing, too long or not printable."""
    raw = exchange.headers.get(b"last-event-id")
    if raw is None or len(raw) > MAX_EVENT_ID:
        return None
    text = raw.decode("utf-8", "replace")
    return text if text and text.isprintable() else None


class EventStream:
    """A subscription that is written to one client as server-sent events.

    Args:
        exchange: the request.
        envelopes: whether to send whole envelopes.
        heartbeat: seconds without an item after which a comment is sent.
        item_bytes: the largest item, in bytes.
        expose_upstream: see `OpenAPIServerConfig`.
        ending: an event that is set when the server ends its streams.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        envelopes: bool,
        heartbeat: float,
        item_bytes: int,
        expose_upstream: bool,
        ending: asyncio.Event,
    ) -> None:
        self._exchange = exchange
        self._envelopes = envelopes
        self._heartbeat = heartbeat
        self._item_bytes = item_bytes
        self._expose_upstream = expose_upstream
        self._ending = ending
        self.count = 0
        self._written = False

    async def run(self, items: Subscription) -> None:
        """Write all items and the final event.

        The response begins with the first item or heartbeat. After an earlier error, no response has begun.

        Raises:
            CallError: the subscription raised it; ``PAYLOAD_TOO_LARGE`` if an item exceeds ``item_bytes``;
                ``UNAVAILABLE`` if the server ends its streams.
            ClientGoneError: the client did not read an item within the write timeout of the exchange.
        """
        guard = asyncio.get_running_loop().create_task(self._guard(items))
        try:
            async for envelope in items:
                await self._begin(envelope)
                self.count += 1
                await self._write(self._event(envelope))
                # A handler that never waits would block the loop, and the client could not leave.
                await asyncio.sleep(0)
        finally:
            guard.cancel()
            await asyncio.wait([guard])
            await items.aclose()
        if self._ending.is_set():
            raise CallError(ErrorCode.UNAVAILABLE, "the server is stopping; subscribe again")
        await self._begin(None)
        await self._write(_named("operad.end", to_json({"count": self.count})), more=False)

    async def _guard(self, items: Subscription) -> None:
        """Keep a silent stream open. End it when the server ends its streams."""
        while True:
            self._written = False
            try:
                async with asyncio.timeout(self._heartbeat):
                    await self._ending.wait()
                break
            except TimeoutError:
                if not self._written:
                    await self._begin(None)
                    await self._exchange.write(b": still here\n\n")
        await items.aclose()

    async def fail(self, problem: bytes) -> None:
        """Send a problem, as JSON, as the last event of a stream that has begun."""
        await self._write(_named("operad.error", problem), more=False)

    async def _begin(self, first: ResponseEnvelope[Any] | None) -> None:
        if self._exchange.started:
            return
        headers = [*SECURITY, (b"content-type", STREAM_TYPE), (b"x-accel-buffering", b"no")]
        if first is not None:
            headers += meta_headers(first)[:1]
        await self._exchange.start(200, headers)

    def _event(self, envelope: ResponseEnvelope[Any]) -> bytes:
        data = to_json(envelope_wire(envelope, self._expose_upstream) if self._envelopes else _json_data(envelope))
        check_size(data, self._item_bytes, "item")
        lines = [b"id: " + self._id_of(envelope)]
        kind = getattr(envelope.meta, "event_type", None)
        # An upstream must not send the events of this server.
        if isinstance(kind, str) and kind not in ("", "message") and _is_line(kind) and kind[:7] != _RESERVED:
            lines.append(b"event: " + kind.encode())
        lines.append(b"data: " + data)
        return b"\n".join(lines) + b"\n\n"

    def _id_of(self, envelope: ResponseEnvelope[Any]) -> bytes:
        given = getattr(envelope.meta, "last_event_id", None)
        if isinstance(given, str) and given and len(given) <= MAX_EVENT_ID and _is_line(given):
            return given.encode("utf-8", "replace")
        return str(self.count).encode()

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        self._written = True
        await self._exchange.write_in_time(data, more=more)


def _json_data(envelope: ResponseEnvelope[Any]) -> Any:
    data = envelope.data
    return envelope.to_wire()["data"] if isinstance(data, (bytes, bytearray, memoryview)) else data


def _is_line(text: str) -> bool:
    return not any(character in text for character in "\r\n\0")


def _named(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"

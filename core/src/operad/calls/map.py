"""The calling side of the call protocol: the call map."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from operad import protocol
from operad.calls.byhand import Incoming
from operad.calls.questions import Asked, Questions
from operad.calls.single import Single, SingleCalls
from operad.calls.stream import Stream, Streams
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.plugins.discovery import load_plugins
from operad.transports import Delivery, Event, Registration, Transport

logger = logging.getLogger("operad.calls")

_CLOSING = 5.0
"""Seconds that closing waits for aborts to leave."""


class PendingRequestMap(SingleCalls, Streams, Questions):
    """The calling side: calls operations wherever the transport finds them.

    Use it as an async context manager. Every call ends exactly once, in an envelope or a `CallError`, at its
    deadline at the latest.

    Args:
        transport: how to reach those who serve; the map opens a link of its own on it.
        plugins: whose envelope kinds answers may have. Default: the installed ones, loaded when the map opens. An
            answer of any other kind has an `OpaqueMeta`.
        timeout: seconds that a call may take if it does not say. Streams have no such bound, they have a lease.
        max_pending: how many calls may wait at once; more fail with ``OVERLOADED``.
        credit: how many items of a stream may be on their way to a consumer.
        lease: seconds that a stream lives without a sign of life from the other side.
        on_request: takes requests that are served by hand (see `serve`); most applications use a `CallHandler`.
    """

    @property
    def pending(self) -> int:
        """How many calls and streams are under way."""
        return len(self._pending)

    @property
    def transport(self) -> Transport:
        """The transport that was given."""
        return self._transport

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect. Raises `TransportError`."""
        if self._link is not None:
            raise RuntimeError("the call map is open already")
        self._loop = asyncio.get_running_loop()
        if self._kinds is None:
            self._kinds = load_plugins().envelope_kinds
        self._link = await self._transport.open(self._on_event, self._on_link)

    async def aclose(self) -> None:
        """End everything that is under way with ``ABORTED``, tell the other side, and disconnect; idempotent."""
        link, self._link = self._link, None
        if link is None:
            return
        for request_id, pending in list(self._pending.items()):
            self._abort(request_id, pending, link)
            pending.fail(CallError(ErrorCode.ABORTED, "the call map was closed"))
        self._pending.clear()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=_CLOSING)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await link.close()

    # --- serving by hand -------------------------------------------------------------------------

    async def serve(self, operation_id: str, group: str = "operad") -> Registration:
        """Take requests for an operation; ``on_request`` gets them. Raises `TransportError`.

        Each is answered by `respond`, `emit_error` or `abort`; a subscription by any number of `respond`, which
        wait for the consumer's credit, and `complete`.
        """
        if self._incoming is None:
            raise RuntimeError("serving by hand needs PendingRequestMap(…, on_request=…)")
        return await self._open_link().register(f"op:{operation_id}", group)

    async def respond(self, request_id: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Answer a request of this link, or send an item of its stream.

        Raises:
            TypeError: what is given is no envelope.
            LookupError: no such request is under way on this link.
            CallError: the envelope cannot be sent; the caller has been told.
        """
        await self._by_hand(request_id).respond(self._open_link(), request_id, envelope)

    async def complete(self, request_id: str) -> None:
        """End the stream of a request of this link. Raises `LookupError`."""
        await self._by_hand(request_id).complete(self._open_link(), request_id)

    async def emit_error(self, request_id: str, code: str, message: str = "", details: Any = None) -> None:
        """End a request of this link with an error; ``details`` is any JSON value. Raises `LookupError`."""
        await self._by_hand(request_id).emit_error(self._open_link(), request_id, code, message, details)

    async def abort(self, request_id: str) -> None:
        """End a call that this map made, or a request that this link has, on both sides. Raises `LookupError`."""
        link = self._open_link()
        pending = self._pending.pop(request_id, None)
        if pending is None:
            await self._by_hand(request_id).abort(link, request_id)
            return
        self._abort(request_id, pending, link)
        pending.fail(CallError(ErrorCode.ABORTED, f'"{pending.operation_id}" was aborted'))

    def _by_hand(self, request_id: str) -> Incoming:
        if self._incoming is None or request_id not in self._incoming:
            raise LookupError(f'no request "{request_id}" of this link is under way')
        return self._incoming

    # --- what comes in ---------------------------------------------------------------------------

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        payload, type_ = event["payload"], event["type"]
        request_id = payload.get("requestId")
        pending = self._pending.get(request_id) if type(request_id) is str else None
        if pending is None:
            if self._incoming is not None and self._incoming.on_event(event, delivery):
                return
            self._stray(type_, payload, delivery)
            return
        assert type(request_id) is str
        if type_ == protocol.STORED:
            # Only of a call, which has a deadline: a stream would wait for ever.
            pending.stored = isinstance(pending, Single) and self._transport.capabilities.stores
        elif isinstance(pending, Asked):
            self._on_asked(pending, type_, payload)
        elif delivery.peer is not None and pending.target is not None and delivery.peer != pending.target:
            logger.warning("dropped a %s for a request that %s does not serve", type_, delivery.peer)
        elif isinstance(pending, Stream):
            if pending.heard is not None:
                pending.heard = time.monotonic()
            if type_ == protocol.RESPONDED:
                self._on_item(request_id, pending, payload)
            else:
                self._on_stream(request_id, pending, type_, payload)
        elif isinstance(pending, Single):
            self._on_answer(request_id, pending, type_, payload)

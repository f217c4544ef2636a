"""The subscriptions of a call map: items in order, credit, and the lease that keeps a stream alive."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from operad import protocol
from operad.access import Identity
from operad.calls.requests import Pending, lost, request, timed_out, told
from operad.calls.upkeep import Upkeep
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.subscriptions import Subscription
from operad.transports import Link, TransportError

logger = logging.getLogger("operad.calls")

_MIN_BUFFER = 1_024
"""How many items of a peer that ignores credit are kept before the stream fails."""


class Stream(Pending):
    """A subscription: items, then an end."""

    __slots__ = (
        "bound",
        "end",
        "heard",
        "items",
        "lone",
        "next_seq",
        "taken",
        "top_up",
        "unnumbered",
        "waiter",
        "window",
    )

    def __init__(self, operation_id: str, window: int) -> None:
        super().__init__(operation_id)
        self.window = window
        self.bound = max(2 * window, _MIN_BUFFER)
        self.items: deque[ResponseEnvelope[Any]] = deque()
        self.next_seq = 0
        self.taken = 0
        self.top_up = max(1, window // 2)
        """When ``taken`` reaches it, credit is renewed."""
        self.end: CallError | bool | None = None
        """``True``: complete."""
        self.waiter: asyncio.Future[None] | None = None
        self.heard: float | None = None
        """When the handler last gave a sign of life (`time.monotonic`); ``None``: it never promised any."""
        self.unnumbered = False
        """Whether an item without a number came: from a peer that knows only the original events."""
        self.lone: float | None = None
        """When such an item came, if it is the only one: it may be all that there will be."""

    @property
    def total(self) -> int:
        return self.taken + self.window

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def finish(self, end: CallError | bool) -> None:
        if self.end is None:
            self.end = end
            self.wake()

    def notice(self, reply_to: str) -> None:
        self.target = reply_to
        self.heard = time.monotonic()

    def fail(self, error: CallError) -> None:
        self.finish(error)


class Streams(Upkeep):
    """Subscriptions, and what comes in for them."""

    def subscribe(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        traceparent: str | None = None,
        credit: int | None = None,
    ) -> Subscription:
        """Subscribe to an operation; a query or mutation yields its one envelope. Sent when first read.

        Arguments as for `call`, but ``timeout`` bounds the wait for each item, and without one a stream may be
        silent for as long as its handler lives. ``credit`` is how many items may be on their way.
        """
        window = self._credit if credit is None else credit
        if window < 1:
            raise ValueError(f"credit: expected at least 1, got {credit}")
        return Subscription(
            self._items(operation_id, input, timeout, deadline, identity, parent_request_id, traceparent, window)
        )

    async def _items(
        self,
        operation_id: str,
        input: Any,
        timeout: float | None,
        deadline: float | None,
        identity: Identity | None,
        parent_request_id: str | None,
        traceparent: str | None,
        window: int,
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        link = self._admit()
        request_id = self._new_id()
        event = request(request_id, operation_id, input, identity, parent_request_id, traceparent, link.inbox)
        event["payload"]["credit"] = window
        if deadline is not None:
            event["payload"]["deadline"] = math.ceil(deadline)
            event["payload"]["timeoutMs"] = max(0, math.ceil(deadline - time.time() * 1000))
        stream = Stream(operation_id, window)
        self._pending[request_id] = stream
        self._start_beat()
        items = stream.items
        try:
            try:
                async with asyncio.timeout(self._timeout):
                    target = await link.send(f"op:{operation_id}", event)
            except TimeoutError:  # the transport does not take it
                raise timed_out(operation_id, (time.time() + self._timeout) * 1000) from None
            except TransportError as error:
                self._pending.pop(request_id, None)
                raise self._not_sent(error, operation_id) from error
            except CallError:  # it has no wire form: nothing was sent
                self._pending.pop(request_id, None)
                raise
            if target is not None:
                stream.target = target
            while True:
                while not items:
                    if stream.end is not None:
                        if stream.end is True:
                            return
                        assert isinstance(stream.end, CallError)
                        raise stream.end
                    await self._wait(stream, timeout, deadline)
                envelope = items.popleft()
                stream.taken = taken = stream.taken + 1
                if taken >= stream.top_up and stream.end is None:
                    stream.top_up = taken + max(1, window // 2)
                    await self._grant(request_id, stream, link)
                yield envelope
        finally:
            if self._pending.pop(request_id, None) is not None:
                self._abort(request_id, stream, link)

    async def _wait(self, stream: Stream, timeout: float | None, deadline: float | None) -> None:
        """Wait until something happens on the stream. Raises `CallError` ``TIMEOUT``."""
        limit = math.inf if deadline is None else deadline
        now = time.time()
        if timeout is not None:
            limit = min(limit, (now + timeout) * 1000)
        stream.waiter = self._loop.create_future()
        timer = None if limit == math.inf else self._loop.call_later(limit / 1000 - now, stream.wake)
        try:
            await stream.waiter
        finally:
            stream.waiter = None
            if timer is not None:
                timer.cancel()
        if not stream.items and stream.end is None and time.time() * 1000 >= limit - 1:
            raise timed_out(stream.operation_id, limit)

    def _on_stream(self, request_id: str, stream: Stream, type_: str, payload: dict[str, Any]) -> None:
        if type_ == protocol.COMPLETED:
            count = payload.get("count")
            lost = type(count) is int and count > stream.next_seq > 0
            stream.finish(_data_loss(stream, count) if lost else True)
        elif type_ == protocol.ABORTED:  # how a peer that knows only the original events ends a stream
            stream.finish(True)
        elif type_ == protocol.ERROR:
            stream.finish(told(payload))
        else:
            self._on_notice(stream, type_, payload)
            return
        del self._pending[request_id]

    def _on_item(self, request_id: str, stream: Stream, payload: dict[str, Any]) -> None:
        if stream.target is None and type(reply_to := payload.get("replyTo")) is str:
            stream.target = reply_to
        seq = payload.get("seq")
        if type(seq) is int:
            if seq < stream.next_seq:  # delivered twice
                return
            if seq > stream.next_seq:
                self._break(request_id, stream, _data_loss(stream, seq))
                return
            stream.next_seq += 1
        else:
            stream.lone = None if stream.unnumbered else time.monotonic()
            stream.unnumbered = True
        if len(stream.items) >= stream.bound:
            message = f'"{stream.operation_id}" sent {stream.bound} items that were not read'
            error = CallError(ErrorCode.SLOW_CONSUMER, message, {"limit": stream.bound})
            self._break(request_id, stream, error)
            return
        try:
            stream.items.append(self._envelope(payload.get("output")))
        except CallError as error:
            self._break(request_id, stream, error)
            return
        waiter = stream.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _break(self, request_id: str, stream: Stream, end: CallError | bool) -> None:
        """End a stream from this side."""
        del self._pending[request_id]
        stream.finish(end)
        if self._link is not None:
            self._abort(request_id, stream, self._link)

    async def _grant(self, request_id: str, stream: Stream, link: Link) -> None:
        if stream.target is None:
            return
        payload = {"requestId": request_id, "total": stream.total, "replyTo": link.inbox}
        try:
            await link.send(stream.target, {"type": protocol.CREDIT, "id": "", "payload": payload})
        except TransportError as error:  # repeated by the heartbeat; a lost link ends the stream
            logger.debug("credit for %s was not sent: %s", request_id, error)

    # --- the lease of streams ---------------------------------------------------------------------

    def _start_beat(self) -> None:
        if self._beat is None:
            self._beat = self._loop.call_later(self._lease / 3, self._on_beat)

    def _on_beat(self) -> None:
        """Renew the credit of all streams, which keeps them alive, and end those that nothing else will end."""
        self._beat = None
        streams = [(key, item) for key, item in self._pending.items() if isinstance(item, Stream)]
        if not streams or self._link is None:
            return
        silent = time.monotonic() - self._lease
        for request_id, stream in streams:
            if stream.heard is not None and stream.heard < silent:
                message = f"its handler gave no sign of life for {self._lease:g} s"
                self._break(request_id, stream, lost(stream.operation_id, message))
            elif stream.lone is not None and stream.lone < silent:
                # A peer that knows only the original events does not number what it sends, and the one answer of
                # a query or mutation is its end. A stream of such a peer looks the same until its second item.
                self._break(request_id, stream, True)
        if not self._beating:
            self._beating = True
            self._spawn(self._renew(streams, self._link))
        self._start_beat()

    async def _renew(self, streams: list[tuple[str, Stream]], link: Link) -> None:
        try:
            for request_id, stream in streams:
                if stream.end is None:
                    await self._grant(request_id, stream, link)
        finally:
            self._beating = False


def _data_loss(stream: Stream, seq: object) -> CallError:
    message = f'"{stream.operation_id}": item {stream.next_seq} of the stream was lost (got {seq})'
    return CallError(ErrorCode.DATA_LOSS, message, {"expected": stream.next_seq, "got": seq})

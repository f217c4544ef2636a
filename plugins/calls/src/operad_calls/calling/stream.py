"""The subscriptions of a call map: items in order, credit, and the lease that keeps a stream alive."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import Link, TransportError
from operad_calls import protocol
from operad_calls.calling.pending import PendingRequests
from operad_calls.requests import CallRequest, Pending, check_loop, lost_error, overdue, timeout_error, wake, woken

_MIN_BUFFER = 1_024
"""The least number of items of a peer that ignores credit that are kept before the stream fails."""


class Stream(Pending):
    """A subscription in flight: items, then an end.

    Credit limits the items (``window``) and, except within one process, the bytes (``window_bytes``) that
    were sent and that the consumer has not read.
    """

    def __init__(self, requests: PendingRequests, operation_id: str, request_id: str, window: int) -> None:
        super().__init__(operation_id, request_id)
        self.requests = requests
        self.window = window
        self.bound = max(2 * window, _MIN_BUFFER)
        self.items: deque[ResponseEnvelope[Any]] = deque()
        self.next_seq = 0
        self.taken = 0
        self.top_up = max(1, window // 2)
        """The value of ``taken`` at which credit is renewed."""
        self.end: CallError | Literal[True] | None = None
        """The error that ended the stream, ``True`` for success, or ``None`` while it runs."""
        self.waiter: asyncio.Future[None] | None = None
        self.heard: float | None = None
        """When the handler last sent something, by `time.monotonic`; ``None`` if it sends no signs of life."""
        self.sent: float | None = None
        """When the request was sent, by `time.monotonic`, if the transport does not detect lost peers."""
        self.unnumbered = False
        """Whether an item without a number arrived, from a peer that knows only the original events."""
        self.lone: float | None = None
        """When an item without a number arrived, by `time.monotonic`, if it is the only item."""
        # Bytes as the handler counts them; see `operad_calls.calling.flow`.
        self.window_bytes = 0
        self.arrived = 0
        self.read = 0
        self.sizes: deque[int] = deque()
        """The total number of bytes up to the end of each unread item."""

    @property
    def total(self) -> int:
        """The total number of items that may arrive."""
        return self.taken + self.window

    @property
    def is_known(self) -> bool:
        """Whether a handler has the request, or the transport would report that none has it."""
        return self.sent is None or self.heard is not None or self.next_seq > 0 or self.unnumbered

    def is_silent(self, since: float) -> bool:
        """Return True if the handler must send signs of life and has sent none since a `time.monotonic`."""
        if self.heard is not None:
            return self.heard < since
        return self.sent is not None and self.sent < since and not self.is_known

    def finish(self, error: CallError | Literal[True]) -> None:
        """End the stream with an error, or with ``True`` for success. Later calls have no effect."""
        if self.end is None:
            self.end = error
            wake(self.waiter)

    fail = finish

    def break_off(self, end: CallError | Literal[True]) -> None:
        """End the stream from this side, and notify the handler."""
        self.requests.end(self)
        self.finish(end)
        self.requests.abort(self)

    # --- what arrives ----------------------------------------------------------------------------

    def on_event(self, type_: str, payload: dict[str, Any]) -> None:
        """See `Pending.on_event`."""
        if self.heard is not None:
            self.heard = time.monotonic()
        if type_ == protocol.RESPONDED:
            self._on_item(payload)
            return
        if type_ == protocol.COMPLETED:
            count = payload.get("count")
            is_short = type(count) is int and count > self.next_seq and not self.unnumbered
            self.finish(self._data_loss(count) if is_short else True)
        elif type_ == protocol.ABORTED:  # a peer that knows only the original events ends a stream so
            self.finish(True)
        elif type_ == protocol.ERROR:
            self.finish(protocol.call_error(payload))
        else:
            if type_ == protocol.CREDIT:
                self._on_notice(payload)
            return
        self.requests.end(self)

    def _on_notice(self, payload: dict[str, Any]) -> None:
        """Process a ``call.credit``: the handler acknowledges the request, or asks to send a large item."""
        requests = self.requests
        if type(reply_to := payload.get("replyTo")) is not str:
            return
        if self.target is None or (requests.awaits_notice and self.heard is None):
            self.target = reply_to  # a broker may give the request to another peer than it reported
        self.heard = time.monotonic()
        requests.on_notice(self, payload, Stream.ask)

    def ask(self) -> bool:
        """Grant the bytes for which the handler asks, if there is room. Return True if the handler is notified."""
        if self.wants <= self.read + self.window_bytes:
            self.granted = self.wants
            self.requests.grant(self)
            return True
        # An item larger than the window may come when every item before it is read.
        return self.read >= self.arrived and self.requests.arrivals.ask(self)

    def has_read(self, up_to: int) -> bool:
        """Record how many bytes the consumer has read. Return True if the handler must learn of new room."""
        self.read = up_to
        room = up_to + self.window_bytes
        if self.wants > self.granted:
            if self.wants <= room:
                self.granted = room
                return True
            if up_to >= self.arrived:
                self.requests.arrivals.ask(self)  # which tells the handler itself
            return False
        if room - self.granted >= self.window_bytes // 2:
            self.granted = room
            return True
        return False

    def _on_item(self, payload: dict[str, Any]) -> None:
        if self.target is None and type(reply_to := payload.get("replyTo")) is str:
            self.target = reply_to
        requests, seq = self.requests, payload.get("seq")
        if self.outgoing:
            requests.departures.leave(self)
        if type(seq) is int:
            if seq < self.next_seq:  # delivered twice
                return
            if seq > self.next_seq:
                self.break_off(self._data_loss(seq))
                return
            if seq == 0:
                requests.has_answered(self)
            self.next_seq += 1
        else:
            self.lone = None if self.unnumbered else time.monotonic()
            self.unnumbered = True
        if len(self.items) >= self.bound:
            message = f'"{self.operation_id}" ignored credit and sent {self.bound} items that were not read'
            self.break_off(CallError(ErrorCode.SLOW_CONSUMER, message, {"limit": self.bound}))
            return
        try:
            self.items.append(requests.envelope(payload.get("output")))
        except CallError as error:
            self.break_off(error)
            return
        if requests.counts_bytes:
            sent = payload.get("sentBytes")
            if type(sent) is int and sent > self.arrived:
                self.arrived = sent
                requests.arrivals.arrived(self, sent)
            self.sizes.append(self.arrived)
        wake(self.waiter)

    def _data_loss(self, seq: object) -> CallError:
        message = f'"{self.operation_id}": expected item {self.next_seq} of the stream, got {seq}; items were lost'
        return CallError(ErrorCode.DATA_LOSS, message, {"expected": self.next_seq, "got": seq})


class Streams:
    """The subscriptions of a call map, and the heartbeat that renews their leases."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests
        self._beat: asyncio.TimerHandle | None = None
        self._beating = False

    async def items(
        self, call: CallRequest, sign: Callable[[CallRequest], None] | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Sign and send a request, and yield the items of its stream. Raises the `CallError` that ends it."""
        requests = self._requests
        link = requests.admit()
        check_loop(requests.loop, "call map")
        if sign is not None:
            sign(call)
        window = call.credit
        assert window is not None
        stream = Stream(requests, call.operation_id, call.request_id or requests.new_id(), window)
        requests.table[stream.request_id] = stream
        self._start_beat()
        items = stream.items
        try:
            await self._send(call, stream, link)
            if requests.awaits_notice:
                stream.sent = time.monotonic()
            while True:
                while not items:
                    if stream.end is not None:
                        if stream.end is True:
                            return
                        raise stream.end
                    await self._wait(stream, call)
                envelope = items.popleft()
                stream.taken = taken = stream.taken + 1
                if stream.end is None:
                    if stream.sizes and stream.has_read(stream.sizes.popleft()):
                        await requests.send_credit(stream)
                    elif taken >= stream.top_up:
                        stream.top_up = taken + max(1, window // 2)
                        await requests.send_credit(stream)
                yield envelope
        finally:
            if requests.drop(stream):
                requests.abort(stream)

    async def _send(self, call: CallRequest, stream: Stream, link: Link) -> None:
        requests, now = self._requests, time.time()
        limit = _limit(call, now)
        stream.window_bytes = requests.arrivals.unasked(len(requests.table), requests.settings.credit_bytes)
        try:
            async with asyncio.timeout(None if limit == math.inf else max(0.0, limit / 1000 - now)):
                await requests.send(call, stream, link, now, stream.window_bytes)
        except TransportError as error:
            requests.drop(stream)
            raise requests.not_sent(error, call.operation_id) from error
        except TimeoutError:
            raise timeout_error(call.operation_id, limit) from None

    async def _wait(self, stream: Stream, call: CallRequest) -> None:
        """Wait for an item or the end of the stream. Raises `CallError` ``TIMEOUT`` at the limit."""
        now = time.time()
        limit = _limit(call, now)
        await woken(stream, None if limit == math.inf else limit / 1000 - now)
        if not stream.items and stream.end is None and time.time() * 1000 >= limit - 1:
            raise timeout_error(stream.operation_id, limit)

    # --- the lease of streams ---------------------------------------------------------------------

    def _start_beat(self) -> None:
        if self._beat is None:
            self._beat = self._requests.loop.call_later(self._requests.settings.lease / 3, self._on_beat)

    def stop(self) -> None:
        """Stop the heartbeat."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _on_beat(self) -> None:
        """Renew the credit of all streams, which keeps them alive, and end the streams of silent handlers."""
        requests, late = self._requests, overdue(self._beat, self._requests.loop)
        self._beat = None
        streams = [item for item in requests.table.values() if isinstance(item, Stream)]
        if not streams or requests.link is None:
            return
        lease = requests.settings.lease
        silent = time.monotonic() - late - lease
        for stream in streams:
            if stream.is_silent(silent):
                why = f"its handler gave no sign of life for {lease:g} s"
                stream.break_off(lost_error(stream.operation_id, why))
            elif stream.lone is not None and stream.lone < silent:
                # A peer that knows only the original events does not number items, and the one response of a query
                # or mutation is its end. A stream of such a peer looks the same until its second item.
                stream.break_off(True)
        if not self._beating:
            self._beating = True
            requests.spawn(self._renew(streams))
        self._start_beat()

    async def _renew(self, streams: list[Stream]) -> None:
        try:
            for stream in streams:
                if stream.end is None and stream.is_known:  # else the credit may overtake the request
                    await self._requests.send_credit(stream)
        finally:
            self._beating = False


def _limit(call: CallRequest, now: float) -> float:
    """Return when a wait that begins at ``now`` (epoch seconds) must end, in epoch ms."""
    return call.limit if call.timeout is None else min(call.limit, (now + call.timeout) * 1000)

"""The subscriptions of a call map: items in order, credit, and the lease that keeps a stream alive."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import Link, TransportError
from operad_calls import protocol
from operad_calls.calling.pending import PendingRequests
from operad_calls.requests import LARGE, Pending, Said, check_loop, lost, overdue, timed_out, told, wake

_MIN_BUFFER = 1_024
"""How many items of a peer that ignores credit are kept before the stream fails."""


class Stream(Pending):
    """A subscription: items, then an end."""

    __slots__ = (
        "arrived",
        "bound",
        "end",
        "heard",
        "items",
        "lone",
        "next_seq",
        "read",
        "sent",
        "sizes",
        "taken",
        "top_up",
        "unnumbered",
        "waiter",
        "window",
        "window_bytes",
    )

    def __init__(self, operation_id: str, request_id: str, window: int) -> None:
        super().__init__(operation_id, request_id)
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
        self.sent: float | None = None
        """When its request was sent (`time.monotonic`), where only a word of its handler tells that it has one."""
        self.unnumbered = False
        """Whether an item without a number came: from a peer that knows only the original events."""
        self.lone: float | None = None
        """When such an item came, if it is the only one: it may be all that there will be."""
        # In bytes, as the handler counts them; see `operad_calls.calling.flow`.
        self.window_bytes = 0
        self.arrived = 0
        self.read = 0
        self.sizes: deque[int] = deque()
        """For each item that is not read, all bytes up to it."""

    @property
    def total(self) -> int:
        """How many items may come in all."""
        return self.taken + self.window

    @property
    def is_known(self) -> bool:
        """Whether its handler has it: it has said a word, or the transport tells of lost ones."""
        return self.sent is None or self.heard is not None or self.next_seq > 0 or self.unnumbered

    def is_silent(self, since: float) -> bool:
        """Whether there was no sign of life since then from a handler that has to give them."""
        if self.heard is not None:
            return self.heard < since
        return self.sent is not None and self.sent < since and not self.is_known

    def finish(self, end: CallError | bool) -> None:
        """End it; the first end counts."""
        if self.end is None:
            self.end = end
            wake(self.waiter)

    def notice(self, reply_to: str) -> None:
        """See `Pending.notice`; it keeps the stream alive."""
        super().notice(reply_to)
        self.heard = time.monotonic()

    def fail(self, error: CallError) -> None:
        """See `Pending.fail`."""
        self.finish(error)


class Streams:
    """Subscriptions, and what comes in for them."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests
        self._beat: asyncio.TimerHandle | None = None
        self._beating = False

    async def items(
        self, said: Said, sign: Callable[[Said], None] | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """The items of one subscription; signs and sends the request when it is first read."""
        requests = self._requests
        link = requests.admit()
        check_loop(requests.loop, "call map")
        if sign is not None:
            sign(said)
        window = said.credit
        assert window is not None
        stream = Stream(said.operation_id, said.request_id or requests.new_id(), window)
        requests.table[stream.request_id] = stream
        self._start_beat()
        items = stream.items
        try:
            target = await self._send(said, stream, link)
            if target is not None:
                stream.target = target
            if requests.awaits_notice:
                stream.sent = time.monotonic()
            while True:
                while not items:
                    if stream.end is not None:
                        if stream.end is True:
                            return
                        assert isinstance(stream.end, CallError)
                        raise stream.end
                    await self._wait(stream, said)
                envelope = items.popleft()
                stream.taken = taken = stream.taken + 1
                if stream.end is None:
                    if stream.sizes and self._has_read(stream, stream.sizes.popleft()):
                        await requests.send_credit(stream)
                    elif taken >= stream.top_up:
                        stream.top_up = taken + max(1, window // 2)
                        await requests.send_credit(stream)
                yield envelope
        finally:
            if requests.drop(stream):
                requests.abort(stream)

    async def _send(self, said: Said, stream: Stream, link: Link) -> str | None:
        requests, now = self._requests, time.time()
        event = requests.event(said, stream.request_id, link, now)
        if requests.counts_bytes:
            stream.window_bytes = requests.arrivals.unasked(len(requests.table), requests.settings.credit_bytes)
            stream.granted = event["payload"]["creditBytes"] = stream.window_bytes
        limit = said.limit if said.timeout is None else min(said.limit, (now + said.timeout) * 1000)
        try:
            async with asyncio.timeout(None if limit == math.inf else max(0.0, limit / 1000 - now)):
                if requests.counts_bytes:
                    data = protocol.encode(event)
                    if len(data) > LARGE:
                        sending = requests.large(event, data, stream)
                        del data
                        if (large := await sending) is None:
                            return None  # its end tells why
                        event = large
                    else:
                        event = protocol.Encoded(event, data)
                to = f"op:{said.operation_id}"
                if requests.routes:
                    stream.target = to  # it may be on its way before `send` returns, and the hub knows to whom
                return await link.send(to, event)
        except TransportError as error:
            requests.drop(stream)
            raise requests.not_sent(error, said.operation_id) from error
        except TimeoutError:
            raise timed_out(said.operation_id, limit) from None

    async def _wait(self, stream: Stream, said: Said) -> None:
        """Wait until something happens on the stream. Raises `CallError` ``TIMEOUT``."""
        loop, limit = self._requests.loop, said.limit
        now = time.time()
        if said.timeout is not None:
            limit = min(limit, (now + said.timeout) * 1000)
        stream.waiter = waiter = loop.create_future()
        timer = None if limit == math.inf else loop.call_later(limit / 1000 - now, wake, waiter)
        try:
            await waiter
        finally:
            stream.waiter = None
            if timer is not None:
                timer.cancel()
        if not stream.items and stream.end is None and time.time() * 1000 >= limit - 1:
            raise timed_out(stream.operation_id, limit)

    # --- what comes in ---------------------------------------------------------------------------

    def on_event(self, stream: Stream, type_: str, payload: dict[str, Any]) -> None:
        """What comes in for a subscription."""
        if stream.heard is not None:
            stream.heard = time.monotonic()
        if type_ == protocol.RESPONDED:
            self._on_item(stream, payload)
            return
        if type_ == protocol.COMPLETED:
            count = payload.get("count")
            is_short = type(count) is int and count > stream.next_seq and not stream.unnumbered
            stream.finish(_data_loss(stream, count) if is_short else True)
        elif type_ == protocol.ABORTED:  # how a peer that knows only the original events ends a stream
            stream.finish(True)
        elif type_ == protocol.ERROR:
            stream.finish(told(payload))
        else:
            self._on_notice(stream, type_, payload)
            return
        self._requests.end(stream)

    def _on_notice(self, stream: Stream, type_: str, payload: dict[str, Any]) -> None:
        """A handler says that it has the request, and where it is; or asks to send a large item."""
        reply_to, wants = payload.get("replyTo"), payload.get("wantsBytes")
        if type_ != protocol.CREDIT or type(reply_to) is not str:
            return
        requests = self._requests
        if stream.target is None or (requests.awaits_notice and stream.heard is None):
            stream.target = reply_to  # a broker gives it to another one than it said when that one is gone
        stream.notice(stream.target)
        if stream.outgoing:
            requests.departures.leave(stream)
        if type(wants) is int and requests.counts_bytes:
            stream.wants = max(stream.wants, wants)
            if stream.wants <= stream.granted or not self._ask(stream):
                requests.grant(stream)  # it has to know that it is heard

    def _ask(self, stream: Stream) -> bool:
        """Grant what the handler asks for, if the stream's own window has room; answers whether it was told."""
        if stream.wants <= stream.read + stream.window_bytes:
            stream.granted = stream.wants
            self._requests.grant(stream)
            return True
        # An item larger than the window comes when all before it is read.
        return stream.read >= stream.arrived and self._requests.arrivals.ask(stream)

    def _has_read(self, stream: Stream, up_to: int) -> bool:
        """So many bytes are read; answers whether the handler should be told of the room."""
        stream.read = up_to
        room = up_to + stream.window_bytes
        if stream.wants > stream.granted:
            if stream.wants <= room:
                stream.granted = room
                return True
            if up_to >= stream.arrived:
                self._requests.arrivals.ask(stream)  # which tells it by itself
            return False
        if room - stream.granted >= stream.window_bytes // 2:
            stream.granted = room
            return True
        return False

    def _on_item(self, stream: Stream, payload: dict[str, Any]) -> None:
        if stream.target is None and type(reply_to := payload.get("replyTo")) is str:
            stream.target = reply_to
        requests, seq = self._requests, payload.get("seq")
        if stream.outgoing:
            requests.departures.leave(stream)
        if type(seq) is int:
            if seq < stream.next_seq:  # delivered twice
                return
            if seq > stream.next_seq:
                self._break(stream, _data_loss(stream, seq))
                return
            if seq == 0:
                requests.has_answered(stream)
            stream.next_seq += 1
        else:
            stream.lone = None if stream.unnumbered else time.monotonic()
            stream.unnumbered = True
        if len(stream.items) >= stream.bound:
            message = f'"{stream.operation_id}" sent {stream.bound} items that were not read'
            self._break(stream, CallError(ErrorCode.SLOW_CONSUMER, message, {"limit": stream.bound}))
            return
        try:
            stream.items.append(requests.envelope(payload.get("output")))
        except CallError as error:
            self._break(stream, error)
            return
        if requests.counts_bytes:
            sent = payload.get("sentBytes")
            if type(sent) is int and sent > stream.arrived:
                stream.arrived = sent
                requests.arrivals.arrived(stream, sent)
            stream.sizes.append(stream.arrived)
        wake(stream.waiter)

    def _break(self, stream: Stream, end: CallError | bool) -> None:
        """End a stream from this side."""
        self._requests.end(stream)
        stream.finish(end)
        self._requests.abort(stream)

    # --- the lease of streams ---------------------------------------------------------------------

    def _start_beat(self) -> None:
        if self._beat is None:
            self._beat = self._requests.loop.call_later(self._requests.settings.lease / 3, self._on_beat)

    def stop(self) -> None:
        """No more heartbeats."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _on_beat(self) -> None:
        """Renew the credit of all streams, which keeps them alive, and end those that nothing else will end."""
        requests, late = self._requests, overdue(self._beat, self._requests.loop)
        self._beat = None
        streams = [item for item in requests.table.values() if isinstance(item, Stream)]
        if not streams or requests.link is None:
            return
        lease = requests.settings.lease
        silent = time.monotonic() - late - lease
        for stream in streams:
            if stream.is_silent(silent):
                message = f"its handler gave no sign of life for {lease:g} s"
                self._break(stream, lost(stream.operation_id, message))
            elif stream.lone is not None and stream.lone < silent:
                # A peer that knows only the original events does not number what it sends, and the one answer of
                # a query or mutation is its end. A stream of such a peer looks the same until its second item.
                self._break(stream, True)
        if not self._beating:
            self._beating = True
            requests.spawn(self._renew(streams))
        self._start_beat()

    async def _renew(self, streams: list[Stream]) -> None:
        try:
            for stream in streams:
                if stream.end is None and stream.is_known:  # else it may overtake the request: no such stream
                    await self._requests.send_credit(stream)
        finally:
            self._beating = False


def _data_loss(stream: Stream, seq: object) -> CallError:
    message = f'"{stream.operation_id}": item {stream.next_seq} of the stream was lost (got {seq})'
    return CallError(ErrorCode.DATA_LOSS, message, {"expected": stream.next_seq, "got": seq})

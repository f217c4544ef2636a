"""The calling side of the call protocol: the call map."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from operad import protocol
from operad._incoming import Incoming, OnRequest
from operad.access import Identity
from operad.envelopes import EnvelopeKinds, ResponseEnvelope
from operad.errors import CallError, ErrorCode, operation_not_found
from operad.subscriptions import Subscription
from operad.transports import (
    Delivery,
    Event,
    Link,
    LinkState,
    NoRespondersError,
    PayloadTooLargeError,
    Registration,
    Transport,
    TransportError,
)

if TYPE_CHECKING:
    from operad.plugins import Plugins

logger = logging.getLogger("operad.calls")

_MAX_ORPHANS = 10_000
"""How many ended requests are remembered whose handler has not told where it is."""
_MIN_BUFFER = 1_024
"""How many items of a peer that ignores credit are kept before the stream fails."""
_CLOSING = 5.0
"""Seconds that closing waits for aborts to leave."""


class _Pending:
    """A request that waits for its end."""

    __slots__ = ("operation_id", "target")

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        self.target: str | None = None
        """Where an abort or credit goes; ``None``: not known yet."""


class _Single(_Pending):
    """A call: one answer."""

    __slots__ = ("expired", "future", "limit", "requested", "sender")

    def __init__(self, operation_id: str, future: asyncio.Future[ResponseEnvelope[Any]], limit: float) -> None:
        super().__init__(operation_id)
        self.future = future
        self.limit = limit
        self.sender: asyncio.Task[Any] | None = None
        """The calling task, while it waits for the transport to take the request."""
        self.requested = 0
        self.expired = False


class _Stream(_Pending):
    """A subscription: items, then an end."""

    __slots__ = ("bound", "end", "heard", "items", "next_seq", "taken", "top_up", "waiter", "window")

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


class PendingRequestMap:
    """The calling side: calls operations wherever the transport finds them.

    Use it as an async context manager. Every call ends exactly once, in an envelope or a `CallError`, at its
    deadline at the latest.

    Args:
        transport: how to reach those who serve; the map opens a link of its own on it.
        plugins: whose envelope kinds answers may have. Default: the installed ones, loaded when an answer is of
            a kind that the core does not know.
        timeout: seconds that a call may take if it does not say. Streams have no such bound, they have a lease.
        max_pending: how many calls may wait at once; more fail with ``OVERLOADED``.
        credit: how many items of a stream may be on their way to a consumer.
        lease: seconds that a stream lives without a sign of life from the other side.
        on_request: takes requests that are served by hand (see `serve`); most applications use a `CallHandler`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        plugins: Plugins | None = None,
        timeout: float = 30.0,
        max_pending: int = 10_000,
        credit: int = 64,
        lease: float = 30.0,
        on_request: OnRequest | None = None,
    ) -> None:
        if credit < 1:
            raise ValueError(f"credit: expected at least 1, got {credit}")
        self._transport = transport
        self._kinds = EnvelopeKinds() if plugins is None else plugins.envelope_kinds
        self._all_kinds = plugins is not None
        self._timeout = timeout
        self._max_pending = max_pending
        self._credit = credit
        self._lease = lease
        self._incoming = None if on_request is None else Incoming(on_request, max_pending)
        self._link: Link | None = None
        self._pending: dict[str, _Pending] = {}
        self._orphans: dict[str, float] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._beat: asyncio.TimerHandle | None = None
        self._beating = False
        self._up = asyncio.Event()
        self._prefix = secrets.token_hex(8) + "-"
        self._counter = itertools.count(1)
        # Where peers are not authenticated, an id that nobody can guess is what protects an answer.
        capabilities = transport.capabilities
        self._guessable = capabilities.same_process or capabilities.authenticates_peer
        self.late = 0
        """How many answers came for requests that had ended."""

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
        self._link = await self._transport.open(self._on_event, self._on_link)

    async def aclose(self) -> None:
        """End everything that is under way with ``ABORTED``, tell the other side, and disconnect; idempotent."""
        link, self._link = self._link, None
        if link is None:
            return
        for request_id, pending in list(self._pending.items()):
            self._abort(request_id, pending, link)
            self._fail(pending, CallError(ErrorCode.ABORTED, "the call map was closed"))
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

    # --- calling ---------------------------------------------------------------------------------

    def call(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        traceparent: str | None = None,
        retry: bool = False,
    ) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        """Call an operation; of a subscription, take the first item and end it.

        Args:
            operation_id: ``namespace.name``.
            input: what the operation takes; ``None`` means ``{}``.
            timeout: seconds; the map's default if neither this nor a deadline is given.
            deadline: when the call has to be over, in epoch ms.
            identity: who calls. What the handler makes of it is the handler's choice (`CallHandler`).
            parent_request_id: the call that makes this one.
            traceparent: W3C trace context, passed on to the handler's ``context.metadata``.
            retry: call again after ``UNAVAILABLE``, until the deadline. For queries only: what was lost may
                have run.

        Raises:
            CallError: and nothing else, but a cancellation of the calling task.
        """
        limit = self._limit(timeout, deadline)
        # Not a coroutine around a coroutine: 10,000 calls that wait would keep two frames each.
        if retry:
            return self._retrying(operation_id, input, limit, identity, parent_request_id, traceparent)
        return self._call(operation_id, input, limit, identity, parent_request_id, traceparent)

    async def _retrying(self, operation_id: str, input: Any, limit: float, *options: Any) -> ResponseEnvelope[Any]:
        while True:
            try:
                return await self._call(operation_id, input, limit, *options)
            except CallError as error:
                if error.code != ErrorCode.UNAVAILABLE or not await self._recovered(limit):
                    raise

    async def _call(
        self,
        operation_id: str,
        input: Any,
        limit: float,
        identity: Identity | None,
        parent_request_id: str | None,
        traceparent: str | None,
    ) -> ResponseEnvelope[Any]:
        link = self._admit()
        seconds = limit / 1000 - time.time()
        if seconds <= 0:
            raise _timed_out(operation_id, limit)
        loop = self._loop
        request_id = self._new_id()
        event = _request(request_id, operation_id, input, identity, parent_request_id, traceparent, link.inbox)
        payload = event["payload"]
        payload["deadline"] = math.ceil(limit)
        payload["timeoutMs"] = math.ceil(seconds * 1000)
        pending = _Single(operation_id, loop.create_future(), limit)
        self._pending[request_id] = pending
        timer = loop.call_later(seconds, self._expire, pending)
        pending.sender = asyncio.current_task()
        try:
            target = await link.send(f"op:{operation_id}", event)
            del event, payload  # 10,000 calls that wait need not keep their requests
            pending.sender = None
            if target is not None:
                pending.target = target
            return await pending.future
        except asyncio.CancelledError:
            _retrieve(pending.future)
            task = pending.sender
            if pending.expired and task is not None and task.uncancel() <= pending.requested:
                raise _timed_out(operation_id, limit) from None
            raise
        except TransportError as error:
            self._pending.pop(request_id, None)  # never sent: nothing to abort
            _retrieve(pending.future)
            raise self._not_sent(error, operation_id) from error
        finally:
            timer.cancel()
            if self._pending.pop(request_id, None) is not None:
                self._abort(request_id, pending, link)

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
        event = _request(request_id, operation_id, input, identity, parent_request_id, traceparent, link.inbox)
        event["payload"]["credit"] = window
        if deadline is not None:
            event["payload"]["deadline"] = math.ceil(deadline)
            event["payload"]["timeoutMs"] = max(0, math.ceil(deadline - time.time() * 1000))
        stream = _Stream(operation_id, window)
        self._pending[request_id] = stream
        self._start_beat()
        items = stream.items
        try:
            try:
                async with asyncio.timeout(self._timeout):
                    target = await link.send(f"op:{operation_id}", event)
            except TimeoutError:  # the transport does not take it
                raise _timed_out(operation_id, (time.time() + self._timeout) * 1000) from None
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

    async def _wait(self, stream: _Stream, timeout: float | None, deadline: float | None) -> None:
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
            raise _timed_out(stream.operation_id, limit)

    async def ask_all(self, topic: str, operation_id: str, input: Any = None, *, wait: float = 0.5) -> list[Any]:
        """Ask everybody who registered ``all:<topic>``, and collect the data of their answers.

        Args:
            topic: the topic.
            operation_id: what is asked.
            input: its input.
            wait: seconds to wait for answers; over at once when the transport knows that all have answered.

        Raises:
            CallError: the question could not be sent.
        """
        link = self._admit()
        request_id = self._new_id()
        event = _request(request_id, operation_id, input, None, None, None, link.inbox)
        event["payload"]["timeoutMs"] = math.ceil(wait * 1000)
        asked = _Asked(operation_id)
        self._pending[request_id] = asked
        try:
            await link.send(f"all:{topic}", event)
            limit = self._loop.time() + wait
            while not asked.complete and (seconds := limit - self._loop.time()) > 0:
                asked.waiter = self._loop.create_future()
                timer = self._loop.call_later(seconds, asked.wake)
                try:
                    await asked.waiter
                finally:
                    timer.cancel()
        except NoRespondersError:
            return []
        except TransportError as error:
            raise self._not_sent(error, operation_id) from error
        finally:
            self._pending.pop(request_id, None)
            if not asked.complete:
                asked.target = f"all:{topic}"
                self._abort(request_id, asked, link)
        return asked.answers

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
        await self._by_hand(request_id).respond(self._open_link(), request_id, envelope, self._kinds)

    async def complete(self, request_id: str) -> None:
        """End the stream of a request of this link. Raises `LookupError`."""
        await self._by_hand(request_id).complete(self._open_link(), request_id)

    async def emit_error(
        self, request_id: str, code: str, message: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        """End a request of this link with an error. Raises `LookupError`."""
        await self._by_hand(request_id).emit_error(self._open_link(), request_id, code, message, details)

    async def abort(self, request_id: str) -> None:
        """End a call that this map made, or a request that this link has, on both sides. Raises `LookupError`."""
        link = self._open_link()
        pending = self._pending.pop(request_id, None)
        if pending is None:
            await self._by_hand(request_id).abort(link, request_id)
            return
        self._abort(request_id, pending, link)
        self._fail(pending, CallError(ErrorCode.ABORTED, f'"{pending.operation_id}" was aborted'))

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
        if isinstance(pending, _Asked):
            self._on_asked(pending, type_, payload)
        elif delivery.peer is not None and pending.target is not None and delivery.peer != pending.target:
            logger.warning("dropped a %s for a request that %s does not serve", type_, delivery.peer)
        elif isinstance(pending, _Stream):
            if pending.heard is not None:
                pending.heard = time.monotonic()
            if type_ == protocol.RESPONDED:
                self._on_item(request_id, pending, payload)
            else:
                self._on_stream(request_id, pending, type_, payload)
        elif isinstance(pending, _Single):
            self._on_answer(request_id, pending, type_, payload)

    def _on_answer(self, request_id: str, pending: _Single, type_: str, payload: dict[str, Any]) -> None:
        future = pending.future
        if type_ == protocol.RESPONDED:
            reply_to = payload.get("replyTo")
            if type(reply_to) is str and pending.target is None:
                pending.target = reply_to
            del self._pending[request_id]
            if "seq" in payload and self._link is not None:  # the first item of a stream is all that was asked for
                self._abort(request_id, pending, self._link)
            try:
                envelope = self._envelope(payload.get("output"))
            except CallError as unusable:
                _set(future, unusable)
                return
            if not future.done():
                future.set_result(envelope)
            return
        if type_ == protocol.ERROR:
            error = protocol.call_error(payload)
        elif type_ == protocol.ABORTED:
            error = CallError(ErrorCode.ABORTED, f'"{pending.operation_id}" was aborted by its handler')
        elif type_ == protocol.COMPLETED:
            message = f'the subscription "{pending.operation_id}" ended without an item'
            error = CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
        else:
            self._on_notice(pending, type_, payload)
            return
        del self._pending[request_id]
        _set(future, error)

    def _on_stream(self, request_id: str, stream: _Stream, type_: str, payload: dict[str, Any]) -> None:
        if type_ == protocol.COMPLETED:
            count = payload.get("count")
            lost = type(count) is int and count > stream.next_seq > 0
            stream.finish(_data_loss(stream, count) if lost else True)
        elif type_ == protocol.ABORTED:  # how a peer that knows only the original events ends a stream
            stream.finish(True)
        elif type_ == protocol.ERROR:
            stream.finish(protocol.call_error(payload))
        else:
            self._on_notice(stream, type_, payload)
            return
        del self._pending[request_id]

    def _on_item(self, request_id: str, stream: _Stream, payload: dict[str, Any]) -> None:
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

    def _on_notice(self, pending: _Pending, type_: str, payload: dict[str, Any]) -> None:
        """A handler on a broker says that it has the request, and where it is."""
        reply_to = payload.get("replyTo")
        if type_ == protocol.CREDIT and type(reply_to) is str:
            pending.target = reply_to
            if isinstance(pending, _Stream):
                pending.heard = time.monotonic()

    def _on_asked(self, asked: _Asked, type_: str, payload: dict[str, Any]) -> None:
        if type_ == protocol.COMPLETED and type(payload.get("count")) is int:
            asked.expected = payload["count"]
        elif type_ == protocol.RESPONDED:
            try:
                asked.answers.append(self._envelope(payload.get("output")).data)
            except CallError as error:
                logger.warning("an answer to %s is unusable: %s", asked.operation_id, error)
        elif type_ == protocol.ERROR:
            asked.refused += 1
        asked.wake()

    def _stray(self, type_: str, payload: dict[str, Any], delivery: Delivery) -> None:
        """An event that belongs to no request under way."""
        if type_ == protocol.LOST and self._transport.capabilities.detects_peer_loss:
            self._lose(payload.get("peer"))
            return
        if type_ not in (protocol.RESPONDED, protocol.ERROR, protocol.COMPLETED, protocol.CREDIT):
            return
        request_id, reply_to = payload.get("requestId"), payload.get("replyTo")
        if type_ != protocol.CREDIT:
            self.late += 1
        if type(request_id) is not str or self._orphans.pop(request_id, None) is None or self._link is None:
            return
        if type(reply_to) is str and type_ in (protocol.RESPONDED, protocol.CREDIT):
            self._spawn(self._send_abort(request_id, reply_to, self._link))

    def _on_link(self, state: LinkState, epoch: int) -> None:
        if state == "up":
            self._up.set()
            return
        self._up.clear()
        if self._incoming is not None:
            self._incoming.clear()
        pending, self._pending = self._pending, {}
        for item in pending.values():
            self._fail(item, _lost(item.operation_id, "the connection was lost during the call"))

    def _lose(self, peer: object) -> None:
        lost = [(key, item) for key, item in self._pending.items() if item.target == peer]
        for key, item in lost:
            del self._pending[key]
            self._fail(item, _lost(item.operation_id, "its handler was lost during the call"))

    # --- the parts of a request -------------------------------------------------------------------

    def _open_link(self) -> Link:
        if self._link is None:
            raise CallError(
                ErrorCode.UNAVAILABLE, "the call map is not open: use `async with PendingRequestMap(transport)`"
            )
        return self._link

    def _admit(self) -> Link:
        link = self._open_link()
        if len(self._pending) >= self._max_pending:
            message = f"{self._max_pending} calls are under way already (max_pending)"
            raise CallError(ErrorCode.OVERLOADED, message, {"limit": "max_pending", "value": self._max_pending})
        return link

    def _limit(self, timeout: float | None, deadline: float | None) -> float:
        """When a call has to be over, in epoch ms."""
        if timeout is None:
            if deadline is not None:
                return deadline
            timeout = self._timeout
        limit = (time.time() + timeout) * 1000
        return limit if deadline is None else min(limit, deadline)

    def _new_id(self) -> str:
        return f"{self._prefix}{next(self._counter)}" if self._guessable else secrets.token_hex(16)

    def _envelope(self, output: object) -> ResponseEnvelope[Any]:
        if type(output) is ResponseEnvelope:  # handed over in process
            return output
        if not self._all_kinds and isinstance(output, dict) and _source(output) not in self._kinds:
            from operad.plugins import load_plugins

            self._kinds, self._all_kinds = load_plugins().envelope_kinds, True
        return self._kinds.from_wire(output)

    def _expire(self, pending: _Single) -> None:
        if pending.sender is not None:  # the transport does not take the request
            pending.expired = True
            pending.requested = pending.sender.cancelling()
            pending.sender.cancel()
        else:
            _set(pending.future, _timed_out(pending.operation_id, pending.limit))

    def _fail(self, pending: _Pending, error: CallError) -> None:
        if isinstance(pending, _Single):
            _set(pending.future, error)
        elif isinstance(pending, _Stream):
            pending.finish(error)
        elif isinstance(pending, _Asked):
            pending.expected = 0  # what has come is all that will
            pending.wake()

    def _break(self, request_id: str, stream: _Stream, error: CallError) -> None:
        """End a stream from this side."""
        del self._pending[request_id]
        stream.finish(error)
        if self._link is not None:
            self._abort(request_id, stream, self._link)

    def _abort(self, request_id: str, pending: _Pending, link: Link) -> None:
        """Tell the handler that nobody waits any more; where it is not known yet, as soon as it is."""
        if pending.target is not None:
            self._spawn(self._send_abort(request_id, pending.target, link))
            return
        self._orphans[request_id] = time.time()
        if len(self._orphans) > _MAX_ORPHANS:
            del self._orphans[next(iter(self._orphans))]

    async def _send_abort(self, request_id: str, target: str, link: Link) -> None:
        payload = {"requestId": request_id, "replyTo": link.inbox}
        try:
            await link.send(target, {"type": protocol.ABORTED, "id": "", "payload": payload})
        except TransportError as error:  # the handler's deadline or lease ends it
            logger.debug("abort of %s was not sent: %s", request_id, error)

    async def _grant(self, request_id: str, stream: _Stream, link: Link) -> None:
        if stream.target is None:
            return
        payload = {"requestId": request_id, "total": stream.total, "replyTo": link.inbox}
        try:
            await link.send(stream.target, {"type": protocol.CREDIT, "id": "", "payload": payload})
        except TransportError as error:  # repeated by the heartbeat; a lost link ends the stream
            logger.debug("credit for %s was not sent: %s", request_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _not_sent(self, error: TransportError, operation_id: str) -> CallError:
        """The `CallError` for a request that the transport did not take."""
        details = {"operationId": operation_id, "sent": False}
        if isinstance(error, NoRespondersError):
            if self._transport.capabilities.detects_peer_loss:
                return operation_not_found(operation_id)
            message = f'nobody serves "{operation_id}"'
            return CallError(ErrorCode.NO_RESPONDERS, message, {"operationId": operation_id})
        if isinstance(error, PayloadTooLargeError):
            message = f'the request for "{operation_id}" is too large: {error}'
            return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, details)
        return CallError(ErrorCode.UNAVAILABLE, f'"{operation_id}" could not be sent: {error}', details)

    async def _recovered(self, limit: float) -> bool:
        """Whether the link is up again before the limit."""
        seconds = limit / 1000 - time.time()
        if seconds <= 0 or self._link is None:
            return False
        try:
            await asyncio.wait_for(self._up.wait(), seconds)
        except TimeoutError:
            return False
        await asyncio.sleep(min(0.05, seconds))  # the peer that was lost may be the only one: do not spin
        return True

    # --- the lease of streams ---------------------------------------------------------------------

    def _start_beat(self) -> None:
        if self._beat is None:
            self._beat = self._loop.call_later(self._lease / 3, self._on_beat)

    def _on_beat(self) -> None:
        """Renew the credit of all streams, which keeps them alive, and end those whose handler is silent."""
        self._beat = None
        streams = [(key, item) for key, item in self._pending.items() if isinstance(item, _Stream)]
        if not streams or self._link is None:
            return
        silent = time.monotonic() - self._lease
        for request_id, stream in streams:
            if stream.heard is not None and stream.heard < silent:
                message = f"its handler gave no sign of life for {self._lease:g} s"
                self._break(request_id, stream, _lost(stream.operation_id, message))
        if not self._beating:
            self._beating = True
            self._spawn(self._renew(streams, self._link))
        self._start_beat()

    async def _renew(self, streams: list[tuple[str, _Stream]], link: Link) -> None:
        try:
            for request_id, stream in streams:
                if stream.end is None:
                    await self._grant(request_id, stream, link)
        finally:
            self._beating = False


class _Asked(_Pending):
    """A question to everybody."""

    __slots__ = ("answers", "expected", "refused", "waiter")

    def __init__(self, operation_id: str) -> None:
        super().__init__(operation_id)
        self.answers: list[Any] = []
        self.expected: int | None = None
        self.refused = 0
        self.waiter: asyncio.Future[None] | None = None

    @property
    def complete(self) -> bool:
        return self.expected is not None and len(self.answers) + self.refused >= self.expected

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


def _request(
    request_id: str,
    operation_id: str,
    input: Any,
    identity: Identity | None,
    parent_request_id: str | None,
    traceparent: str | None,
    inbox: str,
) -> Event:
    payload: dict[str, Any] = {
        "requestId": request_id,
        "operationId": operation_id,
        "input": {} if input is None else input,
        "replyTo": inbox,
    }
    if identity is not None:
        payload["identity"] = identity.to_wire()
    if parent_request_id is not None:
        payload["parentRequestId"] = parent_request_id
    if traceparent is not None:
        payload["traceparent"] = traceparent
    return {"type": protocol.REQUESTED, "id": "", "payload": payload}


def _set(future: asyncio.Future[Any], error: CallError) -> None:
    if not future.done():
        future.set_exception(error)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Mark an exception that nobody awaits any more as seen."""
    if future.done() and not future.cancelled():
        future.exception()


def _source(output: dict[str, Any]) -> object:
    meta = output.get("meta")
    return meta.get("source") if isinstance(meta, dict) else None


def _timed_out(operation_id: str, limit: float) -> CallError:
    return CallError(ErrorCode.TIMEOUT, f'"{operation_id}" did not answer in time', {"deadline": limit})


def _lost(operation_id: str, why: str) -> CallError:
    return CallError(
        ErrorCode.UNAVAILABLE, f'"{operation_id}": {why}', {"operationId": operation_id, "sent": True}
    )


def _data_loss(stream: _Stream, seq: object) -> CallError:
    message = f'"{stream.operation_id}": item {stream.next_seq} of the stream was lost (got {seq})'
    return CallError(ErrorCode.DATA_LOSS, message, {"expected": stream.next_seq, "got": seq})

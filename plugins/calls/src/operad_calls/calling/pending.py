"""The requests of a call map that are in flight, and the link that carries them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from operad.envelopes import EnvelopeKinds, ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.failures import operation_not_found
from operad.transports import (
    Delivery,
    Event,
    Link,
    LinkState,
    NoRespondersError,
    PayloadTooLargeError,
    Transport,
    TransportError,
)
from operad_calls import protocol
from operad_calls.calling.flow import Arrivals, Departures
from operad_calls.memory import keep_memory
from operad_calls.requests import (
    LARGE,
    CallRequest,
    Pending,
    lost_error,
    not_begun_error,
    overloaded_error,
    remember,
)
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

_Request = TypeVar("_Request", bound=Pending)

MAX_ORPHANS = 10_000
"""The maximum number of ended requests with an unknown handler that are remembered."""
MAX_ANSWERED = 10_000
"""The maximum number of operations that are remembered because they have responded."""
_CLOSING = 5.0
"""Seconds for which closing waits until aborts are sent."""


class PendingRequests:
    """The requests of a call map, with their admission, sending, aborts and losses.

    Args:
        transport: the transport of the link.
        settings: the bounds of calls.
    """

    def __init__(self, transport: Transport, settings: CallSettings) -> None:
        self.transport = transport
        self.settings = settings
        self.kinds = EnvelopeKinds()
        self.table: dict[str, Pending] = {}
        self.lingering: dict[str, Pending] = {}
        """Broadcasts that pass on late responses; they are not pending calls."""
        self.orphans: dict[str, float] = {}
        """Ended requests with an unknown handler, and until when (epoch ms) the handler may still respond."""
        self.link: Link | None = None
        self.loop: asyncio.AbstractEventLoop
        self.up = asyncio.Event()
        self.epoch = 0
        self.up_since = 0.0
        """When the link last connected, by `time.monotonic`."""
        self.answered: dict[str, None] = {}
        """Operations that have responded on this link."""
        self.late = 0
        self.arrivals = Arrivals(settings.link_bytes, self.grant)
        self.departures = Departures(settings.link_bytes)
        self._background: set[asyncio.Task[None]] = set()
        self._prefix = secrets.token_hex(8) + "-"
        self._counter = itertools.count(1)
        capabilities = transport.capabilities
        self.counts_bytes = not capabilities.same_process
        # If peers are not authenticated, only an id that cannot be guessed protects a response.
        self._guessable = capabilities.same_process or capabilities.authenticates_peer
        # A transport that knows which peer has a request needs no address for the response.
        self.routes = capabilities.detects_peer_loss and not capabilities.same_process
        self._keeps_order = capabilities.detects_peer_loss
        # Without peer-loss detection, a stream whose handler never responds would wait forever.
        self.awaits_notice = not capabilities.detects_peer_loss

    def start(self) -> None:
        """Bind this object to the running event loop."""
        self.loop = asyncio.get_running_loop()
        self.up = asyncio.Event()
        if self.counts_bytes:
            keep_memory()

    # --- sending a request ------------------------------------------------------------------------

    def open_link(self) -> Link:
        """Return the link. Raises `CallError` ``UNAVAILABLE`` if the map is not open."""
        if self.link is None:
            raise CallError(
                ErrorCode.UNAVAILABLE,
                "the call map is not open: use `async with PendingRequestMap(transport) as calls`",
            )
        return self.link

    def admit(self) -> Link:
        """Return the link. Raises `CallError` if it is not open, or ``max_pending`` requests are in flight."""
        link, limit = self.link or self.open_link(), self.settings.max_pending
        if len(self.table) >= limit:
            raise overloaded_error(f"{limit} calls are already in flight", "max_pending", limit)
        return link

    def new_id(self) -> str:
        """Return a new request id: random, unless the transport authenticates peers or is within one process."""
        return f"{self._prefix}{next(self._counter)}" if self._guessable else secrets.token_hex(16)

    def event(self, call: CallRequest, request_id: str, link: Link, now: float) -> Event:
        """Return the ``call.requested`` of a call; see `CallRequest.event`."""
        return call.event(request_id, None if self.routes else link.inbox, now)

    async def send(self, call: CallRequest, pending: Pending, link: Link, now: float, granted: int) -> None:
        """Send a request. A large request waits for its turn.

        A request that waits is encoded again before it is sent, so that its JSON takes no memory meanwhile. If the
        request ends before its turn, nothing is sent.

        Args:
            call: the call.
            pending: the request of the call, which is in the table already.
            link: the link.
            now: the current time in seconds since 1970.
            granted: the number of bytes that the handler may send without asking; ignored within one process.

        Raises:
            TransportError: the request was not sent.
            CallError: the input has no JSON form, or the identity is not an `Identity`.
        """
        event = self.event(call, pending.request_id, link, now)
        if self.counts_bytes:
            pending.granted = event["payload"]["creditBytes"] = granted
            data = encoded(event)
            size = len(data)
            if size <= LARGE:
                event = protocol.Encoded(event, data)
            else:
                if not self.departures.take(pending, size):
                    del data
                    await self.departures.enter(pending, size)
                    if self.table.get(pending.request_id) is not pending:
                        return
                    data = protocol.encode(event)
                event = protocol.with_sent_bytes(event, data, size)
            del data
        to = f"op:{pending.operation_id}"
        if self.routes:
            pending.target = to  # the response may arrive before `send` returns, and the hub knows who has it
        target = await link.send(to, event)
        if target is not None:
            pending.target = target

    def envelope(self, output: object) -> ResponseEnvelope[Any]:
        """Return the envelope of a response. Raises `CallError` if ``output`` is not an envelope."""
        if type(output) is ResponseEnvelope:  # handed over in process
            return output
        return self.kinds.from_wire(output)

    def end(self, pending: Pending) -> None:
        """Remove a request from the table, and release its bytes."""
        del self.table[pending.request_id]
        if pending.wants or pending.reserved:  # it holds room for bytes, or waits for some
            self.arrivals.ended(pending)
        if pending.outgoing:
            self.departures.leave(pending)
        elif self.departures.waiting:
            self.departures.forget(pending)

    def drop(self, pending: Pending) -> bool:
        """Call `end` for a request, and return True. Return False if the request has ended already."""
        if self.table.get(pending.request_id) is not pending:
            if pending.outgoing:  # it ended while it waited to be sent
                self.departures.leave(pending)
            return False
        self.end(pending)
        return True

    def find(self, request_id: object) -> Pending | None:
        """Return the request with this id; ``None`` unless it is in flight or lingers."""
        if type(request_id) is not str:
            return None
        pending = self.table.get(request_id)
        return self.lingering.get(request_id) if pending is None else pending

    def has_answered(self, pending: Pending) -> None:
        """Remember that a peer serves the operation of a request."""
        remember(self.answered, pending.operation_id, None, MAX_ANSWERED)

    def on_notice(self, pending: _Request, payload: dict[str, Any], ask: Callable[[_Request], bool]) -> None:
        """Process a ``call.credit`` of a handler. ``ask`` grants the bytes that it asks for, or returns False."""
        if pending.outgoing:
            self.departures.leave(pending)
        wants = payload.get("wantsBytes")
        if type(wants) is int and self.counts_bytes:
            pending.wants = max(pending.wants, wants)
            if pending.wants <= pending.granted or not ask(pending):
                self.grant(pending)  # the handler must learn that it was heard

    # --- following up on a request ------------------------------------------------------------------

    def abort(self, pending: Pending) -> None:
        """Tell the handler that the caller no longer waits, as soon as the handler is known.

        On a broker the abort may overtake the request. A handler that acknowledges the request later receives the
        abort again.
        """
        request_id = pending.request_id
        if pending.target is not None:
            self.spawn(self._tell(pending.target, protocol.ABORTED, {"requestId": request_id}))
            if self._keeps_order:
                return
        elif self.routes:  # a request that was sent has a target there
            return
        self._forget_orphans()
        remember(self.orphans, request_id, (time.time() + self.settings.timeout) * 1000, MAX_ORPHANS)

    def _forget_orphans(self) -> None:
        """Forget the orphans whose time has passed."""
        now = time.time() * 1000
        while self.orphans:
            oldest = next(iter(self.orphans))
            if self.orphans[oldest] > now:
                return
            del self.orphans[oldest]

    async def _tell(self, target: str, type_: str, payload: dict[str, Any]) -> None:
        """Send an event. Its loss is only logged, because deadlines, leases and heartbeats make up for it."""
        link = self.link
        if link is None:
            return
        try:
            await link.send(target, {"type": type_, "id": "", "payload": {**payload, "replyTo": link.inbox}})
        except TransportError as error:
            logger.debug("a %s was not sent: %s", type_, error)

    async def send_credit(self, pending: Pending) -> None:
        """Tell the handler of a request, if it is known, the total of items and bytes that it may send."""
        if pending.target is None:
            return
        payload = {"requestId": pending.request_id, "total": pending.total}
        if self.counts_bytes:
            payload["totalBytes"] = pending.granted
        await self._tell(pending.target, protocol.CREDIT, payload)

    def grant(self, pending: Pending) -> None:
        """Run `send_credit` in the background."""
        self.spawn(self.send_credit(pending))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; `settle` waits for it."""
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def settle(self) -> None:
        """Wait up to 5 s for the background tasks, then cancel the rest."""
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=_CLOSING)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    # --- events of no request in flight, and losses ---------------------------------------------------

    def on_stray(self, type_: str, payload: dict[str, Any], delivery: Delivery) -> None:
        """Process an event that belongs to no request in flight: a lost peer, or a late response."""
        if type_ == protocol.LOST and self.transport.capabilities.detects_peer_loss:
            self._lose(payload.get("peer"))
            return
        if type_ not in (protocol.RESPONDED, protocol.ERROR, protocol.COMPLETED, protocol.CREDIT):
            return
        request_id, reply_to = payload.get("requestId"), payload.get("replyTo")
        if type_ != protocol.CREDIT:
            self.late += 1
        if type(request_id) is not str or self.orphans.pop(request_id, None) is None:
            return
        if type(reply_to) is str and type_ in (protocol.RESPONDED, protocol.CREDIT):
            self.spawn(self._tell(reply_to, protocol.ABORTED, {"requestId": request_id}))

    def on_link(self, state: LinkState, epoch: int) -> None:
        """Record the state of the link. If it is down, fail all requests except those that a broker stores."""
        if state == "up":
            self.epoch = epoch
            self.up_since = time.monotonic()
            self.up.set()
            return
        self.up.clear()
        unsent = set(self.departures.waiting)  # before others end and let them go
        for pending in [item for item in self.table.values() if not item.stored]:
            self.end(pending)
            if pending in unsent:
                why = "the connection was lost before the request was sent"
                pending.fail(not_begun_error(pending.operation_id, why))
            else:
                pending.fail(lost_error(pending.operation_id, "the connection was lost during the call"))
        self.end_lingering()

    def end_lingering(self) -> None:
        """Stop waiting for late responses to broadcasts."""
        for pending in list(self.lingering.values()):
            why = f'"{pending.operation_id}": the caller no longer waits for responses'
            pending.fail(CallError(ErrorCode.ABORTED, why))

    def _lose(self, peer: object) -> None:
        for pending in [item for item in self.table.values() if item.target == peer]:
            self.end(pending)
            pending.fail(lost_error(pending.operation_id, "its handler was lost during the call"))

    def not_sent(self, error: TransportError, operation_id: str) -> CallError:
        """Return the `CallError` for a request that the transport could not send."""
        details: dict[str, Any] = {"operationId": operation_id}
        if isinstance(error, NoRespondersError):
            failure = CallError(ErrorCode.NO_RESPONDERS, f'no peer serves "{operation_id}"', details)
            if self.transport.capabilities.detects_peer_loss:
                failure = operation_not_found(operation_id)
        elif isinstance(error, PayloadTooLargeError):
            message = f'the request for "{operation_id}" is too large: {error}'
            failure = CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {**details, "sent": False})
        else:
            message = f'"{operation_id}" could not be sent: {error}'
            failure = CallError(ErrorCode.UNAVAILABLE, message, {**details, "sent": False})
        failure.ran = False
        return failure


def encoded(event: Event) -> bytes:
    """Return the JSON of a request; convert values such as dates. Raises `CallError` if one has no JSON form."""
    try:
        return protocol.encode(event)
    except CallError as error:
        from operad import Conversions  # slow to import, and most inputs are JSON

        payload = event["payload"]
        try:
            payload["input"] = Conversions().unstructurer(Any)(payload.get("input"))
        except Exception:  # noqa: BLE001  # any object may be in an input
            raise error from None
        return protocol.encode(event)

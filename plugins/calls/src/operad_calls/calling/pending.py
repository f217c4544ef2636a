"""The requests of a call map that are under way, and the link on which they are."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import Any

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
from operad_calls.requests import Pending, Said, lost, not_begun, overloaded
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

MAX_ORPHANS = 10_000
"""How many ended requests are remembered whose handler has not told where it is."""
MAX_ANSWERED = 10_000
"""How many operations are remembered that have answered."""
_CLOSING = 5.0
"""Seconds that closing waits for aborts to leave."""


class PendingRequests:
    """Admission, ids, aborts, lost peers and lost connections, whatever is called.

    Args:
        transport: the link's.
        settings: the bounds.
    """

    def __init__(self, transport: Transport, settings: CallSettings) -> None:
        self.transport = transport
        self.settings = settings
        self.most = settings.max_pending
        """How many calls may wait at once."""
        self.kinds = EnvelopeKinds()
        self.table: dict[str, Pending] = {}
        self.orphans: dict[str, float] = {}
        """Ended requests whose handler is not known, and until when (epoch ms) it may tell where it is."""
        self.link: Link | None = None
        self.loop: asyncio.AbstractEventLoop
        self.up = asyncio.Event()
        self.epoch = 0
        self.up_since = 0.0
        """When the link came up last (`time.monotonic`)."""
        self.answered: dict[str, None] = {}
        """Operations that have answered here."""
        self.late = 0
        self.arrivals = Arrivals(settings.link_bytes, self.grant)
        self.departures = Departures(settings.link_bytes)
        self._background: set[asyncio.Task[None]] = set()
        self._prefix = secrets.token_hex(8) + "-"
        self._counter = itertools.count(1)
        capabilities = transport.capabilities
        self.counts_bytes = not capabilities.same_process
        # Where peers are not authenticated, an id that nobody can guess is what protects an answer.
        self._guessable = capabilities.same_process or capabilities.authenticates_peer
        # A transport that knows who has a request needs no word of where answers go.
        self.routes = capabilities.detects_peer_loss and not capabilities.same_process
        self._keeps_order = capabilities.detects_peer_loss
        # Where nobody tells of lost handlers, a stream of which none speaks would wait for ever.
        self.awaits_notice = not capabilities.detects_peer_loss

    def start(self) -> None:
        """Belong to the running event loop."""
        self.loop = asyncio.get_running_loop()
        self.up = asyncio.Event()
        if self.counts_bytes:
            keep_memory()

    # --- the parts of a request -------------------------------------------------------------------

    def open_link(self) -> Link:
        """The link. Raises `CallError` where the map is not open."""
        if self.link is None:
            raise CallError(
                ErrorCode.UNAVAILABLE, "the call map is not open: use `async with PendingRequestMap(transport)`"
            )
        return self.link

    def admit(self) -> Link:
        """The link, for one more request. Raises `CallError`."""
        link, limit = self.link or self.open_link(), self.most
        if len(self.table) >= limit:
            raise overloaded(f"{limit} calls are under way already", "max_pending", limit)
        return link

    def new_id(self) -> str:
        """The id of a new request."""
        return f"{self._prefix}{next(self._counter)}" if self._guessable else secrets.token_hex(16)

    def event(self, said: Said, request_id: str, link: Link, now: float) -> Event:
        """The ``call.requested`` of a call."""
        return said.event(request_id, None if self.routes else link.inbox, now)

    async def large(self, event: Event, data: bytes, pending: Pending) -> Event | None:
        """A large request, when its turn has come; it says its size. ``None``: it ended before its turn.

        One that has to wait is written anew then: many that wait need not keep their JSON meanwhile.
        """
        size = len(data)
        if not self.departures.take(pending, size):
            del data
            await self.departures.enter(pending, size)
            if self.table.get(pending.request_id) is not pending:
                return None
            data = protocol.encode(event)
        return protocol.with_sent_bytes(event, data, len(data))

    def envelope(self, output: object) -> ResponseEnvelope[Any]:
        """The envelope of an answer. Raises `CallError`."""
        if type(output) is ResponseEnvelope:  # handed over in process
            return output
        return self.kinds.from_wire(output)

    def end(self, pending: Pending) -> None:
        """Nothing more is expected for a request."""
        del self.table[pending.request_id]
        if pending.wants or pending.reserved:  # only who has asked for room holds any, or waits for it
            self.arrivals.ended(pending)
        if pending.outgoing:
            self.departures.leave(pending)
        elif self.departures.waiting:
            self.departures.forget(pending)

    def drop(self, pending: Pending) -> bool:
        """As `end`, where it may have ended; answers whether it had not."""
        if self.table.get(pending.request_id) is not pending:
            if pending.outgoing:  # it ended while it waited to be sent
                self.departures.leave(pending)
            return False
        self.end(pending)
        return True

    def has_answered(self, pending: Pending) -> None:
        """Remember that somebody serves an operation."""
        if pending.operation_id not in self.answered:
            self.answered[pending.operation_id] = None
            if len(self.answered) > MAX_ANSWERED:
                del self.answered[next(iter(self.answered))]

    # --- what follows a request ---------------------------------------------------------------------

    def abort(self, pending: Pending) -> None:
        """Tell the handler that nobody waits any more; where it is not known yet, as soon as it is.

        On a broker it may come before the request: a handler that says afterwards that it has it is told again.
        """
        request_id = pending.request_id
        if pending.target is not None:
            self.spawn(self._send_abort(request_id, pending.target))
            if self._keeps_order:
                return
        elif self.routes:  # what is sent there has a target before it is
            return
        self._forget_orphans()
        self.orphans[request_id] = (time.time() + self.settings.timeout) * 1000
        if len(self.orphans) > MAX_ORPHANS:
            del self.orphans[next(iter(self.orphans))]

    def _forget_orphans(self) -> None:
        """Forget those whose handler has not told where it is in time: it never will."""
        now = time.time() * 1000
        while self.orphans:
            oldest = next(iter(self.orphans))
            if self.orphans[oldest] > now:
                return
            del self.orphans[oldest]

    async def _send_abort(self, request_id: str, target: str) -> None:
        link = self.link
        if link is not None:
            await self.tell(link, target, protocol.ABORTED, {"requestId": request_id, "replyTo": link.inbox})

    async def tell(self, link: Link, target: str, type_: str, payload: dict[str, Any]) -> None:
        """Send what may be lost: deadline, lease and heartbeat heal it."""
        try:
            await link.send(target, {"type": type_, "id": "", "payload": payload})
        except TransportError as error:
            logger.debug("a %s was not sent: %s", type_, error)

    async def send_credit(self, pending: Pending) -> None:
        """Tell the handler of a request, where it is known, what it may send in all."""
        link, target = self.link, pending.target
        if link is None or target is None:
            return
        payload: dict[str, Any] = {
            "requestId": pending.request_id,
            "total": pending.total,
            "replyTo": link.inbox,
        }
        if self.counts_bytes:
            payload["totalBytes"] = pending.granted
        await self.tell(link, target, protocol.CREDIT, payload)

    def grant(self, pending: Pending) -> None:
        """As `send_credit`, in the background."""
        self.spawn(self.send_credit(pending))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background that `aclose` waits for."""
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def settle(self) -> None:
        """Wait for what is done in the background, and end what takes too long."""
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=_CLOSING)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    # --- what comes in for none of them, and losses ---------------------------------------------------

    def on_stray(self, type_: str, payload: dict[str, Any], delivery: Delivery) -> None:
        """An event that belongs to no request under way."""
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
            self.spawn(self._send_abort(request_id, reply_to))

    def on_link(self, state: LinkState, epoch: int) -> None:
        """The link came up, or went down with all that was sent on it, but for what a broker stores."""
        if state == "up":
            self.epoch = epoch
            self.up_since = time.monotonic()
            self.up.set()
            return
        self.up.clear()
        unsent = set(self.departures.waiting)  # before the end of others gives them their turns
        for pending in [item for item in self.table.values() if not item.stored]:
            self.end(pending)
            if pending in unsent:
                pending.fail(not_begun(pending.operation_id, "the connection was lost before it was sent"))
            else:
                pending.fail(lost(pending.operation_id, "the connection was lost during the call"))

    def _lose(self, peer: object) -> None:
        for pending in [item for item in self.table.values() if item.target == peer]:
            self.end(pending)
            pending.fail(lost(pending.operation_id, "its handler was lost during the call"))

    def not_sent(self, error: TransportError, operation_id: str) -> CallError:
        """The `CallError` for a request that the transport did not take."""
        failure = self._refused(error, operation_id)
        failure.ran = False
        return failure

    def _refused(self, error: TransportError, operation_id: str) -> CallError:
        details = {"operationId": operation_id, "sent": False}
        if isinstance(error, NoRespondersError):
            if self.transport.capabilities.detects_peer_loss:
                return operation_not_found(operation_id)
            message = f'nobody serves "{operation_id}"'
            return CallError(ErrorCode.NO_RESPONDERS, message, {"operationId": operation_id})
        if isinstance(error, PayloadTooLargeError):
            message = f'the request for "{operation_id}" is too large: {error}'
            return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, details)
        return CallError(ErrorCode.UNAVAILABLE, f'"{operation_id}" could not be sent: {error}', details)

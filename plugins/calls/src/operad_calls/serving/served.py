"""The requests that a link serves, for call handlers and for serving by hand.

This module decides which requests are served: each once, within the bounds, and before its deadline. It also
processes credit and aborts of callers, and ends requests if their callers are gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from operad.errors import CallError, ErrorCode
from operad.failures import operation_not_found
from operad.transports import Capabilities, Delivery, Link
from operad_calls import protocol
from operad_calls.memory import keep_memory
from operad_calls.reports import Reports
from operad_calls.requests import lost_error, not_begun_error, overdue, overloaded_error, remember, wake
from operad_calls.serving.active import ActiveRequest, key_of
from operad_calls.serving.answers import Answers
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

MAX_RECENT = 10_000
"""The maximum number of ended requests that are remembered, if the transport may deliver them again."""
_REMEMBERED = 60_000
"""How long an ended request without a deadline is remembered, in ms."""
_NOTICE_AFTER = 0.05
"""Seconds after which a handler on a broker acknowledges a request that has no response yet."""
_LARGE_AFTER = 0.002
"""Seconds after which a handler acknowledges a large request that has no response yet."""
_TICK = 0.25
_SLACK = 0.25
"""The delay of a timer, in seconds, that is normal in a busy event loop."""
_SETTLING = 1.0
"""Seconds after a standstill in which requests arrive that may have waited during the standstill."""
LONGEST = 1e10
"""The longest timeout that is not ignored, in ms."""


class ServedRequests:
    """The requests that a link serves.

    Subclasses run them: they override `begin`, `cancel`, `refusal` and `is_repeatable`.

    Args:
        capabilities: the capabilities of the transport.
        settings: the bounds of calls.
    """

    def __init__(self, capabilities: Capabilities, settings: CallSettings) -> None:
        self.active: dict[tuple[str, str], ActiveRequest] = {}
        self.recent: dict[tuple[str, str], float] = {}
        """The requests that have ended, and until when they are remembered, in epoch ms."""
        self.settings = settings
        self.answers = Answers()
        self.live = not capabilities.redelivers
        self.announces = not capabilities.detects_peer_loss
        self.period = min(_NOTICE_AFTER if self.announces else _TICK, settings.lease / 4)
        self._same_process = capabilities.same_process
        self._detects_loss = capabilities.detects_peer_loss
        self._bounds_peers = not capabilities.same_process or settings.max_concurrent_per_peer is not None
        self._owned: dict[str, int] = {}
        """The number of requests in progress of each caller."""
        self._reports = Reports(logger)
        self._stood, self._settled_at = 0.0, 0.0
        """The length of the last standstill of the event loop, and until when it affects requests, in seconds."""
        self._large: list[ActiveRequest] = []
        """The large requests that must be acknowledged, so that their callers can send more."""
        self._telling: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, link: Link) -> None:
        """Serve requests of this link from now on."""
        if not self._same_process:
            keep_memory()
        self.answers.start(link)
        self._stood = self._settled_at = 0.0
        self._sweep = asyncio.get_running_loop().call_later(self.period, self._on_sweep)

    def stop(self) -> None:
        """Stop the timers, and acknowledge large requests now."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._telling is not None:
            self._telling.cancel()
            self._acknowledge_large()

    async def settle(self, timeout: float | None = None) -> None:
        """Wait for background tasks, at most ``timeout`` seconds, or without limit if it is ``None``."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; `settle` waits for it."""
        self.hold(asyncio.get_running_loop().create_task(work))

    def hold(self, task: asyncio.Task[None]) -> None:
        """Let `settle` wait for a task, too."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what subclasses decide ------------------------------------------------------------------

    def begin(self, request: ActiveRequest, payload: dict[str, Any], delivery: Delivery) -> None:
        """Start a request that `take` has accepted."""
        raise NotImplementedError

    def cancel(self, request: ActiveRequest) -> None:
        """Stop a request, and remove it from the table."""
        raise NotImplementedError

    def refusal(self, operation_id: str) -> CallError | None:
        """Return the error for an operation that is not served; ``None`` if it is served."""
        return None

    def is_repeatable(self, operation_id: str) -> bool:
        """Return True if an operation may run twice for one request."""
        return False

    # --- what arrives ----------------------------------------------------------------------------

    def on_event(self, type_: str, payload: dict[str, Any], delivery: Delivery) -> bool:
        """Process an event. Return True if it is a request, or belongs to a request that is served."""
        if type_ == protocol.REQUESTED:
            request = self.take(payload, delivery)
            if request is not None:
                self.begin(request, payload, delivery)
            return True
        if type_ == protocol.CREDIT:
            return self._on_credit(payload, delivery)
        if type_ == protocol.ABORTED:
            request = self.active.get(key_of(payload, delivery))
            if request is not None:
                self.cancel(request)
            return request is not None
        if type_ == protocol.LOST and self._detects_loss:
            self._cancel_all(item for item in self.active.values() if item.reply_to == payload.get("peer"))
        return False

    def take(self, payload: dict[str, Any], delivery: Delivery) -> ActiveRequest | None:
        """Add a request to the table and return it. Drop or fail it and return ``None`` if it must not run."""
        key, operation_id = key_of(payload, delivery), payload.get("operationId")
        if not key[0] or not key[1]:
            self._reports.warn(key[0], f"dropped a call of {operation_id!r:.99}: no requestId or reply address")
            _acknowledge(delivery)
            return None
        if (running := self.active.get(key)) is not None:  # its end acknowledges both deliveries
            running.done = _both(running.done, delivery.done)
            self._reports.warn(
                key[0], f"dropped a call of {operation_id!r:.99}: its requestId is in use by another"
            )
            return None
        if self.recent and key in self.recent:
            _acknowledge(delivery)
            return None
        request = ActiveRequest(key, operation_id if type(operation_id) is str else "", payload, delivery)
        error = self._check(request, payload, delivery)
        if error is not None:
            self.fail(request, error)
            _acknowledge(delivery)
            return None
        self.active[key] = request
        if self._bounds_peers:
            self._owned[request.owner] = self._owned.get(request.owner, 0) + 1
        if request.is_large:
            self._large.append(request)
            if self._sweep is None:  # closing: nothing may be left for later
                self._acknowledge_large()
            elif self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(_LARGE_AFTER, self._acknowledge_large)
        return request

    def _check(self, request: ActiveRequest, payload: dict[str, Any], delivery: Delivery) -> CallError | None:
        """Set the deadline of a request. Return the error if the request must not run."""
        operation_id, settings = request.operation_id, self.settings
        if not operation_id:
            message = f"operationId: expected a non-empty string, got {type(payload.get('operationId')).__name__}"
            return CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
        to = delivery.to
        if to is not None and to != f"op:{operation_id}" and not _is_address_of(to, operation_id):
            return operation_not_found(operation_id, f'"{operation_id}" cannot be called at {to!r:.200}')
        if (error := self.refusal(operation_id)) is not None:
            return error
        limit = settings.max_concurrent
        if len(self.active) >= limit:
            return overloaded_error(f"{limit} requests are already in progress", "max_concurrent", limit)
        limit = settings.per_peer
        if self._bounds_peers and self._owned.get(request.owner, 0) >= limit:
            message = f"{limit} requests of this caller are already in progress"
            return overloaded_error(message, "max_concurrent_per_peer", limit)
        if (error := self._set_deadline(request, payload, delivery)) is not None:
            return error
        if delivery.redelivered and not self.is_repeatable(operation_id):
            return lost_error(operation_id, "the handler of the request was lost; the call may have run")
        return None

    def _set_deadline(
        self, request: ActiveRequest, payload: dict[str, Any], delivery: Delivery
    ) -> CallError | None:
        """Set the deadline of a request. Return an error if it has passed.

        ``timeoutMs`` starts at the arrival and needs no common clock. The request may have waited before: in the
        transport, which reports this in `Delivery.held`, or in a socket while this process stood still. If a
        transport redelivers and does not report ``held``, the ``deadline`` by the clock of the caller is used.
        """
        timeout, held, now = payload.get("timeoutMs"), delivery.held, time.time() * 1000
        if (self.live or held is not None) and isinstance(timeout, (int, float)) and 0 <= timeout < LONGEST:
            late = max(held or 0.0, 0.0 if self._same_process else self._stood_still() * 1000)
            request.deadline = now + timeout - late
            if late and request.deadline <= now and not delivery.redelivered:
                why = f"the request arrived {late / 1000:.1f} s late, after its deadline"
                return not_begun_error(request.operation_id, why)
        elif isinstance(deadline := payload.get("deadline"), (int, float)) and deadline < now + LONGEST:
            request.deadline = float(max(0, deadline))  # an integer below the range of a float would raise
        if request.deadline is not None and request.deadline <= now:
            message = f'"{request.operation_id}": the request arrived after its deadline'
            return CallError(ErrorCode.TIMEOUT, message, {"deadline": request.deadline})
        return None

    def _stood_still(self) -> float:
        """Return the seconds that a request that arrives now may have waited while this process stood still."""
        if self._sweep is None:
            return 0.0
        loop = asyncio.get_running_loop()
        now, behind = loop.time(), overdue(self._sweep, loop)
        recent = self._stood if now < self._settled_at else 0.0
        if behind <= _SLACK or behind + self.period <= recent:
            return recent
        self._stood, self._settled_at = behind + self.period, now + _SETTLING
        return self._stood

    def _on_credit(self, payload: dict[str, Any], delivery: Delivery) -> bool:
        """Process credit for a request, in items and bytes. Return True if the request is in progress."""
        request = self.active.get(key_of(payload, delivery))
        if request is None:
            return False
        request.renewed = time.monotonic()
        request.is_asked = True
        total, room = payload.get("total"), payload.get("totalBytes")
        if type(total) is int and request.total is not None and total > request.total:
            request.total, request.is_asked = total, False
            wake(request.waiter)
        if type(room) is int and request.granted is not None:
            request.heard = True
            if room > request.granted:
                request.granted = room
                wake(request.waiter)
        # A stream's consumer needs a sign of life: always if the transport cannot detect lost peers, otherwise
        # only when it asks for one.
        if request.total is not None and not self._same_process and (self.announces or request.is_asked):
            self.notice(request)
        return True

    def on_down(self) -> None:
        """Handle a lost connection: cancel all requests, if the transport reports the loss to their callers."""
        if self._detects_loss:
            self._cancel_all(self.active.values())

    def _cancel_all(self, requests: Iterable[ActiveRequest]) -> None:
        for request in list(requests):
            self.cancel(request)

    # --- what goes back --------------------------------------------------------------------------

    def notice(self, request: ActiveRequest) -> None:
        """Acknowledge a request in the background."""
        self.spawn(self.answers.notice(request))

    def fail(self, request: ActiveRequest, error: CallError) -> None:
        """Send the error of a request in the background."""
        self.spawn(self.answers.error(request.reply_to, request.request_id, error))

    # --- the end of requests ---------------------------------------------------------------------

    def finish(self, request: ActiveRequest) -> None:
        """Remove a request from the table, and acknowledge its delivery; idempotent."""
        if self.active.get(request.key) is not request:
            return
        del self.active[request.key]
        request.is_over = True
        if self._bounds_peers:
            left = self._owned[request.owner] - 1
            if left:
                self._owned[request.owner] = left
            else:
                del self._owned[request.owner]
        if not self.live:
            remember(self.recent, request.key, request.deadline or time.time() * 1000 + _REMEMBERED, MAX_RECENT)
        if request.done is not None:
            request.done()

    def _on_sweep(self) -> None:
        """End streams of silent consumers, and acknowledge requests that take long."""
        loop = asyncio.get_running_loop()
        silent = time.monotonic() - overdue(self._sweep, loop) - self.settings.lease
        self._stood_still()
        for request in list(self.active.values()):
            if request.total is not None and request.renewed < silent:
                logger.info("ended a stream of %s: its consumer gave no sign of life", request.operation_id)
                why = f"its consumer gave no sign of life for {self.settings.lease:g} s"
                self.cancel(request)
                # A consumer that is there after all learns of the end, and a hub forgets the request.
                self.fail(request, CallError(ErrorCode.ABORTED, f'"{request.operation_id}": {why}'))
            elif self.announces and not (request.noticed or request.sent):
                request.noticed = True
                self.notice(request)
        now = time.time() * 1000
        for key in [key for key, limit in self.recent.items() if limit < now]:
            del self.recent[key]
        self._sweep = loop.call_later(self.period, self._on_sweep)

    def _acknowledge_large(self) -> None:
        self._telling, large, self._large = None, self._large, []
        for request in large:
            if not (request.is_over or request.noticed or request.sent):  # an item acknowledges it, too
                request.noticed = True
                self.notice(request)


def _acknowledge(delivery: Delivery) -> None:
    """Tell the transport that a delivery needs no more work."""
    if delivery.done is not None:
        delivery.done()


def _both(one: Callable[[], None] | None, other: Callable[[], None] | None) -> Callable[[], None] | None:
    """Return a function that acknowledges two deliveries; ``None`` if neither needs it."""
    if one is None or other is None:
        return one or other

    def acknowledge() -> None:
        one()
        other()

    return acknowledge


def _is_address_of(to: str, operation_id: str) -> bool:
    """Return True if ``to`` is an address of the operation."""
    kind, _, name = to.partition(":")
    return name == operation_id and (kind in ("op", "queue") or (kind == "all" and name == protocol.DISCOVER))

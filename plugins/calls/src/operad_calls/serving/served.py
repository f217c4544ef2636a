"""The requests that a link serves: the one table of them, for call handlers and for serving by hand.

Who may have which request, whether one that comes twice runs, when it has to be over, what its caller gives
credit for, and how long a silent caller is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from operad.errors import CallError, ErrorCode
from operad.failures import operation_not_found
from operad.subscriptions import Subscription
from operad.transports import Capabilities, Delivery
from operad_calls import protocol
from operad_calls.memory import keep_memory
from operad_calls.reports import Reports
from operad_calls.requests import LARGE, lost_error, not_begun_error, overdue, overloaded_error, wake
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

MAX_RECENT = 10_000
"""How many requests are remembered that have ended, where a transport may deliver them again."""
_REMEMBERED = 60_000
"""Milliseconds for which one without a deadline is remembered."""
_NOTICE_AFTER = 0.05
"""Seconds after which a handler on a broker tells where it is."""
_LARGE_AFTER = 0.002
"""Seconds after which it does so with a large request: one that is answered at once takes no message more."""
_TICK = 0.25
_SLACK = 0.25
"""Seconds by which the timer of a busy event loop may be late."""
_SETTLING = 1.0
"""Seconds after a standstill in which a request that arrives may have waited for its end."""
LONGEST = 1e10
"""Milliseconds: a longer timeout is ignored."""


class Served:
    """A request under way."""

    __slots__ = (
        "deadline",
        "done",
        "granted",
        "heard",
        "is_asked",
        "is_large",
        "is_over",
        "key",
        "noticed",
        "operation_id",
        "owner",
        "renewed",
        "reply_to",
        "request_id",
        "sent",
        "sent_bytes",
        "stream",
        "task",
        "total",
        "turn",
        "waiter",
    )

    def __init__(
        self, key: tuple[str, str], operation_id: str, payload: dict[str, Any], delivery: Delivery
    ) -> None:
        self.key = key
        self.request_id = key[1]
        self.reply_to = key[0]
        self.operation_id = operation_id
        self.owner = key[0] if delivery.identity is None else f"identity {delivery.identity.id}"
        """Whose request it is, where requests are counted for each caller."""
        self.total: int | None = None
        """How many items may be sent in all; ``None``: the peer gives no credit."""
        if "credit" in payload and type(credit := payload["credit"]) is int and credit > 0:
            self.total = credit
        self.granted: int | None = None
        """How many bytes may be sent in all; ``None``: the peer does not count them."""
        if "creditBytes" in payload and type(room := payload["creditBytes"]) is int and room >= 0:
            self.granted = room
        self.sent = self.sent_bytes = 0
        self.heard = False
        """Whether the caller has answered the question for room."""
        self.is_large = "sentBytes" in payload and type(size := payload["sentBytes"]) is int and size > LARGE
        self.done = delivery.done
        self.task: asyncio.Task[None] | None = None
        self.stream: Subscription | None = None
        """The stream that a call handler sends."""
        self.deadline: float | None = None
        """Epoch ms."""
        self.waiter: asyncio.Future[None] | None = None
        self.renewed = 0.0 if self.total is None else time.monotonic()
        self.noticed = False
        self.is_asked = False
        """Whether the last credit gave none: its consumer asks whether anybody is there still."""
        self.is_over = False
        self.turn: asyncio.Lock | None = None
        """Where several tasks may send items: held by the one whose turn it is."""


class ServedRequests:
    """The table.

    Args:
        capabilities: of the transport.
        settings: the bounds.
        refuse: tells a caller why its request is not begun.
        ended: called to finish a request that was ended by its caller, the loss of its caller, or its lease, with
            the error of which the caller learns; ``None`` where the caller knows.
        notice: tells a caller that its request is here.
        refusal: why a request is not served here; ``None``: it is.
        repeatable: whether an operation may run twice.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        settings: CallSettings,
        *,
        refuse: Callable[[Served, CallError], None],
        ended: Callable[[Served, CallError | None], None],
        notice: Callable[[Served], None],
        refusal: Callable[[Served], CallError | None] = lambda served: None,
        repeatable: Callable[[str], bool],
    ) -> None:
        self.active: dict[tuple[str, str], Served] = {}
        self.recent: dict[tuple[str, str], float] = {}
        """Requests that have ended, until when (epoch ms) they are remembered."""
        self.settings = settings
        self._most, self._most_per_peer = settings.max_concurrent, settings.per_peer
        self.live = not capabilities.redelivers
        self.announces = not capabilities.detects_peer_loss
        self.period = min(_NOTICE_AFTER if self.announces else _TICK, settings.lease / 4)
        self._same_process = capabilities.same_process
        self._detects_loss = capabilities.detects_peer_loss
        self._bounds_peers = not capabilities.same_process or settings.max_concurrent_per_peer is not None
        self._refuse, self._ended, self._notice = refuse, ended, notice
        self._why_not, self._repeatable = refusal, repeatable
        self._owned: dict[str, int] = {}
        self._reports = Reports(logger)
        self._stood, self._settled_at = 0.0, 0.0
        """How long the event loop last stood still, and when what waited for it has arrived (in seconds)."""
        self._large: list[Served] = []
        """Large requests whose callers wait for a word, before they send more: an answer is one."""
        self._telling: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look after the requests."""
        if not self._same_process:
            keep_memory()
        self._stood = self._settled_at = 0.0
        self._sweep = asyncio.get_running_loop().call_later(self.period, self._on_sweep)

    def stop(self) -> None:
        """Look after them no longer; who waits for a word has it now."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._telling is not None:
            self._telling.cancel()
            self._tell_of_large()

    # --- what comes in ---------------------------------------------------------------------------

    def take(self, payload: dict[str, Any], delivery: Delivery) -> Served | None:
        """The request of a ``call.requested``, in the table now; ``None`` where it is not to run."""
        key, operation_id = key_of(payload, delivery), payload.get("operationId")
        if not key[0] or not key[1]:
            self._reports.warn(key[0], "dropped a request without requestId or an address for the answer")
            done(delivery)
            return None
        if (running := self.active.get(key)) is not None:  # whose end acknowledges this one, too
            running.done = _both(running.done, delivery.done)
            self._reports.warn(key[0], "dropped a second request with the id of one that is under way")
            return None
        if self.recent and key in self.recent:
            done(delivery)
            return None
        served = Served(key, operation_id if type(operation_id) is str else "", payload, delivery)
        error = self._refusal(served, payload, delivery)
        if error is not None:
            self._refuse(served, error)
            return None
        self.active[key] = served
        if self._bounds_peers:
            self._owned[served.owner] = self._owned.get(served.owner, 0) + 1
        if served.is_large:
            self._large.append(served)
            if self._sweep is None:  # closing: nothing is left for later
                self._tell_of_large()
            elif self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(_LARGE_AFTER, self._tell_of_large)
        return served

    def _refusal(self, served: Served, payload: dict[str, Any], delivery: Delivery) -> CallError | None:
        operation_id, settings = served.operation_id, self.settings
        if not operation_id:
            message = "a call.requested needs an operationId, a string"
            return CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
        to = delivery.to
        if to is not None and to != f"op:{operation_id}" and not _is_address_of(to, operation_id):
            return operation_not_found(operation_id, f'"{operation_id}" is not what is called at this address')
        if (error := self._why_not(served)) is not None:
            return error
        if len(self.active) >= self._most:
            limit = settings.max_concurrent
            return overloaded_error(f"{limit} requests are under way already", "max_concurrent", limit)
        if self._bounds_peers and self._owned.get(served.owner, 0) >= self._most_per_peer:
            limit = settings.per_peer
            message = f"{limit} requests of this caller are under way already"
            return overloaded_error(message, "max_concurrent_per_peer", limit)
        if (error := self._late(served, payload, delivery)) is not None:
            return error
        if delivery.redelivered and not self._repeatable(operation_id):
            return lost_error(operation_id, "the handler that had the request was lost; it may have run")
        return None

    def _late(self, served: Served, payload: dict[str, Any], delivery: Delivery) -> CallError | None:
        """Set the deadline of a request. Return an error if it has passed.

        ``timeoutMs`` counts from the arrival and needs no common clock. The request may have waited before that:
        in the transport, which reports it in `Delivery.held`, or in a socket while this process stood still. If a
        transport that redelivers does not report ``held``, only the caller's clock (``deadline``) can tell.
        """
        timeout, held, now = payload.get("timeoutMs"), delivery.held, time.time() * 1000
        if (self.live or held is not None) and isinstance(timeout, (int, float)) and 0 <= timeout < LONGEST:
            late = max(held or 0.0, 0.0 if self._same_process else self._stood_still() * 1000)
            served.deadline = now + timeout - late
            if late and served.deadline <= now and not delivery.redelivered:
                return not_begun_error(
                    served.operation_id, f"arrived {late / 1000:.1f} s late, after its deadline"
                )
        elif isinstance(deadline := payload.get("deadline"), (int, float)) and deadline < now + LONGEST:
            served.deadline = float(max(0, deadline))  # an integer below the range of a float would raise
        if served.deadline is not None and served.deadline <= now:
            message = f'"{served.operation_id}" came after its deadline'
            return CallError(ErrorCode.TIMEOUT, message, {"deadline": served.deadline})
        return None

    def _stood_still(self) -> float:
        """Return how many seconds a request that arrives now may have waited for this process to run again."""
        if self._sweep is None:
            return 0.0
        loop = asyncio.get_running_loop()
        now, behind = loop.time(), overdue(self._sweep, loop)
        recent = self._stood if now < self._settled_at else 0.0
        if behind <= _SLACK or behind + self.period <= recent:
            return recent
        self._stood, self._settled_at = behind + self.period, now + _SETTLING
        return self._stood

    def on_abort(self, payload: dict[str, Any], delivery: Delivery) -> bool:
        """The caller of a request leaves; answers whether it is one of these."""
        served = self.active.get(key_of(payload, delivery))
        if served is None:
            return False
        self._ended(served, None)
        return True

    def on_credit(self, payload: dict[str, Any], delivery: Delivery) -> Served | None:
        """The caller of a request gives credit, in items and bytes; answers the request, if it is one of these."""
        served = self.active.get(key_of(payload, delivery))
        if served is None:
            return None
        served.renewed = time.monotonic()
        served.is_asked = True
        total, room = payload.get("total"), payload.get("totalBytes")
        if type(total) is int and served.total is not None and total > served.total:
            served.total, served.is_asked = total, False
            wake(served.waiter)
        if type(room) is int and served.granted is not None:
            served.heard = True
            if room > served.granted:
                served.granted = room
                wake(served.waiter)
        return served

    def expects_notice(self, served: Served) -> bool:
        """Whether a sign of life is due after credit: each time where nobody tells of losses, else when asked."""
        return served.total is not None and not self._same_process and (self.announces or served.is_asked)

    def on_lost(self, peer: object) -> None:
        """A peer is gone: nobody waits for its requests."""
        if self._detects_loss:
            self._end_all(item for item in self.active.values() if item.key[0] == peer)

    def on_down(self) -> None:
        """The connection is lost: where it tells callers of the loss of this peer, they have been told."""
        if self._detects_loss:
            self._end_all(self.active.values())

    def _end_all(self, served: Iterable[Served]) -> None:
        for item in list(served):
            self._ended(item, None)

    # --- their end -------------------------------------------------------------------------------

    def finish(self, served: Served) -> None:
        """Forget a request; idempotent."""
        if self.active.get(served.key) is not served:
            return
        del self.active[served.key]
        served.is_over = True
        if self._bounds_peers:
            left = self._owned[served.owner] - 1
            if left:
                self._owned[served.owner] = left
            else:
                del self._owned[served.owner]
        if not self.live:
            self.recent[served.key] = served.deadline or time.time() * 1000 + _REMEMBERED
            while len(self.recent) > MAX_RECENT:
                del self.recent[next(iter(self.recent))]
        if served.done is not None:
            served.done()

    def _on_sweep(self) -> None:
        """End requests whose consumer is gone, and tell where slow ones are."""
        loop = asyncio.get_running_loop()
        silent = time.monotonic() - overdue(self._sweep, loop) - self.settings.lease
        self._stood_still()
        for served in list(self.active.values()):
            if served.total is not None and served.renewed < silent:
                logger.info("the consumer of %s gave no sign of life: ended", served.operation_id)
                # If it is there after all, it learns of the end; and a hub forgets the request.
                message = (
                    f'"{served.operation_id}": its consumer gave no sign of life for {self.settings.lease:g} s'
                )
                self._ended(served, CallError(ErrorCode.ABORTED, message))
            elif self.announces and not (served.noticed or served.sent):
                served.noticed = True
                self._notice(served)
        if self.recent:
            self._forget()
        self._sweep = loop.call_later(self.period, self._on_sweep)

    def _tell_of_large(self) -> None:
        self._telling, large, self._large = None, self._large, []
        for served in large:
            if not (served.is_over or served.noticed or served.sent):  # an item is a word, too
                served.noticed = True
                self._notice(served)

    def _forget(self) -> None:
        now = time.time() * 1000
        for key in [key for key, limit in self.recent.items() if limit < now]:
            del self.recent[key]


def key_of(payload: dict[str, Any], delivery: Delivery) -> tuple[str, str]:
    """Who asked what: ids are the callers' choice and may collide, so the table has both."""
    peer = delivery.peer
    if peer is None:
        peer = payload.get("replyTo")
        if type(peer) is not str:
            peer = ""
    request_id = payload.get("requestId")
    if type(request_id) is not str or len(request_id) > protocol.MAX_ID_LENGTH:
        request_id = ""
    return (peer, request_id)


def done(delivery: Delivery) -> None:
    """Acknowledge what is not begun."""
    if delivery.done is not None:
        delivery.done()


def _both(one: Callable[[], None] | None, other: Callable[[], None] | None) -> Callable[[], None] | None:
    """Acknowledges two deliveries."""
    if one is None or other is None:
        return one or other

    def acknowledge() -> None:
        one()
        other()

    return acknowledge


def _is_address_of(to: str, operation_id: str) -> bool:
    """Whether a request came to its operation's own address."""
    kind, _, name = to.partition(":")
    return name == operation_id and (kind in ("op", "queue") or (kind == "all" and name == protocol.DISCOVER))

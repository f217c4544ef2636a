"""The fields of a call, the base of requests that wait for a response, and the errors of the call protocol."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Protocol, TypeVar

import attrs

from operad.access import Identity
from operad.errors import CallError, ErrorCode
from operad.transports import Event
from operad_calls import protocol

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

TRACE = ("traceparent", "tracestate", "baggage")
"""The fields of a trace context, in a request and in the metadata of a context."""

LARGE = 64 * 1024
"""The size in bytes above which a request states its size, and its handler must acknowledge it soon."""


@attrs.define(eq=False, repr=False)
class CallRequest:
    """The fields of a call: the arguments of `PendingRequestMap.call` or ``subscribe`` in one object."""

    operation_id: str
    input: Any
    identity: Identity | None = None
    parent_request_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    delegation: str | None = None
    idempotency_key: str | None = None
    baggage: str | None = None
    request_id: str | None = None
    """The id of the next attempt, if observers know it; if ``None``, a new one is made."""
    limit: float = math.inf
    """When the call must finish, in epoch ms; infinite if it has no deadline."""
    timeout: float | None = None
    """For a stream: the maximum time to wait for each item, in seconds; ``None`` means no limit."""
    credit: int | None = None
    """For a stream: the maximum number of items in flight. ``None`` for a call with a single response."""

    def event(self, request_id: str, reply_to: str | None, now: float) -> Event:
        """Return the ``call.requested`` of this call. Raises `CallError` if ``identity`` is not an `Identity`.

        Args:
            request_id: the id of the request.
            reply_to: the address for responses; ``None`` if the transport knows it.
            now: the current time in seconds since 1970.
        """
        payload: dict[str, Any] = {
            "requestId": request_id,
            "operationId": self.operation_id,
            "input": {} if self.input is None else self.input,
        }
        if reply_to is not None:
            payload["replyTo"] = reply_to
        if self.limit != math.inf:
            payload["deadline"] = math.ceil(self.limit)
            payload["timeoutMs"] = max(math.ceil(self.limit - now * 1000), 0)
        if self.credit is not None:
            payload["credit"] = self.credit
        identity: Any = self.identity  # a caller may pass any object
        if identity is not None:
            if not isinstance(identity, Identity):
                message = f"identity: expected an Identity, got {type(identity).__name__}"
                raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
            payload["identity"] = identity.to_wire()
        if self.parent_request_id is not None:
            payload["parentRequestId"] = self.parent_request_id
        if self.traceparent is not None:
            payload["traceparent"] = self.traceparent
            if self.tracestate is not None:
                payload["tracestate"] = self.tracestate
        if self.baggage is not None:
            payload["baggage"] = self.baggage
        if self.idempotency_key is not None:
            payload["idempotencyKey"] = self.idempotency_key
        if self.delegation is not None:
            payload["delegation"] = self.delegation
        return {"type": protocol.REQUESTED, "id": "", "payload": payload}


class Pending:
    """The base class of requests in flight: single calls, streams and broadcasts."""

    __slots__ = ("granted", "operation_id", "outgoing", "request_id", "reserved", "stored", "target", "wants")

    def __init__(self, operation_id: str, request_id: str) -> None:
        self.operation_id = operation_id
        self.request_id = request_id
        self.target: str | None = None
        """The address for aborts and credit; ``None`` until it is known."""
        self.stored = False
        """Whether the broker stores the request, so that it survives a lost connection."""
        self.outgoing = 0
        """The size in bytes of a large request that its handler has not acknowledged; otherwise 0."""
        # The bytes that may arrive for the request; see `operad_calls.calling.flow`.
        self.granted = 0
        self.reserved = 0
        self.wants = 0

    @property
    def total(self) -> int:
        """The total number of responses that may arrive."""
        return 1

    def accepts(self, peer: str | None) -> bool:
        """Return True if a peer may send events for this request.

        Only the handler may if its inbox is known, and ``peer``, if the transport names senders. On a hub the
        target is the address of an operation, and the hub itself passes on only events of the right peer.
        """
        target = self.target
        return peer is None or target is None or peer == target or not target.startswith("inbox:")

    def on_event(self, type_: str, payload: dict[str, Any]) -> None:
        """Process an event that arrived for this request."""
        raise NotImplementedError  # not an ABC: making one object of it takes longer, and each call makes one

    def fail(self, error: CallError) -> None:
        """End the request with an error; idempotent."""
        raise NotImplementedError


def check_loop(loop: asyncio.AbstractEventLoop, what: str) -> None:
    """Raise `RuntimeError`, which names ``what``, unless the current event loop is ``loop``."""
    if asyncio.get_running_loop() is not loop:
        raise RuntimeError(
            f"this {what} belongs to the event loop in which it was opened: open one in each loop, or use "
            "operad.sync, which works from any thread"
        )


def retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved, so that asyncio does not log it."""
    if future.done() and not future.cancelled():
        future.exception()


def wake(future: asyncio.Future[None] | None) -> None:
    """Set the result of a future to ``None``, unless ``future`` is ``None`` or done."""
    if future is not None and not future.done():
        future.set_result(None)


class Waiting(Protocol):
    """An object whose changes one task at a time can await with `woken`."""

    waiter: asyncio.Future[None] | None


async def woken(owner: Waiting, seconds: float | None = None) -> None:
    """Wait until `wake` is called for ``owner.waiter``, at most ``seconds``; ``None`` means without limit."""
    loop = asyncio.get_running_loop()
    owner.waiter = waiter = loop.create_future()
    timer = None if seconds is None else loop.call_later(seconds, wake, waiter)
    try:
        await waiter
    finally:
        owner.waiter = None
        if timer is not None:
            timer.cancel()


def remember(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Add a value to ``kept``, and remove the oldest one if there are more than ``most``."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


def overdue(timer: asyncio.TimerHandle | None, loop: asyncio.AbstractEventLoop) -> float:
    """Return how many seconds a timer is late; 0.0 if it is on time or ``None``.

    Events that arrived in this time have not been read yet, so a lease must not include this time.
    """
    return 0.0 if timer is None else max(0.0, loop.time() - timer.when())


def timeout_error(operation_id: str, limit: float) -> CallError:
    """Return a ``TIMEOUT`` error for a call that did not finish before ``limit``, in epoch ms."""
    return CallError(ErrorCode.TIMEOUT, f'"{operation_id}" did not respond in time', {"deadline": limit})


def lost_error(operation_id: str, why: str) -> CallError:
    """Return an ``UNAVAILABLE`` error for a request that was sent and may have run; ``why`` is in its message."""
    details = {"operationId": operation_id, "sent": True}
    return CallError(ErrorCode.UNAVAILABLE, f'"{operation_id}": {why}', details)


def not_begun_error(operation_id: str, why: str) -> CallError:
    """Return an ``UNAVAILABLE`` error for a request that did not run; ``why`` is in its message."""
    error = lost_error(operation_id, why)
    error.details["sent"] = error.ran = False
    return error


def overloaded_error(message: str, limit: str, value: int) -> CallError:
    """Return an ``OVERLOADED`` error. ``limit`` is the name of the exhausted setting, ``value`` its value."""
    error = CallError(ErrorCode.OVERLOADED, f"{message} ({limit}); retry later", {"limit": limit, "value": value})
    error.ran = False
    return error

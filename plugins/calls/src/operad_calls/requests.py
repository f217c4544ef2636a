"""What a call says of itself, and the requests that wait for their end."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from operad.access import Identity
from operad.errors import CallError, ErrorCode
from operad.transports import Event
from operad_calls import protocol

TRACE = ("traceparent", "tracestate", "baggage")
"""The context of a trace: fields of a request, and metadata of its call."""

LARGE = 64 * 1024
"""Bytes: a request above this says its size, and its handler answers at once or gives notice soon."""


class Said:
    """What a call says of itself; the arguments of `PendingRequestMap.call`, in one piece."""

    __slots__ = (
        "baggage",
        "credit",
        "delegation",
        "idempotency_key",
        "identity",
        "input",
        "limit",
        "operation_id",
        "parent_request_id",
        "request_id",
        "timeout",
        "traceparent",
        "tracestate",
    )

    def __init__(
        self,
        operation_id: str,
        input: Any,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        delegation: str | None = None,
        idempotency_key: str | None = None,
        baggage: str | None = None,
    ) -> None:
        self.operation_id = operation_id
        self.input = input
        self.identity = identity
        self.parent_request_id = parent_request_id
        self.traceparent = traceparent
        self.tracestate = tracestate
        self.baggage = baggage
        self.delegation = delegation
        self.idempotency_key = idempotency_key
        self.request_id: str | None = None
        """Of the first request, where observers were told of it; ``None``: a new one is made."""
        self.limit = math.inf
        """When the call has to be over, in epoch ms."""
        self.timeout: float | None = None
        """Of a stream: seconds to wait for each item."""
        self.credit: int | None = None
        """Of a stream: how many items may be on their way."""

    def event(self, request_id: str, reply_to: str | None, now: float) -> Event:
        """The ``call.requested``.

        Args:
            request_id: its id.
            reply_to: where answers go; ``None`` where the transport knows by itself.
            now: epoch seconds.
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
        identity: Any = self.identity  # a caller may give anything
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
    """A request that waits for its end."""

    __slots__ = ("granted", "operation_id", "outgoing", "request_id", "reserved", "stored", "target", "wants")

    def __init__(self, operation_id: str, request_id: str) -> None:
        self.operation_id = operation_id
        self.request_id = request_id
        self.target: str | None = None
        """Where an abort or credit goes; ``None``: not known yet."""
        self.stored = False
        """Whether the broker keeps the request, so that it outlives the connection."""
        self.outgoing = 0
        """The size of the request in bytes, while its handler has not told that it has it; 0 if it is small."""
        # What may come for it, in bytes; see `operad_calls.calling.flow`.
        self.granted = 0
        self.reserved = 0
        self.wants = 0

    @property
    def total(self) -> int:
        """How many answers may come in all."""
        return 1

    def notice(self, reply_to: str) -> None:
        """Its handler says where it is."""
        self.target = reply_to

    def fail(self, error: CallError) -> None:
        """End it with an error; idempotent."""
        raise NotImplementedError  # abstract, but no ABC: its isinstance is slower, and asked for each event


def check_loop(loop: asyncio.AbstractEventLoop, what: str) -> None:
    """Raise `RuntimeError` in another event loop than that of ``what``: there its futures wake nobody."""
    if asyncio.get_running_loop() is not loop:
        raise RuntimeError(
            f"this {what} belongs to the event loop in which it was opened: open one in each, or take those of "
            "operad.sync, which can be used from any thread"
        )


def current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    """The running task of a call map's loop. Raises `RuntimeError` where another loop runs."""
    check_loop(loop, "call map")
    return asyncio.current_task(loop)


def set_error(future: asyncio.Future[Any], error: CallError) -> None:
    """End a future with an error, unless it has ended."""
    if not future.done():
        future.set_exception(error)


def retrieve(future: asyncio.Future[Any]) -> None:
    """Mark an exception that nobody awaits any more as seen."""
    if future.done() and not future.cancelled():
        future.exception()


def wake(future: asyncio.Future[None] | None) -> None:
    """End a wait, if there is one and it has not ended."""
    if future is not None and not future.done():
        future.set_result(None)


def overdue(timer: asyncio.TimerHandle | None, loop: asyncio.AbstractEventLoop) -> float:
    """Return by how many seconds a timer is late: for so long the event loop was busy, or the process was stopped.

    Events that arrived meanwhile have not been read yet, so a lease must not count this time.
    """
    return 0.0 if timer is None else max(0.0, loop.time() - timer.when())


def timed_out(operation_id: str, limit: float) -> CallError:
    """The error of a call that had to be over at ``limit``, in epoch ms."""
    return CallError(ErrorCode.TIMEOUT, f'"{operation_id}" did not answer in time', {"deadline": limit})


def lost(operation_id: str, why: str) -> CallError:
    """The error of a request that was sent, and whose handler may have run."""
    return CallError(
        ErrorCode.UNAVAILABLE, f'"{operation_id}": {why}', {"operationId": operation_id, "sent": True}
    )


def not_begun(operation_id: str, why: str) -> CallError:
    """The error of a request that did not run."""
    error = CallError(
        ErrorCode.UNAVAILABLE, f'"{operation_id}": {why}', {"operationId": operation_id, "sent": False}
    )
    error.ran = False
    return error


def overloaded(message: str, limit: str, value: int) -> CallError:
    """The error of a bound on concurrent work."""
    error = CallError(ErrorCode.OVERLOADED, f"{message} ({limit})", {"limit": limit, "value": value})
    error.ran = False
    return error


def told(payload: dict[str, Any]) -> CallError:
    """The error of a ``call.error`` that came for a request."""
    error = protocol.call_error(payload)
    if error.says_nothing_ran:  # a handler does not let such a code of a nested call out (`out_of_handler`)
        error.ran = False
    return error

"""Requests that wait for their end, and the parts that all kinds of them share."""

from __future__ import annotations

import asyncio
from typing import Any

from operad import protocol
from operad.access import Identity
from operad.errors import CallError, ErrorCode
from operad.failures import says_nothing_ran
from operad.transports import Event


class Pending:
    """A request that waits for its end."""

    __slots__ = ("operation_id", "stored", "target")

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        self.target: str | None = None
        """Where an abort or credit goes; ``None``: not known yet."""
        self.stored = False
        """Whether the broker keeps the request, so that it outlives the connection."""

    def notice(self, reply_to: str) -> None:
        """Its handler says where it is."""
        self.target = reply_to

    def fail(self, error: CallError) -> None:
        """End it with an error; idempotent."""
        raise NotImplementedError  # abstract, but no ABC: its isinstance is slower, and asked for each event


def request(
    request_id: str,
    operation_id: str,
    input: Any,
    identity: Identity | None,
    parent_request_id: str | None,
    traceparent: str | None,
    inbox: str,
) -> Event:
    """A ``call.requested``."""
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


def set_error(future: asyncio.Future[Any], error: CallError) -> None:
    """End a future with an error, unless it has ended."""
    if not future.done():
        future.set_exception(error)


def retrieve(future: asyncio.Future[Any]) -> None:
    """Mark an exception that nobody awaits any more as seen."""
    if future.done() and not future.cancelled():
        future.exception()


def timed_out(operation_id: str, limit: float) -> CallError:
    """The error of a call that had to be over at ``limit``, in epoch ms."""
    return CallError(ErrorCode.TIMEOUT, f'"{operation_id}" did not answer in time', {"deadline": limit})


def lost(operation_id: str, why: str) -> CallError:
    """The error of a request that was sent, and whose handler may have run."""
    return CallError(
        ErrorCode.UNAVAILABLE, f'"{operation_id}": {why}', {"operationId": operation_id, "sent": True}
    )


def told(payload: dict[str, Any]) -> CallError:
    """The error of a ``call.error`` that came for a request."""
    error = protocol.call_error(payload)
    if says_nothing_ran(error):  # a handler does not let such a code of a nested call out (`out_of_handler`)
        error.ran = False
    return error

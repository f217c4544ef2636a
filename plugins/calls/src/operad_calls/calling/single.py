"""Calls with a single response."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import TransportError
from operad_calls import protocol
from operad_calls.calling.pending import PendingRequests
from operad_calls.requests import CallRequest, Pending, check_loop, retrieve, timeout_error


class Single(Pending):
    """A call in flight that one response ends."""

    __slots__ = ("expired", "future", "limit", "requested", "requests", "sender")

    def __init__(self, requests: PendingRequests, call: CallRequest) -> None:
        # The fields of `Pending` without a call of its constructor: every remote call makes one of these.
        self.operation_id = call.operation_id
        self.request_id = call.request_id or requests.new_id()
        self.target = None
        self.stored = False
        self.outgoing = self.granted = self.reserved = self.wants = 0
        self.requests = requests
        self.future: asyncio.Future[ResponseEnvelope[Any]] = requests.loop.create_future()
        self.limit = call.limit
        self.sender: asyncio.Task[Any] | None = None
        """The calling task, while it waits until the transport has taken the request."""
        self.expired = False

    def fail(self, error: CallError) -> None:
        """See `Pending.fail`."""
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        """End the call with ``TIMEOUT``."""
        if self.sender is not None:  # the transport has not taken the request
            self.expired = True
            self.requested = self.sender.cancelling()
            self.sender.cancel()
        else:
            self.fail(timeout_error(self.operation_id, self.limit))

    def on_event(self, type_: str, payload: dict[str, Any]) -> None:
        """See `Pending.on_event`."""
        if type_ == protocol.RESPONDED:
            self._on_response(payload)
            return
        if type_ == protocol.ERROR:
            error = protocol.call_error(payload)
        elif type_ == protocol.ABORTED:
            error = CallError(ErrorCode.ABORTED, f'"{self.operation_id}" was aborted by its handler')
        elif type_ == protocol.COMPLETED:
            message = f'the subscription "{self.operation_id}" ended without an item'
            error = CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
        elif type_ == protocol.CREDIT:
            self._on_notice(payload)
            return
        else:
            if type_ == protocol.STORED:  # only a call may outlive the connection: a stream would wait forever
                self.stored = self.requests.transport.capabilities.stores
            return
        self.requests.end(self)
        if error.ran is None:
            self.requests.has_answered(self)
        self.fail(error)

    def _on_response(self, payload: dict[str, Any]) -> None:
        requests, future = self.requests, self.future
        if self.target is None and type(reply_to := payload.get("replyTo")) is str:
            self.target = reply_to
        requests.end(self)
        if self.operation_id not in requests.answered:
            requests.has_answered(self)
        if "seq" in payload:  # the caller asked for one response only, and this is the first item of a stream
            requests.abort(self)
        try:
            envelope = requests.envelope(payload.get("output"))
        except CallError as unusable:
            self.fail(unusable)
            return
        if not future.done():
            future.set_result(envelope)

    def _on_notice(self, payload: dict[str, Any]) -> None:
        """Process a ``call.credit``: the handler acknowledges the request, or asks to send a large response."""
        if type(reply_to := payload.get("replyTo")) is not str:
            return
        self.target = reply_to
        self.requests.on_notice(self, payload, self.requests.arrivals.ask)


async def call_once(requests: PendingRequests, call: CallRequest) -> ResponseEnvelope[Any]:
    """Make one attempt at a call and return its response. Raises `CallError` if it fails.

    Until the transport has taken the request, the deadline cancels this task, and the cancellation becomes the
    ``TIMEOUT`` of the call. Afterwards the deadline ends the future for which this task waits. In any case the
    `finally` tells a handler that has not responded to stop.
    """
    link = requests.admit()
    limit, loop, now = call.limit, requests.loop, time.time()
    seconds = limit / 1000 - now
    if seconds <= 0:
        raise timeout_error(call.operation_id, limit)
    # The task gets no local name: in the traceback of a cancellation that would be a reference cycle.
    pending = Single(requests, call)
    pending.sender = asyncio.current_task(loop)
    if pending.sender is None:
        check_loop(loop, "call map")
    table = requests.table
    timer = loop.call_later(seconds, pending.expire)
    granted = requests.arrivals.unasked(len(table))
    table[pending.request_id] = pending
    try:
        await requests.send(call, pending, link, now, granted)
        if pending.expired and pending.sender is not None:  # the transport swallowed the cancellation
            pending.sender.uncancel()
            raise timeout_error(call.operation_id, limit)
        pending.sender = None
        return await pending.future
    except asyncio.CancelledError:
        retrieve(pending.future)
        task = pending.sender
        if pending.expired and task is not None and task.uncancel() <= pending.requested:
            raise timeout_error(call.operation_id, limit) from None
        raise
    except TransportError as error:
        requests.drop(pending)  # never sent: nothing to abort
        retrieve(pending.future)
        raise requests.not_sent(error, call.operation_id) from error
    finally:
        timer.cancel()
        # A call that was answered, as nearly all are, is neither in the table nor on its way.
        if (pending.outgoing or pending.request_id in table) and requests.drop(pending):
            requests.abort(pending)

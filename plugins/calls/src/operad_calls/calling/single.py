"""The calls of a call map that have one answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import TransportError
from operad.wire import to_json
from operad_calls import protocol
from operad_calls.calling.pending import PendingRequests
from operad_calls.requests import LARGE, Pending, Said, current_task, retrieve, set_error, timed_out, told


class Single(Pending):
    """A call: one answer."""

    __slots__ = ("expired", "future", "limit", "requested", "sender")

    def __init__(
        self, operation_id: str, request_id: str, future: asyncio.Future[ResponseEnvelope[Any]], limit: float
    ) -> None:
        # All of `Pending` in one go: each remote call makes one of these.
        self.operation_id = operation_id
        self.request_id = request_id
        self.target = None
        self.stored = False
        self.outgoing = self.granted = self.reserved = self.wants = 0
        self.future = future
        self.limit = limit
        self.sender: asyncio.Task[Any] | None = None
        """The calling task, while it waits for the transport to take the request."""
        self.expired = False

    def fail(self, error: CallError) -> None:
        """See `Pending.fail`."""
        set_error(self.future, error)

    def expire(self) -> None:
        """Its time is up."""
        if self.sender is not None:  # the transport does not take the request
            self.expired = True
            self.requested = self.sender.cancelling()
            self.sender.cancel()
        else:
            set_error(self.future, timed_out(self.operation_id, self.limit))


class SingleCalls:
    """Calls, and what comes in for them."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests

    async def call(self, said: Said) -> ResponseEnvelope[Any]:
        """Call once. Raises `CallError`."""
        requests = self._requests
        link = requests.link
        if link is None or len(requests.table) >= requests.most:
            link = requests.admit()
        operation_id, limit, loop, now = said.operation_id, said.limit, requests.loop, time.time()
        seconds = limit / 1000 - now
        if seconds <= 0:
            raise timed_out(operation_id, limit)
        request_id = said.request_id or requests.new_id()
        event = said.event(request_id, None if requests.routes else link.inbox, now)
        pending = Single(operation_id, request_id, loop.create_future(), limit)
        # No name here: with the traceback of a cancellation it would be a cycle. None where another loop runs.
        pending.sender = asyncio.current_task(loop) or current_task(loop)
        timer = loop.call_later(seconds, pending.expire)
        requests.table[request_id] = pending
        try:
            if requests.counts_bytes:
                pending.granted = requests.arrivals.unasked(len(requests.table))
                event["payload"]["creditBytes"] = pending.granted
                data = to_json(event)
                if len(data) <= LARGE:
                    event = protocol.Encoded(event, data)
                else:
                    sending = requests.large(event, data, pending)
                    del data
                    if (large := await sending) is None:
                        return await pending.future  # which tells why
                    event = large
                    del large  # as below
            to = f"op:{operation_id}"
            if requests.routes:
                pending.target = to  # it may be on its way before `send` returns, and the hub knows to whom
            target = await link.send(to, event)
            del event  # 10,000 calls that wait need not keep their requests
            if pending.expired and pending.sender is not None:  # the transport took the cancellation for its own
                pending.sender.uncancel()
                raise timed_out(operation_id, limit)
            pending.sender = None
            if target is not None:
                pending.target = target
            return await pending.future
        except asyncio.CancelledError:
            retrieve(pending.future)
            task = pending.sender
            if pending.expired and task is not None and task.uncancel() <= pending.requested:
                raise timed_out(operation_id, limit) from None
            raise
        except TransportError as error:
            requests.drop(pending)  # never sent: nothing to abort
            retrieve(pending.future)
            raise requests.not_sent(error, operation_id) from error
        finally:
            timer.cancel()
            # Answered, as nearly always, it is neither there nor on its way.
            if (pending.outgoing or request_id in requests.table) and requests.drop(pending):
                requests.abort(pending)

    def on_event(self, pending: Single, type_: str, payload: dict[str, Any]) -> None:
        """What comes in for a call."""
        requests, future = self._requests, pending.future
        if type_ == protocol.RESPONDED:
            if pending.target is None and type(reply_to := payload.get("replyTo")) is str:
                pending.target = reply_to
            requests.end(pending)
            if pending.operation_id not in requests.answered:
                requests.has_answered(pending)
            if "seq" in payload:  # the first item of a stream is all that was asked for
                requests.abort(pending)
            output = payload.get("output")
            try:
                envelope = output if type(output) is ResponseEnvelope else requests.envelope(output)
            except CallError as unusable:
                set_error(future, unusable)
                return
            if not future.done():
                future.set_result(envelope)
            return
        if type_ == protocol.ERROR:
            error = told(payload)
        elif type_ == protocol.ABORTED:
            error = CallError(ErrorCode.ABORTED, f'"{pending.operation_id}" was aborted by its handler')
        elif type_ == protocol.COMPLETED:
            message = f'the subscription "{pending.operation_id}" ended without an item'
            error = CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
        else:
            self._on_notice(pending, type_, payload)
            return
        requests.end(pending)
        if error.ran is None:
            requests.has_answered(pending)
        set_error(future, error)

    def _on_notice(self, pending: Single, type_: str, payload: dict[str, Any]) -> None:
        """A handler says that it has the request, and where it is; or asks to send a large answer."""
        reply_to, wants = payload.get("replyTo"), payload.get("wantsBytes")
        if type_ != protocol.CREDIT or type(reply_to) is not str:
            return
        requests = self._requests
        pending.notice(reply_to)
        if pending.outgoing:
            requests.departures.leave(pending)
        if type(wants) is int and requests.counts_bytes:
            pending.wants = max(pending.wants, wants)
            if pending.wants <= pending.granted or not requests.arrivals.ask(pending):
                requests.grant(pending)  # it has to know that it is heard

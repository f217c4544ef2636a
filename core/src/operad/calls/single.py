"""The calls of a call map that have one answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from typing import Any

from operad import protocol
from operad.access import Identity
from operad.calls.requests import Pending, request, retrieve, set_error, timed_out, told
from operad.calls.upkeep import Upkeep
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import TransportError


class Single(Pending):
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

    def fail(self, error: CallError) -> None:
        set_error(self.future, error)


class SingleCalls(Upkeep):
    """Calls, and what comes in for them."""

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
            retry: call again after ``UNAVAILABLE``, until the deadline. For queries and idempotent mutations
                only: what was lost may have run.

        Raises:
            CallError: and nothing else, but a cancellation of the calling task.
        """
        limit = self._limit(timeout, deadline)
        # Not a coroutine around a coroutine: 10,000 calls that wait would keep two frames each.
        if retry:
            return self._retrying(operation_id, input, limit, identity, parent_request_id, traceparent)
        return self._call(operation_id, input, limit, identity, parent_request_id, traceparent)

    async def _retrying(self, operation_id: str, input: Any, limit: float, *options: Any) -> ResponseEnvelope[Any]:
        may_have_run: CallError | None = None
        while True:
            try:
                return await self._call(operation_id, input, limit, *options)
            except CallError as error:
                if error.code != ErrorCode.UNAVAILABLE or not await self._recovered(limit):
                    if may_have_run is not None and error.ran is False:
                        raise may_have_run from error  # that the last attempt did not run is not the whole truth
                    raise
                if error.ran is None:
                    may_have_run = error

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
            raise timed_out(operation_id, limit)
        loop = self._loop
        request_id = self._new_id()
        event = request(request_id, operation_id, input, identity, parent_request_id, traceparent, link.inbox)
        payload = event["payload"]
        payload["deadline"] = math.ceil(limit)
        payload["timeoutMs"] = math.ceil(seconds * 1000)
        pending = Single(operation_id, loop.create_future(), limit)
        self._pending[request_id] = pending
        timer = loop.call_at(loop.time() + seconds, self._expire, pending, context=self._context)
        pending.sender = asyncio.current_task(loop)
        try:
            target = await link.send(f"op:{operation_id}", event)
            del event, payload  # 10,000 calls that wait need not keep their requests
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
            self._pending.pop(request_id, None)  # never sent: nothing to abort
            retrieve(pending.future)
            raise self._not_sent(error, operation_id) from error
        finally:
            timer.cancel()
            if self._pending.pop(request_id, None) is not None:
                self._abort(request_id, pending, link)

    def _limit(self, timeout: float | None, deadline: float | None) -> float:
        """When a call has to be over, in epoch ms."""
        if timeout is None:
            if deadline is not None:
                return deadline
            timeout = self._timeout
        limit = (time.time() + timeout) * 1000
        return limit if deadline is None else min(limit, deadline)

    def _expire(self, pending: Single) -> None:
        if pending.sender is not None:  # the transport does not take the request
            pending.expired = True
            pending.requested = pending.sender.cancelling()
            pending.sender.cancel()
        else:
            set_error(pending.future, timed_out(pending.operation_id, pending.limit))

    def _on_answer(self, request_id: str, pending: Single, type_: str, payload: dict[str, Any]) -> None:
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
        del self._pending[request_id]
        set_error(future, error)

"""Running the requests of a call handler, one at a time and side by side."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from operad.access import Identity
from operad.context import OperationContext
from operad.deadlines import DeadlineExpired, until
from operad.envelopes import local_envelope
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, mask_error
from operad.operations import OperationType
from operad.transports import Delivery, Event, PayloadTooLargeError, TransportError
from operad_calls.protocol import RESPONDED, error_event
from operad_calls.requests import TRACE, timeout_error
from operad_calls.serving.answers import Answers, aborted, completed, responded, too_large
from operad_calls.serving.identity import Verifier
from operad_calls.serving.listing import Listing
from operad_calls.serving.served import Served, ServedRequests

if TYPE_CHECKING:
    from operad import OperationRegistry

_BREATH, _CREDIT_BREATH = 8, 256
"""After how many items a stream lets others run, without credit and with it."""


class Serving:
    """What becomes of a request.

    Args:
        registry: whose operations run.
        listing: the handler's own operations.
        verify: tells who a caller is.
        table: the requests under way.
        answers: the way back.
        mask: whether messages of undeclared exceptions stay here.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        listing: Listing,
        verify: Verifier,
        table: ServedRequests,
        answers: Answers,
        *,
        mask: bool,
    ) -> None:
        self._registry = registry
        self._listing = listing
        self._own = {*listing.own, *listing.shared}
        self._verify = verify
        self._table = table
        self._answers = answers
        self._mask = mask

    async def serve(self, served: Served, payload: dict[str, Any], delivery: Delivery) -> None:
        """Run a request and answer it."""
        try:
            context = OperationContext(served.request_id, deadline=served.deadline)
            if "parentRequestId" in payload and type(parent := payload["parentRequestId"]) is str:
                context.parent_request_id = parent
            if "idempotencyKey" in payload and type(key := payload["idempotencyKey"]) is str:
                context.idempotency_key = key
            if "traceparent" in payload or "baggage" in payload:
                context.metadata = _trace(payload)
            identity = self._verify(payload, delivery)
            if identity is not None:
                if not isinstance(identity, Identity):
                    identity = await self._verified(identity, served)
                context.identity = identity
            operation_id, input = served.operation_id, payload.get("input")
            if operation_id in self._own and (answer := self._listing.answer(operation_id)) is not None:
                event = responded(served, local_envelope(answer(input, context), operation_id))
                if served.total is not None:
                    event["payload"]["seq"] = 0
                    await self._answers.send(served, event)
                    served.sent = 1
                    event = completed(served)
            elif served.total is not None or (
                (spec := self._registry.get_spec(operation_id)) is not None
                and spec.type is OperationType.SUBSCRIPTION
            ):
                event = await self._stream(served, input, context)
            else:
                if context.deadline is None:  # a single call that says nothing ends, too
                    limit = (time.time() + self._table.settings.timeout) * 1000
                    context.deadline = served.deadline = limit
                event = responded(served, await self._registry.execute(operation_id, input, context))
        except asyncio.CancelledError:
            if served.is_over:  # whoever cancelled it has told the caller
                raise
            event = self._error_event(served, asyncio.CancelledError())
        except BaseException as error:  # noqa: BLE001  # a verifier may raise anything; the caller has to learn of it
            event = self._error_event(served, error)
        await self._end(served, event)

    async def _end(self, served: Served, event: Event) -> None:
        """Send the last event of a request and forget it."""
        try:
            await self._answers.end(served, event)
        except asyncio.CancelledError:
            # An operation that cancelled its own task as it returned leaves a cancellation behind, which the first
            # await after it raises. It is not the caller's, so the response is still due.
            if served.is_over:
                raise
            await self._answers.end(served, event)
        finally:
            self._table.finish(served)

    async def _verified(self, answer: Any, served: Served) -> Identity | None:
        """Whom a verifier names that does not tell at once, within the time of the request."""
        if inspect.isawaitable(answer):
            limit = served.deadline or (time.time() + self._table.settings.timeout) * 1000
            try:
                answer = await until(limit, lambda: answer)
            except DeadlineExpired:
                if inspect.iscoroutine(answer):
                    answer.close()  # it may not even have begun
                raise timeout_error(served.operation_id, limit) from None
        if answer is None or isinstance(answer, Identity):
            return answer
        raise TypeError(f"identity=: expected an Identity or None from the verifier, got {type(answer).__name__}")

    async def _stream(self, served: Served, input: Any, context: OperationContext) -> Event:
        """Send the items; answers the terminal event."""
        answers, link = self._answers, self._answers.link
        assert link is not None
        if self._table.announces:
            await answers.notice(served)
        breath = _BREATH if served.total is None else _CREDIT_BREATH
        loop = asyncio.get_running_loop()
        served.stream = stream = self._registry.subscribe(served.operation_id, input, context)
        items = stream.items  # nobody else reads it: the guards of `Subscription.__anext__` have no work here
        try:
            while True:
                while served.total is not None and served.sent >= served.total:
                    stream.report("stall", "the consumer has given no credit for more items")
                    served.waiter = loop.create_future()
                    try:
                        await served.waiter
                    finally:
                        served.waiter = None
                try:
                    envelope = await items.__anext__()
                except StopAsyncIteration:
                    break
                sent = served.sent
                payload: dict[str, Any] = {"requestId": served.request_id, "output": envelope, "seq": sent}
                if sent == 0:
                    payload["replyTo"] = link.inbox
                event: Event = {"type": RESPONDED, "id": "", "payload": payload}
                if served.granted is None:
                    await link.send(served.reply_to, event)
                else:
                    await answers.send(served, event)
                served.sent = sent = sent + 1
                if sent % breath == 0:  # nothing above has to wait: others, and an abort, need their turn
                    await asyncio.sleep(0)
        finally:
            await stream.aclose()
        if served.total is not None:
            return completed(served)
        await link.send(served.reply_to, completed(served))
        return aborted(served)  # a peer that knows only the original events takes an abort for the end

    def _error_event(self, served: Served, error: BaseException) -> Event:
        if isinstance(error, PayloadTooLargeError):
            mapped = too_large(served, error)
        elif isinstance(error, TransportError):
            mapped = CallError(ErrorCode.UNAVAILABLE, f'"{served.operation_id}": {error}')
        else:
            spec = self._registry.get_spec(served.operation_id)
            declared = () if spec is None else spec.error_schemas
            mapped = mask_error(
                map_error(error, declared),
                [item.code for item in declared],
                mask=self._mask,
                operation_id=served.operation_id,
            )
        return error_event(served.request_id, mapped.code, mapped.message, mapped.details)


def start_task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a request in a task of its own, and run its first step at once if Python can do so.

    A handler that never waits is then done without another turn of the event loop.
    """
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, name=name, eager_start=True)
    return loop.create_task(work, name=name)


def _trace(payload: dict[str, Any]) -> dict[str, str]:
    """The W3C trace context and baggage of a request."""
    return {name: payload[name] for name in TRACE if type(payload.get(name)) is str}

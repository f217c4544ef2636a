"""The execution of the requests of a call handler, each in its own task."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from operad.access import Identity
from operad.context import OperationContext
from operad.deadlines import DeadlineExpired, until
from operad.envelopes import local_envelope
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, mask_error, operation_not_found
from operad.operations import OperationType
from operad.transports import Capabilities, Delivery, Event, PayloadTooLargeError, TransportError
from operad_calls.protocol import error_event
from operad_calls.requests import TRACE, not_begun_error, timeout_error
from operad_calls.serving.active import ActiveRequest
from operad_calls.serving.answers import aborted, completed, responded, too_large_error
from operad_calls.serving.identity import Verifier
from operad_calls.serving.listing import Listing
from operad_calls.serving.served import ServedRequests
from operad_calls.settings import CallSettings

if TYPE_CHECKING:
    from operad import OperationRegistry

_BREATH, _CREDIT_BREATH = 8, 256
"""The number of items after which a stream lets other tasks run, without credit and with credit."""


class Serving(ServedRequests):
    """The requests of a call handler.

    Args:
        registry: the registry that runs the operations.
        listing: the built-in operations of the handler.
        verify: returns the identity of a caller.
        served: the ids of the operations that are served.
        capabilities: the capabilities of the transport.
        settings: the bounds of calls.
        mask: whether messages of undeclared exceptions are replaced.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        listing: Listing,
        verify: Verifier,
        served: Container[str],
        capabilities: Capabilities,
        settings: CallSettings,
        *,
        mask: bool,
    ) -> None:
        super().__init__(capabilities, settings)
        self._registry = registry
        self._built_in = {**listing.own, **listing.shared}
        self._verify = verify
        self._served_ids = served
        self._mask = mask
        self.is_drained = False
        """Whether the handler closes and refuses new requests."""

    # --- what `ServedRequests` asks for ----------------------------------------------------------

    def begin(self, request: ActiveRequest, payload: dict[str, Any], delivery: Delivery) -> None:
        """Run a request in its own task, which may begin before this method returns."""
        work, loop = self.serve(request, payload, delivery), asyncio.get_running_loop()
        # Not within a process: a caller must not run its handler inside its own `send`.
        if self._same_process or sys.version_info < (3, 12):
            request.task = loop.create_task(work, name=request.operation_id)
        else:
            request.task = asyncio.Task(work, loop=loop, name=request.operation_id, eager_start=True)

    def cancel(self, request: ActiveRequest) -> None:
        """Cancel the task of a request, and remove the request from the table."""
        self.finish(request)
        if request.task is not None:  # not in the table any more, but closing waits for its end
            request.task.cancel()
            self.hold(request.task)

    def refusal(self, operation_id: str) -> CallError | None:
        """Return the error if the handler shuts down or does not serve an operation; otherwise ``None``."""
        if self.is_drained:
            return not_begun_error(operation_id, "the handler is shutting down")
        return None if operation_id in self._served_ids else operation_not_found(operation_id)

    def is_repeatable(self, operation_id: str) -> bool:
        """Return True for a query or an idempotent operation, which may run twice for one request."""
        spec = self._registry.get_spec(operation_id)
        return spec is not None and spec.is_repeatable

    async def shut_down(self, request: ActiveRequest) -> None:
        """End a request that did not finish in the drain. If it may run twice, a broker delivers it again."""
        if request.done is not None and self.is_repeatable(request.operation_id):
            request.done = None  # not acknowledged: the transport gives it to another handler
            self.cancel(request)
            return
        self.cancel(request)
        error = CallError(ErrorCode.UNAVAILABLE, f'"{request.operation_id}": the handler was shut down')
        await self.answers.error(request.reply_to, request.request_id, error)

    # --- running a request -----------------------------------------------------------------------

    async def serve(self, request: ActiveRequest, payload: dict[str, Any], delivery: Delivery) -> None:
        """Run a request and send its response, or its items and their end.

        Any exception becomes a ``call.error``. Only a cancellation by this side (an abort, a lost caller, the
        shutdown) ends the task without an event, because the request is over then.
        """
        try:
            context = _context_of(request, payload)
            identity = self._verify(payload, delivery)
            if identity is not None:
                if not isinstance(identity, Identity):
                    identity = await self._verified(identity, request)
                context.identity = identity
            event = await self._run(request, payload.get("input"), context)
        except asyncio.CancelledError:
            if request.is_over:
                raise
            event = self._error_event(request, asyncio.CancelledError())
        except BaseException as error:  # noqa: BLE001  # a verifier or handler may raise anything
            event = self._error_event(request, error)
        await self._end(request, event)

    async def _run(self, request: ActiveRequest, input: Any, context: OperationContext) -> Event:
        """Run an operation and return the last event of its request."""
        operation_id = request.operation_id
        if (answer := self._built_in.get(operation_id)) is not None:
            envelope = local_envelope(answer(input, context), operation_id)
            if request.total is None:
                return responded(request, envelope)
            await self.answers.send_item(request, envelope)
            return completed(request)
        spec = self._registry.get_spec(operation_id)
        if request.total is not None or (spec is not None and spec.type is OperationType.SUBSCRIPTION):
            return await self._stream(request, input, context)
        if context.deadline is None:  # a call without a deadline gets the default one
            context.deadline = request.deadline = (time.time() + self.settings.timeout) * 1000
        return responded(request, await self._registry.execute(operation_id, input, context))

    async def _end(self, request: ActiveRequest, event: Event) -> None:
        """Send the last event of a request and forget it."""
        try:
            await self.answers.end(request, event)
        except asyncio.CancelledError:
            # An operation that cancelled its own task as it returned leaves a cancellation behind, which the first
            # await after it raises. It is not the caller's, so the response is still due.
            if request.is_over:
                raise
            await self.answers.end(request, event)
        finally:
            self.finish(request)

    async def _verified(self, answer: Any, request: ActiveRequest) -> Identity | None:
        """Return the checked result of a verifier, after awaiting it until the deadline if it is asynchronous."""
        if inspect.isawaitable(answer):
            limit = request.deadline or (time.time() + self.settings.timeout) * 1000
            try:
                answer = await until(limit, lambda: answer)
            except DeadlineExpired:
                if inspect.iscoroutine(answer):
                    answer.close()  # it may not have begun
                raise timeout_error(request.operation_id, limit) from None
        if answer is None or isinstance(answer, Identity):
            return answer
        raise TypeError(f"identity: expected an Identity or None from the verifier, got {type(answer).__name__}")

    async def _stream(self, request: ActiveRequest, input: Any, context: OperationContext) -> Event:
        """Send the items of a subscription and return its last event."""
        answers, link = self.answers, self.answers.link
        assert link is not None
        if self.announces:
            await answers.notice(request)
        breath = _BREATH if request.total is None else _CREDIT_BREATH
        request.stream = stream = self._registry.subscribe(request.operation_id, input, context)
        items = stream.items  # read here alone: the guards of `Subscription.__anext__` are not needed
        try:
            while True:
                while request.total is not None and request.sent >= request.total:
                    await answers.wait_for_credit(request)
                try:
                    envelope = await items.__anext__()
                except StopAsyncIteration:
                    break
                await answers.send_item(request, envelope)
                if request.sent % breath == 0:  # nothing above has to wait: other tasks and an abort need a turn
                    await asyncio.sleep(0)
        finally:
            await stream.aclose()
        if request.total is not None:
            return completed(request)
        await link.send(request.reply_to, completed(request))
        return aborted(request)  # a peer that knows only the original events takes an abort for the end

    def _error_event(self, request: ActiveRequest, error: BaseException) -> Event:
        if isinstance(error, PayloadTooLargeError):
            mapped = too_large_error(request, error)
        elif isinstance(error, TransportError):
            mapped = CallError(ErrorCode.UNAVAILABLE, f'"{request.operation_id}": {error}')
        else:
            spec = self._registry.get_spec(request.operation_id)
            declared = () if spec is None else spec.error_schemas
            mapped = mask_error(
                map_error(error, declared),
                [item.code for item in declared],
                mask=self._mask,
                operation_id=request.operation_id,
            )
        return error_event(request.request_id, mapped.code, mapped.message, mapped.details)


def _context_of(request: ActiveRequest, payload: dict[str, Any]) -> OperationContext:
    """Return the context of an operation, still without the identity of the caller."""
    context = OperationContext(request.request_id, deadline=request.deadline)
    if "parentRequestId" in payload and type(parent := payload["parentRequestId"]) is str:
        context.parent_request_id = parent
    if "idempotencyKey" in payload and type(key := payload["idempotencyKey"]) is str:
        context.idempotency_key = key
    if "traceparent" in payload or "baggage" in payload:
        context.metadata = {name: payload[name] for name in TRACE if type(payload.get(name)) is str}
    return context

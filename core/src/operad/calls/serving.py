"""Running the requests of a call handler, one at a time and side by side."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from operad.access import Identity
from operad.calls.answers import Answers, aborted, completed, responded, too_large
from operad.calls.identity import Verifier
from operad.calls.listing import Listing
from operad.calls.served import Served, ServedRequests
from operad.context import OperationContext
from operad.envelopes import local_envelope
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, mask_error
from operad.operations import OperationType
from operad.protocol import error_event
from operad.transports import Delivery, Event, PayloadTooLargeError, TransportError

if TYPE_CHECKING:
    from operad.registry.registry import OperationRegistry

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
        self._verify = verify
        self._table = table
        self._answers = answers
        self._mask = mask

    async def serve(self, served: Served, payload: dict[str, Any], delivery: Delivery) -> None:
        """Run a request and answer it."""
        try:
            context = await self._context(served, payload, delivery)
            event = await self._run(served, payload.get("input"), context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # nobody asked for it, so nobody has told the caller
                event = self._error_event(served, asyncio.CancelledError())
            else:
                self._table.finish(served)  # whoever cancelled it has told the caller
                raise
        except BaseException as error:  # noqa: BLE001  # a verifier may raise anything; the caller has to learn of it
            event = self._error_event(served, error)
        try:
            await self._answers.end(served, event)
        finally:
            self._table.finish(served)

    async def _context(self, served: Served, payload: dict[str, Any], delivery: Delivery) -> OperationContext:
        context = OperationContext(served.request_id, None, None, served.deadline)
        parent = payload.get("parentRequestId")
        if type(parent) is str:
            context.parent_request_id = parent
        trace = {name: payload[name] for name in ("traceparent", "tracestate") if type(payload.get(name)) is str}
        if trace:
            context.metadata = trace
        identity = self._verify(payload, delivery)
        if identity is not None:
            context.identity = identity if isinstance(identity, Identity) else await identity
        return context

    async def _run(self, served: Served, input: Any, context: OperationContext) -> Event:
        """Run the operation; answers the terminal event."""
        operation_id = served.operation_id
        answer = self._listing.answer(operation_id)
        if answer is not None:
            return responded(served, local_envelope(answer(input, context), operation_id))
        spec = self._registry.get_spec(operation_id)
        if served.total is not None or (spec is not None and spec.type is OperationType.SUBSCRIPTION):
            return await self._stream(served, input, context)
        if context.deadline is None:  # a single call that says nothing ends, too
            context.deadline = served.deadline = time.time() * 1000 + self._table.settings.timeout * 1000
        return responded(served, await self._registry.execute(operation_id, input, context))

    async def _stream(self, served: Served, input: Any, context: OperationContext) -> Event:
        """Send the items; answers the terminal event."""
        answers, link = self._answers, self._answers.link
        assert link is not None
        if self._table.announces:
            await answers.notice(served)
        breath = _BREATH if served.total is None else _CREDIT_BREATH
        loop = asyncio.get_running_loop()
        stream = self._registry.subscribe(served.operation_id, input, context)
        items = stream.items  # nobody else reads it: the guards of `Subscription.__anext__` have no work here
        try:
            while True:
                while served.total is not None and served.sent >= served.total:
                    served.waiter = loop.create_future()
                    try:
                        await served.waiter
                    finally:
                        served.waiter = None
                try:
                    envelope = await items.__anext__()
                except StopAsyncIteration:
                    break
                event = responded(served, envelope)
                event["payload"]["seq"] = served.sent
                if served.sent == 0:
                    event["payload"]["replyTo"] = link.inbox
                await answers.send(served, event)
                served.sent += 1
                if served.sent % breath == 0:  # nothing above has to wait: others, and an abort, need their turn
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

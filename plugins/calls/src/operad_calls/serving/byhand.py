"""Requests that are served by hand, without a registry: what SDKs of spokes are built on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import attrs

from operad.access import Identity
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError
from operad.failures import map_error, mask_error
from operad.transports import Delivery, Event, Link, PayloadTooLargeError, Registration, Transport
from operad_calls import protocol
from operad_calls.requests import timeout_error, wake
from operad_calls.serving.answers import Answers, aborted, completed, responded, too_large
from operad_calls.serving.served import Served, ServedRequests
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")


@attrs.frozen(kw_only=True)
class IncomingRequest:
    """A request that a peer made."""

    request_id: str
    """By this id it is answered; it is this link's own name for the request."""
    operation_id: str
    input: Any
    identity: Identity | None
    """Whom the transport authenticated."""
    deadline: float | None
    """Epoch ms; then it ends by itself."""
    is_subscription: bool
    """Whether more than one answer may follow, and `PendingRequestMap.complete` has to."""


OnRequest = Callable[[IncomingRequest], None]
"""Takes a request, at once and without waiting; what it raises fails the request, with the reason in the log."""


class ByHand:
    """The requests of a link that are served by hand.

    Args:
        on_request: takes each of them.
        transport: the link's.
        settings: the bounds.
    """

    def __init__(self, on_request: OnRequest, transport: Transport, settings: CallSettings) -> None:
        self._on_request = on_request
        self._mask = not transport.capabilities.same_process
        self._answers = Answers()
        self._idempotent: set[str] = set()
        self._served = ServedRequests(
            transport.capabilities,
            settings,
            refuse=self._refuse,
            ended=self._ended,
            notice=self._notice,
            repeatable=self._idempotent.__contains__,
        )
        self._requests: dict[str, Served] = {}
        """Requests by this link's own names for them."""
        self._names: dict[tuple[str, str], str] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._requests

    def start(self, link: Link) -> None:
        """Serve on this link."""
        self._answers.start(link)
        self._served.start()

    async def stop(self) -> None:
        """Forget all requests: the link is closed."""
        self.lost()
        self._served.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._answers.link = None

    def lost(self) -> None:
        """Forget all requests: their callers are told by the transport, or run into their deadlines."""
        for served in list(self._requests.values()):
            self._finish(served)

    async def serve(self, operation_id: str, group: str, *, idempotent: bool) -> Registration:
        """See `PendingRequestMap.serve`."""
        link = self._answers.link
        assert link is not None
        if idempotent:
            self._idempotent.add(operation_id)
        return await link.register(f"op:{operation_id}", group)

    # --- what comes in ---------------------------------------------------------------------------

    def on_event(self, type_: str, payload: dict[str, Any], delivery: Delivery) -> bool:
        """Take an event, if it is about one of these requests."""
        if type_ == protocol.REQUESTED:
            self._take(payload, delivery)
            return True
        if type_ == protocol.ABORTED:
            return self._served.on_abort(payload, delivery)
        if type_ == protocol.CREDIT:
            served = self._served.on_credit(payload, delivery)
            if served is not None and self._served.expects_notice(served):
                self._notice(served)
            return served is not None
        if type_ == protocol.LOST:
            self._served.on_lost(payload.get("peer"))
        return False

    def _take(self, payload: dict[str, Any], delivery: Delivery) -> None:
        served = self._served.take(payload, delivery)
        if served is None:
            return
        # The callers choose their ids, and two may choose the same one.
        peer, name = served.key
        while name in self._requests:
            name = f"{name} of {peer}"
        self._requests[name], self._names[served.key] = served, name
        if served.deadline is None and served.total is None:  # a single call that says nothing ends, too
            served.deadline = (time.time() + self._served.settings.timeout) * 1000
        if served.deadline is not None:
            delay = max(0.0, served.deadline / 1000 - time.time())
            self._timers[name] = asyncio.get_running_loop().call_later(delay, self._expire, served)
        request = IncomingRequest(
            request_id=name,
            operation_id=served.operation_id,
            input=payload.get("input"),
            identity=delivery.identity,
            deadline=served.deadline,
            is_subscription=served.total is not None,
        )
        try:
            self._on_request(request)
        except Exception as error:
            logger.exception("a request for %s could not be taken", served.operation_id)
            if self._names.get(served.key) == name:  # else it was taken, and has an answer
                mapped = map_error(error)
                mapped.logged = True
                self._spawn(
                    self._fail(served, mask_error(mapped, mask=self._mask, operation_id=served.operation_id))
                )

    # --- what goes back --------------------------------------------------------------------------

    async def respond(self, name: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Answer a request, or send one item of its stream."""
        if not _is_envelope(envelope):
            raise TypeError(f"expected a response envelope, got {type(envelope).__name__}: see local_envelope()")
        served = self._get(name)
        if served.total is None:
            self._forget(served)  # the first answer counts, even if another one comes while it is sent
            try:
                await self._send(served, responded(served, envelope))
            finally:
                self._served.finish(served)
            return
        if served.turn is None:
            served.turn = asyncio.Lock()
        async with served.turn:
            while served.sent >= served.total:
                self._get(name)
                served.waiter = asyncio.get_running_loop().create_future()
                await served.waiter
            self._get(name)
            if self._served.announces and not served.noticed:  # who dies after its first item is missed then
                await self._answers.notice(served)
                self._get(name)
            event = responded(served, envelope)
            event["payload"]["seq"] = served.sent
            if served.sent == 0 and self._answers.link is not None:
                event["payload"]["replyTo"] = self._answers.link.inbox
            await self._send(served, event)
            served.sent += 1

    async def _send(self, served: Served, event: Event) -> None:
        try:
            await self._answers.send(served, event)
        except PayloadTooLargeError as error:
            await self._fail(served, too_large(served, error))
            raise too_large(served, error) from error
        except CallError as error:
            if not served.is_over:
                await self._fail(served, error)
            raise

    async def complete(self, name: str) -> None:
        """End the stream of a request."""
        served = self._get(name)
        self._finish(served)
        if self._answers.link is not None:
            await self._answers.link.send(served.reply_to, completed(served))

    async def emit_error(self, name: str, error: CallError) -> None:
        """End a request with an error."""
        await self._fail(self._get(name), error)

    async def abort(self, name: str) -> None:
        """End a request without an answer."""
        served = self._get(name)
        self._finish(served)
        if self._answers.link is not None:
            await self._answers.link.send(served.reply_to, aborted(served))

    def _get(self, name: str) -> Served:
        served = self._requests.get(name)
        if served is None:
            raise LookupError(f'no request "{name}" of this link is under way')
        return served

    async def _fail(self, served: Served, error: CallError) -> None:
        self._finish(served)
        await self._answers.error(served.reply_to, served.request_id, error)

    # --- their end -------------------------------------------------------------------------------

    def _expire(self, served: Served) -> None:
        assert served.deadline is not None
        self._spawn(self._fail(served, timeout_error(served.operation_id, served.deadline)))

    def _finish(self, served: Served) -> None:
        self._forget(served)
        self._served.finish(served)
        wake(served.waiter)

    def _forget(self, served: Served) -> None:
        """Its name means nothing any more."""
        name = self._names.pop(served.key, None)
        if name is not None:
            del self._requests[name]
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer.cancel()

    def _refuse(self, served: Served, error: CallError) -> None:
        self._spawn(self._answers.error(served.reply_to, served.request_id, error))
        if served.done is not None:
            served.done()

    def _ended(self, served: Served, error: CallError | None) -> None:
        self._finish(served)
        if error is not None:
            self._spawn(self._answers.error(served.reply_to, served.request_id, error))

    def _notice(self, served: Served) -> None:
        self._spawn(self._answers.notice(served))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_envelope(value: object) -> bool:
    """Whether it is an envelope, of whatever kind: who answers by hand says so."""
    if isinstance(value, ResponseEnvelope):
        return True
    meta = value.get("meta") if isinstance(value, Mapping) and "data" in value else None
    return isinstance(meta, Mapping) and isinstance(meta.get("source"), str)

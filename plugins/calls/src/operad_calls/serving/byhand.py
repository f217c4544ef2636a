"""Requests that an application serves by hand, without a registry."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from operad.access import Identity
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError
from operad.failures import map_error, mask_error
from operad.transports import Delivery, Event, PayloadTooLargeError, Registration, Transport
from operad_calls.requests import timeout_error, wake
from operad_calls.serving.active import ActiveRequest
from operad_calls.serving.answers import responded, too_large_error
from operad_calls.serving.served import ServedRequests
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")


@attrs.frozen(kw_only=True)
class IncomingRequest:
    """A request of a peer, as ``on_request`` of `PendingRequestMap` receives it."""

    request_id: str
    """The id for `PendingRequestMap.respond`. It is unique on this link, unlike the ids that callers choose."""
    operation_id: str
    input: Any
    identity: Identity | None
    """The caller, as authenticated by the transport; ``None`` for an anonymous caller."""
    deadline: float | None
    """When the request ends with ``TIMEOUT``, in epoch ms; ``None`` for a stream without a deadline."""
    is_subscription: bool
    """Whether several responses may follow, after which `PendingRequestMap.complete` ends the request."""


OnRequest = Callable[[IncomingRequest], None]
"""A function that receives a request without blocking. If it raises, the request fails and the error is logged."""


class ByHand(ServedRequests):
    """The requests of a link that are served by hand.

    Args:
        on_request: receives each request.
        transport: the transport of the link.
        settings: the bounds of calls.
    """

    def __init__(self, on_request: OnRequest, transport: Transport, settings: CallSettings) -> None:
        super().__init__(transport.capabilities, settings)
        self._on_request = on_request
        self._idempotent: set[str] = set()
        self._named: dict[str, ActiveRequest] = {}
        """The requests by their unique names on this link."""

    async def close(self) -> None:
        """Forget all requests, because the link closes."""
        self.forget_all()
        self.stop()
        await self.settle()
        self.answers.link = None

    def forget_all(self) -> None:
        """Forget all requests. Their callers get an error from the transport, or reach their deadlines."""
        for request in list(self._named.values()):
            self.cancel(request)

    async def serve(self, operation_id: str, group: str, *, idempotent: bool) -> Registration:
        """See `PendingRequestMap.serve`."""
        link = self.answers.link
        assert link is not None
        if idempotent:
            self._idempotent.add(operation_id)
        return await link.register(f"op:{operation_id}", group)

    # --- what `ServedRequests` asks for ----------------------------------------------------------

    def begin(self, request: ActiveRequest, payload: dict[str, Any], delivery: Delivery) -> None:
        """Give a request a unique name, and pass it to the application."""
        peer, name = request.key
        while name in self._named:
            name = f"{name} of {peer}"
        self._named[name], request.name = request, name
        if request.deadline is None and request.total is None:  # a call without a deadline gets the default one
            request.deadline = (time.time() + self.settings.timeout) * 1000
        if request.deadline is not None:
            delay = max(0.0, request.deadline / 1000 - time.time())
            request.timer = asyncio.get_running_loop().call_later(delay, self._expire, request)
        incoming = IncomingRequest(
            request_id=name,
            operation_id=request.operation_id,
            input=payload.get("input"),
            identity=delivery.identity,
            deadline=request.deadline,
            is_subscription=request.total is not None,
        )
        try:
            self._on_request(incoming)
        except Exception as error:
            logger.exception("on_request failed for %s (request %s)", request.operation_id, name)
            if self._named.get(name) is request:  # else the application has responded already
                mapped = map_error(error)
                mapped.logged = name
                self.cancel(request)
                mask = not self._same_process
                self.fail(request, mask_error(mapped, mask=mask, operation_id=request.operation_id))

    def cancel(self, request: ActiveRequest) -> None:
        """End a request without a response. The application gets a `LookupError` when it responds."""
        self._forget(request)
        self.finish(request)
        wake(request.waiter)

    def is_repeatable(self, operation_id: str) -> bool:
        """Return True if the application declared the operation idempotent."""
        return operation_id in self._idempotent

    def _expire(self, request: ActiveRequest) -> None:
        assert request.deadline is not None
        self.cancel(request)
        self.fail(request, timeout_error(request.operation_id, request.deadline))

    def _forget(self, request: ActiveRequest) -> None:
        """Forget the name of a request, so that no more events can be sent for it; idempotent."""
        if self._named.get(request.name) is request:
            del self._named[request.name]
        if request.timer is not None:
            request.timer.cancel()
            request.timer = None

    # --- what the application sends --------------------------------------------------------------

    async def respond(self, name: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Respond to a request, or send an item of its stream; see `PendingRequestMap.respond`."""
        request = self._get(name)
        if not _is_envelope(envelope):
            got = type(envelope).__name__
            raise TypeError(f"expected a response envelope, got {got}; make one with local_envelope()")
        if request.total is not None:
            await self._send(request, self._send_item(request, envelope))
            return
        self._forget(request)  # the first response counts, even if another one follows while it is sent
        try:
            await self._send(request, self.answers.send(request, responded(request, envelope)))
        finally:
            self.finish(request)

    async def _send(self, request: ActiveRequest, sending: Awaitable[None]) -> None:
        """Await the sending of a response or item. If it cannot be sent, fail the request and raise the error."""
        try:
            await sending
        except PayloadTooLargeError as error:
            failure = too_large_error(request, error)
            await self._fail(request, failure)
            raise failure from error
        except CallError as error:
            if not request.is_over:
                await self._fail(request, error)
            raise

    async def _send_item(
        self, request: ActiveRequest, envelope: ResponseEnvelope[Any] | Mapping[str, Any]
    ) -> None:
        """Send an item after all earlier items, as soon as the consumer has given credit."""
        assert request.total is not None
        if request.turn is None:
            request.turn = asyncio.Lock()
        async with request.turn:
            while request.sent >= request.total:
                self._get(request.name)
                await self.answers.wait_for_credit(request)
            self._get(request.name)
            if self.announces and not request.noticed:  # else the loss of this peer after one item goes unnoticed
                await self.answers.notice(request)
                self._get(request.name)
            await self.answers.send_item(request, envelope)

    async def emit_error(self, name: str, error: CallError) -> None:
        """End a request with an error; see `PendingRequestMap.emit_error`."""
        await self._fail(self._get(name), error)

    async def end(self, name: str, last: Callable[[ActiveRequest], Event]) -> None:
        """End a request with the event that ``last`` makes. Raises `LookupError` if the request has ended."""
        request = self._get(name)
        self.cancel(request)
        if self.answers.link is not None:
            await self.answers.link.send(request.reply_to, last(request))

    def _get(self, name: str) -> ActiveRequest:
        request = self._named.get(name)
        if request is None:
            raise LookupError(f'no request "{name}" is in flight on this link; it may have ended')
        return request

    async def _fail(self, request: ActiveRequest, error: CallError) -> None:
        self.cancel(request)
        await self.answers.error(request.reply_to, request.request_id, error)


def _is_envelope(value: object) -> bool:
    """Return True if a value is an envelope of any kind, or the JSON form of one."""
    if isinstance(value, ResponseEnvelope):
        return True
    meta = value.get("meta") if isinstance(value, Mapping) and "data" in value else None
    return isinstance(meta, Mapping) and isinstance(meta.get("source"), str)

"""Requests that are served by hand, without a registry: what SDKs of spokes are built on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from operad import protocol
from operad.access import Identity
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import Delivery, Event, Link, PayloadTooLargeError

logger = logging.getLogger("operad.calls")

_LATEST = 1e15
"""Epoch ms: what lies beyond is no deadline, and may be more than a float holds."""


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
    """Epoch ms."""
    is_subscription: bool
    """Whether more than one answer may follow, and `PendingRequestMap.complete` has to."""


OnRequest = Callable[[IncomingRequest], None]
"""Takes a request, at once and without waiting."""


class _Served:
    __slots__ = ("done", "peer", "peer_id", "sent", "total", "waiter")

    def __init__(self, peer: str, peer_id: str, total: int | None, done: Callable[[], None] | None) -> None:
        self.peer = peer
        self.peer_id = peer_id
        self.total = total
        self.done = done
        self.sent = 0
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Incoming:
    """The requests of a link that are served by hand.

    Args:
        on_request: takes each of them.
        limit: how many may be under way; more are dropped, and end at their callers' deadlines.
    """

    def __init__(self, on_request: OnRequest, limit: int) -> None:
        self._on_request = on_request
        self._limit = limit
        self._served: dict[str, _Served] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._served)

    def on_event(self, event: Event, delivery: Delivery) -> bool:
        """Take an event, if it is about one of these requests."""
        type_, payload = event["type"], event["payload"]
        peer = delivery.peer if delivery.peer is not None else payload.get("replyTo")
        peer_id = payload.get("requestId")
        if not isinstance(peer, str) or not isinstance(peer_id, str):
            return False
        if type_ == protocol.REQUESTED:
            self._take(peer, peer_id, payload, delivery)
            return True
        request_id = self._ids.get((peer, peer_id))
        if request_id is None:
            return False
        served, total = self._served[request_id], payload.get("total")
        if type_ == protocol.ABORTED:
            self._forget(request_id)
        elif type_ == protocol.CREDIT and isinstance(total, int) and served.total is not None:
            served.total = max(served.total, total)
            served.wake()
        return True

    def _take(self, peer: str, peer_id: str, payload: dict[str, Any], delivery: Delivery) -> None:
        operation_id, credit, deadline = payload.get("operationId"), payload.get("credit"), payload.get("deadline")
        if not isinstance(operation_id, str) or (peer, peer_id) in self._ids or len(self._served) >= self._limit:
            logger.warning("dropped a request for %s", operation_id)
            if delivery.done is not None:
                delivery.done()
            return
        # The callers choose their ids, and two may choose the same one.
        request_id = peer_id if peer_id not in self._served else f"{peer_id} of {peer}"
        total = credit if isinstance(credit, int) and credit > 0 else None
        self._served[request_id] = _Served(peer, peer_id, total, delivery.done)
        self._ids[peer, peer_id] = request_id
        request = IncomingRequest(
            request_id=request_id,
            operation_id=operation_id,
            input=payload.get("input"),
            identity=delivery.identity,
            deadline=float(deadline) if isinstance(deadline, (int, float)) and abs(deadline) < _LATEST else None,
            is_subscription=total is not None,
        )
        try:
            self._on_request(request)
        except Exception:
            logger.exception("a request for %s could not be taken", operation_id)

    async def respond(
        self,
        link: Link,
        request_id: str,
        envelope: ResponseEnvelope[Any] | Mapping[str, Any],
    ) -> None:
        """Answer a request, or send one item of its stream."""
        if not _is_envelope(envelope):
            raise TypeError(f"expected a response envelope, got {type(envelope).__name__}: see local_envelope()")
        served = self._get(request_id)
        while served.total is not None and served.sent >= served.total:
            served.waiter = asyncio.get_running_loop().create_future()
            await served.waiter
            served = self._get(request_id)
        payload: dict[str, Any] = {"requestId": served.peer_id, "output": envelope}
        if served.total is not None:
            payload.update(seq=served.sent, replyTo=link.inbox)
            served.sent += 1
        try:
            await link.send(served.peer, {"type": protocol.RESPONDED, "id": "", "payload": payload})
        except PayloadTooLargeError as error:
            await self.emit_error(link, request_id, ErrorCode.PAYLOAD_TOO_LARGE, str(error), None)
            raise CallError(ErrorCode.PAYLOAD_TOO_LARGE, str(error)) from error
        except CallError as error:
            await self.emit_error(link, request_id, error.code, error.message, error.details)
            raise
        if served.total is None:
            self._forget(request_id)

    async def complete(self, link: Link, request_id: str) -> None:
        """End the stream of a request."""
        served = self._get(request_id)
        self._forget(request_id)
        payload = {"requestId": served.peer_id, "count": served.sent}
        await link.send(served.peer, {"type": protocol.COMPLETED, "id": "", "payload": payload})

    async def emit_error(self, link: Link, request_id: str, code: str, message: str, details: Any) -> None:
        """End a request with an error."""
        served = self._get(request_id)
        self._forget(request_id)
        error = CallError(code, message, details)  # makes the details fit for JSON
        await link.send(served.peer, protocol.error_event(served.peer_id, code, message, error.details))

    async def abort(self, link: Link, request_id: str) -> None:
        """End a request without an answer."""
        served = self._get(request_id)
        self._forget(request_id)
        payload = {"requestId": served.peer_id}
        await link.send(served.peer, {"type": protocol.ABORTED, "id": "", "payload": payload})

    def clear(self) -> None:
        """Forget all of them: the link is gone."""
        for request_id in tuple(self._served):
            self._forget(request_id)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._served

    def _get(self, request_id: str) -> _Served:
        served = self._served.get(request_id)
        if served is None:
            raise LookupError(f'no request "{request_id}" of this link is under way')
        return served

    def _forget(self, request_id: str) -> None:
        served = self._served.pop(request_id)
        del self._ids[served.peer, served.peer_id]
        served.wake()
        if served.done is not None:
            served.done()


def _is_envelope(value: object) -> bool:
    """Whether it is an envelope, of whatever kind: who answers by hand says so."""
    if isinstance(value, ResponseEnvelope):
        return True
    meta = value.get("meta") if isinstance(value, Mapping) and "data" in value else None
    return isinstance(meta, Mapping) and isinstance(meta.get("source"), str)

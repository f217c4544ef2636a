"""What a call map does for its link, whatever is called: admission, aborts, lost peers and lost connections."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from operad import protocol
from operad.calls.byhand import Incoming, OnRequest
from operad.calls.requests import Pending, lost
from operad.envelopes import EnvelopeKinds, ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.failures import operation_not_found
from operad.transports import (
    Delivery,
    Link,
    LinkState,
    NoRespondersError,
    PayloadTooLargeError,
    Transport,
    TransportError,
)

if TYPE_CHECKING:
    from operad.sources import PluginsLike

logger = logging.getLogger("operad.calls")

_MAX_ORPHANS = 10_000
"""How many ended requests are remembered whose handler has not told where it is."""


class Upkeep:
    """The table of requests under way, and the link on which they are. `PendingRequestMap` tells the arguments."""

    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        transport: Transport,
        *,
        plugins: PluginsLike | None = None,
        timeout: float = 30.0,
        max_pending: int = 10_000,
        credit: int = 64,
        lease: float = 30.0,
        on_request: OnRequest | None = None,
    ) -> None:
        if credit < 1:
            raise ValueError(f"credit: expected at least 1, got {credit}")
        self._transport = transport
        self._kinds: EnvelopeKinds | None = None if plugins is None else plugins.envelope_kinds
        self._timeout = timeout
        self._max_pending = max_pending
        self._credit = credit
        self._lease = lease
        self._incoming = None if on_request is None else Incoming(on_request, max_pending)
        self._link: Link | None = None
        self._pending: dict[str, Pending] = {}
        self._orphans: dict[str, float] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._beat: asyncio.TimerHandle | None = None
        self._beating = False
        self._up = asyncio.Event()
        self._context = contextvars.Context()  # timers need none, and copying the current one is not free
        self._prefix = secrets.token_hex(8) + "-"
        self._counter = itertools.count(1)
        # Where peers are not authenticated, an id that nobody can guess is what protects an answer.
        capabilities = transport.capabilities
        self._guessable = capabilities.same_process or capabilities.authenticates_peer
        self.late = 0
        """How many answers came for requests that had ended."""

    def _stray(self, type_: str, payload: dict[str, Any], delivery: Delivery) -> None:
        """An event that belongs to no request under way."""
        if type_ == protocol.LOST and self._transport.capabilities.detects_peer_loss:
            self._lose(payload.get("peer"))
            return
        if type_ not in (protocol.RESPONDED, protocol.ERROR, protocol.COMPLETED, protocol.CREDIT):
            return
        request_id, reply_to = payload.get("requestId"), payload.get("replyTo")
        if type_ != protocol.CREDIT:
            self.late += 1
        if type(request_id) is not str or self._orphans.pop(request_id, None) is None or self._link is None:
            return
        if type(reply_to) is str and type_ in (protocol.RESPONDED, protocol.CREDIT):
            self._spawn(self._send_abort(request_id, reply_to, self._link))

    def _on_link(self, state: LinkState, epoch: int) -> None:
        if state == "up":
            self._up.set()
            return
        self._up.clear()
        if self._incoming is not None:
            self._incoming.clear()
        pending = self._pending
        self._pending = {key: item for key, item in pending.items() if item.stored}
        for key in self._pending:
            del pending[key]
        for item in pending.values():
            item.fail(lost(item.operation_id, "the connection was lost during the call"))

    def _lose(self, peer: object) -> None:
        gone = [(key, item) for key, item in self._pending.items() if item.target == peer]
        for key, item in gone:
            del self._pending[key]
            item.fail(lost(item.operation_id, "its handler was lost during the call"))

    # --- the parts of a request -------------------------------------------------------------------

    def _open_link(self) -> Link:
        if self._link is None:
            raise CallError(
                ErrorCode.UNAVAILABLE, "the call map is not open: use `async with PendingRequestMap(transport)`"
            )
        return self._link

    def _admit(self) -> Link:
        link = self._open_link()
        if len(self._pending) >= self._max_pending:
            message = f"{self._max_pending} calls are under way already (max_pending)"
            error = CallError(ErrorCode.OVERLOADED, message, {"limit": "max_pending", "value": self._max_pending})
            error.ran = False
            raise error
        return link

    def _new_id(self) -> str:
        return f"{self._prefix}{next(self._counter)}" if self._guessable else secrets.token_hex(16)

    def _envelope(self, output: object) -> ResponseEnvelope[Any]:
        if type(output) is ResponseEnvelope:  # handed over in process
            return output
        assert self._kinds is not None  # since it was opened
        return self._kinds.from_wire(output)

    def _abort(self, request_id: str, pending: Pending, link: Link) -> None:
        """Tell the handler that nobody waits any more; where it is not known yet, as soon as it is."""
        if pending.target is not None:
            self._spawn(self._send_abort(request_id, pending.target, link))
            return
        self._orphans[request_id] = time.time()
        if len(self._orphans) > _MAX_ORPHANS:
            del self._orphans[next(iter(self._orphans))]

    def _on_notice(self, pending: Pending, type_: str, payload: dict[str, Any]) -> None:
        """A handler on a broker says that it has the request, and where it is."""
        reply_to = payload.get("replyTo")
        if type_ == protocol.CREDIT and type(reply_to) is str:
            pending.notice(reply_to)

    async def _send_abort(self, request_id: str, target: str, link: Link) -> None:
        payload = {"requestId": request_id, "replyTo": link.inbox}
        try:
            await link.send(target, {"type": protocol.ABORTED, "id": "", "payload": payload})
        except TransportError as error:  # the handler's deadline or lease ends it
            logger.debug("abort of %s was not sent: %s", request_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _not_sent(self, error: TransportError, operation_id: str) -> CallError:
        """The `CallError` for a request that the transport did not take."""
        failure = self._refused(error, operation_id)
        failure.ran = False
        return failure

    def _refused(self, error: TransportError, operation_id: str) -> CallError:
        details = {"operationId": operation_id, "sent": False}
        if isinstance(error, NoRespondersError):
            if self._transport.capabilities.detects_peer_loss:
                return operation_not_found(operation_id)
            message = f'nobody serves "{operation_id}"'
            return CallError(ErrorCode.NO_RESPONDERS, message, {"operationId": operation_id})
        if isinstance(error, PayloadTooLargeError):
            message = f'the request for "{operation_id}" is too large: {error}'
            return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, details)
        return CallError(ErrorCode.UNAVAILABLE, f'"{operation_id}" could not be sent: {error}', details)

    async def _recovered(self, limit: float) -> bool:
        """Whether the link is up again before the limit."""
        seconds = limit / 1000 - time.time()
        if seconds <= 0 or self._link is None:
            return False
        try:
            await asyncio.wait_for(self._up.wait(), seconds)
        except TimeoutError:
            return False
        await asyncio.sleep(min(0.05, seconds))  # the peer that was lost may be the only one: do not spin
        return True

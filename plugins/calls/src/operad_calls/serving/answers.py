"""The replies of a serving link: responses, items of streams, errors and acknowledgements."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any

from operad.errors import CallError, ErrorCode
from operad.transports import Event, Link, PayloadTooLargeError, TransportError
from operad_calls import protocol
from operad_calls.requests import remember, timeout_error, woken
from operad_calls.serving.active import ActiveRequest

logger = logging.getLogger("operad.calls")

_AGAIN = 1.0
"""Seconds after which a handler repeats its request for room."""
_MAX_PEERS = 10_000
_PATIENCE = 2.0
"""Seconds after which a peer that counts bytes and has granted no room is assumed to ignore requests for it."""


class Answers:
    """The replies to callers on one link."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self._alone: asyncio.Lock
        """The lock for peers that ignore requests for room: they get one event at a time."""
        self._answering: dict[str, None] = {}
        """The inboxes of peers that have granted room before. If such a peer is silent, it is busy or gone."""

    def start(self, link: Link) -> None:
        """Use this link for all replies from now on."""
        self.link = link
        self._alone = asyncio.Lock()  # a lock belongs to one loop

    async def send(self, request: ActiveRequest, event: Event) -> None:
        """Send a response or item as soon as the caller has room for it.

        If the caller counts bytes, the event is encoded here to find its size, and the link sends that JSON.
        Otherwise the link encodes the event. Raises `TransportError` if the event was not sent, and `CallError` if
        it has no JSON form, or if the deadline passes or the request ends while it waits for room.
        """
        link = self.link
        if link is None:
            return
        if request.granted is None:
            await link.send(request.reply_to, event)
            return
        data = protocol.encode_in_parts(event)
        total = request.sent_bytes + len(data)
        if total > request.granted and not await self._room(request, total):
            async with self._alone:
                await link.send(request.reply_to, event)
            return
        if request.total is None:
            await link.send(request.reply_to, protocol.Encoded(event, data))
        else:
            await link.send(request.reply_to, protocol.with_sent_bytes(event, data, total))
        request.sent_bytes = total  # only of what the transport took: an error sent instead needs the room

    async def send_item(self, request: ActiveRequest, output: Any) -> None:
        """Send the next item of a stream. Raises the same errors as `send`."""
        link, number = self.link, request.sent
        if link is None:
            return
        payload: dict[str, Any] = {"requestId": request.request_id, "output": output, "seq": number}
        if number == 0:
            payload["replyTo"] = link.inbox
        event: Event = {"type": protocol.RESPONDED, "id": "", "payload": payload}
        await self.send(request, event)
        request.sent = number + 1

    async def wait_for_credit(self, request: ActiveRequest) -> None:
        """Wait until the caller of a stream gives credit, or until the request ends."""
        if request.stream is not None:
            request.stream.report("stall", "the consumer has given no credit for more items")
        await woken(request)

    async def _room(self, request: ActiveRequest, total: int) -> bool:
        """Wait until ``total`` bytes may be sent. Return False if the peer ignores requests for room.

        The handler asks each second. A peer that has granted room before may take until the deadline. A peer that
        never has is assumed, after 2 s, to ignore such requests, and then gets one item at a time. Raises
        `CallError` ``TIMEOUT`` at the deadline, or ``ABORTED`` if the request ends meanwhile.
        """
        began = time.monotonic()
        if request.stream is not None:
            request.stream.report("stall", "the consumer has no room for more bytes", total=total, unit="By")
        while request.granted is not None:
            if request.is_over:
                raise CallError(
                    ErrorCode.ABORTED, f'"{request.operation_id}": the caller no longer waits for the response'
                )
            await self.notice(request, wants=total)
            if request.granted >= total:
                return True
            if request.deadline is not None and request.deadline <= time.time() * 1000:
                raise timeout_error(request.operation_id, request.deadline)
            if request.heard:
                remember(self._answering, request.reply_to, None, _MAX_PEERS)
            elif request.reply_to not in self._answering and time.monotonic() - began >= _PATIENCE:
                request.granted = None
                break
            left = _AGAIN if request.deadline is None else request.deadline / 1000 - time.time()
            await woken(request, min(_AGAIN, max(0.0, left)))
            if request.granted >= total:
                remember(self._answering, request.reply_to, None, _MAX_PEERS)
                return True
        return False

    async def notice(self, request: ActiveRequest, *, wants: int | None = None) -> None:
        """Acknowledge a request, and send the address for aborts. Ask for a total of ``wants`` bytes if given."""
        if self.link is not None:
            request.noticed = True  # any notice acknowledges the request
            payload = {"requestId": request.request_id, "total": request.total or 0, "replyTo": self.link.inbox}
            if wants is not None:
                payload["wantsBytes"] = wants
            event: Event = {"type": protocol.CREDIT, "id": "", "payload": payload}
            await quietly(self.link.send(request.reply_to, event))

    async def end(self, request: ActiveRequest, event: Event) -> None:
        """Send the last event of a request, or an error if the event cannot be sent."""
        try:
            await self.send(request, event)
        except CallError as error:
            await self.error(request.reply_to, request.request_id, error)
        except PayloadTooLargeError as error:
            await self.error(request.reply_to, request.request_id, too_large_error(request, error))
        except TransportError as error:
            logger.debug("the response to %s was not sent: %s", request.request_id, error)

    async def error(self, to: str, request_id: str, error: CallError) -> None:
        """Send the error that ends a request. Leave out details that cannot be sent, and cut a long message."""
        link = self.link
        if link is None:
            return
        event = protocol.error_event(request_id, error.code, error.message, error.details)
        try:
            await link.send(to, event)
        except CallError:  # its details have no wire form
            await quietly(link.send(to, protocol.error_event(request_id, error.code, repr(error.message))))
        except PayloadTooLargeError:
            await quietly(link.send(to, protocol.error_event(request_id, error.code, error.message[:1_000])))
        except TransportError as failure:
            logger.debug("an error for %s was not sent: %s", request_id, failure)


def responded(request: ActiveRequest, output: Any) -> Event:
    """Return the ``call.responded`` with the envelope of a request."""
    payload: dict[str, Any] = {"requestId": request.request_id, "output": output}
    return {"type": protocol.RESPONDED, "id": "", "payload": payload}


def completed(request: ActiveRequest) -> Event:
    """Return the ``call.completed`` of a stream."""
    payload = {"requestId": request.request_id, "count": request.sent}
    return {"type": protocol.COMPLETED, "id": "", "payload": payload}


def aborted(request: ActiveRequest) -> Event:
    """Return the ``call.aborted`` of a request. It ends a stream for peers that know only the original events."""
    return {"type": protocol.ABORTED, "id": "", "payload": {"requestId": request.request_id}}


def too_large_error(request: ActiveRequest, error: PayloadTooLargeError) -> CallError:
    """Return a ``PAYLOAD_TOO_LARGE`` error for a response that is too large for the transport."""
    return CallError(
        ErrorCode.PAYLOAD_TOO_LARGE, f'the response of "{request.operation_id}" is too large: {error}'
    )


async def quietly(work: Awaitable[Any]) -> None:
    """Await something that may fail because the other side is gone. Log a failure."""
    try:
        await work
    except (TransportError, CallError) as error:
        logger.debug("not sent: %s", error)

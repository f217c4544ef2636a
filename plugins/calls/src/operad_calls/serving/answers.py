"""What goes back to callers: answers and items within what their side has room for, errors, and notices."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any

from operad.errors import CallError, ErrorCode
from operad.transports import Event, Link, PayloadTooLargeError, TransportError
from operad_calls import protocol
from operad_calls.requests import timeout_error, wake
from operad_calls.serving.served import Served

logger = logging.getLogger("operad.calls")

_AGAIN = 1.0
"""Seconds after which a handler asks again for room."""
_MAX_PEERS = 10_000
_PATIENCE = 2.0
"""Seconds after which a peer that counts bytes and answers no question is taken for one that cannot answer."""


class Answers:
    """The way back, on one link."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self._alone: asyncio.Lock
        """Held while an item goes to a peer that answers no question for room: they go one at a time."""
        self._answering: dict[str, None] = {}
        """Inboxes of peers that have answered one: if they are silent, they are busy, or not there."""

    def start(self, link: Link) -> None:
        """Send on this link from now on."""
        self.link = link
        self._alone = asyncio.Lock()  # one belongs to a loop

    async def send(self, served: Served, event: Event) -> None:
        """Send an answer or item, when the caller has room for it.

        Raises:
            TransportError: it was not sent.
            CallError: ``SERIALIZATION_ERROR``; ``TIMEOUT``: there was no room until the deadline.
        """
        link = self.link
        if link is None:
            return
        if served.granted is None:
            await link.send(served.reply_to, event)
            return
        data = protocol.encode_in_parts(event)
        total = served.sent_bytes + len(data)
        if total > served.granted and not await self._room(served, total):
            async with self._alone:
                await link.send(served.reply_to, event)
            return
        if served.total is None:
            await link.send(served.reply_to, protocol.Encoded(event, data))
        else:
            await link.send(served.reply_to, protocol.with_sent_bytes(event, data, total))
        served.sent_bytes = total  # not of what the transport did not take: its error needs the room

    async def _room(self, served: Served, total: int) -> bool:
        """Wait until so many bytes may be sent; false: the peer answers no question. Raises `CallError`."""
        loop, began = asyncio.get_running_loop(), time.monotonic()
        if served.stream is not None:
            served.stream.report("stall", "the consumer has no room for as many bytes", total=total, unit="By")
        while served.granted is not None:
            if served.is_over:
                raise CallError(ErrorCode.ABORTED, f'"{served.operation_id}": nobody waits for it any more')
            await self.notice(served, wants=total)
            if served.granted >= total:
                return True
            if served.deadline is not None and served.deadline <= time.time() * 1000:
                raise timeout_error(served.operation_id, served.deadline)
            if served.heard:
                self._remember(served.reply_to)
            elif served.reply_to not in self._answering and time.monotonic() - began >= _PATIENCE:
                served.granted = None
                break
            left = _AGAIN if served.deadline is None else served.deadline / 1000 - time.time()
            served.waiter = waiter = loop.create_future()
            timer = loop.call_later(min(_AGAIN, max(0.0, left)), wake, waiter)
            try:
                await waiter
            finally:
                served.waiter = None
                timer.cancel()
            if served.granted >= total:
                self._remember(served.reply_to)
                return True
        return False

    def _remember(self, peer: str) -> None:
        if peer not in self._answering:
            self._answering[peer] = None
            if len(self._answering) > _MAX_PEERS:
                del self._answering[next(iter(self._answering))]

    async def notice(self, served: Served, *, wants: int | None = None) -> None:
        """Tell the caller that the request is here, where aborts and credit go, and what it wants to send."""
        if self.link is not None:
            served.noticed = True  # whatever the notice is for, the caller needs no other one
            payload = {"requestId": served.request_id, "total": served.total or 0, "replyTo": self.link.inbox}
            if wants is not None:
                payload["wantsBytes"] = wants
            await quietly(self.link.send(served.reply_to, {"type": protocol.CREDIT, "id": "", "payload": payload}))

    async def end(self, served: Served, event: Event) -> None:
        """Send the last event of a request; what cannot be sent becomes an error that can."""
        try:
            if served.granted is None and self.link is not None:
                await self.link.send(served.reply_to, event)
            else:
                await self.send(served, event)
        except CallError as error:
            await self.error(served.reply_to, served.request_id, error)
        except PayloadTooLargeError as error:
            await self.error(served.reply_to, served.request_id, too_large(served, error))
        except TransportError as error:
            logger.debug("the answer to %s was not sent: %s", served.request_id, error)

    async def error(self, to: str, request_id: str, error: CallError) -> None:
        """End a request with an error, as much of it as can be sent."""
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


def responded(served: Served, output: Any) -> Event:
    """A ``call.responded``."""
    payload: dict[str, Any] = {"requestId": served.request_id, "output": output}
    return {"type": protocol.RESPONDED, "id": "", "payload": payload}


def completed(served: Served) -> Event:
    """The ``call.completed`` of a stream."""
    payload = {"requestId": served.request_id, "count": served.sent}
    return {"type": protocol.COMPLETED, "id": "", "payload": payload}


def aborted(served: Served) -> Event:
    """A ``call.aborted``; to a peer that knows only the original events, the end of a stream."""
    return {"type": protocol.ABORTED, "id": "", "payload": {"requestId": served.request_id}}


def too_large(served: Served, error: PayloadTooLargeError) -> CallError:
    """The error of an answer that the transport does not carry."""
    return CallError(ErrorCode.PAYLOAD_TOO_LARGE, f'the answer of "{served.operation_id}" is too large: {error}')


async def quietly(work: Awaitable[Any]) -> None:
    """What may fail because the other side is gone."""
    try:
        await work
    except (TransportError, CallError) as error:
        logger.debug("not sent: %s", error)

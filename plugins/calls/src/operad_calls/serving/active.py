"""The state of a request that is being served."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from operad.subscriptions import Subscription
from operad.transports import Delivery
from operad_calls import protocol
from operad_calls.requests import LARGE


class ActiveRequest:
    """A request that is being served, by a call handler or by hand."""

    def __init__(
        self, key: tuple[str, str], operation_id: str, payload: dict[str, Any], delivery: Delivery
    ) -> None:
        self.key = key
        self.reply_to, self.request_id = key
        self.operation_id = operation_id
        self.owner = key[0] if delivery.identity is None else f"identity {delivery.identity.id}"
        """The caller whose limit ``max_concurrent_per_peer`` applies: an identity, or else a link."""
        self.total: int | None = None
        """The total number of items that may be sent; ``None`` if the caller gives no credit."""
        if type(credit := payload.get("credit")) is int and credit > 0:
            self.total = credit
        self.granted: int | None = None
        """The total number of bytes that may be sent; ``None`` if the caller does not count bytes."""
        if "creditBytes" in payload and type(room := payload["creditBytes"]) is int and room >= 0:
            self.granted = room
        self.sent = self.sent_bytes = 0
        self.heard = False
        """Whether the caller has responded to a request for room."""
        self.is_large = "sentBytes" in payload and type(size := payload["sentBytes"]) is int and size > LARGE
        self.done = delivery.done
        self.deadline: float | None = None
        """The deadline in epoch ms; ``None`` for a stream without a deadline."""
        self.waiter: asyncio.Future[None] | None = None
        """Woken when the caller grants credit or bytes, and when the request ends."""
        self.renewed = 0.0 if self.total is None else time.monotonic()
        """When the consumer of a stream last gave a sign of life, by `time.monotonic`."""
        self.noticed = False
        """Whether the request was acknowledged."""
        self.is_asked = False
        """Whether the last credit added nothing. The consumer then asks for a sign of life of the handler."""
        self.is_over = False
        # For a call handler:
        self.task: asyncio.Task[None] | None = None
        self.stream: Subscription | None = None
        """The subscription whose items are sent."""
        # For serving by hand:
        self.name = ""
        """A unique id of the request on this link. Request ids are chosen by callers and may be equal."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer that ends the request at its deadline."""
        self.turn: asyncio.Lock | None = None
        """The lock that a task holds while it sends an item."""


def key_of(payload: dict[str, Any], delivery: Delivery) -> tuple[str, str]:
    """Return the address of the caller and the request id; ``""`` if one is missing, or the id is too long.

    Only both together identify a request, because callers choose their request ids.
    """
    peer = delivery.peer
    if peer is None:
        peer = payload.get("replyTo")
        if type(peer) is not str:
            peer = ""
    request_id = payload.get("requestId")
    if type(request_id) is not str or len(request_id) > protocol.MAX_ID_LENGTH:
        request_id = ""
    return (peer, request_id)

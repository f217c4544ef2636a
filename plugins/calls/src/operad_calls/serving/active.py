"""A request that is being served."""

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
        """The caller that the request counts for, if requests are counted per caller."""
        self.total: int | None = None
        """How many items may be sent in all; ``None``: the peer gives no credit."""
        if type(credit := payload.get("credit")) is int and credit > 0:
            self.total = credit
        self.granted: int | None = None
        """How many bytes may be sent in all; ``None``: the peer does not count them."""
        if "creditBytes" in payload and type(room := payload["creditBytes"]) is int and room >= 0:
            self.granted = room
        self.sent = self.sent_bytes = 0
        self.heard = False
        """Whether the caller has answered a question for room."""
        self.is_large = "sentBytes" in payload and type(size := payload["sentBytes"]) is int and size > LARGE
        self.done = delivery.done
        self.deadline: float | None = None
        """Epoch ms."""
        self.waiter: asyncio.Future[None] | None = None
        """Woken when the caller grants credit or bytes, and when the request ends."""
        self.renewed = 0.0 if self.total is None else time.monotonic()
        """When the consumer of a stream last gave a sign of life (`time.monotonic`)."""
        self.noticed = False
        """Whether the request was acknowledged."""
        self.is_asked = False
        """Whether the last credit added nothing: the consumer asks whether its handler is still there."""
        self.is_over = False
        # In a call handler:
        self.task: asyncio.Task[None] | None = None
        self.stream: Subscription | None = None
        """The stream whose items are sent."""
        # By hand:
        self.name = ""
        """This link's own id for it: callers choose their ids, and two may choose the same one."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends it at its deadline."""
        self.turn: asyncio.Lock | None = None
        """Held by the task that sends an item, if several do."""


def key_of(payload: dict[str, Any], delivery: Delivery) -> tuple[str, str]:
    """Return the caller's address and request id; a missing one is ``""``.

    Callers choose their ids, and two may choose the same one, so a request is known by both.
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

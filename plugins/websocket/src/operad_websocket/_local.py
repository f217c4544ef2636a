"""The hub's own process as a participant, without a socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from operad import Identity
from operad.plugin import Delivery, Event, LinkDownError, OnEvent, OnLink, PayloadTooLargeError, TransportError
from operad_calls.transport import encode, protocol, unreadable
from operad_websocket._desk import ERROR, REGISTER, REGISTERED, TOPICS, UNREGISTER
from operad_websocket._frames import Frame, raw, read
from operad_websocket._peers import Peer
from operad_websocket._switch import Switch
from operad_websocket.config import capabilities

logger = logging.getLogger("operad.websocket")


def delivery_of(event: Event) -> Delivery:
    """Return the delivery of an event, from the fields that the hub has set in it."""
    payload = event["payload"]
    reply_to = payload.get("replyTo")
    if reply_to is None:
        return _FROM_HUB
    identity = payload.get("identity")
    if identity is None:
        return _of_peer(reply_to) if type(reply_to) is str and len(reply_to) <= _LONGEST else Delivery(reply_to)
    try:
        return Delivery(reply_to, Identity.from_wire(identity))
    except ValueError:
        return Delivery(reply_to)


_FROM_HUB = Delivery()
_LONGEST = 64
"""Characters of an address that a hub makes; a peer may send any value instead."""


@lru_cache(maxsize=4_096)
def _of_peer(inbox: str) -> Delivery:
    """Return the delivery of a peer without an identity: one object for all its events."""
    return Delivery(inbox)


class Registration:
    """An address that a link serves."""

    def __init__(self, link: Any, topic: str) -> None:
        self._link = link
        self._topic = topic

    async def unregister(self) -> None:
        """Stop serving it; idempotent."""
        await self._link.unregister(self._topic)


class HubTransport:
    """Reaches a hub from its own process. The hub believes the identities in its calls."""

    def __init__(self, switch: Switch, max_payload: int) -> None:
        self.capabilities = capabilities(max_payload)
        self._switch = switch

    async def open(self, on_event: OnEvent, on_link: OnLink) -> HubLink:
        """Open a link to the hub; this always succeeds."""
        link = HubLink(self._switch, self.capabilities.max_payload or 0, on_event, on_link)
        on_link("up", 1)
        return link


class HubLink:
    """A participant without a socket."""

    def __init__(self, switch: Switch, max_payload: int, on_event: OnEvent, on_link: OnLink) -> None:
        self._switch = switch
        self._max_payload = max_payload
        self._on_event = on_event
        self._on_link = on_link
        self._loop = asyncio.get_running_loop()
        self._answer: Event | None = None
        """The hub's response to the last frame for itself."""
        self._peer = Peer(self._deliver, trusted=True)
        self.inbox = self._peer.inbox
        switch.join(self._peer)

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """See `operad.transports.Link.register`."""
        self._check_open()
        answer = self._ask(REGISTER, {"topics": [topic], "group": group})
        for item in answer.get("refused", ()):
            raise TransportError(f"the hub does not let this process serve {topic}: {item['reason']}")
        return Registration(self, topic)

    async def unregister(self, topic: str) -> None:
        """Stop serving an address."""
        self._ask(UNREGISTER, {"topics": [topic]})

    async def served_by(self, instance: str, topics: Collection[str]) -> frozenset[str]:
        """Return those of ``topics`` that a handler instance has registered, to check what the instance lists."""
        self._check_open()
        return frozenset(self._ask(TOPICS, {"instance": instance, "topics": list(topics)}).get("topics", ()))

    def _ask(self, type_: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Give a frame to the hub itself; return the payload of its response."""
        self._answer = None
        self._switch.route(self._peer, Frame(type_, {name: raw(value) for name, value in payload.items()}))
        return self._take_answer()

    def _take_answer(self) -> dict[str, Any]:
        return {} if self._answer is None else self._answer["payload"]

    async def send(self, to: str, event: Event) -> str | None:
        """See `operad.transports.Link.send`."""
        self._check_open()
        data = encode(event)
        if len(data) > self._max_payload:
            raise PayloadTooLargeError(
                f"the event has {len(data)} bytes, the hub accepts at most {self._max_payload}"
            )
        frame = read(data)  # peers share no objects
        if to.startswith("all:"):
            frame.to = raw(to)
        self._switch.route(self._peer, frame)
        return to

    async def drain(self, timeout: float) -> None:
        """Stop serving; there is nothing to flush."""
        self._ask(UNREGISTER, {"topics": list(self._peer.topics)})

    async def close(self) -> None:
        """Leave the hub; idempotent."""
        if self._peer in self._switch.peers:
            self._peer.said_goodbye = True
            self._switch.leave(self._peer)
            self._on_link("down", 1)

    def _check_open(self) -> None:
        if self._peer not in self._switch.peers:
            raise LinkDownError("the link is closed")

    def _deliver(self, data: bytes) -> None:
        try:
            event = protocol.decode(data)
        except protocol.ProtocolError as error:
            logger.warning("a peer of the hub sent an unreadable event: %s", error)
            if (found := unreadable(data, error)) is not None:
                if found.is_request:
                    self._loop.call_soon(self._switch.route, self._peer, read(encode(found.event)))
                else:
                    self._loop.call_soon(self._on_event, found.event, _FROM_HUB)
            return
        if event["type"] in (REGISTERED, TOPICS, ERROR):
            self._answer = event
            return
        # In the next turn of the loop, because the switch is in the middle of something.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon(self._on_event, event, delivery_of(event))

"""The transport for callers and handlers in the process of the hub, without a socket."""

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
    """Return the `Delivery` of an event: its sender and identity, from fields that the hub has set."""
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
"""The maximum length of the address of a peer whose delivery is cached, in characters."""


@lru_cache(maxsize=4_096)
def _of_peer(inbox: str) -> Delivery:
    """Return the delivery of an anonymous peer, which all its events share."""
    return Delivery(inbox)


class Registration:
    """A registration of an address on a link to a hub."""

    def __init__(self, link: Any, topic: str) -> None:
        self._link = link
        self._topic = topic

    async def unregister(self) -> None:
        """Stop serving the address; idempotent."""
        await self._link.unregister(self._topic)


class HubTransport:
    """The transport within the process of a hub. The hub trusts the identities in its calls."""

    def __init__(self, switch: Switch, max_payload: int) -> None:
        self.capabilities = capabilities(max_payload)
        self._switch = switch

    async def open(self, on_event: OnEvent, on_link: OnLink) -> HubLink:
        """Return a new link to the hub."""
        link = HubLink(self._switch, self.capabilities.max_payload or 0, on_event, on_link)
        on_link("up", 1)
        return link


class HubLink:
    """A link within the process of a hub."""

    def __init__(self, switch: Switch, max_payload: int, on_event: OnEvent, on_link: OnLink) -> None:
        self._switch = switch
        self._max_payload = max_payload
        self._on_event = on_event
        self._on_link = on_link
        self._loop = asyncio.get_running_loop()
        self._answer: Event | None = None
        """The response to the last frame for the hub itself."""
        self._peer = Peer(self._deliver, trusted=True)
        self.inbox = self._peer.inbox
        switch.join(self._peer)

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """See `operad.transports.Link.register`. Raises `TransportError` if refused, `LinkDownError` if closed."""
        self._check_open()
        answer = self._ask(REGISTER, {"topics": [topic], "group": group})
        for item in answer.get("refused", ()):
            raise TransportError(f"the hub refuses the registration of {topic}: {item['reason']}")
        return Registration(self, topic)

    async def unregister(self, topic: str) -> None:
        """Stop serving an address; idempotent."""
        self._ask(UNREGISTER, {"topics": [topic]})

    async def served_by(self, instance: str, topics: Collection[str]) -> frozenset[str]:
        """Return the addresses of ``topics`` that a handler instance serves. Raises `LinkDownError` if closed."""
        self._check_open()
        return frozenset(self._ask(TOPICS, {"instance": instance, "topics": list(topics)}).get("topics", ()))

    def _ask(self, type_: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Pass a frame to the hub itself and return the payload of the response."""
        self._answer = None
        self._switch.route(self._peer, Frame(type_, {name: raw(value) for name, value in payload.items()}))
        return self._take_answer()

    def _take_answer(self) -> dict[str, Any]:
        return {} if self._answer is None else self._answer["payload"]

    async def send(self, to: str, event: Event) -> str | None:
        """See `operad.transports.Link.send`. Return ``to``, because the hub knows the receiver of later events."""
        self._check_open()
        data = encode(event)
        if len(data) > self._max_payload:
            raise PayloadTooLargeError(
                f"the event has {len(data)} bytes; the limit of the hub is {self._max_payload}"
            )
        frame = read(data)  # peers share no objects
        if to.startswith("all:"):
            frame.to = raw(to)
        self._switch.route(self._peer, frame)
        return to

    async def drain(self, timeout: float) -> None:
        """Stop serving all addresses. ``timeout`` is ignored, because events are delivered immediately."""
        self._ask(UNREGISTER, {"topics": list(self._peer.topics)})

    async def close(self) -> None:
        """Close the link; idempotent."""
        if self._peer in self._switch.peers:
            self._peer.said_goodbye = True
            self._switch.leave(self._peer)
            self._on_link("down", 1)

    def _check_open(self) -> None:
        if self._peer not in self._switch.peers:
            raise LinkDownError("the link is closed; open a new one")

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

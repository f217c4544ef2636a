"""The hub's own process as a participant: calls and serves without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from operad import protocol
from operad.access import Identity
from operad.transports import (
    Capabilities,
    Delivery,
    Event,
    LinkDownError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    TransportError,
)
from operad_websocket._routing import REGISTER, REGISTERED, UNREGISTER, Peer, Switch


def delivery_of(event: Event) -> Delivery:
    """How an event arrived, from what the hub stamped on it."""
    payload = event["payload"]
    reply_to = payload.get("replyTo")
    if reply_to is None:
        return _FROM_HUB
    identity = payload.get("identity")
    if identity is None:
        return Delivery(reply_to)
    try:
        return Delivery(reply_to, Identity.from_wire(identity))
    except ValueError:
        return Delivery(reply_to)


_FROM_HUB = Delivery()


def capabilities(max_payload: int) -> Capabilities:
    """What a hub can do."""
    return Capabilities(
        max_payload=max_payload,
        balances=True,
        detects_no_responders=True,
        detects_peer_loss=True,
        authenticates_peer=True,
    )


class Registration:
    """An address that a link serves."""

    def __init__(self, link: Any, topic: str) -> None:
        self._link = link
        self._topic = topic

    async def unregister(self) -> None:
        """Serve it no longer; idempotent."""
        await self._link.unregister(self._topic)


class HubTransport:
    """Reaches a hub from its own process, whose word on the identity of a call the hub takes."""

    def __init__(self, switch: Switch, max_payload: int) -> None:
        self.capabilities = capabilities(max_payload)
        self._switch = switch

    async def open(self, on_event: OnEvent, on_link: OnLink) -> HubLink:
        """A link to the hub; always succeeds."""
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
        self._refused: dict[str, str] = {}
        self._peer = Peer(self._deliver, trusted=True)
        self.inbox = self._peer.inbox
        switch.join(self._peer)

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """See `operad.transports.Link.register`."""
        self._check_open()
        self._switch.route(
            self._peer, {"type": REGISTER, "id": "", "payload": {"topics": [topic], "group": group}}
        )
        reason = self._refused.pop(topic, None)
        if reason is not None:
            raise TransportError(f"the hub refuses to have {topic} served here: {reason}")
        return Registration(self, topic)

    async def unregister(self, topic: str) -> None:
        """Serve an address no longer."""
        self._switch.route(self._peer, {"type": UNREGISTER, "id": "", "payload": {"topics": [topic]}})

    async def send(self, to: str, event: Event) -> str | None:
        """See `operad.transports.Link.send`."""
        self._check_open()
        data = protocol.encode(event)
        if len(data) > self._max_payload:
            raise PayloadTooLargeError(f"the event has {len(data)} bytes, the hub carries {self._max_payload}")
        event = protocol.decode(data)  # peers share no objects
        if to.startswith("all:"):
            event["to"] = to
        self._switch.route(self._peer, event)
        return to

    async def drain(self, timeout: float) -> None:
        """Serve no address any more; there is nothing to flush."""
        payload = {"topics": list(self._peer.topics)}
        self._switch.route(self._peer, {"type": UNREGISTER, "id": "", "payload": payload})

    async def close(self) -> None:
        """Leave the hub; idempotent."""
        if self._peer in self._switch.peers:
            self._switch.leave(self._peer)
            self._on_link("down", 1)

    def _check_open(self) -> None:
        if self._peer not in self._switch.peers:
            raise LinkDownError("the link is closed")

    def _deliver(self, event: Event) -> None:
        if event["type"] == REGISTERED:
            for item in event["payload"]["refused"]:
                self._refused[item["topic"]] = item["reason"]
            return
        # In a turn of its own: the switch is in the middle of something.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon(self._on_event, event, delivery_of(event))

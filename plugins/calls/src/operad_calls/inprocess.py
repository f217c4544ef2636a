"""The transport between call maps and call handlers in one event loop."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import Any

from operad.transports import (
    Capabilities,
    Delivery,
    Event,
    LinkDownError,
    NoRespondersError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    TransportError,
)
from operad_calls import protocol
from operad_calls.requests import remember

_MAX_DELIVERIES = 4_096


class InProcessTransport:
    """A transport within one process and one event loop. Each object is a separate bus.

    Unless it is strict, events are not encoded or copied: caller and handler share the objects.

    Args:
        strict: whether to encode and decode every event, as other transports do; for tests.
        max_payload: the maximum size of an encoded event in bytes; requires ``strict``; default: unlimited.

    Raises:
        ValueError: ``max_payload`` is given without ``strict``.
    """

    def __init__(self, *, strict: bool = False, max_payload: int | None = None) -> None:
        if max_payload is not None and not strict:
            raise ValueError("max_payload requires strict=True, because an event that is not encoded has no size")
        self.capabilities = Capabilities(
            max_payload=max_payload,
            balances=True,
            detects_no_responders=True,
            detects_peer_loss=True,
            same_process=True,
        )
        self._strict = strict
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: dict[str, InProcessLink] = {}
        self._topics: dict[str, deque[InProcessLink]] = {}

    async def open(self, on_event: OnEvent, on_link: OnLink) -> InProcessLink:
        """Return a new link to this bus. Raises `TransportError` if it has links in a different event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._links and self._loop is not None and not self._loop.is_closed():
                text = "this in-process transport has links in another event loop; close them first"
                raise TransportError(f"{text}, or use a WebSocket hub between threads")
            self._loop, self._links, self._topics = loop, {}, {}
        link = InProcessLink(self, on_event, on_link)
        self._links[link.inbox] = link
        on_link("up", 1)
        return link

    def _server(self, to: str) -> InProcessLink:
        """Return the next member of an address, in turn. Raises `NoRespondersError` if it has none."""
        members = self._topics.get(to)
        if not members:
            raise NoRespondersError(
                f"no peer serves {to[3:]}" if to.startswith("op:") else f"the peer {to} is gone"
            )
        receiver = members[0]
        if len(members) > 1:
            members.rotate(-1)
        return receiver

    def _transcoded(self, event: Event) -> Event:
        data = protocol.encode(event)
        limit = self.capabilities.max_payload
        if limit is not None and len(data) > limit:
            raise PayloadTooLargeError(f"the event has {len(data)} bytes; max_payload of the transport is {limit}")
        return protocol.decode(data)


class InProcessLink:
    """A link of an `InProcessTransport`."""

    def __init__(self, bus: InProcessTransport, on_event: OnEvent, on_link: OnLink) -> None:
        self.inbox = f"inbox:{secrets.token_hex(16)}"
        self._bus = bus
        self.deliver = on_event
        """Passes an event to the owner of the link."""
        self._on_link = on_link
        self._topics: set[str] = set()
        self._deliveries: dict[str, Delivery] = {}
        self._closed = False

    async def register(self, topic: str, group: str | None = None) -> InProcessRegistration:
        """See `operad.transports.Link.register`. All members of an address take turns; ``group`` is ignored."""
        if self._closed:
            raise LinkDownError("the link is closed; open a new one")
        if topic not in self._topics:
            self._topics.add(topic)
            self._bus._topics.setdefault(topic, deque()).append(self)
        return InProcessRegistration(self, topic)

    async def send(self, to: str, event: Event) -> str | None:
        """See `operad.transports.Link.send`. The receiver has the event when this returns."""
        if self._closed:
            raise LinkDownError("the link is closed; open a new one")
        bus = self._bus
        if bus._strict:
            event = bus._transcoded(event)
        receiver = bus._links.get(to)
        if receiver is None:
            if to.startswith("all:"):
                self._broadcast(to, event)
                return to
            receiver = bus._server(to)
        if (delivery := self._deliveries.get(to)) is None:  # making one takes longer than all else here
            delivery = Delivery(self.inbox, to=to)
            remember(self._deliveries, to, delivery, _MAX_DELIVERIES)
        receiver.deliver(event, delivery)
        return receiver.inbox

    def _broadcast(self, to: str, event: Event) -> None:
        members = tuple(self._bus._topics.get(to, ()))
        if event["type"] == protocol.REQUESTED:  # tells the caller how many responses to wait for
            payload: dict[str, Any] = {"requestId": event["payload"].get("requestId"), "count": len(members)}
            self.deliver({"type": protocol.COMPLETED, "id": "", "payload": payload}, Delivery())
        for member in members:
            member.deliver(event, Delivery(self.inbox, to=to))

    async def drain(self, timeout: float) -> None:
        """Stop serving all addresses. ``timeout`` is ignored, because events are delivered immediately."""
        for topic in tuple(self._topics):
            self._unregister(topic)

    async def close(self) -> None:
        """Close the link, report "down", and report the loss of this link to the other links; idempotent."""
        if self._closed:
            return
        self._closed = True
        await self.drain(0)
        del self._bus._links[self.inbox]
        self._on_link("down", 1)
        lost: Event = {"type": protocol.LOST, "id": "", "payload": {"peer": self.inbox}}
        for link in tuple(self._bus._links.values()):
            link.deliver(lost, Delivery())

    def _unregister(self, topic: str) -> None:
        if topic in self._topics:
            self._topics.discard(topic)
            members = self._bus._topics[topic]
            members.remove(self)
            if not members:
                del self._bus._topics[topic]


class InProcessRegistration:
    """An address that an `InProcessLink` serves."""

    def __init__(self, link: InProcessLink, topic: str) -> None:
        self._link = link
        self._topic = topic

    async def unregister(self) -> None:
        """Stop serving the address; idempotent."""
        self._link._unregister(self._topic)

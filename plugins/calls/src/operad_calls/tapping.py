"""A tap, which shows the events of a transport to a function, for audit and debugging."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import attrs

from operad.transports import Delivery, Event, Link, LinkState, OnEvent, OnLink, Transport

logger = logging.getLogger("operad.calls")


@attrs.frozen
class Passed:
    """An event that passes a tap, with its direction and addresses."""

    direction: Literal["in", "out"]
    event: Event = attrs.field(repr=False)  # holds inputs and answers
    """The event. Do not change it, and read it immediately, because a link may change it later."""
    to: str | None
    """The address to which the event goes, or at which it arrived; ``None`` if it is unknown."""
    delivery: Delivery | None
    """The delivery of an incoming event; ``None`` for an outgoing event."""


See = Callable[[Passed], None]
"""A function that receives an event and does not block. Its exceptions are logged."""


def tap(transport: Transport, see: See, on_link: OnLink | None = None) -> Transport:
    """Return a transport that shows its events to ``see``: ``CallHandler(registry, tap(transport, see))``.

    Args:
        transport: any transport.
        see: receives incoming events before the owner of the link, and outgoing events before the link.
        on_link: receives states of links before their owners.
    """
    return _Tapped(transport, see, on_link)


class _Tapped:
    """A transport with a tap."""

    def __init__(self, transport: Transport, see: See, on_link: OnLink | None) -> None:
        self._transport = transport
        self._see = see
        self._on_link = on_link
        self.capabilities = transport.capabilities

    def show(self, passed: Passed) -> None:
        try:
            self._see(passed)
        except Exception:
            logger.exception("a tap failed; the event is passed on")

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        def coming(event: Event, delivery: Delivery) -> None:
            self.show(Passed("in", event, delivery.to, delivery))
            on_event(event, delivery)

        def changing(state: LinkState, epoch: int) -> None:
            if self._on_link is not None:
                self._on_link(state, epoch)
            on_link(state, epoch)

        return _TappedLink(self, await self._transport.open(coming, changing))


class _TappedLink:
    """A link with a tap."""

    def __init__(self, transport: _Tapped, link: Link) -> None:
        self._transport = transport
        self._link = link
        self.inbox = link.inbox

    async def send(self, to: str, event: Event) -> str | None:
        self._transport.show(Passed("out", event, to, None))
        return await self._link.send(to, event)

    def __getattr__(self, name: str) -> Any:  # methods that only some links have
        return getattr(self._link, name)

"""A tap: sees the events of a transport as they pass, for audit and debugging."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import attrs

from operad.transports import Capabilities, Delivery, Event, Link, LinkState, OnEvent, OnLink, Transport

logger = logging.getLogger("operad.calls")


@attrs.frozen
class Passed:
    """An event on its way, as it passes a tap."""

    direction: Literal["in", "out"]
    event: Event = attrs.field(repr=False)  # holds inputs and answers
    """Not to be changed, and to be read at once: a link may change it afterwards."""
    to: str | None
    """Where it goes, or came to; ``None``: the transport does not tell."""
    delivery: Delivery | None
    """How it came; ``None``: it goes out."""


See = Callable[[Passed], None]
"""Sees an event, at once and without waiting; what it raises is logged."""


def tap(transport: Transport, see: See, on_link: OnLink | None = None) -> Transport:
    """The same transport, whose events ``see`` sees as they pass: ``CallHandler(registry, tap(transport, see))``.

    Args:
        transport: any transport.
        see: sees what comes in before whoever opened the link, and what goes out before the link has it.
        on_link: sees links go up and down likewise.
    """
    return _Tapped(transport, see, on_link)


class _Tapped:
    """A transport with a tap."""

    def __init__(self, transport: Transport, see: See, on_link: OnLink | None) -> None:
        self._transport = transport
        self._see = see
        self._on_link = on_link

    @property
    def capabilities(self) -> Capabilities:
        return self._transport.capabilities

    def show(self, passed: Passed) -> None:
        try:
            self._see(passed)
        except Exception:
            logger.exception("a tap failed; the event goes on")

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
        self.register, self.drain, self.close = link.register, link.drain, link.close

    async def send(self, to: str, event: Event) -> str | None:
        self._transport.show(Passed("out", event, to, None))
        return await self._link.send(to, event)

    def __getattr__(self, name: str) -> Any:  # what only some links can do
        return getattr(self._link, name)

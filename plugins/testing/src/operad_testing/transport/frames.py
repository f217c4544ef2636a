"""The check of delivered events against the published schemas of the call protocol."""

from __future__ import annotations

from functools import cache

from operad.envelopes import ResponseEnvelope
from operad.transports import Delivery, Event, Link, OnEvent, OnLink, Transport
from operad_calls.transport import FrameCheck

BY_HAND = "by hand"
"""The id of events that tests write themselves, some of them malformed. They are not checked."""


class CheckedFrames:
    """A transport whose links check the events that they receive.

    Args:
        transport: the transport under test.
        wrong: the list to which errors of events are added. The link still delivers these events.
    """

    def __init__(self, transport: Transport, wrong: list[str]) -> None:
        self._transport = transport
        self._wrong = wrong
        self.capabilities = transport.capabilities

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Open a link of the transport that checks the events it receives."""

        def checked(event: Event, delivery: Delivery) -> None:
            if event["id"] != BY_HAND and (error := frame_error(event)) is not None:
                self._wrong.append(error)
            on_event(event, delivery)

        return await self._transport.open(checked, on_link)


def frame_error(event: Event) -> str | None:
    """Return a message that states how an event violates the schema of its type; None if the event is valid."""
    payload = event["payload"]
    output = payload.get("output")
    if isinstance(output, ResponseEnvelope):  # within one process, an envelope is handed over as an object
        event = {**event, "payload": {**payload, "output": output.to_wire()}}
    return _check().error(event)


@cache
def _check() -> FrameCheck:
    return FrameCheck()

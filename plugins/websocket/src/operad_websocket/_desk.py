"""The handling of frames for the hub itself, and the refusal of invalid frames."""

from __future__ import annotations

import logging
from typing import Any

from operad.plugin import ErrorCode, PayloadTooLargeError
from operad.words import printable
from operad_calls.transport import Reports, protocol
from operad_websocket._addresses import SHARED, Addresses
from operad_websocket._frames import Frame, value, write
from operad_websocket._peers import Peer
from operad_websocket.config import Limits

logger = logging.getLogger("operad.websocket")

REGISTER, REGISTERED, UNREGISTER = "link.register", protocol.REGISTERED, "link.unregister"
TOPICS, ERROR = "link.topics", "link.error"

_REASONS = 1_000
"""The maximum number of refused addresses in one response."""


class Desk:
    """The handler of frames for the hub itself, which register and look up addresses.

    Args:
        addresses: the table of addresses.
        limits: the limits, of which ``topics`` is used.
    """

    def __init__(self, addresses: Addresses, limits: Limits) -> None:
        self._addresses = addresses
        self._limits = limits
        self.reports = Reports(logger)
        self.routers = {REGISTER: self._on_register, UNREGISTER: self._on_unregister, TOPICS: self._on_topics}

    def deliver(self, peer: Peer, data: bytes) -> None:
        """Send the JSON of an event to a peer. Drop an event that is too large, and log it."""
        try:
            peer.deliver(data)
        except PayloadTooLargeError as error:
            self.reports.warn(peer.account, f"{peer.name} did not receive a frame: {error}")

    def object_to(self, peer: Peer, code: str, message: str, frame_id: Any = "") -> None:
        """Refuse a frame that belongs to no request, and send ``link.error`` to its sender."""
        self.refuse(peer, message)
        self.deliver(peer, write(ERROR, {"code": str(code), "message": message}, frame_id))

    def refuse(self, peer: Peer, what: str) -> None:
        """Count and log the refusal of a frame of a peer."""
        self.reports.refuse(peer.account, f"refused a frame of {peer.name}: {what}")

    # --- addresses -------------------------------------------------------------------------------

    def _on_register(self, peer: Peer, frame: Frame) -> None:
        topics = self._topics_of(peer, frame)
        if topics is None:
            return
        accepted, refused = self._addresses.add(peer, topics)
        if alarming := [topic for topic in refused if topic not in SHARED]:
            first = alarming[0]
            more = f", and {len(alarming) - 1} more" if len(alarming) > 1 else ""
            self.refuse(peer, f"it may not serve {first!r}{more}: {refused[first]}")
        answer: dict[str, Any] = {"topics": accepted, "refused": []}
        for topic, reason in refused.items():
            if len(answer["refused"]) == _REASONS:
                break
            answer["refused"].append({"topic": printable(topic), "reason": reason})
        self.deliver(peer, write(REGISTERED, answer, frame.id))

    def _on_unregister(self, peer: Peer, frame: Frame) -> None:
        topics = self._topics_of(peer, frame)
        if topics is not None:
            self._addresses.remove(peer, topics)
            self.deliver(peer, write(REGISTERED, {"topics": [], "refused": []}, frame.id))

    def _on_topics(self, peer: Peer, frame: Frame) -> None:
        """Report which addresses an instance has registered. Peers accept its listing for these addresses only."""
        topics, instance = self._topics_of(peer, frame), value(frame.payload, "instance")
        if topics is None or not isinstance(instance, str):
            return
        answer = {"instance": instance, "topics": self._addresses.served_by(instance, topics)}
        self.deliver(peer, write(TOPICS, answer, frame.id))

    def _topics_of(self, peer: Peer, frame: Frame) -> list[str] | None:
        """Return the addresses in a frame, or None if the frame is refused."""
        topics = value(frame.payload, "topics")
        if not isinstance(topics, list):
            message = f"{frame.type}: topics: expected a list of addresses, got {type(topics).__name__}"
            self.object_to(peer, ErrorCode.VALIDATION_ERROR, message, frame.id)
            return None
        if len(topics) > self._limits.topics:
            message = f"{frame.type}: topics: expected at most {self._limits.topics} addresses, got {len(topics)}"
            self.object_to(peer, ErrorCode.OVERLOADED, message, frame.id)
            return None
        return [topic for topic in topics if isinstance(topic, str)]

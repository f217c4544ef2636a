"""Who serves what on a hub, and for whom a name is kept."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

from operad import Identity
from operad_websocket._peers import Peer
from operad_websocket.config import Limits

logger = logging.getLogger("operad.websocket")

_MAX_TOPIC = 1_024
SHARED = frozenset({"op:operad.list", "op:operad.describe"})
"""What every handler offers to serve, and only those of one identity may: a refusal is no alarm."""
_PREFIX = "op:operad.list."

Authorize = Callable[[Identity | None, str], bool]


class Addresses:
    """The table of addresses.

    A name belongs to the identity that serves it, and for a grace time to an identity whose connection broke:
    while it reconnects, nobody else takes its place. That holds in this process's memory, and for authenticated
    identities alone.

    Args:
        limits: how many addresses a connection serves, and how long a name is kept.
        authorize: ``authorize(identity, address)``: whether it may serve an address.
    """

    def __init__(self, limits: Limits, authorize: Authorize | None) -> None:
        self._limits = limits
        self._authorize = authorize
        self._members: dict[str, deque[Peer]] = {}
        self.members = self._members.get
        """``members(address)``: those who serve it; ``None``: nobody."""
        self._kept: dict[str, tuple[str, float]] = {}
        """Owner of a name, and until when it is kept."""
        self._kept_of: dict[str, int] = {}
        self._failures: set[type[Exception]] = set()

    def __len__(self) -> int:
        return len(self._members)

    def kept(self, topic: str) -> float:
        """For how many seconds more an address that nobody serves is kept for its owner; 0: it is not."""
        kept = self._kept.get(topic)
        return 0.0 if kept is None else max(0.0, kept[1] - time.monotonic())

    def add(self, peer: Peer, topics: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Have a peer serve addresses; answers those that are accepted, and why the others are not."""
        accepted, refused = [], {}
        for topic in topics:
            reason = self._objection(peer, topic)
            if reason is None:
                accepted.append(topic)
                if topic not in peer.topics:
                    peer.topics[topic] = None
                    self._members.setdefault(topic, deque()).append(peer)
                    self._let_go(topic)
            else:
                refused[topic] = reason
        return accepted, refused

    def _objection(self, peer: Peer, topic: str) -> str | None:
        if not topic.startswith(("op:", "all:")) or len(topic) > _MAX_TOPIC or not topic.partition(":")[2]:
            return f"an address starts with op: or all: and has at most {_MAX_TOPIC} characters"
        if len(peer.topics) >= self._limits.topics and topic not in peer.topics:
            return f"a connection serves at most {self._limits.topics} addresses"
        if self._authorize is not None and (reason := self._refusal(peer.identity, topic)) is not None:
            return reason
        if topic.startswith("op:"):
            members = self._members.get(topic)
            if members and members[0].owner != peer.owner:
                return "it is served by another identity"
            if self.kept(topic) and self._kept[topic][0] != peer.owner:
                return "it is kept for the identity that served it, whose connection broke"
        return None

    def _refusal(self, identity: Identity | None, topic: str) -> str | None:
        """What the function of the application has against it."""
        assert self._authorize is not None
        try:
            return None if self._authorize(identity, topic) else "this identity may not serve it"
        except Exception as error:
            if type(error) not in self._failures:  # peers say how often it is asked
                self._failures.add(type(error))
                logger.exception("authorize failed; that it raises %s is not logged again", type(error).__name__)
            return "the hub cannot decide whether this identity may serve it"

    def remove(self, peer: Peer, topics: Iterable[str]) -> None:
        """Have a peer serve addresses no longer; those that it does not serve are left alone."""
        for topic in topics:
            if topic in peer.topics:
                del peer.topics[topic]
                members = self._members[topic]
                members.remove(peer)
                if not members:
                    del self._members[topic]

    def leave(self, peer: Peer) -> None:
        """A connection has ended. If it broke, the names that nobody serves now are kept."""
        topics = tuple(peer.topics)
        self.remove(peer, topics)
        owner = peer.owner
        if peer.said_goodbye or peer.trusted or owner is None or not self._limits.grace:
            return
        until = time.monotonic() + self._limits.grace
        for topic in topics:
            if topic in self._members or topic in SHARED or not topic.startswith("op:"):
                continue
            if self._kept_of.get(owner, 0) >= self._limits.topics:
                break
            if topic not in self._kept:
                self._kept_of[owner] = self._kept_of.get(owner, 0) + 1
            self._kept[topic] = (owner, until)

    def expire(self) -> None:
        """Let go of the names whose grace time is over."""
        now = time.monotonic()
        for topic in [topic for topic, (_, until) in self._kept.items() if until <= now]:
            self._let_go(topic)

    def _let_go(self, topic: str) -> None:
        kept = self._kept.pop(topic, None)
        if kept is not None:
            left = self._kept_of[kept[0]] - 1
            if left:
                self._kept_of[kept[0]] = left
            else:
                del self._kept_of[kept[0]]

    def served_by(self, instance: str, topics: Collection[str]) -> list[str]:
        """Those of ``topics`` that a serving instance, named by its id, has registered."""
        members = self._members.get(_PREFIX + instance)
        if not members:
            return []
        served = members[0].topics
        return [topic for topic in topics if topic in served]

"""The addresses of a hub: the peers that serve them, and the identities for which names are reserved."""

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
"""The addresses that every handler registers. Only the first identity gets them; other refusals are not logged."""
_PREFIX = "op:operad.list."

Authorize = Callable[[Identity | None, str], bool]


class Addresses:
    """The addresses that peers serve.

    A name belongs to the identity that serves it. If the connection of an authenticated identity breaks, the name
    stays reserved for a grace time, so that no other identity can take it. Reserved names are only in memory.

    Args:
        limits: the limits, of which ``topics`` and ``grace`` are used.
        authorize: ``authorize(identity, address)`` returns True if the identity may serve the address. If
            ``None``, every identity may serve every address.
    """

    def __init__(self, limits: Limits, authorize: Authorize | None) -> None:
        self._limits = limits
        self._authorize = authorize
        self._members: dict[str, deque[Peer]] = {}
        self.members = self._members.get
        """``members(address)`` returns the peers that serve an address, or None if there are no such peers."""
        self._kept: dict[str, tuple[str, float]] = {}
        """The owner of each reserved name, and when the reservation ends, by `time.monotonic`."""
        self._kept_of: dict[str, int] = {}
        self._failures: set[type[Exception]] = set()

    def __len__(self) -> int:
        return len(self._members)

    def kept(self, topic: str) -> float:
        """Return the seconds for which an address is still reserved for its owner; 0 if it is not reserved."""
        kept = self._kept.get(topic)
        return 0.0 if kept is None else max(0.0, kept[1] - time.monotonic())

    def add(self, peer: Peer, topics: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Register addresses of a peer. Return the accepted addresses, and the reason for each refused one."""
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
            return f"expected an address that begins with op: or all: and has at most {_MAX_TOPIC} characters"
        if len(peer.topics) >= self._limits.topics and topic not in peer.topics:
            return f"a connection serves at most {self._limits.topics} addresses (limits.topics)"
        if self._authorize is not None and (reason := self._refusal(peer.identity, topic)) is not None:
            return reason
        if topic.startswith("op:"):
            members = self._members.get(topic)
            if members and members[0].owner != peer.owner:
                return "it is served by another identity"
            if self.kept(topic) and self._kept[topic][0] != peer.owner:
                return "it is reserved for another identity, whose connection broke"
        return None

    def _refusal(self, identity: Identity | None, topic: str) -> str | None:
        """Return the reason why ``authorize`` refuses an address, or None if it allows the address."""
        assert self._authorize is not None
        try:
            return None if self._authorize(identity, topic) else "this identity may not serve it"
        except Exception as error:
            if type(error) not in self._failures:  # peers decide how often it is called
                self._failures.add(type(error))
                logger.exception("authorize raised an error; further %s are not logged", type(error).__name__)
            return "the hub cannot decide whether this identity may serve it"

    def remove(self, peer: Peer, topics: Iterable[str]) -> None:
        """Unregister addresses of a peer. Ignore addresses that the peer does not serve."""
        for topic in topics:
            if topic in peer.topics:
                del peer.topics[topic]
                members = self._members[topic]
                members.remove(peer)
                if not members:
                    del self._members[topic]

    def leave(self, peer: Peer) -> None:
        """Unregister a peer. If its connection broke, its identity keeps the names that no other peer serves."""
        topics = tuple(peer.topics)
        self.remove(peer, topics)
        owner = peer.owner
        if peer.said_goodbye or owner is None or not self._limits.grace:
            return
        until = time.monotonic() + self._limits.grace
        for topic in topics:
            if topic in self._members or topic in SHARED or not topic.startswith("op:"):
                continue
            if self._kept_of.get(owner, 0) >= self._limits.topics:
                break
            self._kept_of[owner] = self._kept_of.get(owner, 0) + 1
            self._kept[topic] = (owner, until)

    def expire(self) -> None:
        """Release the names whose grace time has ended."""
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
        """Return the addresses of ``topics`` that a handler instance has registered; [] if it is unknown."""
        members = self._members.get(_PREFIX + instance)
        if not members:
            return []
        served = members[0].topics
        return [topic for topic in topics if topic in served]

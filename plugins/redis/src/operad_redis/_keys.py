"""The keys and channels of a bus, which are in one slot of a cluster.

====================================  =======  ==============================================================
``operad:{bus}:op:<operation id>``    set      the links that serve it, ``<link> <group>``
``operad:{bus}:links``                zset     the links that serve, by the time of their last sign of life
``operad:{bus}:load``                 hash     the number of unfinished requests of each link
``operad:{bus}:in:<link>``            stream   the requests of a link, until they are finished
``operad:{bus}:reg:<link>``           set      the operations of a link, to clean up after it
``operad:{bus}:dead:<link>``          stream   the requests of a dead link, for other links
``operad:{bus}:inbox:<link>``         channel  replies, credit, aborts
``operad:{bus}:all:<topic>``          channel  broadcasts
====================================  =======  ==============================================================

The part in braces decides the slot. A script that picks a link and adds to its stream needs both in one slot.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from operad.plugin import TransportError

MAX_NAME = 500
_INBOX = re.compile(r"inbox:([A-Za-z0-9_-]{1,64})")


def _name(text: str) -> str:
    """Return any text as the last part of a key. Different texts give different keys."""
    encoded = quote(text, safe="./", errors="surrogatepass")
    if len(encoded) > MAX_NAME:
        # quote() never leaves a "=", so no short text looks like a digest.
        encoded = "=" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return encoded


class Keys:
    """The names of the Redis keys and channels of one bus."""

    def __init__(self, bus: str) -> None:
        self.prefix = f"operad:{{{bus}}}:"
        self.links = self.prefix + "links"
        self.load = self.prefix + "load"
        self.streams = self.prefix + "in:"
        self.inboxes = self.prefix + "inbox:"

    def operation(self, address: str) -> str:
        """Return the key of the set of links that serve an address ``op:…``."""
        return f"{self.prefix}op:{_name(address.removeprefix('op:'))}"

    def stream(self, link: str) -> str:
        """Return the key of the stream with the requests of a link."""
        return self.streams + link

    def served(self, link: str) -> str:
        """Return the key of the set of operations that a link serves."""
        return f"{self.prefix}reg:{link}"

    def dead(self, link: str) -> str:
        """Return the key of the stream with the requests of a dead link."""
        return f"{self.prefix}dead:{link}"

    def channel(self, address: str) -> str:
        """Return the channel of an address ``inbox:…`` or ``all:…``.

        Raises:
            TransportError: the text, which may come from a peer, is not such an address.
        """
        if match := _INBOX.fullmatch(address):
            return self.inboxes + match[1]
        kind, _, topic = address.partition(":")
        if kind == "all" and topic:
            return f"{self.prefix}all:{_name(topic)}"
        raise TransportError(f'expected an address "all:…" or "inbox:…", got {address[:200]!r}')

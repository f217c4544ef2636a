"""Keys and channels of a bus, all in one slot of a cluster.

====================================  =======  ==============================================================
``operad:{bus}:op:<operation id>``    set      who serves an operation: ``<link> <group>``
``operad:{bus}:links``                zset     the links that serve, by the time of their last sign of life
``operad:{bus}:load``                 hash     requests that each of these links has not finished
``operad:{bus}:in:<link>``            stream   a link's requests, each deleted when its work has ended
``operad:{bus}:reg:<link>``           set      what a link serves, for whoever cleans up after it
``operad:{bus}:dead:<link>``          stream   what a dead link left, while it is handed to others
``operad:{bus}:inbox:<link>``         channel  replies, credit, aborts
``operad:{bus}:all:<topic>``          channel  broadcasts
====================================  =======  ==============================================================

The part in braces decides the slot: a script that picks a link and adds to its stream needs both in one place.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from operad.plugin import TransportError

MAX_NAME = 500
_INBOX = re.compile(r"inbox:([A-Za-z0-9_-]{1,64})")


def _name(text: str) -> str:
    """Any text as the end of a key; injective. Percent-encoding keeps keys readable in a terminal."""
    encoded = quote(text, safe="./", errors="surrogatepass")
    if len(encoded) > MAX_NAME:
        # quote() never leaves a "=", so no short text looks like a digest.
        encoded = "=" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return encoded


class Keys:
    """The names of one bus."""

    def __init__(self, bus: str) -> None:
        self.prefix = f"operad:{{{bus}}}:"
        self.links = self.prefix + "links"
        self.load = self.prefix + "load"
        self.streams = self.prefix + "in:"
        self.inboxes = self.prefix + "inbox:"

    def operation(self, address: str) -> str:
        """Who serves ``op:…``."""
        return f"{self.prefix}op:{_name(address.removeprefix('op:'))}"

    def stream(self, link: str) -> str:
        """The requests of a link."""
        return self.streams + link

    def served(self, link: str) -> str:
        """What a link serves."""
        return f"{self.prefix}reg:{link}"

    def dead(self, link: str) -> str:
        """What a dead link left."""
        return f"{self.prefix}dead:{link}"

    def channel(self, address: str) -> str:
        """The channel of ``inbox:…`` or ``all:…``.

        Raises:
            TransportError: it is no such address. An inbox comes from a peer.
        """
        if match := _INBOX.fullmatch(address):
            return self.inboxes + match[1]
        kind, _, topic = address.partition(":")
        if kind == "all" and topic:
            return f"{self.prefix}all:{_name(topic)}"
        raise TransportError(f'expected an address "op:…", "all:…" or "inbox:…", got {address[:200]!r}')

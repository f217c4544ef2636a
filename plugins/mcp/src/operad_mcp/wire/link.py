"""The interfaces between a transport (`Link`) and a session (`Sink`)."""

from __future__ import annotations

import importlib
from asyncio import to_thread
from types import ModuleType
from typing import Any, Protocol

from operad_mcp.errors import Fault
from operad_mcp.wire.messages import Json, Message

KEPT = 256
"""The number of a server's requests and reports in progress at which its transport pauses."""


class Sink(Protocol):
    """The part of a session that its transport uses."""

    @property
    def crowded(self) -> bool:
        """Whether the transport should pause reading."""

    def receive(self, message: Message) -> None:
        """Handle a message from the server."""

    def end(self, fault: Fault | None = None) -> None:
        """Handle the end of the connection. Requests in flight fail with ``fault`` (default: `ConnectionLost`)."""

    async def room(self) -> None:
        """Wait until the session is not crowded, or has ended."""


class Link:
    """The base class of transports: a connection to a server, which passes received messages to a `Sink`."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.ended = False

    @property
    def last_words(self) -> str:
        """The reason why the connection ended, for messages; empty if the transport does not know it."""
        return ""

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Send a message. Transports without headers ignore ``headers``, whose names are in lower case.

        Raises `Fault` if the message certainly was not sent. Over HTTP, failures become responses instead.
        """
        raise NotImplementedError

    def end(self, fault: Fault | None = None) -> None:
        """End the connection. Requests in flight fail with ``fault``, by default `ConnectionLost`."""
        self.ended = True
        self.sink.end(fault)


async def imported(name: str) -> ModuleType:
    """Import the module ``name`` in a thread, so that other calls continue meanwhile; return the module."""
    return await to_thread(importlib.import_module, name)


def is_request(message: dict[str, Any]) -> bool:
    """Return True if a message expects a response."""
    return "id" in message and "method" in message

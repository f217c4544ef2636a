"""The interface between a transport and a session."""

from __future__ import annotations

import importlib
from asyncio import to_thread
from types import ModuleType
from typing import Any, Protocol

from operad_mcp.errors import Fault
from operad_mcp.wire.messages import Json, Message

KEPT = 256
"""The number of a server's requests and reports that are handled at once; above it a transport pauses."""


class Sink(Protocol):
    """A session, as its transport sees it."""

    @property
    def crowded(self) -> bool:
        """Whether a transport should pause reading."""

    def receive(self, message: Message) -> None:
        """Take a message."""

    def end(self, fault: Fault | None = None) -> None:
        """Process the end of the connection: requests in flight fail with ``fault``."""

    async def room(self) -> None:
        """Wait until the session is not crowded."""


class Link:
    """A transport."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.ended = False

    @property
    def last_words(self) -> str:
        """The reason of the end, for messages, if the transport knows one."""
        return ""

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Send a message. The names of headers are in lower case; not every transport has headers."""
        raise NotImplementedError

    def end(self, fault: Fault | None = None) -> None:
        """End the connection: requests in flight fail with ``fault``."""
        self.ended = True
        self.sink.end(fault)


async def imported(name: str) -> ModuleType:
    """Import a slow module in a thread, so that other servers and calls continue."""
    return await to_thread(importlib.import_module, name)


def is_request(message: dict[str, Any]) -> bool:
    """Return True if a message expects a response."""
    return "id" in message and "method" in message

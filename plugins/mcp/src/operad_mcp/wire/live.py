"""A connection that is up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

Json = dict[str, Any]
MODERN = "2026-07-28"
"""The first revision of the stateless protocol."""
TASKS = "io.modelcontextprotocol/tasks"
"""The extension of it by which a server may answer a call with a task."""


class ServerLogger(logging.LoggerAdapter[logging.Logger]):
    """The distribution's logger, for one server: its messages begin with the server's name.

    Args:
        name: of the server.
        logger: another than ``operad.mcp``.
    """

    def __init__(self, name: str, logger: logging.Logger | None = None) -> None:
        super().__init__(logger or logging.getLogger("operad.mcp"), {})
        self._prefix = f"{name}: ".replace("%", "%%")

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message with the name before it."""
        return f"{self._prefix}{msg}", kwargs


@attrs.define(eq=False)
class Live:
    """A connection that is up."""

    session: ClientSession
    closed: asyncio.Event
    """Set when it has ended."""
    protocol_version: str
    server: Json
    """What the server says of itself."""
    capabilities: Json
    instructions: str | None
    stop: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set to end it."""
    _users: int = attrs.field(default=0, init=False)
    _retired: bool = attrs.field(default=False, init=False)

    @property
    def modern(self) -> bool:
        """Whether it speaks the stateless protocol."""
        return self.protocol_version >= MODERN

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it a request is under way."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._retired and not self._users:
                self.stop.set()

    def retire(self) -> None:
        """End it when no request is under way any more: what others still wait for may come."""
        self._retired = True
        if not self._users:
            self.stop.set()

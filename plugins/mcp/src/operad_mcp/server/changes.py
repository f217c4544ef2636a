"""Telling clients that a list or a resource changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from operad_mcp.server.door import Door

logger = logging.getLogger("operad.mcp")

_SETTLES = 0.05
"""Seconds that a burst of changes has before clients hear of it: a source that loads adds hundreds."""
MAX_WATCHED = 1_000
"""Resources that one session may watch."""
_EVENTS: dict[str, type[Any]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


class Changes:
    """Who wants to hear of changes, and the hearing.

    Sessions of the handshake generation are told each on its own; 2026-07-28 listens to a bus.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._connections: set[Any] = set()
        self._users = 0
        self._stop: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._states: dict[str, dict[str, int]] = {}

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the registry as long as somebody is served."""
        self._users += 1
        if self._users == 1:
            self._states = self._door.listing.states
            self._stop = self._door.registry.on_change(self._changed)
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await self._end()

    async def _end(self) -> None:
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def joined(self, ctx: Any) -> None:
        """Remember a session of the handshake generation until it ends."""
        connection = connection_of(ctx)
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    @property
    def is_last(self) -> bool:
        """Whether nobody else is served."""
        return self._users == 1

    def watch(self, ctx: Any, uri: str) -> bool:
        """Tell a session of changes of a resource. ``False``: it is told already, or watches too many."""
        watched: set[str] = connection_of(ctx).state.setdefault("operad.watched", set())
        if uri in watched or len(watched) >= MAX_WATCHED:
            return False
        watched.add(uri)
        return True

    def unwatch(self, ctx: Any, uri: str) -> bool:
        """Tell it no longer. ``False``: it was not told."""
        watched: set[str] = connection_of(ctx).state.get("operad.watched", set())
        if uri not in watched:
            return False
        watched.discard(uri)
        return True

    async def updated(self, uri: str) -> None:
        """Tell whoever watches a resource that it changed."""
        await self._bus.publish(ResourceUpdated(uri=uri))
        for connection in tuple(self._connections):
            if uri in connection.state.get("operad.watched", ()):
                await connection.send_resource_updated(uri)

    def _changed(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLES, self._settled)

    def _settled(self) -> None:
        self._timer = None
        task = asyncio.ensure_future(self._tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        states = self._door.listing.states
        changed = [what for what, state in states.items() if state != self._states.get(what)]
        self._states = states
        for what in changed:
            await self._bus.publish(_EVENTS[what]())
            for connection in tuple(self._connections):
                await getattr(connection, f"send_{what.removesuffix('s')}_list_changed")()


def connection_of(ctx: Any) -> Any:
    """The connection behind a request, which lives as long as its session.

    The SDK's handlers get a session per request; the connection, with its documented ``state`` and ``exit_stack``,
    is reachable through it alone.
    """
    return ctx.session._connection

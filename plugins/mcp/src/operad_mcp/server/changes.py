"""The notifications to clients that a list or a resource changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
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

from operad import CallError, OperationContext, OperationSpec
from operad.plugin import may_list
from operad_mcp.server.door import Door
from operad_mcp.server.resources import Resources

logger = logging.getLogger("operad.mcp")

_SETTLES = 0.05
"""Seconds for which changes are collected before clients are notified. Loading a source makes hundreds."""
MAX_WATCHED = 1_000
"""The maximum number of resources that one session may watch."""
_EVENTS: dict[str, type[Any]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


class Changes:
    """The notifier of clients about changes.

    Sessions of the handshake revisions are notified one by one. Clients of 2026-07-28 listen to a bus.
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
        """Follow the registry inside the block, which runs while a client is served."""
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
        """Notify a session of a handshake revision of changed lists until it ends."""
        connection = connection_of(ctx)
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    @property
    def is_last(self) -> bool:
        """Whether no other client is served."""
        return self._users == 1

    def watch(self, ctx: Any, uri: str) -> bool:
        """Notify a session of changes of a resource from now on.

        Return False if it is already notified, or watches `MAX_WATCHED` resources.
        """
        watched: set[str] = connection_of(ctx).state.setdefault("operad.watched", set())
        if uri in watched or len(watched) >= MAX_WATCHED:
            return False
        watched.add(uri)
        return True

    def unwatch(self, ctx: Any, uri: str) -> bool:
        """Stop notifying a session of changes of a resource. Return False if it was not notified."""
        watched: set[str] = connection_of(ctx).state.get("operad.watched", set())
        if uri not in watched:
            return False
        watched.discard(uri)
        return True

    async def updated(self, uri: str) -> None:
        """Notify the clients that watch a resource of its change."""
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
    """Return the SDK's connection behind a request, which lives as long as its session.

    The SDK's handlers receive a session object for each request. The connection, with its documented ``state`` and
    ``exit_stack``, can be reached only through a private attribute of that object.
    """
    return ctx.session._connection


class Watching:
    """The subscriptions to resources of servers behind the registry. All clients of a resource share one."""

    def __init__(self, door: Door, resources: Resources, updated: Callable[[str], Awaitable[None]]) -> None:
        self._door = door
        self._resources = resources
        self._updated = updated
        self._watchers: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def following(self, ctx: Any, uris: Iterable[str]) -> AsyncIterator[None]:
        """Follow resources inside the block."""
        joined: list[str] = []
        try:
            for uri in uris:
                await self.join(ctx, uri)
                joined.append(uri)
            yield
        finally:
            for uri in joined:
                self.leave(uri)

    async def join(self, ctx: Any, uri: str) -> None:
        """Count a client of a resource, and follow the resource. Call `leave` once for each call of this method.

        The resource is followed if a server behind the registry has it, and access control allows the caller.
        """
        self._watchers[uri] = self._watchers.get(uri, 0) + 1
        if uri in self._tasks:
            return
        upstream = await self._resources.upstream_of(ctx, uri)
        spec = None if upstream is None else upstream.subscribe
        caller = self._door.caller(ctx)
        # While the server was searched for, another client may have joined, or this one may have left.
        is_wanted = uri in self._watchers and uri not in self._tasks
        if is_wanted and spec is not None and may_list(spec.access_control, caller):
            self._tasks[uri] = asyncio.ensure_future(self._follow(spec, uri, OperationContext(identity=caller)))

    def leave(self, uri: str) -> None:
        """Stop following a resource for one client. Its subscription ends with its last client."""
        left = self._watchers.get(uri, 0) - 1
        if left > 0:
            self._watchers[uri] = left
            return
        self._watchers.pop(uri, None)
        task = self._tasks.pop(uri, None)
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        """End the subscriptions to all resources."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._watchers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, spec: OperationSpec, uri: str, context: OperationContext) -> None:
        try:
            async with self._door.registry.subscribe(spec.id, {"uri": uri}, context) as changes:
                async for _ in changes:
                    await self._updated(uri)
        except CallError as error:
            logger.warning("%s cannot be watched: %s", uri, error)

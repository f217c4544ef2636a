"""The notifications to clients that a list or a resource changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from operad import CallError, OperationContext, OperationSpec
from operad.plugin import may_list
from operad_mcp.server.door import Door
from operad_mcp.server.resources import Resources

logger = logging.getLogger("operad.mcp")

_SETTLES = 0.05
"""Seconds for which changes are collected before clients are notified. Loading a source makes hundreds."""
MAX_WATCHED = 1_000
"""The maximum number of resources that one session may watch."""
MAX_URI = 8_192
"""The maximum length of the URI of a watched resource, in characters."""
_Watched = tuple[str | None, str]
"""The id of a caller, and the URI of a resource."""
_EVENTS: dict[str, type[Any]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


class _Streams:
    """The streams on which one caller listens for changes (2026-07-28)."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)
        self.count = 0


class Changes:
    """The notifications of clients about changed lists and resources.

    Sessions of the revisions with a handshake (until 2025-11-25) are notified one by one. Clients of 2026-07-28
    listen to a bus. Each caller has a bus, so that no caller learns which resources another caller watches.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._streams: dict[str | None, _Streams] = {}
        self._connections: set[Any] = set()
        self._users = 0
        self._stop: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._states: dict[str, dict[str, int]] = {}

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the changes of the registry inside the block. Each running server of the SDK has one block."""
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

    async def listen(self, ctx: Any, params: Any) -> Any:
        """Serve a stream of changes to a client of 2026-07-28 until it ends; return the result of the request."""
        caller = self._door.principal(ctx)
        streams = self._streams.setdefault(caller, _Streams())
        streams.count += 1
        try:
            return await streams.handler(ctx, params)
        finally:
            streams.count -= 1
            if not streams.count:
                del self._streams[caller]

    def close(self) -> None:
        """End the streams of changes of all callers."""
        for streams in self._streams.values():
            streams.handler.close()

    def joined(self, ctx: Any) -> None:
        """Notify a session of the handshake revisions of changed lists until the session ends."""
        connection = connection_of(ctx)
        if connection not in self._connections:
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)

    @property
    def is_last(self) -> bool:
        """Whether exactly one block of `following` is running."""
        return self._users == 1

    def watch(self, ctx: Any, uri: str) -> bool:
        """Notify the session of ``ctx`` whenever the resource ``uri`` changes; return False if it does already.

        Raises `MCPError` if the session watches `MAX_WATCHED` resources, or if ``uri`` is longer than `MAX_URI`.
        """
        watched: set[_Watched] = connection_of(ctx).state.setdefault("operad.watched", set())
        key = (self._door.principal(ctx), uri)
        if key in watched:
            return False
        if len(uri) > MAX_URI:
            message = f"expected a URI of at most {MAX_URI} characters, got {len(uri)}"
            raise MCPError(types.INVALID_PARAMS, message)
        if len(watched) >= MAX_WATCHED:
            message = f"this session watches {MAX_WATCHED} resources, the maximum; unsubscribe from one first"
            raise MCPError(types.INVALID_PARAMS, message)
        watched.add(key)
        return True

    def unwatch(self, ctx: Any, uri: str) -> bool:
        """Stop notifying the session of ``ctx`` of changes of ``uri``. Return False if it does not watch it."""
        watched: set[_Watched] = connection_of(ctx).state.get("operad.watched", set())
        key = (self._door.principal(ctx), uri)
        if key not in watched:
            return False
        watched.discard(key)
        return True

    def watched(self, ctx: Any) -> list[str]:
        """Return the URIs of the resources that the session of ``ctx`` watches."""
        return [uri for _, uri in connection_of(ctx).state.get("operad.watched", ())]

    async def updated(self, uri: str) -> None:
        """Notify all clients that watch the resource ``uri`` that it changed."""
        states = [connection.state.get("operad.watched", ()) for connection in self._connections]
        for caller in {*self._streams, *(caller for watched in states for caller, _ in watched)}:
            await self.updated_for(caller, uri)

    async def updated_for(self, caller: str | None, uri: str) -> None:
        """Notify the clients of one caller that watch the resource ``uri`` that it changed.

        If ``caller`` is ``None``, notify the anonymous clients.
        """
        if (streams := self._streams.get(caller)) is not None:
            await streams.bus.publish(ResourceUpdated(uri=uri))
        for connection in tuple(self._connections):
            if (caller, uri) in connection.state.get("operad.watched", ()):
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
            for streams in tuple(self._streams.values()):
                await streams.bus.publish(_EVENTS[what]())
            for connection in tuple(self._connections):
                await getattr(connection, f"send_{what.removesuffix('s')}_list_changed")()


def connection_of(ctx: Any) -> Any:
    """Return the SDK's connection behind a request, which lives as long as its session.

    The SDK's handlers receive a session object for each request. The connection, with its documented ``state`` and
    ``exit_stack``, can be reached only through a private attribute of that object.
    """
    return ctx.session._connection


class Watching:
    """The subscriptions to resources of servers behind the registry.

    All clients of one caller share one subscription to a resource. ``updated(caller, uri)`` is awaited with each
    update.
    """

    def __init__(
        self, door: Door, resources: Resources, updated: Callable[[str | None, str], Awaitable[None]]
    ) -> None:
        self._door = door
        self._resources = resources
        self._updated = updated
        self._watchers: dict[_Watched, int] = {}
        self._tasks: dict[_Watched, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def following(self, ctx: Any, uris: Iterable[str]) -> AsyncIterator[list[str]]:
        """Follow resources inside the block; yield the URIs that the caller may watch."""
        joined: list[str] = []
        watched: list[str] = []
        try:
            for uri in uris:
                joined.append(uri)
                if await self.join(ctx, uri):
                    watched.append(uri)
            yield watched
        finally:
            for uri in joined:
                self.leave(ctx, uri)

    async def join(self, ctx: Any, uri: str) -> bool:
        """Add a watcher to a resource, and follow the resource if a server behind the registry has it.

        Return False if the caller may not watch the resource, otherwise True. In both cases, call `leave` later.
        """
        key = (self._door.principal(ctx), uri)
        self._watchers[key] = self._watchers.get(key, 0) + 1
        upstream = await self._resources.upstream_of(ctx, uri)
        spec = None if upstream is None else upstream.subscribe
        caller = self._door.caller(ctx)
        if spec is None or not may_list(spec.access_control, caller):
            return spec is None
        # While the server was searched for, another client may have joined, or this one may have left. A
        # subscription that the server has ended is made again.
        task = self._tasks.get(key)
        if key in self._watchers and (task is None or task.done()):
            self._tasks[key] = asyncio.ensure_future(self._follow(spec, key, OperationContext(identity=caller)))
        return True

    def leave(self, ctx: Any, uri: str) -> None:
        """Stop following a resource for one client. The subscription ends if it was the caller's last client."""
        key = (self._door.principal(ctx), uri)
        left = self._watchers.get(key, 0) - 1
        if left > 0:
            self._watchers[key] = left
            return
        self._watchers.pop(key, None)
        task = self._tasks.pop(key, None)
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

    async def _follow(self, spec: OperationSpec, key: _Watched, context: OperationContext) -> None:
        try:
            async with self._door.registry.subscribe(spec.id, {"uri": key[1]}, context) as changes:
                async for _ in changes:
                    await self._updated(*key)
        except CallError as error:
            logger.warning("%s cannot be watched: %s", key[1], error)

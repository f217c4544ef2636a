"""Following resources of the MCP servers behind a registry, for the clients that watch them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from operad import CallError, OperationContext, OperationSpec
from operad.plugin import may_list
from operad_mcp.server.door import Door
from operad_mcp.server.resources import Resources

logger = logging.getLogger("operad.mcp")


class Watching:
    """One subscription for each resource that anybody watches, however many do.

    Args:
        door: what is served.
        resources: which know the server of a resource.
        updated: told of each change.
    """

    def __init__(self, door: Door, resources: Resources, updated: Callable[[str], Awaitable[None]]) -> None:
        self._door = door
        self._resources = resources
        self._updated = updated
        self._watchers: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def following(self, ctx: Any, uris: Iterable[str]) -> AsyncIterator[None]:
        """Follow resources meanwhile."""
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
        """Follow a resource, if a server behind the registry has it and lets the caller watch it."""
        self._watchers[uri] = self._watchers.get(uri, 0) + 1
        if uri in self._tasks:
            return
        upstream = await self._resources.upstream_of(ctx, uri)
        spec = None if upstream is None else upstream.subscribe
        caller = self._door.caller(ctx)
        # Another client may have come first while the server was looked for, or this one have left.
        is_wanted = uri in self._watchers and uri not in self._tasks
        if is_wanted and spec is not None and may_list(spec.access_control, caller):
            self._tasks[uri] = asyncio.ensure_future(self._follow(spec, uri, OperationContext(identity=caller)))

    def leave(self, uri: str) -> None:
        """Follow it no longer, if nobody else does."""
        left = self._watchers.get(uri, 0) - 1
        if left > 0:
            self._watchers[uri] = left
            return
        self._watchers.pop(uri, None)
        task = self._tasks.pop(uri, None)
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        """Follow nothing."""
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

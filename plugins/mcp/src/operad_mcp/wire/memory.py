"""A server object of the SDK in this process.

Imported with the first connection: it needs the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.shared.memory import create_client_server_memory_streams

from operad_mcp.wire.incoming import Incoming
from operad_mcp.wire.messages import marked


@asynccontextmanager
async def memory_streams(
    server: Any, on_log: Callable[[Mapping[str, Any]], None]
) -> AsyncIterator[tuple[Incoming, Any]]:
    """The two streams of a server object."""
    # `MCPServer` offers no public way to its low-level server; the SDK's own client takes this one.
    low = getattr(server, "_lowlevel_server", server)
    incoming = Incoming(on_log)
    async with create_client_server_memory_streams() as (client, (read, write)):
        serving = asyncio.ensure_future(low.run(read, write, low.create_initialization_options()))
        pumping = asyncio.ensure_future(_pump(client[0], incoming))
        try:
            yield incoming, client[1]
        finally:
            await client[1].aclose()
            await asyncio.wait([serving], timeout=2)
            for task in (serving, pumping):
                task.cancel()
            await asyncio.gather(serving, pumping, return_exceptions=True)


async def _pump(source: Any, incoming: Incoming) -> None:
    try:
        async for item in source:
            if not isinstance(item, Exception):
                incoming.add(marked(item))
            await incoming.room()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass
    finally:
        incoming.end()

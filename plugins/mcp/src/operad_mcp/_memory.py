"""A server object of the SDK in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def memory_streams(server: Any) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams of a server object."""
    from mcp.shared.memory import create_client_server_memory_streams

    # `MCPServer` offers no public way to its low-level server; the SDK's own client takes this one.
    low = getattr(server, "_lowlevel_server", server)
    async with create_client_server_memory_streams() as (client, (read, write)):
        serving = asyncio.ensure_future(low.run(read, write, low.create_initialization_options()))
        try:
            yield client
        finally:
            await client[1].aclose()
            await asyncio.wait([serving], timeout=2)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

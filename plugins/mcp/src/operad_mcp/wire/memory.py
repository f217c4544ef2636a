"""The transport to a server object of the SDK in this process.

This module imports the SDK. It is imported by the first connection to a server object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from operad_mcp.errors import ConnectionLost
from operad_mcp.wire.link import Link, Sink
from operad_mcp.wire.messages import Json, message_of


@asynccontextmanager
async def memory_link(server: Any, sink: Sink) -> AsyncIterator[MemoryLink]:
    """Run a server object, and yield the transport to it. After the block, the server object is stopped."""
    # `MCPServer` offers no public way to its low-level server; the SDK's own client takes this one.
    low = getattr(server, "_lowlevel_server", server)
    async with create_client_server_memory_streams() as (client, (read, write)):
        link = MemoryLink(sink, client[1])
        serving = asyncio.ensure_future(low.run(read, write, low.create_initialization_options()))
        pumping = asyncio.ensure_future(link.pump(client[0]))
        try:
            yield link
        finally:
            await client[1].aclose()
            await asyncio.wait([serving], timeout=2)
            for task in (serving, pumping):
                task.cancel()
            await asyncio.gather(serving, pumping, return_exceptions=True)


class MemoryLink(Link):
    """The transport over the in-memory streams of a server object."""

    def __init__(self, sink: Sink, write: Any) -> None:
        super().__init__(sink)
        self._write = write

    async def pump(self, read: Any) -> None:
        """Pass on the messages of the server object until it ends."""
        try:
            async for item in read:
                if not isinstance(item, Exception):
                    value = item.message.model_dump(mode="json")
                    if (message := message_of(value)) is not None:
                        self.sink.receive(message)
                await self.sink.room()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        finally:
            self.end()

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Send a message. Raises `ConnectionLost` if the server object has ended."""
        try:
            await self._write.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            reason = "the message was not sent, because the server object has ended"
            raise ConnectionLost(reason, sent=False) from None

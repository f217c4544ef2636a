"""Several servers at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from operad import OperadError, Operation
from operad_mcp.client import MCPClientWrapper, close_mcp_client, create_mcp_client
from operad_mcp.config import MCPClientConfig

logger = logging.getLogger("operad.mcp")


async def from_mcp(name: str, config: MCPClientConfig | None = None, **options: Any) -> MCPClientWrapper:
    """Connect to a server: its operations, and the connection that they need.

    Args:
        name: what to call the server; the namespace of its operations.
        config: how to reach it; or give its fields as keywords.
        options: the fields of `MCPClientConfig`.

    Raises:
        CallError: it cannot be started or reached, or does not speak the protocol.
        ConfigError: the options do not say how to reach it.
    """
    if config is not None and options:
        raise TypeError("from_mcp takes a config or its fields, not both")
    return await create_mcp_client(name, config if config is not None else MCPClientConfig(**options))


class MCPClientLoader:
    """The clients of several servers, by name.

    `failures` holds the errors of servers that could not be loaded.
    """

    def __init__(self) -> None:
        self._clients: dict[str, MCPClientWrapper] = {}
        self.failures: dict[str, OperadError] = {}

    async def load(
        self,
        servers: Mapping[str, MCPClientConfig],
        *,
        strict: bool = False,
        **options: Any,
    ) -> list[MCPClientWrapper]:
        """Connect to servers, all at the same time; one that fails does not stop the others.

        Args:
            servers: configurations by name.
            strict: raise an `ExceptionGroup` if any fails, and close those that this call connected.
            options: further arguments of `create_mcp_client`.
        """
        names = list(servers)
        taken = [name for name in names if name in self._clients]
        if taken:
            raise OperadError(f"MCP server {', '.join(taken)}: loaded already; close it first")
        results = await _gather([create_mcp_client(name, config, **options) for name, config in servers.items()])
        loaded: list[MCPClientWrapper] = []
        failed: dict[str, OperadError] = {}
        unexpected: list[BaseException] = []
        for name, result in zip(names, results, strict=True):
            if isinstance(result, MCPClientWrapper):
                loaded.append(result)
            elif isinstance(result, OperadError):
                failed[name] = result
            else:
                unexpected.append(result)
        if unexpected or (strict and failed):
            await asyncio.gather(*(wrapper.aclose() for wrapper in loaded))
            if unexpected:
                raise unexpected[0]
            raise ExceptionGroup("MCP servers could not be loaded", list(failed.values()))
        for name, error in failed.items():
            logger.warning("MCP server %s is not loaded: %s", name, error)
        self.failures.update(failed)
        self._clients.update({wrapper.name: wrapper for wrapper in loaded})
        return loaded

    def get_client(self, name: str) -> MCPClientWrapper | None:
        """The client of a server, or ``None``."""
        return self._clients.get(name)

    def get_all_wrappers(self) -> list[MCPClientWrapper]:
        """All clients."""
        return list(self._clients.values())

    def get_all_operations(self) -> Sequence[Operation[..., Any]]:
        """The operations of all servers."""
        return [operation for wrapper in self._clients.values() for operation in wrapper.operations]

    async def close_all(self) -> None:
        """Close all clients, at the same time; idempotent."""
        clients, self._clients = list(self._clients.values()), {}
        for result in await asyncio.gather(*map(close_mcp_client, clients), return_exceptions=True):
            if isinstance(result, BaseException):
                logger.error("closing an MCP client failed", exc_info=result)


async def _gather(connecting: list[Any]) -> list[Any]:
    """All results or errors; if this task is cancelled, whatever was connected is closed."""
    tasks = [asyncio.ensure_future(each) for each in connecting]
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, MCPClientWrapper):
                await result.aclose()
        raise

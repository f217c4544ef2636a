"""A connected server and its operations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from operad import CallError, Operation
from operad_mcp.config import MCPClientConfig
from operad_mcp.connection import Connection
from operad_mcp.operations import Offer

OnChange = Callable[[Sequence[Operation[..., Any]]], None]


class MCPClientWrapper:
    """One MCP server: `name`, `client` (the connection), and its operations, which follow the server's changes.

    Use `create_mcp_client`, and `close_mcp_client` or ``async with``.
    """

    def __init__(
        self,
        name: str,
        config: MCPClientConfig,
        *,
        namespace: str | None = None,
        prefix: str = "",
        logger: logging.Logger | None = None,
    ) -> None:
        self.name = name
        self.client = Connection(name, config, self._dirty, logger)
        self._offer = Offer(self.client, namespace or safe_namespace(name), prefix)
        self._callbacks: list[OnChange] = []
        self._changed: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def tools(self) -> Sequence[Operation[..., Any]]:
        """The operations that call tools."""
        return self._offer.tools

    @property
    def operations(self) -> Sequence[Operation[..., Any]]:
        """All operations: tools, resources, prompts."""
        return self._offer.operations

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        live = self.client._current
        return None if live is None else live.instructions

    def on_change(self, callback: OnChange) -> None:
        """Call ``callback`` with all operations whenever they change."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Connect, and list what the server offers. Raises `CallError`."""
        await self.client.open()
        await self._offer.refresh()

    async def aclose(self) -> None:
        """End the connection, and the server if it was started here; idempotent."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _dirty(self, what: str) -> None:
        self._changed.add(what)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, set()
            before = self._offer.operations
            try:
                for what in ("all",) if "all" in changed else sorted(changed):
                    await self._offer.refresh(what)
            except CallError as error:  # the operations stay as they were
                self.client.logger.warning("%s: listing again failed: %s", self.name, error)
                continue
            after = self._offer.operations
            if len(after) != len(before) or any(a is not b for a, b in zip(after, before, strict=True)):
                for callback in self._callbacks:
                    callback(after)


async def create_mcp_client(
    name: str,
    config: MCPClientConfig,
    *,
    namespace: str | None = None,
    prefix: str = "",
    logger: logging.Logger | None = None,
) -> MCPClientWrapper:
    """Connect to a server and list what it offers.

    Args:
        name: what to call the server in messages.
        config: how to reach it.
        namespace: of the operations; ``name`` by default.
        prefix: of the operations' names.
        logger: for diagnostics and the server's own log; ``operad.mcp.<name>`` by default.

    Raises:
        CallError: it cannot be started or reached, or does not speak the protocol.
    """
    wrapper = MCPClientWrapper(name, config, namespace=namespace, prefix=prefix, logger=logger)
    try:
        await wrapper.connect()
    except BaseException:
        await wrapper.aclose()
        raise
    return wrapper


async def close_mcp_client(wrapper: MCPClientWrapper) -> None:
    """End a client; idempotent."""
    await wrapper.aclose()


def safe_namespace(name: str) -> str:
    """A server's name as a namespace: other characters than ``A-Z a-z 0-9 _ -`` become ``_``."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name) or "mcp"

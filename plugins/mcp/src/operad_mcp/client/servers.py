"""The clients of MCP servers with their operations: one client, or several by name."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import attrs
import msgspec

from operad import CallError, OperadError, Operation
from operad_auth.http.cache_files import recall, remember
from operad_mcp.client.operations import Offer
from operad_mcp.client.sessions import CallerSessions
from operad_mcp.config import MCPClientConfig
from operad_mcp.wire.connection import Connection

logger = logging.getLogger("operad.mcp")
_REST = 10.0
"""The minimum number of seconds between listings of a server that changes them all the time."""
Json = dict[str, Any]
OnChange = Callable[[Sequence[Operation[..., Any]]], None]


class MCPClientWrapper:
    """The client of one MCP server. Its operations follow the server's changes.

    `create_mcp_client` returns a connected wrapper. Close it with `close_mcp_client` or ``async with``. `client`
    is its connection.
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
        self._sessions = None
        if config.auth is not None and config.auth.type == "caller":
            self._sessions = CallerSessions(name, config, logger)
            config = attrs.evolve(config, auth=config.list_auth, list_auth=None)
        self.client = Connection(name, config, self._dirty, logger)
        self._offer = Offer(self.client, namespace or safe_namespace(name), prefix, self._sessions)
        self._remembers = config.start == "first use" and config.server is None
        self._callbacks: list[OnChange] = []
        self._pause = 0.0
        self._refreshed = 0.0
        self._changed: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def tools(self) -> Sequence[Operation[..., Any]]:
        """The operations that call the server's tools."""
        return self._offer.tools

    @property
    def operations(self) -> Sequence[Operation[..., Any]]:
        """All operations: for tools, resources and prompts, and for the server itself if ``server_operations``."""
        return self._offer.operations

    @property
    def held(self) -> Mapping[str, str]:
        """The reasons why tools are held (``pin``), by the ids of their operations, which `operations` lacks."""
        return self._offer.held

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use; ``None`` if the server sent none, or is not connected yet."""
        return self.client.instructions

    def on_change(self, callback: OnChange) -> None:
        """Call ``callback`` with all operations whenever they change."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Connect, and list the operations.

        With ``start = "first use"``, make the operations of a remembered listing instead, if one exists.

        Raises:
            CallError: the server cannot be reached, or its listing cannot be loaded.
            ConfigError: a file in the configuration cannot be used.
        """
        kept = _remembered(self.client.config) if self._remembers else None
        if kept is not None:
            self.client.changed_meanwhile = True
            await self._offer.restore(*kept)
            return
        await self.client.open()
        await self._offer.refresh()
        self._remember()

    def _remember(self) -> None:
        if self._remembers:
            _keep(self.client.config, *self._offer.remembered())

    async def aclose(self) -> None:
        """End the connection, and the server if this client started it. Idempotent."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        if self._sessions is not None:
            await self._sessions.aclose()
        await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def _dirty(self, what: str) -> None:
        self._changed.add(what)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        while self._changed:
            await asyncio.sleep(self._next_pause())
            changed, self._changed = self._changed, set()
            before = self._offer.operations
            try:
                for what in ("all",) if "all" in changed else sorted(changed):
                    await self._offer.refresh(what)
            except CallError as error:  # the operations stay as they were
                self.client.logger.warning("listing again failed; the operations stay as they were: %s", error)
            except Exception:  # a background task, which must be ready for the next change
                self.client.logger.exception("listing again failed; the operations stay as they were")
            else:
                self._remember()
            self._refreshed = asyncio.get_running_loop().time()
            after = self._offer.operations
            if len(after) != len(before) or any(a is not b for a, b in zip(after, before, strict=True)):
                for callback in self._callbacks:
                    callback(after)

    def _next_pause(self) -> float:
        """Return the seconds before the next listing: 0 if the server has been quiet, otherwise increasing."""
        rested = asyncio.get_running_loop().time() - self._refreshed
        if rested > _REST + self._pause:
            self._pause = 0.0
            return 0.0
        self._pause = min(max(self._pause * 2, 0.05), _REST)
        return self._pause


async def create_mcp_client(
    name: str,
    config: MCPClientConfig,
    *,
    namespace: str | None = None,
    prefix: str = "",
    logger: logging.Logger | None = None,
) -> MCPClientWrapper:
    """Connect to a server, and return its client with the operations that the server offers.

    With ``start = "first use"``, a remembered listing is used instead of a connection, if one exists.

    Args:
        name: the name of the server in messages.
        config: the address of the server, and options.
        namespace: the namespace of the operations. The default is made from ``name`` by `safe_namespace`.
        prefix: the prefix of the operations' names.
        logger: the logger for diagnostics and the server's own log; the default is ``operad.mcp``.

    Raises:
        CallError: the server cannot be started or reached, or does not speak the protocol.
        ConfigError: a file in the configuration cannot be used.
    """
    wrapper = MCPClientWrapper(name, config, namespace=namespace, prefix=prefix, logger=logger)
    try:
        await wrapper.connect()
    except BaseException:
        await wrapper.aclose()
        raise
    return wrapper


async def close_mcp_client(wrapper: MCPClientWrapper) -> None:
    """Close a client and its connection. Idempotent."""
    await wrapper.aclose()


def safe_namespace(name: str) -> str:
    """Return a server's name as a namespace. Characters other than ``A-Z a-z 0-9 _ -`` become ``_``.

    The namespace for an empty name is ``mcp``.
    """
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name) or "mcp"


async def from_mcp(name: str, config: MCPClientConfig | None = None, **options: Any) -> MCPClientWrapper:
    """Connect to a server with `create_mcp_client`, and return its client.

    Args:
        name: the name of the server, from which the namespace of its operations is made.
        config: the address of the server, and its options; if ``None``, ``options`` has them.
        options: the fields of `MCPClientConfig`.

    Raises:
        CallError: the server cannot be started or reached, or does not speak the protocol.
        ConfigError: the options do not specify a server, or a file that they name cannot be used.
        TypeError: both ``config`` and ``options`` are given, or an option is unknown.
    """
    if config is not None and options:
        raise TypeError(f"from_mcp: expected a config or its fields, got a config and {', '.join(options)}")
    return await create_mcp_client(name, config if config is not None else MCPClientConfig(**options))


async def connect_all(
    servers: Mapping[str, MCPClientConfig], prefix: str | Callable[[str], str], **options: Any
) -> tuple[list[MCPClientWrapper], dict[str, OperadError]]:
    """Connect to servers concurrently. Return the clients, and the errors of the servers that failed, by name.

    The arguments are those of `MCPClientLoader.load`, without ``strict``. An error that is not an `OperadError` is
    raised, after all clients were closed.
    """
    results = await _gather(
        [
            create_mcp_client(name, config, prefix=prefix(name) if callable(prefix) else prefix, **options)
            for name, config in servers.items()
        ]
    )
    loaded: list[MCPClientWrapper] = []
    failed: dict[str, OperadError] = {}
    unexpected: list[BaseException] = []
    for name, result in zip(servers, results, strict=True):
        if isinstance(result, MCPClientWrapper):
            loaded.append(result)
        elif isinstance(result, OperadError):
            failed[name] = result
        else:
            unexpected.append(result)
    if unexpected:
        await asyncio.gather(*(wrapper.aclose() for wrapper in loaded))
        raise unexpected[0]
    return loaded, failed


class MCPClientLoader:
    """The clients of several servers, by name.

    `failures` has the errors of the servers that could not be loaded, by name.
    """

    def __init__(self) -> None:
        self._clients: dict[str, MCPClientWrapper] = {}
        self.failures: dict[str, OperadError] = {}

    async def load(
        self,
        servers: Mapping[str, MCPClientConfig],
        *,
        strict: bool = False,
        prefix: str | Callable[[str], str] = "",
        **options: Any,
    ) -> list[MCPClientWrapper]:
        """Connect to servers concurrently, and return their clients. A server that fails does not stop the others.

        Args:
            servers: configurations by name.
            strict: raise an `ExceptionGroup` if any server fails, and close the clients that this call connected.
            prefix: the prefix of the operations' names, or a function that returns it for a server's name.
            options: further arguments of `create_mcp_client`.

        Raises:
            OperadError: a server with one of the names is already loaded.
            ExceptionGroup: ``strict`` is True, and a server failed.
        """
        taken = [name for name in servers if name in self._clients]
        if taken:
            raise OperadError(
                f"expected MCP servers that are not loaded yet, got {', '.join(taken)}; call close_all() before"
            )
        loaded, failed = await connect_all(servers, prefix, **options)
        if strict and failed:
            await asyncio.gather(*(wrapper.aclose() for wrapper in loaded))
            raise ExceptionGroup(f"MCP servers are not loaded: {', '.join(failed)}", list(failed.values()))
        for name, error in failed.items():
            logger.warning("MCP server %s is not loaded: %s", name, error)
        self.failures.update(failed)
        self._clients.update({wrapper.name: wrapper for wrapper in loaded})
        return loaded

    def get_client(self, name: str) -> MCPClientWrapper | None:
        """Return the client of a server; ``None`` if it is not loaded."""
        return self._clients.get(name)

    def get_all_wrappers(self) -> list[MCPClientWrapper]:
        """Return the clients of all loaded servers."""
        return list(self._clients.values())

    def get_all_operations(self) -> Sequence[Operation[..., Any]]:
        """Return the operations of all loaded servers."""
        return [operation for wrapper in self._clients.values() for operation in wrapper.operations]

    async def close_all(self) -> None:
        """Close all clients concurrently, and forget them. Errors are logged. Idempotent."""
        clients, self._clients = list(self._clients.values()), {}
        for result in await asyncio.gather(*map(close_mcp_client, clients), return_exceptions=True):
            if isinstance(result, BaseException):
                logger.error("closing an MCP client failed", exc_info=result)


async def _gather(connecting: list[Any]) -> list[Any]:
    """Return all results or errors. If this task is cancelled, close all connections."""
    tasks = [asyncio.ensure_future(each) for each in connecting]
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, MCPClientWrapper):
                await result.aclose()
        raise


# --- remembered listings, for servers that are started by their first call ----------
# ------------------------------


def _remembered(config: MCPClientConfig) -> tuple[Json, Json] | None:
    """Return the remembered capabilities and listings of a server; None if nothing is remembered."""
    found = recall("mcp-listing", _identity(config), None)
    is_whole = isinstance(found, list) and len(found) == 2 and all(isinstance(part, dict) for part in found)
    return (found[0], found[1]) if is_whole else None


def _keep(config: MCPClientConfig, capabilities: Json, listed: Json) -> None:
    """Remember what a server offers. A failure only makes the next start slower."""
    try:
        remember("mcp-listing", _identity(config), None, [capabilities, listed])
    except (ValueError, TypeError, RecursionError) as error:
        logger.debug("the listing of a server is not remembered: %s", error)


def _identity(config: MCPClientConfig) -> str:
    """Return a hash of a server's address and its credentials, which are secret."""
    auth = config.auth
    given = [
        config.command, config.args, sorted(config.env.items()), config.cwd, config.url, config.transport,
        sorted(config.headers.items()),
        None if auth is None else [auth.type, auth.token, auth.client_id, auth.account],
    ]  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(given)).hexdigest()[:32]

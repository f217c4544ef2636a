"""The sessions of callers: one connection for each credential, so that no caller uses the session of another."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from operad import CallError, ConfigError, ErrorCode, OperationContext
from operad_auth import CredentialProvider
from operad_auth.http.urls import origin_of
from operad_mcp.config import MCPAuth, MCPClientConfig
from operad_mcp.wire.connection import Connection

_USABLE = ("bearer", "client_credentials", "jwt_bearer")
"""Types of a caller's credential. Tokens of ``oauth`` are stored for a user of this machine, not for a caller."""
_CREDENTIALS = ("authorization", "cookie", "proxy-authorization")
"""Headers that a call must not send in the session of its caller."""

Key = tuple[str | None, str]


@attrs.define
class _Kept:
    """A session, and the credential to which it belongs."""

    connection: Connection
    table: Mapping[str, Any] = attrs.field(repr=False)
    used: float


class CallerSessions:
    """The connections to one server, by the identity and the credential of the caller.

    A session that no call uses is closed after ``session_idle`` seconds, or earlier for a new session if there are
    ``max_sessions``.

    Args:
        name: the name of the server in messages.
        config: the address of the server, and options; its ``auth`` has the provider of credentials.
        logger: the logger for diagnostics; the default is ``operad.mcp``.
    """

    def __init__(self, name: str, config: MCPClientConfig, logger: logging.Logger | None = None) -> None:
        assert config.auth is not None
        assert config.url is not None
        self._name, self._config, self._logger = name, config, logger
        self._provider: CredentialProvider = config.auth.provider
        self._origin = origin_of(config.url)
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def of(self, context: OperationContext) -> Connection:
        """Return the connection of a call's caller. A new connection is opened by its first request.

        Raises:
            CallError: ``OVERLOADED`` if all ``max_sessions`` are in use; ``UNAVAILABLE`` after `aclose`;
                ``EXECUTION_ERROR`` if the credential cannot be used; or the error of the provider, such as
                ``ACCESS_DENIED`` if the caller has no credential.
        """
        table = await self._provider.get(context, self._origin)
        identity = None if context.identity is None else context.identity.id
        digest = hashlib.sha256(msgspec.json.encode(table, order="sorted", enc_hook=str)).hexdigest()
        if self._closed:
            message = f'the connection to MCP server "{self._name}" is closed; make a new client'
            raise CallError(ErrorCode.UNAVAILABLE, message)
        # No await from here to the request that the caller sends: a session must not be closed between.
        loop = asyncio.get_running_loop()
        kept = self._kept.get((identity, digest))
        if kept is None:
            self._make_room()
            config = _with_credential(self._config, table)
            kept = _Kept(Connection(self._name, config, None, self._logger), dict(table), loop.time())
            self._kept[identity, digest] = kept
        kept.used = loop.time()
        self._kept.move_to_end((identity, digest))
        if self._sweep is None:
            self._sweep = loop.call_later(self._config.session_idle, self._close_idle)
        return kept.connection

    def has_newer(self, context: OperationContext, connection: Connection) -> bool:
        """Report to the provider that the server refused a connection's credential.

        Return True if the provider may have a newer credential.
        """
        tables = (kept.table for kept in self._kept.values() if kept.connection is connection)
        table = next(tables, None)
        return table is not None and self._provider.refused(context, table)

    def __len__(self) -> int:
        return len(self._kept)

    async def aclose(self) -> None:
        """Close all sessions. After that, `of` raises `CallError`. Idempotent."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._kept:
            self._close(self._kept.popitem()[1].connection)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _make_room(self) -> None:
        if len(self._kept) < self._config.max_sessions:
            return
        idle = next((key for key, kept in self._kept.items() if not kept.connection.is_busy), None)
        if idle is None:
            message = (
                f'MCP server "{self._name}": all {self._config.max_sessions} sessions are in use (max_sessions); '
                "call again later"
            )
            raise CallError(ErrorCode.OVERLOADED, message)
        self._close(self._kept.pop(idle).connection)

    def _close_idle(self) -> None:
        """Close the sessions that were not used for ``session_idle`` seconds, and check again later."""
        loop, seconds = asyncio.get_running_loop(), self._config.session_idle
        self._sweep = None
        for key, kept in list(self._kept.items()):
            if kept.connection.is_busy:
                kept.used = loop.time()
            elif kept.used + seconds <= loop.time():
                self._close(self._kept.pop(key).connection)
        if self._kept:
            first = min(kept.used for kept in self._kept.values())
            self._sweep = loop.call_at(first + seconds, self._close_idle)

    def _close(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(connection.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _with_credential(config: MCPClientConfig, table: Mapping[str, Any]) -> MCPClientConfig:
    """Return a configuration with the credential of a provider.

    Raises `CallError` if the credential cannot be used. The message quotes no value.
    """
    try:
        auth = MCPAuth(**table)
        if auth.type in _USABLE:
            return attrs.evolve(config, auth=auth, list_auth=None)
    except (ConfigError, TypeError, ValueError):
        pass
    kinds = ", ".join(f'"{kind}"' for kind in _USABLE)
    message = (
        f"the credential of the caller cannot be used: expected a valid table with one of the types {kinds}; "
        "correct the provider of the credential"
    )
    raise CallError(ErrorCode.EXECUTION_ERROR, message)


def is_unauthorized(error: CallError) -> bool:
    """Return True if the server refused the credential (HTTP 401). JSON-RPC errors have no ``statusCode``."""
    return isinstance(error.details, dict) and error.details.get("statusCode") == 401


def without_credentials(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a call without ``Authorization``, ``Cookie`` and ``Proxy-Authorization``.

    These headers would replace the credential of the caller.
    """
    given = metadata.get("mcp")
    headers = given.get("headers") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(headers, Mapping):
        return metadata
    kept = {name: value for name, value in headers.items() if str(name).lower() not in _CREDENTIALS}
    return {**metadata, "mcp": {**given, "headers": kept}}

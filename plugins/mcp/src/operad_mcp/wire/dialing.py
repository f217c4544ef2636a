"""Making a connection: the transport, the SDK's session over it, and the protocol that both sides know.

Imported with the first connection: it needs the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from mcp.client.session import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import Implementation

from operad_mcp.config import MCPClientConfig, shown_url
from operad_mcp.errors import ConnectionLost, fault_of
from operad_mcp.wire.callbacks import Callbacks
from operad_mcp.wire.live import MODERN, TASKS, Live, ServerLogger
from operad_mcp.wire.memory import memory_streams
from operad_mcp.wire.raw import RawDispatcher
from operad_mcp.wire.sdk import imported_with_sdk
from operad_mcp.wire.stdio import ServerProcess

if TYPE_CHECKING:
    import httpx2
    from mcp.client.session import ClientSession

# The SDK logs what a server does wrong with tracebacks, which a program that configured no logging would print.
logging.getLogger("mcp").addHandler(logging.NullHandler())


async def dial(
    stack: AsyncExitStack,
    config: MCPClientConfig,
    callbacks: Callbacks,
    notified: Callable[[str, Mapping[str, Any]], None],
    logger: ServerLogger,
    closed: asyncio.Event,
    auth: httpx2.Auth | None,
    *,
    program: ServerProcess | None,
    legacy: bool,
) -> tuple[Live, bool]:
    """Connect.

    Args:
        stack: closes the connection; entered and left by the same task.
        config: how to reach the server.
        callbacks: what answers the server.
        notified: takes the name and the parameters of a notification.
        logger: for diagnostics.
        closed: set when the connection has ended.
        auth: of HTTP requests.
        program: what was started, where the server is one.
        legacy: whether the server is known to speak no stateless protocol.

    Returns: the connection, and what ``legacy`` may be the next time.

    Raises:
        Exception: whatever the transport and the SDK raise.
    """
    read: Any = program
    write: Any = program
    if program is None:
        read, write = await stack.enter_async_context(
            memory_streams(config.server, callbacks.log)
            if config.url is None
            else await remote_streams(stack, config, logger, callbacks.log, auth)
        )
    else:
        program.begin()
    inner: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
    session = await stack.enter_async_context(
        ClientSession(
            dispatcher=RawDispatcher(inner, closed, notified),
            client_info=Implementation(name="operad", version=_version()),
            log_level=config.log_level,
            # A server may then answer any call of a tool with a task.
            extensions={TASKS: {}},
            **callbacks.for_session(),
        )
    )
    legacy = await negotiate(session, config, legacy=legacy) or legacy
    version = session.protocol_version
    assert version is not None
    found, info = session.server_capabilities, session.server_info
    return (
        Live(
            session,
            closed,
            version,
            {} if info is None else info.model_dump(mode="json", by_alias=True, exclude_none=True),
            {} if found is None else found.model_dump(mode="json", by_alias=True, exclude_none=True),
            session.instructions,
        ),
        legacy,
    )


@cache  # the whole description of a distribution is read for it
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("operad-mcp")
    except PackageNotFoundError:  # imported from a source tree
        return "0"


async def negotiate(session: ClientSession, config: MCPClientConfig, *, legacy: bool) -> bool:
    """Find the protocol: ask (2026-07-28), and shake hands with who does not know the question.

    Args:
        session: of the SDK, entered.
        config: with the ``mode`` that is wanted.
        legacy: whether the server is known to speak no stateless protocol.

    Returns: whether the next connection need not ask.

    Raises:
        Exception: whatever the SDK raises for the refusal.
    """
    from mcp.shared.exceptions import MCPError
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
    from pydantic import ValidationError

    refusal: Exception | None = None
    if not legacy:
        try:
            async with asyncio.timeout(_discover_timeout(config)):
                await session.discover()
                return False
        except MCPError as refused:
            # Whatever a server answers, it is there: only what this process saw says that it is not. Over HTTP a
            # server that breaks off its answer is there, too.
            fault = fault_of(refused)
            if isinstance(fault, ConnectionLost) and (fault.whole or not fault.sent):
                raise
            refusal = refused
        except (ValidationError, RuntimeError, TimeoutError) as unclear:
            refusal = unclear
        if config.mode == MODERN:
            raise refusal
    try:
        await session.initialize()
    except MCPError as error:
        # A server that was slow to answer the question has settled on the new protocol meanwhile.
        if error.code != UNSUPPORTED_PROTOCOL_VERSION or legacy:
            raise
        await session.discover()
        return False
    return config.mode != MODERN


def _discover_timeout(config: MCPClientConfig) -> float | None:
    """No limit of its own where there is no other protocol to try, or where a user may have to log in."""
    auth = config.auth
    patient = config.mode == MODERN or (auth is not None and auth.type != "bearer")
    return None if patient else config.discover_timeout


def _without_queries(record: logging.LogRecord) -> bool:
    """httpx2 logs each request with its whole URL, in which secrets may stand."""
    if isinstance(record.args, tuple):
        record.args = tuple(shown_url(str(each)) if type(each).__name__ == "URL" else each for each in record.args)
    return True


logging.getLogger("httpx2").addFilter(_without_queries)


async def remote_streams(
    stack: AsyncExitStack,
    config: MCPClientConfig,
    logger: ServerLogger,
    on_log: Callable[[Mapping[str, Any]], None],
    auth: httpx2.Auth | None,
) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """The streams of a server with a URL.

    Args:
        stack: closes the HTTP client.
        config: how to reach the server.
        logger: for diagnostics.
        on_log: takes what the server logs.
        auth: of the requests.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    exchange = await imported_with_sdk("operad_mcp.wire.exchange")
    client = await stack.enter_async_context(exchange.http_client(config, auth))
    streams: AbstractAsyncContextManager[tuple[Any, Any]]
    if config.transport == "sse":
        streams = (await imported_with_sdk("operad_mcp.wire.sse")).sse_streams(client, config, logger, on_log)
    else:
        streams = (await imported_with_sdk("operad_mcp.wire.http")).http_streams(client, config, logger, on_log)
    return streams

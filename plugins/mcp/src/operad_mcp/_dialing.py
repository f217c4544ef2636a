"""Making a connection: the transport, the SDK's session over it, and the protocol that both sides know.

Imported with the first connection: it needs the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from mcp.client.session import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import Implementation

from operad_mcp._callbacks import Callbacks
from operad_mcp._live import TASKS, Live, ServerLogger
from operad_mcp._memory import memory_streams
from operad_mcp._negotiation import negotiate
from operad_mcp._raw import RawDispatcher
from operad_mcp._remote import remote_streams
from operad_mcp._stdio import ServerProcess
from operad_mcp.config import MCPClientConfig

if TYPE_CHECKING:
    import httpx2

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

"""Which protocol a server speaks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from operad_mcp._live import MODERN
from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, fault_of

if TYPE_CHECKING:
    from mcp.client.session import ClientSession


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

"""The transports over HTTP, imported where a server is there: one that is a program needs no httpx2."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from operad_mcp._live import ServerLogger
from operad_mcp._sdk import imported_with_sdk
from operad_mcp.config import MCPClientConfig, shown_url

if TYPE_CHECKING:
    import httpx2


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
    exchange = await imported_with_sdk("operad_mcp._exchange")
    client = await stack.enter_async_context(exchange.http_client(config, auth))
    streams: AbstractAsyncContextManager[tuple[Any, Any]]
    if config.transport == "sse":
        streams = (await imported_with_sdk("operad_mcp._sse")).sse_streams(client, config, logger, on_log)
    else:
        streams = (await imported_with_sdk("operad_mcp._http")).http_streams(client, config, logger, on_log)
    return streams

"""Functions that open a transport, negotiate the protocol, and send a request with answers to questions."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode
from operad_auth.http import shown_url
from operad_mcp.config import MCPClientConfig, MCPExtras
from operad_mcp.errors import ConnectionLost, Fault, HTTPRefusal, ServerError, Unusable, classify
from operad_mcp.wire.callbacks import Declined
from operad_mcp.wire.link import Link, Sink, imported
from operad_mcp.wire.messages import Json
from operad_mcp.wire.protocol import MODERN, UNSUPPORTED_VERSION, ServerLogger
from operad_mcp.wire.session import Progress, Session
from operad_mcp.wire.stdio import stdio_link

if TYPE_CHECKING:
    import httpx2


def _without_queries(record: logging.LogRecord) -> bool:
    """Remove queries from URLs in httpx2's log records, because they may contain secrets."""
    if isinstance(record.args, tuple):
        record.args = tuple(shown_url(str(each)) if type(each).__name__ == "URL" else each for each in record.args)
    return True


logging.getLogger("httpx2").addFilter(_without_queries)


async def open_link(
    stack: AsyncExitStack, config: MCPClientConfig, sink: Sink, logger: ServerLogger, auth: httpx2.Auth | None
) -> Link:
    """Open the transport to a server; ``stack`` closes it.

    Raises:
        ConfigError: a file in the configuration cannot be used.
        OSError: the program cannot be started.
        Fault: the server cannot be reached, or rejects the connection.
    """
    opening: AbstractAsyncContextManager[Any]
    if config.command is not None:
        opening = stdio_link(config, logger, sink)
    elif config.url is None:
        opening = (await imported("operad_mcp.wire.memory")).memory_link(config.server, sink)
    else:
        exchange = await imported("operad_mcp.wire.exchange")
        client = await stack.enter_async_context(exchange.http_client(config, auth))
        kind = await imported(f"operad_mcp.wire.{config.transport}")
        opening = kind.open_link(client, config, logger, sink)
    link: Link = await stack.enter_async_context(opening)
    return link


async def negotiate(session: Session, config: MCPClientConfig, *, legacy: bool) -> bool:
    """Negotiate the protocol. Ask for that of 2026-07-28 unless ``legacy``, and fall back to the handshake.

    Returns:
        True if the server uses the handshake, so that the next connection can begin with it.

    Raises:
        ServerError, Fault: the server rejected the negotiation, sent an invalid response, or cannot be reached.
    """
    if not legacy:
        try:
            async with asyncio.timeout(_discover_timeout(config)):
                await session.discover()
                return False
        except (ServerError, Fault, TimeoutError) as refusal:
            # Any response, even a truncated one over HTTP, means that the server is running. Only a fault that
            # this process detected means that it is not.
            if isinstance(refusal, ConnectionLost) and (refusal.whole or not refusal.sent):
                raise
            # After a failed login, or a rejected token, the handshake would ask the user again.
            was_login = config.auth is not None and config.auth.type != "bearer"
            is_refused = isinstance(refusal, HTTPRefusal) and refusal.status == 401
            if config.mode == MODERN or isinstance(refusal, Unusable) or (was_login and is_refused):
                raise
    try:
        await session.initialize()
    except ServerError as error:
        # A server that was slow to answer the question has settled on the new protocol meanwhile.
        if error.code != UNSUPPORTED_VERSION or legacy:
            raise
        await session.discover()
        return False
    return config.mode != MODERN


def _discover_timeout(config: MCPClientConfig) -> float | None:
    """Return the seconds for the question; None if it has no fallback, or a user may have to log in."""
    auth = config.auth
    patient = config.mode == MODERN or (auth is not None and auth.type != "bearer")
    return None if patient else config.discover_timeout


_MAX_ROUNDS = 10


async def exchange(
    session: Session,
    what: str,
    method: str,
    params: Json,
    progress: Progress | None = None,
    extras: MCPExtras | None = None,
) -> Any:
    """Send a request, answer the server's questions during it, and return its result.

    ``what`` names the server at the beginning of messages.

    Raises:
        ConnectionLost: the connection ended before the response.
        SessionExpired: the HTTP server no longer knows the session.
        CallError: the request failed, or a question cannot be answered.
    """
    if extras is not None and extras.meta:
        params = {**params, "_meta": dict(extras.meta)}
    headers = None if extras is None else extras.headers
    answers: Json = {}
    for _ in range(_MAX_ROUNDS):
        given = {**params, **answers} if answers else params
        try:
            raw = await session.request(method, given, progress=progress, headers=headers)
        except Exception as error:
            raise classify(error, what) from error
        if not isinstance(raw, dict) or raw.get("resultType") != "input_required":
            return raw
        answers = await answer_inputs(session, raw, what)
    message = f"{what} asked for input {_MAX_ROUNDS} times, which is the maximum, and sent no result"
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})


async def answer_inputs(session: Session, raw: Json, what: str) -> Json:
    """Return the answers to an ``input_required`` result (2026-07-28), to be sent with the repeated request.

    Raises:
        CallError: a question has an unknown form, is rejected, or has no callback in the configuration.
    """
    asked, state = raw.get("inputRequests"), raw.get("requestState")
    answers: Json = {} if state is None else {"requestState": state}
    if not asked:
        await asyncio.sleep(0.05)
        return answers
    responses: Json = {}
    for key, request in asked.items() if isinstance(asked, dict) else [("", None)]:
        method = request.get("method") if isinstance(request, dict) else None
        params = request.get("params", {}) if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict | None):
            message = f"{what} asked for input: expected an object with method and params, got {request!r:.200}"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
        try:
            responses[key] = await session.callbacks.answer(method, params or {})
        except Declined as declined:
            if declined.option is not None:
                message = f"{what} asks for {method}; set MCPClientConfig({declined.option}=…) to answer"
                details = {"message": message, "callback": declined.option}
                raise CallError(ErrorCode.EXECUTION_ERROR, message, details) from declined
            text = f"{what} asked for {method}, which was rejected: {declined}"
            refused = {"message": str(declined), "jsonrpcCode": declined.code}
            raise CallError(ErrorCode.EXECUTION_ERROR, text, refused) from declined
    return {**answers, "inputResponses": responses}

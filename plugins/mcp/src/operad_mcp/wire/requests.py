"""One request over a connection that is up, with the input that the server asks for on the way."""

from __future__ import annotations

import asyncio
from typing import Any

from operad import CallError, ErrorCode
from operad_mcp.config import MCPExtras
from operad_mcp.errors import classify
from operad_mcp.wire.callbacks import Declined
from operad_mcp.wire.messages import Json
from operad_mcp.wire.session import Progress, Session

_MAX_ROUNDS = 10


async def exchange(
    session: Session,
    what: str,
    method: str,
    params: Json,
    progress: Progress | None = None,
    extras: MCPExtras | None = None,
) -> Any:
    """Send a request, answer what the server asks for on the way, and return its answer.

    Args:
        session: the connection.
        what: what to call the server in messages.
        method: as the protocol names it.
        params: its parameters.
        progress: awaited with each progress notification.
        extras: further headers, and fields of ``_meta``.

    Raises:
        ConnectionLost, SessionExpired, CallError: see `classify`.
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
    message = f"{what} asked for input {_MAX_ROUNDS} times and did not answer"
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})


async def answer_inputs(session: Session, raw: Json, what: str) -> Json:
    """Return the answers to an ``input_required`` result (2026-07-28): what to send along with the request again.

    Raises:
        CallError: the server asks for what no callback is configured for; the message names the callback.
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
            message = f"{what} asked for input in a way that is not understood"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
        _require_callback(method, session, what)
        try:
            responses[key] = await session.callbacks.answer(method, params or {})
        except Declined as declined:
            details = {"message": str(declined), "jsonrpcCode": declined.code}
            text = f"{what} asked for {method}, which was refused: {declined}"
            raise CallError(ErrorCode.EXECUTION_ERROR, text, details) from declined
    return {**answers, "inputResponses": responses}


_CALLBACKS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def _require_callback(method: str, session: Session, what: str) -> None:
    name = _CALLBACKS.get(method)
    if name is not None and getattr(session.config, name) is None:
        message = f"{what} asks for {method}; give MCPClientConfig({name}=…) to answer"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "callback": name})

"""One request over a connection that is up, and its answer as it came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode
from operad_mcp.config import MCPClientConfig, MCPExtras
from operad_mcp.errors import classify
from operad_mcp.wire.callbacks import answer_inputs
from operad_mcp.wire.live import Live

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

Json = dict[str, Any]
_MAX_ROUNDS = 10


async def exchange(
    live: Live,
    config: MCPClientConfig,
    what: str,
    method: str,
    params: Json,
    progress: ProgressFnT | None = None,
    extras: MCPExtras | None = None,
) -> Any:
    """Send a request, answer what the server asks for on the way, and return its answer.

    Args:
        live: the connection.
        config: with the callbacks that answer.
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
        raw = await _once(live, what, method, {**params, **answers} if answers else params, progress, headers)
        if not isinstance(raw, dict) or raw.get("resultType") != "input_required":
            return raw
        answers = await answer_inputs(live.session, raw, config, what)
    message = f"{what} asked for input {_MAX_ROUNDS} times and did not answer"
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})


async def _once(
    live: Live,
    what: str,
    method: str,
    params: Json,
    progress: ProgressFnT | None,
    headers: Mapping[str, str] | None,
) -> Any:
    from operad_mcp.wire.raw import ANYTHING, Slot, request_of, slot

    # Headers for arguments came with the stateless protocol; for 20,000 tools they take half a second to look for.
    is_listing = method == "tools/list" and live.modern
    wanted = Slot(headers, is_listing=is_listing)
    token = slot.set(wanted)
    try:
        if is_listing:
            await _list_tools(live, params, wanted)
        else:
            await live.session.send_request(request_of(method, params), ANYTHING, progress_callback=progress)
    except Exception as error:
        raise classify(error, what) from error
    finally:
        slot.reset(token)
    return wanted.raw


async def _list_tools(live: Live, params: Json, wanted: Any) -> None:
    """As the session lists tools: it keeps the headers that they want, and drops what it must not call."""
    from mcp_types import PaginatedRequestParams

    cursor = params.get("cursor")
    listed = await live.session.list_tools(
        params=None if cursor is None else PaginatedRequestParams(cursor=cursor)
    )
    raw = wanted.raw
    if isinstance(raw, dict) and isinstance(raw.get("tools"), list):
        kept = {tool.name for tool in listed.tools}
        wanted.raw = {
            **raw,
            "tools": [tool for tool in raw["tools"] if isinstance(tool, dict) and tool.get("name") in kept],
        }

"""Questions of a server, passed on to whoever waits for the call for which it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode

if TYPE_CHECKING:
    from operad.plugin import CallClient
    from operad_mcp.config import MCPCall

Json = dict[str, Any]


async def elicited(params: Json, call: MCPCall) -> Json:
    """The answer of the caller's user to ``elicitation/create``. Raises `CallError`: nobody can be asked."""
    client, message = _client(call), str(params.get("message") or "")
    if params.get("mode") == "url":
        return dict(await client.elicit(_named(message, call), None, str(params.get("url")), None))
    return dict(await client.elicit(_named(message, call), params.get("requestedSchema") or {}, None, None))


async def sampled(params: Json, call: MCPCall) -> Json:
    """The answer of the caller's model to ``sampling/createMessage``. Raises `CallError`: nobody can be asked."""
    client = _client(call)
    return dict(await client.sample({key: value for key, value in params.items() if key != "_meta"}, None))


def _named(message: str, call: MCPCall) -> str:
    """A question with who asks it: the user trusts a server, and not whatever it says of itself."""
    return f"{call.operation_id or call.server} asks: {message}"


def _client(call: MCPCall) -> CallClient:
    if call.client is None:
        which = "this call has nobody" if call.operation_id else "the server does not say for which call it asks"
        message = f"MCP server {call.server!r} asks something, and there is nobody to answer: {which}"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
    return call.client

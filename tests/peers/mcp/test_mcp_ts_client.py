"""The client of version 1 of the TypeScript SDK checks structured content against the output schema, also in errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from operad import (
    AccessControl,
    CallError,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    from_schema,
    load_plugins,
    operation,
)
from operad_mcp import mcp_envelope, to_mcp
from plugins.mcp.tests.peers import listening
from tests.kit import output_of
from tests.peers.mcp.installed import HERE, NODE, needs_npm

pytestmark = needs_npm

FIELDS = {"left": {"type": "integer"}, "log": {"type": "string"}}
STOCK = {"type": "object", "properties": FIELDS, "required": ["left"]}


@operation(namespace="t")
async def buy(article: str, pieces: int) -> dict[str, int]:
    """Buy something."""
    if pieces < 0:
        raise ValueError("password=hunter2")
    raise CallError("SOLD_OUT", f"no {article} left", {"left": 0})


@operation(namespace="t", access_control=AccessControl(required_scopes=("write",)), type="query")
async def guarded(n: int) -> int:
    """Only for writers, if they are called."""
    return n


@operation(namespace="t")
async def breaks(n: int) -> AsyncIterator[int]:
    """Break after an item."""
    yield n
    raise CallError("BROKEN", "the stream broke")


def shop() -> OperationRegistry:
    registry = OperationRegistry(load_plugins(only=["mcp"]))
    for each in (buy, guarded, breaks):
        registry.register(each)

    async def wrong(input: Any, context: OperationContext) -> Any:
        return {"left": "many"}

    async def large(input: Any, context: OperationContext) -> Any:
        return {"left": 1, "log": "x" * 1_000_000}

    async def upstream(input: Any, context: OperationContext) -> Any:
        content = [{"type": "text", "text": "the other server failed"}]
        return mcp_envelope(None, is_error=True, content=content, structured_content={"why": "it is down"})

    async def late(input: Any, context: OperationContext) -> Any:
        raise CallError("TIMEOUT", "too late")

    for handler in (wrong, large, upstream, late):
        spec = OperationSpec(namespace="t", name=handler.__name__, output_schema=from_schema(STOCK))
        registry.register(spec, handler)
    return registry


CALLS: dict[str, tuple[Any, str]] = {
    "t_buy": ({"article": "tea", "pieces": 1}, "SOLD_OUT: no tea left"),
    "t_breaks": ({"n": 1}, "BROKEN: the stream broke"),
    "t_wrong": ({}, "does not match"),
    "t_large": ({}, "PAYLOAD_TOO_LARGE"),
    "t_upstream": ({}, "the other server failed"),
    "t_late": ({}, "TIMEOUT: too late"),
}


async def seen(calls: dict[str, Any]) -> dict[str, Any]:
    """The results that the client prints."""
    async with listening(to_mcp(shop()).asgi()) as url:
        found: dict[str, Any] = json.loads(
            await output_of(NODE, HERE / "ts_v1_client.mjs", f"{url}/mcp", given=json.dumps(calls))
        )
    return found


async def test_the_client_reads_the_error_of_every_failing_tool_with_an_output_schema() -> None:
    found = await seen({name: arguments for name, (arguments, _) in CALLS.items()})
    assert found["outputs"] == sorted(CALLS)
    for name, (_, text) in CALLS.items():
        result = found["results"][name]
        assert result.get("isError") is True, result
        assert text in result["content"][0]["text"]
    assert found["results"]["t_buy"]["_meta"]["operad/error"]["details"] == {"left": 0}


async def test_the_client_reads_what_is_wrong_with_its_arguments_and_no_secret() -> None:
    invalid = (await seen({"t_buy": {"article": 7}}))["results"]["t_buy"]
    assert invalid["content"][0]["text"].startswith("VALIDATION_ERROR: ")
    raising = (await seen({"t_buy": {"article": "tea", "pieces": -1}}))["results"]["t_buy"]
    assert raising["isError"] is True
    assert "hunter2" not in json.dumps(raising)

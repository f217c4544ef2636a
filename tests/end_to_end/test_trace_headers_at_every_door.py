"""What a caller's trace and baggage say comes in at every door, reaches the handler, and what is malformed does not."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client

from operad import OperationContext, OperationRegistry, operation
from operad_mcp import to_mcp
from operad_serve import to_openapi
from plugins.serve.tests import front_door
from tests.kit import tool_call

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GIVEN = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "user=ann,shop=7"}
GIVENS = [
    pytest.param(GIVEN, GIVEN, id="all three"),
    pytest.param({"baggage": "user=ann"}, {"baggage": "user=ann"}, id="baggage alone"),
    pytest.param({"traceparent": "nonsense", "tracestate": "a=1"}, {}, id="a parent that is none"),
    pytest.param({"baggage": "user=" + "a" * 9_000}, {}, id="baggage that is too long"),
]


@operation(namespace="t", type="query")
async def carried(context: OperationContext) -> dict[str, Any]:
    """What came with the call."""
    return {name: value for name, value in context.metadata.items() if name in GIVEN}


def registry() -> OperationRegistry:
    made = OperationRegistry()
    made.register(carried)
    return made


@pytest.mark.parametrize(("given", "expected"), GIVENS)
async def test_over_http(given: dict[str, str], expected: dict[str, str]) -> None:
    async with front_door.client_of(to_openapi(registry())) as client:
        answer = await client("POST", "/operations/t.carried", headers=given)
    assert answer.json() == expected


@pytest.mark.parametrize(("given", "expected"), GIVENS)
async def test_over_mcp_by_headers(given: dict[str, str], expected: dict[str, str]) -> None:
    call = tool_call("t_carried")
    call["headers"] |= given
    async with front_door.client_of(to_mcp(registry(), json_response=True).asgi()) as client:
        answer = await client("POST", "/mcp", **call)
    assert answer.json()["result"]["structuredContent"] == expected


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize(("given", "expected"), GIVENS)
async def test_over_mcp_by_meta(given: dict[str, str], expected: dict[str, str], mode: str) -> None:
    async with Client(to_mcp(registry()).server(), mode=mode) as session:
        answer = await session.call_tool("t_carried", {}, meta=given)
    assert answer.structured_content == expected

"""Code mode at every door: saved programs over three sources, and the three tools of an MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from operad import (
    CallHandler,
    Identity,
    OperationRegistry,
    PendingRequestMap,
    PluginError,
    load_plugins,
    operation,
)
from operad_llm import run_tool_call, tools
from operad_mcp import to_mcp
from operad_serve import to_openapi
from operad_websocket import Hub, WebSocketTransport, bearer_tokens
from plugins.serve.tests import front_door

RESTOCK = '''
import asyncio

async def main(below: int) -> list[str]:
    """Order each book of which few are left, and note it."""
    stock = await shelf.stock()
    few = [title for title, count in stock.items() if count < below]
    prices = await asyncio.gather(*[market.price(title=title) for title in few])
    await notes.write(text=f"ordered {len(few)} for {sum(prices)}")
    return few
'''
VALUE = '''
async def main() -> int:
    """Return the value of all books."""
    stock = await shelf.stock()
    total = 0
    for title, count in stock.items():
        total += count * await market.price(title=title)
    return total
'''
ODD = "async def main() -> int:\n    return await market.price(name='Emma')\n"


def other(namespace: str, *functions: Any) -> Any:
    """Return an MCP server with functions."""
    registry = OperationRegistry(load_plugins())
    for function in functions:
        registry.register(operation(namespace=namespace, type="query")(function))
    return to_mcp(registry, names="name").server()


written: list[str] = []


@operation(namespace="shelf", type="query")
async def stock() -> dict[str, int]:
    return {"Emma": 1, "Persuasion": 5, "Sanditon": 0}


async def price(title: str) -> int:
    """Return the price of a book."""
    return len(title)


async def write(text: str) -> str:
    """Write a note."""
    written.append(text)
    return text


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[OperationRegistry]:
    written.clear()
    for name, text in (("restock", RESTOCK), ("value", VALUE), ("odd", ODD)):
        (tmp_path / f"{name}.py").write_text(text)
    async with OperationRegistry(load_plugins()) as registry:
        registry.register(stock)
        await registry.load("mcp", namespace="market", server=other("x", price))
        await registry.load("mcp", namespace="notes", server=other("x", write))
        await registry.load("code", namespace="recipes", path=tmp_path)
        await registry.load("code", namespace="code")
        yield registry


async def test_saved_programs_over_http(registry: OperationRegistry) -> None:
    async with front_door.client_of(to_openapi(registry)) as client:
        document = (await client("GET", "/openapi.json")).json()
        assert not any("odd" in path for path in document["paths"])
        answer = await client("POST", "/operations/recipes.restock", json={"below": 2})
        assert (answer.status, answer.json()) == (200, ["Emma", "Sanditon"])
        assert (await client("POST", "/operations/recipes.value")).json() == 4 + 5 * 10
        assert (await client("POST", "/operations/recipes.restock", json={})).status == 422
    assert written == ["ordered 2 for 12"]


async def test_the_program_that_does_not_fit_is_reported(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    reports = [record.getMessage() for record in caplog.get_records("setup") if record.name == "operad.code"]
    assert len(reports) == 1
    assert "odd.py: line 2" in reports[0]
    assert "signature: market.price(*, title: str)" in reports[0]


async def test_saved_programs_over_mcp(registry: OperationRegistry) -> None:
    async with Client(to_mcp(registry).server()) as session:
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert {"recipes_restock", "recipes_value"} <= names
        answer = await session.call_tool("recipes_restock", {"below": 2})
        assert json.loads(answer.content[0].text) == ["Emma", "Sanditon"]


async def test_saved_programs_through_a_hub(registry: OperationRegistry) -> None:
    async with Hub(bearer_tokens({"ann": Identity("ann"), "worker": Identity("worker")}), port=0) as hub:
        worker = CallHandler(registry, WebSocketTransport(hub.url, token="worker"))
        async with worker, PendingRequestMap(WebSocketTransport(hub.url, token="ann")) as calls:
            assert (await calls.call("recipes.value")).data == 54


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_mcp_server_offers_the_tools_of_code_mode_alone(registry: OperationRegistry, mode: str) -> None:
    async with Client(to_mcp(registry, tools="code").server(), mode=mode) as session:
        names = [tool.name for tool in (await session.list_tools()).tools]
        assert names == ["code_describe", "code_run", "code_search"]
        found = await session.call_tool("code_search", {"query": "price of a book"})
        assert "market.price(*, title: str)" in found.content[0].text
        answer = await session.call_tool("code_run", {"code": "await market.price(title='Emma')"})
        assert answer.content[0].text == "4"
        wrong = await session.call_tool("code_run", {"code": "await market.price(title=1)"})
        assert wrong.is_error
        assert "line 1, column 20" in wrong.content[0].text
        with pytest.raises(Exception, match="Unknown tool"):
            await session.call_tool("market_price", {"title": "Emma"})


async def test_without_operad_code_the_error_names_the_distribution() -> None:
    with pytest.raises(PluginError, match="operad-code"):
        to_mcp(OperationRegistry(load_plugins(only=["mcp"])), tools="code").server()


async def test_models_get_the_three_tools_of_code_mode(registry: OperationRegistry) -> None:
    offered = tools(registry, "openai", include=["code.*"])
    assert sorted(offered.names) == ["code_describe", "code_run", "code_search"]
    call = {"id": "1", "function": {"name": "code_run", "arguments": json.dumps({"code": "1 + 1"})}}
    assert (await run_tool_call(registry, call, offered=offered))["content"] == "2"

"""Servers that other people wrote, over HTTP: loaded in the default mode, called, restarted, and called again."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from operad import OperationRegistry, load_plugins
from operad_testing import free_port
from tests.kit import listener
from tests.peers.mcp.installed import EVERYTHING, HERE, NODE, PYTHON, SDK, in_node, needs_python


def served(port: int, *command: str | Path) -> AbstractAsyncContextManager[Any]:
    parts = [str(part).replace("PORT", str(port)) for part in command]
    return listener(port, *parts, OPERAD_TEST_PORT=str(port), NODE_OPTIONS=f"--require={HERE}/loopback.cjs")


async def survives(path: str, tool: str, input: dict[str, Any], *command: str | Path, **options: Any) -> None:
    """The server loads, is called, is killed and started again, and is called again, in both modes."""
    port = free_port()
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:

        async def calls(count: int) -> None:
            for namespace in ("auto", "legacy") * count:
                assert not (await registry.execute(f"{namespace}.{tool}", input, timeout=30)).meta.is_error

        async with served(port, *command):
            for mode in ("auto", "legacy"):
                url = f"http://127.0.0.1:{port}{path}"
                await registry.load("mcp", namespace=mode, url=url, mode=mode, **options)
            await calls(1)
        async with served(port, *command):
            await calls(2)


GREET = ("greet", {"name": "Ada"})
STREAM = ("start-notification-stream", {"interval": 1, "count": 1})
SERVERS = [
    ("/mcp", "whoami", {}, NODE, HERE / "ts_v2.mjs", "stateful"),
    ("/mcp", *GREET, NODE, SDK / "simpleStreamableHttp.js"),
]
MORE: dict[str, tuple[Any, ...]] = {
    "TypeScript SDK 2, stateless": ("/mcp", "whoami", {}, NODE, HERE / "ts_v2.mjs", "stateless"),
    "TypeScript SDK 1, stateless": ("/mcp", *STREAM, NODE, SDK / "simpleStatelessStreamableHttp.js"),
    "everything": ("/mcp", "echo", {"message": "hi"}, NODE, EVERYTHING, "streamableHttp"),
    "TypeScript SDK 1, JSON": ("/mcp", *GREET, NODE, SDK / "jsonResponseStreamableHttp.js"),
    "TypeScript SDK 1, both transports": ("/mcp", *STREAM, NODE, SDK / "sseAndStreamableHttpCompatibleServer.js"),
}
OVER_SSE: dict[str, tuple[Any, ...]] = {
    "TypeScript SDK 1, both transports": ("/sse", *STREAM, NODE, SDK / "sseAndStreamableHttpCompatibleServer.js"),
    "TypeScript SDK 1": ("/mcp", *STREAM, NODE, SDK / "simpleSseServer.js"),
    "everything": ("/sse", "echo", {"message": "hi"}, NODE, EVERYTHING, "sse"),
}


@in_node
async def test_servers_of_the_typescript_sdk_load_and_survive_a_restart() -> None:
    await asyncio.gather(*(survives(*arguments) for arguments in SERVERS))


@in_node
@pytest.mark.long
@pytest.mark.parametrize("name", MORE)
async def test_more_servers_of_the_typescript_sdk_survive_a_restart(name: str) -> None:
    await survives(*MORE[name])


@in_node
@pytest.mark.long
@pytest.mark.parametrize("name", OVER_SSE)
async def test_servers_over_sse_survive_a_restart(name: str) -> None:
    await survives(*OVER_SSE[name], transport="sse")


FAST = HERE / "fastmcp_server.py"


async def use_fastmcp(**options: Any) -> None:
    """Call everything that the server offers."""

    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": "Ada"}}

    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        options = {"elicitation": elicitation, "server_operations": True, "connect_timeout": 60, **options}
        await registry.load("mcp", namespace="f", **options)
        assert (await registry.execute("f.add", {"a": 1})).data == {"total": 3}
        asked = await registry.execute("f.ask")
        if asked.meta.protocol_version < "2026-07-28":  # FastMCP 4 asks in the protocols of a handshake only
            assert asked.meta.content[0].text == "Hello Ada"
        assert (await registry.execute("f.fail")).meta.is_error
        assert (await registry.execute("f.resources.templates.note", {"name": "x"})).data[0]["text"] == "note x"
        prompt = await registry.execute("f.prompts.get.review", {"code": "y"})
        assert prompt.meta.content[0].text == "Review y"
        about = (await registry.execute("f.server.about")).data
        assert about["instructions"] == "Ask for whoami first."


@needs_python
async def test_a_server_of_fastmcp_is_called_over_http() -> None:
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    async with served(port, PYTHON, FAST, "http", "PORT"):
        await asyncio.gather(use_fastmcp(url=url), use_fastmcp(url=url, mode="legacy"))


@pytest.mark.long
@needs_python
async def test_a_server_of_fastmcp_is_called_over_the_other_transports() -> None:
    url = f"http://127.0.0.1:{(port := free_port())}/sse"
    async with served(port, PYTHON, FAST, "sse", "PORT"):
        by_stdio = use_fastmcp(command=str(PYTHON), args=[str(FAST), "stdio"])
        await asyncio.gather(by_stdio, use_fastmcp(url=url, transport="sse"))


@pytest.mark.long
@needs_python
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_of_fastmcp_survives_a_restart(transport: str) -> None:
    path = "/mcp" if transport == "http" else "/sse"
    await survives(path, "whoami", {}, PYTHON, FAST, transport, "PORT", transport=transport)

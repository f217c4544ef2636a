"""Servers that other people wrote, over HTTP: loaded in the default mode, called, restarted, and called again."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad import OperationRegistry, load_plugins

HERE = Path(__file__).parent
NODE = HERE / "node_modules/node/bin/node"
SDK = HERE / "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server"
EVERYTHING = HERE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
FASTMCP = HERE / ".venv/bin/python"
needs_npm = pytest.mark.skipif(not SDK.exists(), reason="npm install in tests/peers/mcp")
needs_fastmcp = pytest.mark.skipif(not FASTMCP.exists(), reason="make tests/peers/mcp/.venv with requirements.txt")


class Served:
    """A server of others as a process, which can be started again on its port."""

    def __init__(self, *command: str | Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._command = [str(part).replace("PORT", str(self.port)) for part in command]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environ = {
            **os.environ,
            "OPERAD_TEST_PORT": str(self.port),
            "NODE_OPTIONS": f"--require={HERE}/loopback.cjs",
        }
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=environ, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(60):
            while True:
                assert self._process.returncode is None, f"{self._command} ended with {self._process.returncode}"
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def served(*command: str | Path) -> AsyncIterator[Served]:
    server = Served(*command)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def loaded(url: str, **options: Any) -> AsyncIterator[OperationRegistry]:
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        await registry.load("mcp", namespace="s", url=url, **options)
        yield registry


async def survives(path: str, tool: str, input: dict[str, Any], *command: str | Path, **options: Any) -> None:
    """The server loads, is called, is killed and started again, and is called again, in both modes."""
    async with (
        served(*command) as server,
        loaded(f"http://127.0.0.1:{server.port}{path}", **options) as auto,
        loaded(f"http://127.0.0.1:{server.port}{path}", mode="legacy", **options) as legacy,
    ):
        for registry in (auto, legacy):
            assert not (await registry.execute(f"s.{tool}", input, timeout=30)).meta.is_error
        await server.stop()
        await server.start()
        for registry in (auto, legacy):
            for _ in range(2):
                assert not (await registry.execute(f"s.{tool}", input, timeout=30)).meta.is_error


GREET = ("greet", {"name": "Ada"})
STREAM = ("start-notification-stream", {"interval": 1, "count": 1})
SERVERS = {
    "TypeScript SDK 2, stateful": ("/mcp", "whoami", {}, NODE, HERE / "ts_v2.mjs", "stateful"),
    "TypeScript SDK 1, stateful": ("/mcp", *GREET, NODE, SDK / "simpleStreamableHttp.js"),
}
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


@pytest.mark.node
@needs_npm
async def test_servers_of_the_typescript_sdk_load_and_survive_a_restart() -> None:
    await asyncio.gather(*(survives(*arguments) for arguments in SERVERS.values()))


@pytest.mark.node
@pytest.mark.long
@needs_npm
@pytest.mark.parametrize("name", list(MORE))
async def test_more_servers_of_the_typescript_sdk_survive_a_restart(name: str) -> None:
    await survives(*MORE[name])


@pytest.mark.node
@pytest.mark.long
@needs_npm
@pytest.mark.parametrize("name", list(OVER_SSE))
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


@needs_fastmcp
async def test_a_server_of_fastmcp_is_called_over_http() -> None:
    async with served(FASTMCP, FAST, "http", "PORT") as http:
        await asyncio.gather(
            use_fastmcp(url=f"http://127.0.0.1:{http.port}/mcp"),
            use_fastmcp(url=f"http://127.0.0.1:{http.port}/mcp", mode="legacy"),
        )


@pytest.mark.long
@needs_fastmcp
async def test_a_server_of_fastmcp_is_called_over_the_other_transports() -> None:
    async with served(FASTMCP, FAST, "sse", "PORT") as sse:
        await asyncio.gather(
            use_fastmcp(command=str(FASTMCP), args=[str(FAST), "stdio"]),
            use_fastmcp(url=f"http://127.0.0.1:{sse.port}/sse", transport="sse"),
        )


@pytest.mark.long
@needs_fastmcp
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_of_fastmcp_survives_a_restart(transport: str) -> None:
    path = "/mcp" if transport == "http" else "/sse"
    await survives(path, "whoami", {}, FASTMCP, FAST, transport, "PORT", transport=transport)

"""A large API as an MCP server, and an MCP server as an HTTP API, beside those who do one of the two.

    python benchmarks/serving_proxies.py [--rounds 15] [--calls 40]

GitHub's document (``npm install --prefix tests/peers/prism``), whose operations are answered by a server on this
machine, goes through `operad serve`, FastMCP and openapi-mcp-gateway; the everything server (``npm install
--prefix tests/peers/mcp``) through `operad serve` and mcpo. Each party is a process of its own, in turn on one
keep-alive connection; start-up is the time until a list of tools, or the document, is answered.

Peers that are not there are left out. FastMCP runs in ``tests/peers/mcp/.venv``; make the others with::

    uv venv benchmarks/.venv-gateway && uv venv benchmarks/.venv-mcpo
    uv pip install --python benchmarks/.venv-gateway/bin/python openapi-mcp-gateway==0.8.0
    uv pip install --python benchmarks/.venv-mcpo/bin/python mcpo==0.0.20 'mcp<2' 'fastapi<0.120'

from another folder: the pins of this workspace are not theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from results import compared

HERE = Path(__file__).parent
TITLES = {"tool": "GitHub's API as an MCP server, a call", "post": "An MCP server as an HTTP API, a call"}
ROOT = HERE.parent
GITHUB = ROOT / "tests/peers/prism/node_modules/@octokit/openapi/generated/api.github.com.json"
EVERYTHING = ROOT / "tests/peers/mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
OPERAD = str(Path(sys.executable).with_name("operad"))
FASTMCP = ROOT / "tests/peers/mcp/.venv/bin/python"
GATEWAY = HERE / ".venv-gateway/bin/openapi-mcp-gateway"
MCPO = HERE / ".venv-mcpo/bin/mcpo"
FASTMCP_SERVER = """
import json, sys, httpx
from fastmcp import FastMCP

with open(sys.argv[2]) as file:
    document = json.load(file)
server = FastMCP.from_openapi(document, client=httpx.AsyncClient(base_url=sys.argv[3]))
server.run("http", port=int(sys.argv[1]), show_banner=False, log_level="error")
"""
REVISION = "2025-11-25"
HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": REVISION}
LONGEST = 120.0
"""Seconds that a party may take to start."""


class Party:
    """A server in a process of its own, and how it is called."""

    def __init__(self, name: str, command: list[str], path: str, call: dict[str, Any] | None) -> None:
        self.name = name
        self.times: list[float] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._base = f"http://127.0.0.1:{free.getsockname()[1]}"
            self._command = [part.replace("PORT", str(free.getsockname()[1])) for part in command]
        self._url = self._base + path
        self._call = call
        self._session = ""

    async def start(
        self, client: aiohttp.ClientSession, ready: Callable[[Party], Coroutine[Any, Any, None]]
    ) -> None:
        """Start it, and say how long it took until ``ready``, and what memory it has then."""
        self._client = client
        started = time.perf_counter()
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                await ready(self)
                break
            except (aiohttp.ClientError, AssertionError):
                if self._process.poll() is not None or time.perf_counter() - started > LONGEST:
                    raise
                await asyncio.sleep(0.05)
        took = time.perf_counter() - started
        memory = Path(f"/proc/{self._process.pid}/status")
        kib = 0
        if memory.exists():
            kib = next(
                int(line.split()[1]) for line in memory.read_text().splitlines() if line.startswith("VmRSS")
            )
        print(f"  {self.name:22}{took:8.2f} s to start{kib / 1024:8.0f} MiB")

    async def lists(self) -> None:
        """An MCP session, and its first list of tools."""
        info = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await self._ask("initialize", info)
        await self._ask("notifications/initialized", None)
        names = [tool["name"] for tool in (await self._ask("tools/list", {}))["result"]["tools"]]
        assert names
        if self._call is not None and self._call["name"] not in names:  # each has its own way with a slash
            self._call["name"] = next(name for name in names if name.startswith("emojis"))

    async def documented(self) -> None:
        """The OpenAPI document."""
        async with self._client.get(f"{self._base}/openapi.json") as response:
            assert response.status == 200
            assert (await response.json())["paths"]

    async def tool(self) -> None:
        """Call the tool."""
        answer = await self._ask("tools/call", self._call)
        assert "a.example" in json.dumps(answer["result"]), answer

    async def post(self) -> None:
        """Call the operation over HTTP."""
        async with self._client.post(self._url, json=self._call) as response:
            assert "hello" in await response.text()
            assert response.status == 200

    async def _ask(self, method: str, params: Any) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message |= {"id": 1, "params": params}
        headers = {**HEADERS, "mcp-session-id": self._session} if self._session else HEADERS
        async with self._client.post(self._url, json=message, headers=headers) as response:
            assert response.status < 400, await response.text()
            self._session = response.headers.get("mcp-session-id", self._session)
            text = await response.text()
        if response.content_type == "text/event-stream":
            text = next(line[5:] for line in text.splitlines() if line.startswith("data:") and '"id"' in line)
        return json.loads(text) if text.strip() else None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def compare(
    parties: list[Party],
    ready: Callable[[Party], Coroutine[Any, Any, None]],
    call: Callable[[Party], Coroutine[Any, Any, None]],
    options: argparse.Namespace,
) -> None:
    async with aiohttp.ClientSession() as client:
        with contextlib.ExitStack() as stack:
            for party in parties:
                stack.callback(party.stop)
                await party.start(client, ready)
            for party in parties:
                for _ in range(20):
                    await call(party)
            for _ in range(options.rounds):
                for party in parties:
                    started = time.perf_counter()
                    for _ in range(options.calls):
                        await call(party)
                    party.times.append((time.perf_counter() - started) / options.calls * 1e3)
    medians = {party.name: statistics.median(party.times) for party in parties}
    compared(TITLES[call.__name__], "ms", medians)
    own = statistics.median(parties[0].times)
    for party in parties:
        median = statistics.median(party.times)
        print(f"  {party.name:22}{median:8.3f} ms a call   x{median / own:.2f}")


async def upstream() -> tuple[web.AppRunner, str]:
    async def emojis(request: web.Request) -> web.Response:
        return web.json_response({"+1": "https://a.example/1.png"})

    app = web.Application()
    app.router.add_get("/emojis", emojis)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def large_api(options: argparse.Namespace) -> None:
    if not GITHUB.exists():
        print("GitHub's document is not there: npm install --prefix tests/peers/prism")
        return
    print("GitHub's API as an MCP server")
    runner, base = await upstream()
    with tempfile.TemporaryDirectory() as folder:
        document = os.path.join(folder, "github.json")
        Path(document).write_text(json.dumps({**json.loads(GITHUB.read_text()), "servers": [{"url": base}]}))
        own = [OPERAD, "serve", "--http", "127.0.0.1:PORT", "--openapi", document, "--base-url", base]
        parties = [Party("operad", own, "/mcp", {"name": "call", "arguments": {"id": options.id, "input": {}}})]
        named: dict[str, Any] = {"name": "emojis_get", "arguments": {}}
        if FASTMCP.exists():
            command = [str(FASTMCP), "-c", FASTMCP_SERVER, "PORT", document, base]
            parties.append(Party("FastMCP", command, "/mcp", dict(named)))
        if GATEWAY.exists():
            command = [str(GATEWAY), "--spec", document, "--host", "127.0.0.1", "--port", "PORT"]
            parties.append(Party("openapi-mcp-gateway", command, "/api/mcp", dict(named)))
        try:
            await compare(parties, Party.lists, Party.tool, options)
        finally:
            await runner.cleanup()


async def mcp_server(options: argparse.Namespace) -> None:
    if not EVERYTHING.exists():
        print("the everything server is not there: npm install --prefix tests/peers/mcp")
        return
    print("\nan MCP server as an HTTP API")
    server = ["node", str(EVERYTHING), "stdio"]
    own = [OPERAD, "serve", "--http", "127.0.0.1:PORT", "--mcp-server", " ".join(server)]
    text = {"message": "hello"}
    parties = [Party("operad", own, f"/operations/{options.echo}", text)]
    if MCPO.exists():
        parties.append(
            Party("mcpo", [str(MCPO), "--host", "127.0.0.1", "--port", "PORT", "--", *server], "/echo", text)
        )
    await compare(parties, Party.documented, Party.post, options)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--id", default="github.emojis/get", help=argparse.SUPPRESS)
    parser.add_argument("--echo", default="mcp.echo", help=argparse.SUPPRESS)
    options = parser.parse_args()
    await large_api(options)
    await mcp_server(options)


if __name__ == "__main__":
    asyncio.run(main())

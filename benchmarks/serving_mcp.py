"""A call to a served registry beside a bare server of the SDK, and FastMCP where it is; and 2,000 tools listed.

    python benchmarks/serving_mcp.py [--rounds 7] [--calls 150]

Each party is a process of its own with one tool, ``add``, over HTTP; one keep-alive connection calls each in turn,
round by round. The table has the median over the rounds, and its ratio to the bare server of the same generation
and response mode. FastMCP runs in ``tests/peers/mcp/.venv``, where that has been made.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from results import compared

from operad import OperationRegistry, OperationSpec, load_plugins
from operad_mcp import to_mcp

OURS = """
import sys, uvicorn
from operad import OperationRegistry, operation
from operad_mcp import to_mcp

@operation(namespace="m", type="query")
async def add(a: int, b: int) -> dict[str, int]:
    return {"result": a + b}

registry = OperationRegistry()
registry.register(add)
app = to_mcp(registry, names="name", json_response=sys.argv[2] == "json").asgi()
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""
BARE = """
import sys, uvicorn, mcp_types as t
from mcp.server.lowlevel import Server

number = {"type": "integer"}
schema = {"type": "object", "required": ["a", "b"], "properties": {"a": number, "b": number}}
tool = t.Tool(name="add", input_schema=schema, output_schema={"type": "object", "properties": {"result": number}})

async def listed(ctx, params):
    return t.ListToolsResult(tools=[tool], ttl_ms=0, cache_scope="private")

async def call(ctx, params):
    total = params.arguments["a"] + params.arguments["b"]
    text = t.TextContent(type="text", text=str(total))
    return t.CallToolResult(content=[text], structured_content={"result": total})

server = Server("b", on_list_tools=listed, on_call_tool=call, get_tool_input_schema={}.get)
app = server.streamable_http_app(json_response=sys.argv[2] == "json")
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""
FASTMCP = """
import sys
from fastmcp import FastMCP

server = FastMCP("f")

@server.tool
def add(a: int, b: int) -> dict[str, int]:
    return {"result": a + b}

json = sys.argv[2] == "json"
server.run("http", port=int(sys.argv[1]), show_banner=False, log_level="error", json_response=json)
"""
PEERS = Path(__file__).parents[1] / "tests/peers/mcp/.venv/bin/python"


class Party:
    """A server in a process of its own, and one connection to it."""

    def __init__(self, python: str, code: str, handshake: bool, mode: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [python, "-c", code, str(self._port), mode], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._handshake = handshake
        self._session = ""

    async def up(self) -> None:
        """Wait until it listens. All are waited for before the first is used: an idle connection is closed."""
        for _ in range(300):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        if self._handshake:
            info = {"name": "c", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            await self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self) -> None:
        params: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
        if not self._handshake:
            prefix = "io.modelcontextprotocol/"
            params["_meta"] = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
        body = await self._post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert b'"result":3' in body.replace(b" ", b""), body

    async def _post(self, message: Any) -> bytes:
        body = json.dumps(message).encode()
        version = "2025-11-25" if self._handshake else "2026-07-28"
        lines = [
            "POST /mcp HTTP/1.1", f"host: 127.0.0.1:{self._port}", "content-type: application/json",
            "accept: application/json, text/event-stream", f"content-length: {len(body)}",
            f"mcp-protocol-version: {version}", self._session,
            f"mcp-method: {message['method']}", "mcp-name: add",
        ]  # fmt: skip
        head = "\r\n".join(line for line in lines if line)
        self._writer.write(f"{head}\r\n\r\n".encode() + body)
        headers = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        if "mcp-session-id: " in headers:
            self._session = "mcp-session-id: " + headers.split("mcp-session-id: ")[1].split("\r\n")[0]
        if "content-length: " in headers:
            return await self._reader.readexactly(int(headers.split("content-length: ")[1].split("\r\n")[0]))
        received = b""
        while (size := int(await self._reader.readline(), 16)) or not received:
            received += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()
        return received

    def close(self) -> None:
        self._writer.close()
        self._process.terminate()
        self._process.wait()


async def compare(handshake: bool, mode: str, rounds: int, calls: int) -> None:
    parties = {"bare server of the SDK": Party(sys.executable, BARE, handshake, mode)}
    parties["operad"] = Party(sys.executable, OURS, handshake, mode)
    if PEERS.exists():
        parties["FastMCP"] = Party(str(PEERS), FASTMCP, handshake, mode)
    times: dict[str, list[float]] = {name: [] for name in parties}
    try:
        for party in parties.values():
            await party.up()
        for party in parties.values():
            await party.open()
            for _ in range(20):
                await party.call()
        for _ in range(rounds):
            for name, party in parties.items():
                started = time.perf_counter()
                for _ in range(calls):
                    await party.call()
                times[name].append((time.perf_counter() - started) / calls * 1e3)
    finally:
        for party in parties.values():
            party.close()
    floor = statistics.median(times["bare server of the SDK"])
    medians = {name: statistics.median(values) for name, values in times.items()}
    compared(f"A call to an MCP server, {mode}, {'handshake' if handshake else '2026-07-28'}", "ms", medians)
    print(f"\n{'handshake' if handshake else '2026-07-28'}, {mode}: ms a call")
    for name, values in times.items():
        print(f"  {name:26} {statistics.median(values):7.3f}  x{statistics.median(values) / floor:.2f}")


def many(count: int) -> OperationRegistry:
    """A registry of as many operations, each of which has a dozen fields."""

    async def nothing(input: Any, context: Any) -> None: ...

    registry = OperationRegistry()
    fields = {f"field{n}": {"type": "string", "description": "What this field is for."} for n in range(10)}
    for number in range(count):
        schema = {"type": "object", "properties": {**fields, f"own{number}": {"type": "integer"}}}
        spec = OperationSpec(namespace="m", name=f"tool{number:05}", input_schema=schema, description="Does it.")
        registry.register(spec, nothing)
    return registry


async def list_all(registry: OperationRegistry) -> None:
    """List the tools of a registry in pages; the longest step of the loop is how long others wait."""
    steps: list[float] = []

    async def tick() -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0)
            steps.append(time.perf_counter() - started)

    app: Any = to_mcp(registry, tools="all").asgi()
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/list",
    }
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
        await client.get("/mcp", headers=headers)  # starts it
        # As `operad serve` does: what was loaded is not looked through again while it is served.
        gc.collect()
        gc.freeze()
        ticking = asyncio.ensure_future(tick())
        for turn in ("first", "second"):
            await asyncio.sleep(0)
            steps.clear()
            started, cursor, pages = time.perf_counter(), {}, 0
            while pages == 0 or cursor["cursor"]:
                params = {"_meta": meta, **cursor}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
                answer = await client.post("/mcp", json=body, headers=headers)
                cursor, pages = {"cursor": answer.json()["result"].get("nextCursor")}, pages + 1
            took = (time.perf_counter() - started) * 1e3
            worst = ", ".join(f"{step * 1e3:.1f}" for step in sorted(steps)[:-4:-1])
            print(f"  {turn} time: {pages} pages, {took:.0f} ms, longest steps of the loop: {worst} ms")
        ticking.cancel()
    await app.aclose()
    gc.unfreeze()


async def list_documents(folder: str) -> None:
    """The same for the tools of large APIs."""
    for name in ("github", "stripe"):
        found = sorted(Path(folder, "specs").glob(f"{name}*.json"))
        if not found:
            continue
        async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
            await registry.load("openapi", namespace=name, spec=str(found[0]), base_url="http://127.0.0.1:9")
            print(f"\n{len(registry)} tools of {found[0].name}")
            await list_all(registry)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--listing", action="store_true", help="the listing alone")
    options = parser.parse_args()
    for handshake in () if options.listing else (True, False):
        for mode in ("sse", "json"):
            await compare(handshake, mode, options.rounds, options.calls)
    print("\n2,000 tools in pages of 100, client and server in one process")
    await list_all(many(2_000))
    if folder := os.environ.get("OPERAD_DOCUMENTS"):
        await list_documents(folder)


if __name__ == "__main__":
    asyncio.run(main())

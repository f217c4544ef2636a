"""Calls to MCP servers beside the raw session of the SDK, and connecting many servers beside one by one.

    python benchmarks/mcp_clients.py [--rounds 5] [--calls 500] [--servers 10]

Each round measures all parties one after the other, on one server each; the table has the median of the rounds
and its ratio to the raw `ClientSession.call_tool`, in wall time and in CPU time of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

SERVER = """
import asyncio
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
asyncio.run(server.run_stdio_async() if {port} == 0 else server.run_streamable_http_async(port={port}))
"""
# A server that costs little itself, so that the ratio is the clients'.
THIN = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        info = {"name": "t", "version": "1"}
        r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif m.get("method") == "tools/list":
        r = {"tools": [{"name": "add", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}]}
    elif m.get("method") == "tools/call":
        r = {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""
Call = Callable[[], Awaitable[Any]]


async def measure(call: Call, calls: int, concurrency: int) -> tuple[float, float]:
    """Milliseconds per call, and those of them that this process computed."""
    for _ in range(20):
        await call()
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call()

    started, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return (time.perf_counter() - started) / calls * 1000, (time.process_time() - computed) / calls * 1000


async def raw(stack: AsyncExitStack, code: str, port: int) -> Call:
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    transport: Any = (
        streamable_http_client(f"http://127.0.0.1:{port}/mcp")
        if port
        else stdio_client(StdioServerParameters(command=sys.executable, args=["-c", code]))
    )
    read, write = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    await session.list_tools()
    return lambda: session.call_tool("add", {"a": 1, "b": 2})


async def ours(stack: AsyncExitStack, code: str, port: int) -> Call:
    from operad import OperationRegistry, load_plugins

    registry = await stack.enter_async_context(OperationRegistry(load_plugins(only=["mcp"])))
    place = {"url": f"http://127.0.0.1:{port}/mcp"} if port else {"command": sys.executable, "args": ["-c", code]}
    await registry.load("mcp", namespace="s", mode="legacy", **place)
    return lambda: registry.execute("s.add", {"a": 1, "b": 2})


async def calls(name: str, code: str, port: int, rounds: int, count: int) -> None:
    for concurrency in (1, 64):
        figures: dict[str, list[tuple[float, float]]] = {"raw": [], "operad": []}
        for number in range(rounds):
            parties = [("raw", raw), ("operad", ours)]
            for party, make in parties if number % 2 else parties[::-1]:
                async with AsyncExitStack() as stack:
                    figures[party].append(await measure(await make(stack, code, port), count, concurrency))
        line = f"{name:19} {concurrency:3} at once"
        for place, what in enumerate(("ms", "ms of CPU")):
            medians = [statistics.median(each[place] for each in figures[party]) for party in ("raw", "operad")]
            line += f"   raw {medians[0]:6.3f}, operad {medians[1]:6.3f} {what}: {medians[1] / medians[0]:.2f}"
        print(line, flush=True)


async def connecting(servers: int, rounds: int) -> None:
    import mcp.client  # noqa: F401  # its 400 ms are not the servers'

    from operad_mcp import MCPClientConfig, MCPClientLoader

    code = SERVER.format(port=0)
    configs = {f"s{n}": MCPClientConfig(command=sys.executable, args=["-c", code]) for n in range(servers)}
    one_by_one, together = [], []
    for _ in range(rounds):
        loader = MCPClientLoader()
        started = time.perf_counter()
        for name, config in configs.items():
            await loader.load({name: config}, strict=True)
        one_by_one.append(time.perf_counter() - started)
        await loader.close_all()
        started = time.perf_counter()
        await loader.load(configs, strict=True)
        together.append(time.perf_counter() - started)
        await loader.close_all()
    first, second = statistics.median(one_by_one), statistics.median(together)
    print(
        f"connect {servers} servers: one by one {first:.2f} s, together {second:.2f} s, ratio {second / first:.2f}"
    )


def imports() -> None:
    heavy = "{'mcp', 'mcp_types', 'pydantic', 'httpx2'}"
    code = f"import sys, operad; operad.load_plugins(); print(sorted({heavy} & {{*sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    print(f"imported by load_plugins, of mcp, mcp_types, pydantic, httpx2: {loaded.strip()}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--servers", type=int, default=10)
    options = parser.parse_args()
    imports()
    await connecting(options.servers, min(options.rounds, 3))
    await calls("stdio, thin server", THIN, 0, options.rounds, options.calls)
    await calls("stdio, SDK server", SERVER.format(port=0), 0, options.rounds, options.calls)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(port=port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.05)
        await calls("HTTP, SDK server", "", port, options.rounds, options.calls)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    asyncio.run(main())

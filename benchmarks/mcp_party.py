"""One client library under test, in a process of its own: ``python mcp_party.py LIBRARY``.

Reads commands as JSON lines and answers each with one: ``["ready"]``, ``["open", server]``,
``["call", tool, times, at_once]``, ``["shut"]``, ``["many", servers]``. A server is ``{"command", "args"}`` or
``{"url"}``; times are seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

Json = dict[str, Any]
Call = Callable[[str], Awaitable[Any]]
INPUT = {"a": 1, "b": 2}


class Operad:
    """operad, each server a source of a registry."""

    def __init__(self) -> None:
        from operad import OperationRegistry, load_plugins

        self._registry, self._plugins = OperationRegistry, load_plugins(only=["mcp"])

    async def open(self, stack: AsyncExitStack, server: Json) -> Call:
        registry = await stack.enter_async_context(self._registry(self._plugins))
        await registry.load("mcp", namespace="s", **server)
        return lambda tool: registry.execute(f"s.{tool}", INPUT)

    async def many(self, stack: AsyncExitStack, servers: list[Json]) -> int:
        registry = await stack.enter_async_context(self._registry(self._plugins))
        loading = (registry.load("mcp", namespace=f"s{number}", **one) for number, one in enumerate(servers))
        return sum(map(len, await asyncio.gather(*loading)))


class FromMCP:
    """operad without a registry; of the start alone, for its calls are those of `Operad`."""

    def __init__(self) -> None:
        from operad_mcp import from_mcp

        self._from_mcp = from_mcp

    async def many(self, stack: AsyncExitStack, servers: list[Json]) -> int:
        opened = await asyncio.gather(*(self._from_mcp(f"s{number}", **one) for number, one in enumerate(servers)))
        for client in opened:
            await stack.enter_async_context(client)
        return sum(len(client.tools) for client in opened)


class SDK:
    """The client of the Python SDK."""

    def __init__(self) -> None:
        import mcp

        self._mcp = mcp

    def _client(self, server: Json) -> Any:
        return self._mcp.Client(server["url"] if "url" in server else self._mcp.StdioServerParameters(**server))

    async def open(self, stack: AsyncExitStack, server: Json) -> Call:
        client = await stack.enter_async_context(self._client(server))
        await client.list_tools()
        return lambda tool: client.call_tool(tool, INPUT)

    async def many(self, stack: AsyncExitStack, servers: list[Json]) -> int:
        """Each in a task of its own, as its cancel scopes want it."""
        ended, counts = asyncio.Event(), asyncio.Queue[int]()

        async def one(server: Json) -> None:
            async with self._client(server) as client:
                counts.put_nowait(len((await client.list_tools()).tools))
                await ended.wait()

        tasks = [asyncio.create_task(one(server)) for server in servers]

        async def end() -> None:
            ended.set()
            await asyncio.gather(*tasks)

        stack.push_async_callback(end)
        return sum([await counts.get() for _ in tasks])


class FastMCP:
    """The client of FastMCP."""

    def __init__(self) -> None:
        import fastmcp

        self._client = fastmcp.Client

    async def open(self, stack: AsyncExitStack, server: Json) -> Call:
        client = await stack.enter_async_context(self._client({"mcpServers": {"s": server}}))
        await client.list_tools()
        return lambda tool: client.call_tool(tool, INPUT)

    async def many(self, stack: AsyncExitStack, servers: list[Json]) -> int:
        named = {f"s{number}": server for number, server in enumerate(servers)}
        client = await stack.enter_async_context(self._client({"mcpServers": named}))
        return len(await client.list_tools())


class LangChain:
    """langchain-mcp-adapters, with a session that is kept."""

    def __init__(self) -> None:
        from langchain_mcp_adapters.client import MultiServerMCPClient
        from langchain_mcp_adapters.tools import load_mcp_tools

        self._client, self._load = MultiServerMCPClient, load_mcp_tools

    def _named(self, servers: list[Json]) -> Any:
        kinds = [{"transport": "streamable_http" if "url" in server else "stdio", **server} for server in servers]
        return self._client({f"s{number}": kind for number, kind in enumerate(kinds)})

    async def open(self, stack: AsyncExitStack, server: Json) -> Call:
        session = await stack.enter_async_context(self._named([server]).session("s0"))
        tools = {tool.name: tool for tool in await self._load(session)}
        return lambda tool: tools[tool].ainvoke(INPUT)

    async def many(self, stack: AsyncExitStack, servers: list[Json]) -> int:
        return len(await self._named(servers).get_tools())


class UTCP:
    """UTCP's client with its MCP plugin."""

    def __init__(self) -> None:
        import logging

        from utcp.utcp_client import UtcpClient

        logging.disable(logging.CRITICAL)
        self._client = UtcpClient

    async def _made(self, servers: list[Json]) -> Any:
        kinds = [{"transport": "http" if "url" in server else "stdio", **server} for server in servers]
        named = {f"s{number}": kind for number, kind in enumerate(kinds)}
        template = {"name": "m", "call_template_type": "mcp", "config": {"mcpServers": named}}
        return await self._client.create(config={"manual_call_templates": [template]})

    async def open(self, stack: AsyncExitStack, server: Json) -> Call:
        client = await self._made([server])
        names = {
            tool.name.rpartition(".")[2]: tool.name for tool in await client.config.tool_repository.get_tools()
        }
        return lambda tool: client.call_tool(names[tool], INPUT)

    async def many(self, stack: AsyncExitStack, servers: list[Json]) -> int:
        client = await self._made(servers)
        return len(await client.config.tool_repository.get_tools())


PARTIES = {
    "operad": Operad,
    "from_mcp": FromMCP,
    "sdk": SDK,
    "fastmcp": FastMCP,
    "langchain": LangChain,
    "utcp": UTCP,
}


async def called(call: Call, tool: str, times: int, at_once: int) -> tuple[float, float]:
    """Seconds of wall time and of processor time per call."""
    left = iter(range(times))

    async def worker() -> None:
        for _ in left:
            await call(tool)

    started, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return (time.perf_counter() - started) / times, (time.process_time() - computed) / times


async def main(name: str, out: Any) -> None:
    party: Any = PARTIES[name]()
    stack, call = AsyncExitStack(), None
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order, *arguments = json.loads(line)
        answer: Any = None
        try:
            if order == "open":
                call = await party.open(stack, *arguments)
            elif order == "call":
                answer = await called(call, *arguments)
            elif order == "many":
                async with AsyncExitStack() as opened:
                    started, computed = time.perf_counter(), time.process_time()
                    found = await party.many(opened, *arguments)
                    ended = time.perf_counter()
                    whole, most = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                    answer = ended - started, whole - computed, found, time.time(), whole, most / 1024
            elif order == "shut":
                await stack.aclose()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:200]
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(main(sys.argv[1], answers))
    os._exit(0)  # what a library leaves behind holds nobody up

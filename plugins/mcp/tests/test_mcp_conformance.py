"""operad-mcp against the conformance kit, with a server of the SDK in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

from operad import OperationRegistry
from operad_mcp import mcp_envelope
from operad_testing import (
    EnvelopeKindCapabilities,
    EnvelopeKindConformance,
    Example,
    PluginConformance,
    SourceCapabilities,
    SourceConformance,
)


def loft() -> MCPServer:
    """A server whose tools change, and whose resource is touched."""
    server = MCPServer("loft")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def lose() -> str:
        raise ValueError("a hawk")

    @server.tool()
    async def sleep() -> str:
        await asyncio.sleep(60)
        return "slept"

    @server.tool()
    async def grow(context: Context) -> str:
        def grown() -> str:
            return "grown"

        server.add_tool(grown, "grown")
        await context.notify_tools_changed()
        await context.session.send_tool_list_changed()
        return "grew"

    @server.tool()
    async def touch(context: Context) -> str:
        await context.notify_resource_updated("loft://one")
        return "touched"

    @server.resource("loft://one")
    def one() -> str:
        return "one"

    return server


class TestMCP(SourceConformance):
    source = "mcp"
    capabilities = SourceCapabilities(subscriptions=True, error_envelopes=True, changes=True, envelope_kind="mcp")
    example = Example("add", {"a": 1, "b": 2}, data={"result": 3})
    invalid = Example("add", {"a": "one", "b": 2})
    stream = Example("resources.subscribe", {"uri": "loft://one"}, data=[{"uri": "loft://one"}])
    failing = Example("resources.read", {"uri": "loft://two"}, error="EXECUTION_ERROR")
    error_envelope = Example("lose")
    slow = Example("sleep")
    broken = ({"server": None}, {"server": None, "command": "/no/such/program"}, {"timeout": "long"})

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"server": loft(), "mode": "2026-07-28"}

    async def change(self, registry: OperationRegistry) -> None:
        while "conformance.grown" not in registry:  # changes come only once the server has heard the listener
            await registry.execute("conformance.grow")
            await asyncio.sleep(0.1)

    async def stir(self, registry: OperationRegistry) -> None:
        while True:
            await asyncio.sleep(0.1)
            await registry.execute("conformance.touch")


class TestMCPEnvelope(EnvelopeKindConformance):
    kind_source = "mcp"
    capabilities = EnvelopeKindCapabilities(errors=True)
    examples = (
        mcp_envelope(None).meta,
        mcp_envelope(
            1,
            content=[{"type": "text", "text": "one"}],
            structured_content=None,
            meta={"a": 1},
            protocol_version="2025-11-25",
            server={"name": "loft", "version": "1"},
        ).meta,
    )
    error_examples = (mcp_envelope(None, is_error=True, content=[{"type": "text", "text": "no"}]).meta,)


class TestPlugin(PluginConformance):
    distribution = "operad-mcp"
    contributes = {"sources": ["mcp"], "envelope_kinds": ["mcp"], "servers": ["mcp"], "hooks": ["operad_commands"]}
    light = ("msgspec", "typing_extensions")  # for UNSET in the meta; operad itself needs it for schemas of kinds

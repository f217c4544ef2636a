"""operad-mcp against the conformance kit, with a server of the SDK in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer

from operad.testing import (
    EnvelopeKindCapabilities,
    EnvelopeKindConformance,
    Example,
    PluginConformance,
    SourceCapabilities,
    SourceConformance,
)
from operad_mcp import mcp_envelope


def loft() -> MCPServer:
    """A server with three tools."""
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

    return server


class TestMCP(SourceConformance):
    source = "mcp"
    capabilities = SourceCapabilities(errors=False, error_envelopes=True, envelope_kind="mcp")
    example = Example("add", {"a": 1, "b": 2}, data={"result": 3})
    invalid = Example("add", {"a": "one", "b": 2})
    error_envelope = Example("lose")
    slow = Example("sleep")
    broken = ({"server": None}, {"server": None, "command": "/no/such/program"}, {"timeout": "long"})

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        yield {"server": loft()}


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
    contributes = {"sources": ["mcp"], "envelope_kinds": ["mcp"]}

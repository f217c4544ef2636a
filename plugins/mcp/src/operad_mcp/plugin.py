"""The entry point: what this distribution contributes."""

from __future__ import annotations

from operad.plugin import EnvelopeKind, Server, Source, hookimpl


@hookimpl
def operad_envelope_kinds() -> list[EnvelopeKind]:
    """The envelope kind ``mcp``."""
    from operad_mcp.envelopes import KIND

    return [KIND]


@hookimpl
def operad_sources() -> list[Source]:
    """The source ``mcp``."""
    from operad_mcp.source import MCPSourceConfig, load, login

    return [Source("mcp", load, MCPSourceConfig, "An MCP server, or a file of them.", login)]


@hookimpl
def operad_servers() -> list[Server]:
    """The server ``mcp``."""
    from operad_mcp.serving import MCPServeConfig, app, serve

    return [Server("mcp", serve, MCPServeConfig, app, "/mcp")]

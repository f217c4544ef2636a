"""The plugin of operad-mcp: an envelope kind, a source, a command and a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operad.plugin import EnvelopeKind, Server, Source, hookimpl

if TYPE_CHECKING:
    from operad.plugin import Login, SourceContext, SourceSession
    from operad_mcp.server.http import MCPApplication


@hookimpl
def operad_envelope_kinds() -> list[EnvelopeKind]:
    """Return the envelope kind ``mcp``, for the responses of MCP servers."""
    from operad_mcp.envelopes import KIND

    return [KIND]


@hookimpl
def operad_sources() -> list[Source]:
    """Return the source ``mcp``, which loads the operations of MCP servers."""
    return [Source("mcp", _load, _source_config, "An MCP server, or a file of them.", _login)]


@hookimpl
def operad_commands(cli: Any) -> None:
    """Add the command ``operad pin``."""
    from operad_mcp.command import pin

    cli.add_command(pin)


@hookimpl
def operad_servers() -> list[Server]:
    """Return the server ``mcp``, which serves a registry as an MCP server."""
    return [Server("mcp", _serve, _server_config, _app, "/mcp")]


# Each imports what it needs when it is called, because finding plugins uses none of it.


def _source_config() -> type[Any]:
    from operad_mcp.source import MCPSourceConfig

    return MCPSourceConfig


async def _load(config: Any, context: SourceContext) -> SourceSession:
    from operad_mcp.source import load

    return await load(config, context)


async def _login(config: Any, context: SourceContext, account: str | None) -> Login:
    from operad_mcp.source import login

    return await login(config, context, account)


def _server_config() -> type[Any]:
    from operad_mcp.serving import MCPServeConfig

    return MCPServeConfig


async def _serve(registry: Any, config: Any) -> None:
    from operad_mcp.serving import serve

    await serve(registry, config)


def _app(registry: Any, config: Any) -> MCPApplication:
    from operad_mcp.serving import app

    return app(registry, config)

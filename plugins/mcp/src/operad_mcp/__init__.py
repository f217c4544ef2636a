"""MCP servers as operad operations.

The SDK (`mcp`) costs 400 ms to import: only serving, logins and server objects in memory import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_mcp.asking import CallClient, ClientOfCall, client_of
    from operad_mcp.client.servers import (
        MCPClientLoader,
        MCPClientWrapper,
        close_mcp_client,
        create_mcp_client,
        from_mcp,
    )
    from operad_mcp.config import (
        MCPArgument,
        MCPAuth,
        MCPCall,
        MCPClientConfig,
        MCPExtras,
        MCPProgress,
        MCPTask,
        MCPTool,
    )
    from operad_mcp.content import (
        Annotations,
        AudioContent,
        ContentBlock,
        ImageContent,
        ResourceContent,
        ResourceLinkContent,
        TextContent,
        map_mcp_content_blocks,
    )
    from operad_mcp.envelopes import MCPResponseMeta, mcp_envelope
    from operad_mcp.hosts.files import load_mcp_servers
    from operad_mcp.serving import MCPServeConfig, MCPServing, to_mcp

# Imported when first used: whoever has this plugin installed imports this package, most for its entry point alone.
_MODULES = {
    "Annotations": "content",
    "AudioContent": "content",
    "CallClient": "asking",
    "ClientOfCall": "asking",
    "ContentBlock": "content",
    "ImageContent": "content",
    "MCPArgument": "config",
    "MCPAuth": "config",
    "MCPCall": "config",
    "MCPClientConfig": "config",
    "MCPClientLoader": "client.servers",
    "MCPClientWrapper": "client.servers",
    "MCPExtras": "config",
    "MCPProgress": "config",
    "MCPResponseMeta": "envelopes",
    "MCPServeConfig": "serving",
    "MCPServing": "serving",
    "MCPTask": "config",
    "MCPTool": "config",
    "ResourceContent": "content",
    "ResourceLinkContent": "content",
    "TextContent": "content",
    "client_of": "asking",
    "close_mcp_client": "client.servers",
    "create_mcp_client": "client.servers",
    "from_mcp": "client.servers",
    "load_mcp_servers": "hosts.files",
    "map_mcp_content_blocks": "content",
    "mcp_envelope": "envelopes",
    "to_mcp": "serving",
}

__all__ = [
    "Annotations",
    "AudioContent",
    "CallClient",
    "ClientOfCall",
    "ContentBlock",
    "ImageContent",
    "MCPArgument",
    "MCPAuth",
    "MCPCall",
    "MCPClientConfig",
    "MCPClientLoader",
    "MCPClientWrapper",
    "MCPExtras",
    "MCPProgress",
    "MCPResponseMeta",
    "MCPServeConfig",
    "MCPServing",
    "MCPTask",
    "MCPTool",
    "ResourceContent",
    "ResourceLinkContent",
    "TextContent",
    "client_of",
    "close_mcp_client",
    "create_mcp_client",
    "from_mcp",
    "load_mcp_servers",
    "map_mcp_content_blocks",
    "mcp_envelope",
    "to_mcp",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"operad_mcp.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

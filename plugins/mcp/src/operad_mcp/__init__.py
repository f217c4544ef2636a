"""MCP servers as operad operations.

The SDK (`mcp`) costs 400 ms to import: it is imported when the first server is connected, never before.
"""

from operad_mcp.blocks import (
    Annotations,
    AudioContent,
    ContentBlock,
    ImageContent,
    ResourceContent,
    ResourceLinkContent,
    TextContent,
    map_mcp_content_blocks,
)
from operad_mcp.client import MCPClientWrapper, close_mcp_client, create_mcp_client
from operad_mcp.config import MCPAuth, MCPClientConfig, MCPProgress, load_mcp_servers
from operad_mcp.envelopes import MCPResponseMeta, mcp_envelope
from operad_mcp.loader import MCPClientLoader, from_mcp

__all__ = [
    "Annotations",
    "AudioContent",
    "ContentBlock",
    "ImageContent",
    "MCPAuth",
    "MCPClientConfig",
    "MCPClientLoader",
    "MCPClientWrapper",
    "MCPProgress",
    "MCPResponseMeta",
    "ResourceContent",
    "ResourceLinkContent",
    "TextContent",
    "close_mcp_client",
    "create_mcp_client",
    "from_mcp",
    "load_mcp_servers",
    "map_mcp_content_blocks",
    "mcp_envelope",
]

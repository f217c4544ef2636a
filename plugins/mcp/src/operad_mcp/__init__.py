"""MCP servers as operad operations, and operad operations as an MCP server.

The SDK (`mcp`) takes 400 ms to import. It is imported only to serve, for ``auth`` other than a bearer token, for
server objects in this process, and for tools whose arguments are sent as HTTP headers.
"""

from operad.lazy import lazily

# Lazily: finding the plugin imports this package. Type checkers read __init__.pyi.
_HOMES = {
    "operad_mcp.asking": "CallClient ClientOfCall client_of",
    "operad_mcp.client.servers": "MCPClientLoader MCPClientWrapper close_mcp_client create_mcp_client from_mcp",
    "operad_mcp.config": "MCPArgument MCPAuth MCPCall MCPClientConfig MCPExtras MCPProgress MCPTask MCPTool",
    "operad_mcp.content": (
        "Annotations AudioContent ContentBlock ImageContent "
        "ResourceContent ResourceLinkContent TextContent map_mcp_content_blocks"
    ),
    "operad_mcp.envelopes": "MCPResponseMeta mcp_envelope",
    "operad_mcp.hosts.files": "load_mcp_servers",
    "operad_mcp.serving": "MCPServeConfig MCPServing to_mcp",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

"""MCP servers as operad operations.

The SDK (`mcp`) takes 400 ms to import. Only serving, logins and server objects in memory import it.
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

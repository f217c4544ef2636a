# Written by tools/references.py from the table in __init__.py.

from operad_mcp.asking import CallClient as CallClient
from operad_mcp.asking import ClientOfCall as ClientOfCall
from operad_mcp.asking import client_of as client_of
from operad_mcp.client.servers import MCPClientLoader as MCPClientLoader
from operad_mcp.client.servers import MCPClientWrapper as MCPClientWrapper
from operad_mcp.client.servers import close_mcp_client as close_mcp_client
from operad_mcp.client.servers import create_mcp_client as create_mcp_client
from operad_mcp.client.servers import from_mcp as from_mcp
from operad_mcp.config import MCPArgument as MCPArgument
from operad_mcp.config import MCPAuth as MCPAuth
from operad_mcp.config import MCPCall as MCPCall
from operad_mcp.config import MCPClientConfig as MCPClientConfig
from operad_mcp.config import MCPExtras as MCPExtras
from operad_mcp.config import MCPProgress as MCPProgress
from operad_mcp.config import MCPTask as MCPTask
from operad_mcp.config import MCPTool as MCPTool
from operad_mcp.content import Annotations as Annotations
from operad_mcp.content import AudioContent as AudioContent
from operad_mcp.content import ContentBlock as ContentBlock
from operad_mcp.content import ImageContent as ImageContent
from operad_mcp.content import ResourceContent as ResourceContent
from operad_mcp.content import ResourceLinkContent as ResourceLinkContent
from operad_mcp.content import TextContent as TextContent
from operad_mcp.content import map_mcp_content_blocks as map_mcp_content_blocks
from operad_mcp.envelopes import MCPResponseMeta as MCPResponseMeta
from operad_mcp.envelopes import mcp_envelope as mcp_envelope
from operad_mcp.hosts.files import load_mcp_servers as load_mcp_servers
from operad_mcp.serving import MCPServeConfig as MCPServeConfig
from operad_mcp.serving import MCPServing as MCPServing
from operad_mcp.serving import to_mcp as to_mcp

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

"""An MCP server on standard streams: an outbox that sends nothing."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("mail")
outbox: list[str] = []


@server.tool()
def send(sender: str, to: str, subject: str) -> str:
    """Send a mail."""
    outbox.append(f"from {sender} to {to}: {subject}")
    return outbox[-1]


@server.tool()
def sent() -> list[str]:
    """Return the mails that were sent."""
    return outbox


if __name__ == "__main__":
    server.run()

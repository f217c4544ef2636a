"""An MCP server on standard streams: the time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from mcp.server.mcpserver import MCPServer

server = MCPServer("clock")


@server.tool()
def now(utc_offset: float = 0) -> str:
    """Return the current time, with an offset from UTC in hours."""
    return datetime.now(UTC).astimezone(timezone(timedelta(hours=utc_offset))).isoformat(timespec="seconds")


if __name__ == "__main__":
    server.run()

"""Logins at MCP servers: OAuth, and where tokens are kept."""

"""Connections to MCP servers: transports, messages, sessions."""

"""MCP servers as a source of operations: clients, and the makers of operations."""

"""MCP servers as a source of operations: clients, and the conversion of what servers offer."""

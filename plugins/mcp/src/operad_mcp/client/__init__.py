"""What MCP servers offer, as operations."""

"""The clients of MCP servers, and the conversion of tools, resources and prompts to operations."""

"""The authentication at MCP servers: OAuth, and the storage of tokens."""

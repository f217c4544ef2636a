"""The reader of files that list MCP servers, as MCP hosts such as editors write them."""

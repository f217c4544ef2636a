"""The demo: an HTTP API, an MCP server and a folder of functions in one registry."""

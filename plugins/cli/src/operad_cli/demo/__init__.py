"""The demo, which loads an HTTP API, an MCP server and a folder of functions into one registry."""

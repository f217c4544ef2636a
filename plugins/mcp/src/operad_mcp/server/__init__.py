"""The implementation of `operad_mcp.serving`. Its modules need the SDK, unless they state otherwise."""

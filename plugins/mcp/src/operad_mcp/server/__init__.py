"""The implementation of `operad_mcp.serving`. Its modules import the SDK, unless they state otherwise."""

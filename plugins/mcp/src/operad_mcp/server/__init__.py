"""What `operad_mcp.serving` is made of. Its modules need the SDK, unless they say not."""

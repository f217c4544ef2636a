"""The reader of the files in which MCP hosts keep their servers."""

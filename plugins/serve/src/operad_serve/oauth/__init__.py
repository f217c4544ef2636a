"""The front door as an OAuth 2.1 authorization server for MCP hosts and browsers: ``[serve.oauth]``."""

"""Send requests: sessions, redirects, credentials, and responses as values or errors."""

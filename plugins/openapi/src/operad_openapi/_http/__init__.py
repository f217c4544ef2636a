"""Send requests and read responses: sessions, redirects, credentials, limits and errors."""

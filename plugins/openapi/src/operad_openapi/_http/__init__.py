"""Requests over connections: sessions, redirects, credentials, and answers as values or errors."""

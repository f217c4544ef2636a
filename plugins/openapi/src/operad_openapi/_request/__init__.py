"""From an input to a request: everything that does not need a connection."""

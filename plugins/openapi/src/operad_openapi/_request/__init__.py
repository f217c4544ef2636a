"""Build requests from inputs, without a connection."""

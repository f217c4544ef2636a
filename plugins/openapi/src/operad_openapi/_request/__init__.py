"""Make requests from inputs: everything that needs no connection."""

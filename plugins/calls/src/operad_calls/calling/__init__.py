"""The calling side: requests in flight, their results and streams."""

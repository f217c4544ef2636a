"""The calling side of the call protocol: requests in flight, their results and streams."""

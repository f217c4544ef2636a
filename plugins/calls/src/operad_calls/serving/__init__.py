"""The serving side of the call protocol: requests that arrive, their handlers and their responses."""

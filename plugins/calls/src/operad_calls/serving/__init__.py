"""The serving side: requests that arrive, their handlers and their replies."""

"""The registry over HTTP: see `operad_openapi.serving`."""

"""The HTTP API of a registry: its operations, its OpenAPI document and the explorer."""

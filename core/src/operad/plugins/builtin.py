"""What the core itself contributes, through the same hooks as everybody, and who offers what is not installed."""

from __future__ import annotations

MODULES = ("operad.calls.plugin",)
"""The plugins of the core. Named and not imported, as entry points are: what they contribute lies above.

They offer names and implement no other hook: they are loaded when a name is asked for."""

DISTRIBUTIONS = {
    "sources": {"openapi": "operad-openapi", "mcp": "operad-mcp", "scanner": "operad-scanner"},
    "transports": {
        "ws": "operad-websocket",
        "wss": "operad-websocket",
        "nats": "operad-nats",
        "tls+nats": "operad-nats",
        "redis": "operad-redis",
        "rediss": "operad-redis",
    },
    "tables": {"idempotency": "operad-rules"},
    "servers": {"openapi": "operad-serve", "mcp": "operad-mcp"},
}
"""Which distribution to install for what: only for the hint in an error."""

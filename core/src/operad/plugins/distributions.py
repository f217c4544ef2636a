"""The distributions to install for missing names, which error messages suggest."""

from __future__ import annotations

OF = {
    "sources": {
        "openapi": "operad-openapi",
        "mcp": "operad-mcp",
        "remote": "operad-calls",
        "scanner": "operad-scanner",
        "code": "operad-code",
    },
    "transports": {
        "ws": "operad-websocket",
        "wss": "operad-websocket",
        "nats": "operad-nats",
        "tls+nats": "operad-nats",
        "redis": "operad-redis",
        "rediss": "operad-redis",
    },
    "servers": {"openapi": "operad-serve", "mcp": "operad-mcp"},
    "tables": {"idempotency": "operad-rules", "rules": "operad-rules", "credentials": "operad-auth"},
    "hooks": {"operad_call_map": "operad-calls", "operad_call_server": "operad-calls"},
}
"""The distribution to install, by kind of contribution and name."""

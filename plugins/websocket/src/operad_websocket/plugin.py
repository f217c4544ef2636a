"""What this distribution contributes: transports for ``ws`` and ``wss``."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """The WebSocket transport."""
    return [TransportFactory(("ws", "wss"), _create)]


def _create(url: str, **options: Any) -> Transport:
    from operad_websocket.spoke import WebSocketTransport  # aiohttp takes 0.1 s to import

    return WebSocketTransport(url, **options)

"""What this distribution contributes: transports for ``ws`` and ``wss``."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """The WebSocket transport."""
    return [TransportFactory(("ws", "wss"), _create)]


def _create(url: str, **options: Any) -> Transport:
    from difflib import get_close_matches
    from inspect import signature

    from operad import ConfigError
    from operad_websocket.spoke import WebSocketTransport  # aiohttp takes 0.1 s to import

    known = [name for name in signature(WebSocketTransport).parameters if name != "url"]
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, 1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
            raise ConfigError(f'ws transport: unknown option "{option}"{hint}')
    return WebSocketTransport(url, **options)

"""What this distribution contributes: transports for ``ws`` and ``wss``, and the command ``operad hub``."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """A `WebSocketTransport`; aiohttp is imported when a link is opened."""
    from operad_websocket.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """The schemes ``ws`` and ``wss``."""
    return [TransportFactory(("ws", "wss"), create)]


@hookimpl
def operad_commands(cli: Any) -> None:
    """``operad hub``."""
    from operad_websocket._command import hub

    cli.add_command(hub)

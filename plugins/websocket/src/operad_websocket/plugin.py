"""The plugin ``websocket``: transport for ``ws`` and ``wss``, command ``operad hub``, table ``[hub]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operad.plugin import Table, Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """Return the `WebSocketTransport` for a URL. Raises `ConfigError` for an invalid URL or option."""
    from operad_websocket.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """Return the factory for the schemes ``ws`` and ``wss``."""
    return [TransportFactory(("ws", "wss"), create, _options)]


def _options() -> type[Any]:
    from operad_websocket.transport import WebSocketTransport

    return WebSocketTransport


@hookimpl
def operad_tables() -> list[Table]:
    """Return the definition of the configuration table ``[hub]``."""
    return [Table("hub", _hub_config, "The hub that `operad hub` runs.", _check_hub)]


def _check_hub(config: Any, base_dir: Path) -> None:
    from operad_websocket._served import ServedHub

    ServedHub(config, base_dir)


def _hub_config() -> type[Any]:
    from operad_websocket.config import HubConfig

    return HubConfig


@hookimpl
def operad_commands(cli: Any) -> None:
    """Add the command ``operad hub``."""
    from operad_websocket._command import hub

    cli.add_command(hub)

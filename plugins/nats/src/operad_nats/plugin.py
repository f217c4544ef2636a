"""The plugin ``nats``: the transport for the schemes ``nats`` and ``tls+nats``."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """Return the `NATSTransport` for a URL. Raises `ConfigError` for an invalid URL or option."""
    from operad_nats.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """Return the factory for the schemes ``nats`` and ``tls+nats``."""
    return [TransportFactory(("nats", "tls+nats"), create, _options, "servers")]


def _options() -> type[Any]:
    from operad_nats.transport import NATSTransport

    return NATSTransport

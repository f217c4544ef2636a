"""The entry point: what this distribution contributes."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """A `NATSTransport`; nats-py is imported when a link is opened."""
    from operad_nats.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """The schemes ``nats`` and ``tls+nats``."""
    return [TransportFactory(("nats", "tls+nats"), create, _options, "servers")]


def _options() -> type[Any]:
    from operad_nats.transport import NATSTransport

    return NATSTransport

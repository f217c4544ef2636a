"""The entry point: the transports of this distribution."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """Return a `RedisTransport`; redis-py is imported when a link is opened."""
    from operad_redis.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """Return the factory for the schemes ``redis`` and ``rediss``."""
    return [TransportFactory(("redis", "rediss"), create, _options)]


def _options() -> type[Any]:
    from operad_redis.transport import RedisTransport

    return RedisTransport

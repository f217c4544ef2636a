"""The plugin ``redis``: the transport for the schemes ``redis`` and ``rediss``."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """Return the `RedisTransport` for a URL. Raises `ConfigError` for an invalid URL or option."""
    from operad_redis.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """Return the factory for the schemes ``redis`` and ``rediss``."""
    return [TransportFactory(("redis", "rediss"), create, _options)]


def _options() -> type[Any]:
    from operad_redis.transport import RedisTransport

    return RedisTransport

"""The entry point: what this distribution contributes."""

from __future__ import annotations

from typing import Any

from operad.plugin import Transport, TransportFactory, hookimpl


def create(url: str, **options: Any) -> Transport:
    """A `RedisTransport`; redis-py is imported when a link is opened."""
    from operad_redis.transport import create

    return create(url, **options)


@hookimpl
def operad_transports() -> list[TransportFactory]:
    """The schemes ``redis`` and ``rediss``."""
    return [TransportFactory(("redis", "rediss"), create, _options)]


def _options() -> type[Any]:
    from operad_redis.transport import RedisTransport

    return RedisTransport

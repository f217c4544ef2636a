"""First results in Redis, shared by the processes of a service; see `operad.FirstResults`."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from redis.asyncio import Redis

_CONNECTIONS = 16


class RedisResults:
    """A `operad.plugin.ResultStore` on a Redis server: ``registry.use(FirstResults(RedisResults(url)))``.

    Use it as an async context manager, or close it. Keys begin with ``prefix`` and expire by themselves.

    Args:
        url: ``redis://…`` or ``rediss://…``.
        prefix: start of all keys; processes that share results use the same.
        timeout: seconds to wait for the server; after that, nothing runs.
        options: options of redis-py's client, such as ``ssl_ca_certs``.
    """

    def __init__(self, url: str, *, prefix: str = "operad:result:", timeout: float = 5.0, **options: Any) -> None:
        self._url, self._prefix, self._timeout, self._options = url, prefix, timeout, options
        self._opened: Redis | None = None

    def __repr__(self) -> str:
        return f"RedisResults(prefix={self._prefix!r})"  # the URL may hold a password

    def _client(self) -> Redis:
        if self._opened is None:
            from redis.asyncio import BlockingConnectionPool, Redis

            # If all connections are in use, wait for one: a first result that is not kept is lost.
            options = {"max_connections": _CONNECTIONS, "timeout": self._timeout, **self._options}
            pool = BlockingConnectionPool.from_url(self._url, decode_responses=False, **options)
            self._opened = Redis.from_pool(pool)
        return self._opened

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Store ``value`` under a free name and return None; if the name is taken, return its value."""
        key, client = self._prefix + name, self._client()
        async with asyncio.timeout(self._timeout):
            while not await client.set(key, value, nx=True, px=_milliseconds(seconds)):
                kept: Any = await client.get(key)
                if kept is not None:
                    return bytes(kept)
                # It expired between the two requests.
        return None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Replace the value of a name."""
        async with asyncio.timeout(self._timeout):
            await self._client().set(self._prefix + name, value, px=_milliseconds(seconds))

    async def drop(self, name: str) -> None:
        """Free a name."""
        async with asyncio.timeout(self._timeout):
            await self._client().delete(self._prefix + name)

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        client, self._opened = self._opened, None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))

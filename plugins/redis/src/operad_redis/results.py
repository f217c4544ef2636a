"""A store of first results in Redis, for `operad.FirstResults` in several processes."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from redis.asyncio import Redis

_CONNECTIONS = 16


class RedisResults:
    """An `operad.plugin.ResultStore` on a Redis server: ``registry.use(FirstResults(RedisResults(url)))``.

    Use it as an async context manager, or call `aclose`. The server deletes expired keys.

    Args:
        url: the URL ``redis://…`` or ``rediss://…``.
        prefix: the start of all keys, the same for all processes that share results.
        timeout: the maximum time of `claim`, `put` and `drop`, in seconds.
        options: further options of the client of redis-py, such as ``ssl_ca_certs``.
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
        """If the name is free, store ``value`` for ``seconds`` and return None; else return the stored value.

        Raises:
            redis.RedisError: the server cannot be reached, or refuses the request.
            TimeoutError: the server does not respond within ``timeout`` seconds.
        """
        key, client = self._prefix + name, self._client()
        async with asyncio.timeout(self._timeout):
            while not await client.set(key, value, nx=True, px=_milliseconds(seconds)):
                kept: Any = await client.get(key)
                if kept is not None:
                    return bytes(kept)
                # It expired between the two requests.
        return None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Store ``value`` for ``seconds``, even if the name has a value. Raises the same errors as `claim`."""
        async with asyncio.timeout(self._timeout):
            await self._client().set(self._prefix + name, value, px=_milliseconds(seconds))

    async def drop(self, name: str) -> None:
        """Delete the value of a name, if it has one, so that it is free. Raises the same errors as `claim`."""
        async with asyncio.timeout(self._timeout):
            await self._client().delete(self._prefix + name)

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
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

"""A store of first results in a JetStream bucket, for `operad.FirstResults` in several processes."""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from operad_nats._ending import ended

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.kv import KeyValue

_EXPIRES = struct.Struct(">d")
"""The expiry time in epoch seconds that precedes each value. A bucket has one time to live for all values."""


class NATSResults:
    """An `operad.plugin.ResultStore` in a key-value bucket: ``registry.use(FirstResults(NATSResults(url)))``.

    Use it as an async context manager, or call `aclose`. The server must run JetStream (``nats-server -js``). If
    the bucket is missing, the first use makes it. The clocks of all processes should agree within seconds.

    Args:
        url: the URL ``nats://…`` or ``tls://…``, or several URLs of one cluster with commas between them.
        bucket: the name of the bucket, the same for all processes that share results.
        seconds: the time after which a new bucket deletes any value. It must not be shorter than the time for
            which `operad.FirstResults` keeps results.
        replicas: the number of servers of a cluster that keep a new bucket.
        timeout: the maximum time of `claim`, `put` and `drop`, in seconds.
        options: further options of ``connect`` of nats-py, such as ``user_credentials``.
    """

    def __init__(
        self,
        url: str,
        *,
        bucket: str = "operad-results",
        seconds: float = 172_800,
        replicas: int = 1,
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        self._url, self._bucket, self._options = url, bucket, options
        self._seconds, self._replicas, self._timeout = seconds, replicas, timeout
        self._connection: Client | None = None
        self._opening = asyncio.Lock()
        self._opened: KeyValue | None = None

    def __repr__(self) -> str:
        return f"NATSResults(bucket={self._bucket!r})"  # the URL may hold a password

    async def _store(self) -> KeyValue:
        async with self._opening:
            if self._opened is None:
                from nats.js.api import KeyValueConfig

                if self._connection is None:
                    self._connection = await self._connect()
                config = KeyValueConfig(bucket=self._bucket, ttl=self._seconds, replicas=self._replicas)
                self._opened = await self._connection.jetstream().create_key_value(config)
            if self._connection is None or not self._connection.is_connected:
                raise ConnectionError("the connection to the NATS server is lost; nats-py is reconnecting")
            return self._opened

    async def _connect(self) -> Client:
        from nats.aio.client import Client

        client = Client()
        servers = self._url.split(",")
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        failures = itertools.count(1)

        async def on_error(error: Exception) -> None:
            # nats-py reconnects by itself, forever; if no server can be reached at first, nothing runs.
            if next(failures) == len(servers) and not failed.done():
                failed.set_result(error)

        options = {"max_reconnect_attempts": -1, "error_cb": on_error, **self._options}
        connecting = asyncio.ensure_future(client.connect(servers, **options))
        waiting: set[asyncio.Future[Any]] = {connecting, failed}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                raise failed.result()
            connecting.result()
        except BaseException:
            await ended({connecting})
            await client.close()
            raise
        return client

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """If the name is free, store ``value`` for ``seconds`` and return None; else return the stored value.

        Raises:
            nats.errors.Error, OSError: the server cannot be reached, or refuses the request.
            TimeoutError: the server does not respond within ``timeout`` seconds.
        """
        async with asyncio.timeout(self._timeout):
            return await self._claim(await self._store(), name, _sealed(value, seconds))

    async def _claim(self, store: KeyValue, name: str, sealed: bytes) -> bytes | None:
        from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

        while True:
            try:
                await store.create(name, sealed)
            except KeyWrongLastSequenceError:
                pass
            else:
                return None
            try:
                entry = await store.get(name)
                kept = _opened(entry.value or b"")
                if kept is not None:
                    return kept
                await store.update(name, sealed, last=entry.revision)
            except (KeyNotFoundError, KeyWrongLastSequenceError):
                continue  # it expired, or another process claimed it, between the two requests
            return None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Store ``value`` for ``seconds``, even if the name has a value. Raises the same errors as `claim`."""
        async with asyncio.timeout(self._timeout):
            await (await self._store()).put(name, _sealed(value, seconds))

    async def drop(self, name: str) -> None:
        """Delete the value of a name, if it has one, so that it is free. Raises the same errors as `claim`."""
        async with asyncio.timeout(self._timeout):
            await (await self._store()).delete(name)

    async def aclose(self) -> None:
        """Close the connection; idempotent."""
        connection, self._connection, self._opened = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _sealed(value: bytes, seconds: float) -> bytes:
    return _EXPIRES.pack(time.time() + seconds) + value


def _opened(sealed: bytes) -> bytes | None:
    """Return the value, or None if it has expired."""
    if len(sealed) < _EXPIRES.size or _EXPIRES.unpack_from(sealed)[0] <= time.time():
        return None
    return sealed[_EXPIRES.size :]

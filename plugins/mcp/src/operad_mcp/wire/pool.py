"""The connections to a server over HTTP, kept open for a while.

Imported with the first connection over HTTP: it needs httpx2.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address

import httpx2
from aiohappyeyeballs import start_connection

from operad_mcp.wire.http11 import Connection

_IDLE = 4.0
"""Seconds that an unused connection is kept, one second less than many servers do. There are as many of them as
there were requests at once within that time."""
_SOONER = 1.0
"""Seconds before the server's own time, where it says one, so that no request meets the end of its connection."""
_KEPT = 256
"""The most unused connections that are kept."""
_ATTEMPT = 0.25
"""Seconds after which another address of a host is tried as well (RFC 8305)."""
_PIECE = 32 * 1024
"""Bytes of a body that are handed on at once: decoded they may be a thousand times as many."""
_PORTS = {"http": 80, "https": 443}
_Origin = tuple[str, str, int]


class Pool(httpx2.AsyncBaseTransport):
    """An HTTP/1.1 transport of httpx2, for requests whose bodies are in memory.

    Args:
        tls: for ``https``.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        tls.set_alpn_protocols(["http/1.1"])
        self._open: set[Connection] = set()
        self._idle: dict[_Origin, list[tuple[float, Connection]]] = {}
        self._connecting: set[asyncio.Task[Connection]] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            httpx2.TransportError: there was no answer.
        """
        url = request.url
        if url.scheme not in _PORTS:
            raise httpx2.UnsupportedProtocol(f"expected a URL with http:// or https://, got {url.scheme}://")
        origin = url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
        timeouts = request.extensions.get("timeout", {})
        connection = self._kept(origin) or await self._made(origin, timeouts.get("connect"))
        try:
            head = await connection.ask(request)
        except BaseException:
            connection.close()
            raise
        return httpx2.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(self, origin, connection, timeouts.get("read")),
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": bytes(head.reason)},
        )

    async def _made(self, origin: _Origin, patience: float | None) -> Connection:
        """A new connection. Who stops waiting leaves it to others: asyncio loses a socket when it is cancelled."""
        connecting = asyncio.get_running_loop().create_task(self._connect(origin, patience))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(lambda task: self._unclaimed(origin, task))
            raise

    def _unclaimed(self, origin: _Origin, connecting: asyncio.Task[Connection]) -> None:
        if not connecting.cancelled() and connecting.exception() is None:
            self._keep(origin, connecting.result())

    async def _connect(self, origin: _Origin, patience: float | None) -> Connection:
        scheme, host, port = origin
        try:
            async with asyncio.timeout(patience):
                connection = await _connected(host, port, self._tls if scheme == "https" else None)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"{host}:{port} did not answer") from None
        except OSError as error:  # of TLS, too
            raise httpx2.ConnectError(str(error)) from error
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    # --- unused connections ----------------------------------------------------------------------

    def _kept(self, origin: _Origin) -> Connection | None:
        """The connection that was used last, so that those that are not needed grow old."""
        kept = self._idle.get(origin, [])
        while kept:
            until, connection = kept.pop()
            if until > asyncio.get_running_loop().time() and not connection.is_over and not connection.has_news:
                return connection
            connection.close()
        return None

    def release(self, origin: _Origin, connection: Connection) -> None:
        """Take back a connection whose answer is read, or of no interest any more."""
        if connection.renew():
            self._keep(origin, connection)
        else:
            connection.close()

    def _keep(self, origin: _Origin, connection: Connection) -> None:
        kept = self._idle.setdefault(origin, [])
        if len(kept) >= _KEPT:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        seconds = _IDLE if connection.kept_for is None else min(_IDLE, connection.kept_for - _SOONER)
        kept.append((loop.time() + seconds, connection))
        if self._sweeping is None:
            self._sweeping = loop.call_later(min(_IDLE, seconds), self._sweep)

    def _sweep(self) -> None:
        """Close what nobody used for a while."""
        loop = asyncio.get_running_loop()
        for origin, kept in self._idle.items():
            for until, connection in kept:
                if until <= loop.time():
                    connection.close()
            self._idle[origin] = [one for one in kept if one[0] > loop.time() and not one[1].is_over]
        left = [until for kept in self._idle.values() for until, _ in kept]
        self._sweeping = loop.call_at(min(left), self._sweep) if left else None

    async def aclose(self) -> None:
        """Close all connections."""
        if self._connecting:
            await asyncio.wait(self._connecting, timeout=_ATTEMPT)  # those that come about, and no others
        late = list(self._connecting)
        for connecting in late:
            connecting.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        closing = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.close()
        await asyncio.gather(*closing)


async def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
    """Connect; to whichever address of a name is there first (RFC 8305). Raises `OSError`."""
    loop = asyncio.get_running_loop()
    name = None if tls is None else host
    with contextlib.suppress(ValueError):
        ip_address(host)
        return (await loop.create_connection(Connection, host, port, ssl=tls, server_hostname=name))[1]
    # Not by create_connection, of which not all event loops can do it.
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found = await start_connection(addresses, happy_eyeballs_delay=_ATTEMPT)
    return (await loop.create_connection(Connection, sock=found, ssl=tls, server_hostname=name))[1]


class _Body(httpx2.AsyncByteStream):
    """The body of an answer; its end gives the connection back."""

    def __init__(self, pool: Pool, origin: _Origin, connection: Connection, patience: float | None) -> None:
        self._pool: Pool | None = pool
        self._origin = origin
        self._connection = connection
        self._patience = patience

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._connection.piece(self._patience):
            for start in range(0, len(piece), _PIECE):
                yield piece[start : start + _PIECE]

    async def aclose(self) -> None:
        """Read no further."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.release(self._origin, self._connection)

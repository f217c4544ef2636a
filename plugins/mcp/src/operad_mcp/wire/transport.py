"""An httpx2 transport that uses aiohttp's connections, proxies and TLS.

operad-openapi uses aiohttp, too. aiohttp needs a third of the processor time of httpx's own pool. This transport
does not reuse a connection that received bytes after a response. The SDK's OAuth flows are written for httpx2, so
requests are httpx2's.

This module needs aiohttp and httpx2. It is imported with the first connection over HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import ssl
import sys
import time
import urllib.request
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import httpx2
from yarl import URL

_HEAD = 100 * 1024
"""The maximum number of bytes in one line of a status or a header."""
_PIECE = 32 * 1024
"""The bytes of a body that are passed on in one piece. Decompression may make them a thousand times as many."""
_OWN_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add to a request."""
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")
_SOONER = 1.0
"""Seconds before the server's own keep-alive limit at which a connection is closed."""
_KEEP_ALIVE = re.compile(r"(?:^|[,; ])timeout=([0-9]{1,9})")


class Transport(httpx2.AsyncBaseTransport):
    """A transport of httpx2, for requests whose bodies are in memory.

    Args:
        tls: the TLS context for ``https``.
        proxy: the URL of the proxy for all requests; ``None``: proxies of the environment (``HTTPS_PROXY``, …).
        idle: seconds after which an unused connection is closed. Many servers close it after 5 s. A request on a
            connection that is being closed is lost, and a POST must not be sent twice.
    """

    def __init__(self, tls: ssl.SSLContext, proxy: str | None = None, *, idle: float = 4.0) -> None:
        self._tls = tls
        self._idle = idle
        tls.set_alpn_protocols(["http/1.1"])
        self._proxy = proxy
        self._proxies: dict[tuple[str, str], str | None] = {}
        self._open: tuple[aiohttp.ClientSession, _Connector] | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its response with an unread body.

        Raises:
            httpx2.TransportError: the request cannot be sent, or no response was received.
        """
        url = request.url
        if url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(f"expected a URL with http:// or https://, got {url.scheme}://")
        _check_headers(request)
        content = await request.aread()
        timeouts = request.extensions.get("timeout", {})
        with _in_terms_of_httpx(timeouts.get("read")):
            session, connector = self._opened()
            response = await session.request(
                request.method,
                URL(str(url), encoded=True),
                headers=[(name.decode(), value.decode()) for name, value in request.headers.raw],
                data=_pieces(content) if len(content) > _PIECE else content or None,
                allow_redirects=False,
                proxy=self._proxy_for(url),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=timeouts.get("connect"), sock_read=timeouts.get("read")
                ),
            )
        if response.status == 101:
            response.close()
            raise httpx2.RemoteProtocolError("expected an HTTP response, got a switch of the protocol (HTTP 101)")
        connector.learn(response)
        return httpx2.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response, timeouts.get("read")),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": (response.reason or "").encode()},
        )

    def _opened(self) -> tuple[aiohttp.ClientSession, _Connector]:
        if self._open is None:
            connector = _Connector(
                limit=0, ssl=self._tls, keepalive_timeout=self._idle, resolver=aiohttp.ThreadedResolver()
            )
            session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_OWN_HEADERS,
                auto_decompress=False,
                max_line_size=_HEAD,
                max_field_size=_HEAD,
            )
            self._open = session, connector
        return self._open

    def _proxy_for(self, url: httpx2.URL) -> str | None:
        if self._proxy is not None:
            return self._proxy
        origin = url.scheme, url.host
        if origin not in self._proxies:
            self._proxies[origin] = _from_environment(*origin)
        proxy = self._proxies[origin]
        # Aiohttp would treat it as an HTTP proxy.
        if proxy is not None and not proxy.startswith(("http://", "https://")):
            scheme = proxy.partition("://")[0]
            raise httpx2.ProxyError(
                f"expected a proxy with http:// or https://, got {scheme}:// from the environment; "
                f"set proxy, or add {url.host} to NO_PROXY"
            )
        return proxy

    async def aclose(self) -> None:
        """Close all connections."""
        if self._open is not None:
            session, connector = self._open
            connector.abort()
            await session.close()


class _Connector(aiohttp.TCPConnector):
    """A pool that returns no connection that may be about to end, or that received bytes without a request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._given: weakref.WeakKeyDictionary[Any, tuple[float, asyncio.Transport]] = weakref.WeakKeyDictionary()
        self._kept_for: dict[URL, float] = {}

    def learn(self, response: aiohttp.ClientResponse) -> None:
        """Store how long the server keeps a connection, if a header states it (RFC 2068, 19.7.1.1)."""
        found = _KEEP_ALIVE.search(response.headers.get("keep-alive", ""))
        if found is not None:
            self._kept_for[response.url.origin()] = float(found[1]) - _SOONER

    async def connect(self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout) -> Any:
        """Return a connection for a request. Kept connections that may be about to end are closed instead."""
        kept_for = self._kept_for.get(req.url.origin())
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol: Any = connection.protocol
            now = time.monotonic()
            before = self._given.get(protocol)
            is_old = before is not None and kept_for is not None and now - before[0] > kept_for
            is_dirty = before is not None and (protocol.should_close or _has_news(connection.transport))
            if not is_old and not is_dirty:
                self._given[protocol] = now, protocol.transport
                return connection
            connection.close()

    def abort(self) -> None:
        """End all connections, even those with unsent data, which the server no longer needs."""
        for _, transport in list(self._given.values()):
            transport.abort()


def _has_news(transport: asyncio.Transport | None) -> bool:
    """Return True if unread bytes arrived. On an unused connection, these are its end or an attack."""
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None:
        return False
    if sys.platform == "win32":
        return bool(select.select([found], [], [], 0)[0])
    poll = select.poll()
    poll.register(found, select.POLLIN)
    return bool(poll.poll(0))


def _from_environment(scheme: str, host: str) -> str | None:
    """Return the proxy for an origin from ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy is None or urllib.request.proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _check_headers(request: httpx2.Request) -> None:
    """Raise `LocalProtocolError` for headers that cannot be sent; a value may be a secret and is not quoted."""
    bad = [
        name.decode("latin-1")
        for name, value in request.headers.raw
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value)
    ]
    if bad:
        raise httpx2.LocalProtocolError(f"headers with invalid characters cannot be sent: {', '.join(bad)}")


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]


class _Body(httpx2.AsyncByteStream):
    """The body of a response. When it was read, the connection returns to the pool."""

    def __init__(self, response: aiohttp.ClientResponse, patience: float | None) -> None:
        self._response = response
        self._patience = patience

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _in_terms_of_httpx(self._patience):
            async for piece in self._response.content.iter_chunked(_PIECE):
                yield piece

    async def aclose(self) -> None:
        """Stop reading. End a connection that still has an unread response or an unsent request."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


_ERRORS: tuple[tuple[type[aiohttp.ClientError], type[httpx2.TransportError], str], ...] = (
    (aiohttp.ClientHttpProxyError, httpx2.ProxyError, "the proxy responded with HTTP {0.status} {0.message}"),
    (aiohttp.ClientProxyConnectionError, httpx2.ProxyError, "{0}"),
    (aiohttp.ConnectionTimeoutError, httpx2.ConnectTimeout, "{0}"),
    (aiohttp.ClientConnectorError, httpx2.ConnectError, "{0}"),  # of names, addresses, and TLS
    (aiohttp.ClientSSLError, httpx2.ConnectError, "{0}"),
    (aiohttp.SocketTimeoutError, httpx2.ReadTimeout, "nothing was received for {1:g} s"),
    (
        aiohttp.ServerDisconnectedError,
        httpx2.RemoteProtocolError,
        "the server closed the connection without a response",
    ),
    (aiohttp.ClientOSError, httpx2.ReadError, "{0}"),
    (aiohttp.ClientResponseError, httpx2.RemoteProtocolError, "the response is not HTTP: {0.message}"),
    (aiohttp.InvalidURL, httpx2.UnsupportedProtocol, "the URL, or that of the proxy, cannot be used"),
    (aiohttp.ClientError, httpx2.RemoteProtocolError, "{0}"),
)
"""Errors of aiohttp with the httpx2 exception and the text for each. The first that fits is used."""


@contextlib.contextmanager
def _in_terms_of_httpx(patience: float | None) -> Iterator[None]:
    """Raise httpx2's exceptions instead of aiohttp's."""
    try:
        yield
    except aiohttp.ClientError as error:
        made, text = next((made, text) for kind, made, text in _ERRORS if isinstance(error, kind))
        raise made(text.format(error, patience or 0) or type(error).__name__) from error

"""Sessions of aiohttp: one per event loop, with the proxy, TLS and limits of the configuration."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.request
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from operad_openapi._http.resolving import GuardedResolver
from operad_openapi.config import HTTPOptions

_NOWHERE = URL()
USER_AGENT = "operad-openapi"
IDLE = 4.0
"""Seconds that an idle connection is kept. Many servers (Node, uvicorn, Apache) close idle connections after 5 s;
a request that is sent at that moment is lost, and a POST must not be sent twice."""


class LostConnectionError(aiohttp.ClientError):
    """The error for a connection that was lost before a response; the cause is in ``__cause__``."""


async def send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once. Without this middleware, aiohttp repeats some requests after a lost connection.

    Raises `LostConnectionError` if the connection is lost before a response.
    """
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise LostConnectionError(str(error)) from error


def request_options(options: HTTPOptions) -> dict[str, Any]:
    """Return the options for each request of the application's session, because that session lacks them."""
    return {
        "auto_decompress": False,
        "max_line_size": options.limits.header_bytes,
        "max_field_size": options.limits.header_bytes,
    }


class PortCookieJar(aiohttp.CookieJar):
    """A cookie jar that separates the ports of a host, unlike RFC 6265; hosts may be IP addresses."""

    def __init__(self) -> None:
        super().__init__(unsafe=True)
        self._jars: dict[int | None, aiohttp.CookieJar] = {}

    def _of(self, url: URL) -> aiohttp.CookieJar:
        return self._jars.setdefault(url.port, aiohttp.CookieJar(unsafe=True))

    def update_cookies(self, cookies: Any, response_url: URL = _NOWHERE) -> None:
        """Store the cookies of a response from ``response_url``."""
        self._of(response_url).update_cookies(cookies, response_url)

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        """Store the cookies of the ``Set-Cookie`` headers of a response from ``response_url``."""
        self._of(response_url).update_cookies_from_headers(headers, response_url)

    def filter_cookies(self, request_url: URL = _NOWHERE) -> Any:
        """Return the stored cookies for a request to ``request_url``."""
        return self._of(request_url).filter_cookies(request_url)


class Sessions:
    """The sessions of one source: one for each event loop in which calls are made.

    Args:
        options: the source's HTTP options.
        tls: the ``ssl`` argument for aiohttp.
        namer_of: returns the host that refers to a host, or ``None``; see `GuardedResolver`.
    """

    def __init__(
        self, options: HTTPOptions, tls: ssl.SSLContext | bool, namer_of: Callable[[str], str | None]
    ) -> None:
        self._options = options
        self._tls = tls
        self._namer_of = namer_of
        self._open: dict[asyncio.AbstractEventLoop, _Kept] = {}

    def of(self, loop: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
        """Return the session from the configuration, or else the session for ``loop``, created at first use.

        ``loop`` must be the running event loop.
        """
        if self._options.session is not None:
            return cast("aiohttp.ClientSession", self._options.session)
        for other in [other for other in self._open if other.is_closed()]:
            del self._open[other]  # closed with its loop
        if loop not in self._open:
            self._open[loop] = _Kept(self._made())
        return self._open[loop].session

    def _made(self) -> aiohttp.ClientSession:
        limits = self._options.limits
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._namer_of),
            limit=limits.connections,
            ssl=self._tls,
            keepalive_timeout=IDLE,
        )
        return aiohttp.ClientSession(
            connector=connector,
            # A cookie of one caller is not for the next, unless all callers are one to the API.
            cookie_jar=PortCookieJar() if self._options.keep_cookies else aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            auto_decompress=False,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            middlewares=(send_once,),
            timeout=aiohttp.ClientTimeout(total=self._options.timeout, sock_connect=self._options.connect_timeout),
        )

    async def aclose(self) -> None:
        """Close the sessions of all running event loops; idempotent. A configured session stays open."""
        current = asyncio.get_running_loop()
        while self._open:
            loop, kept = self._open.popitem()
            if loop is current:
                await kept.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(kept.aclose(), loop))


class _Kept:
    """A session that is closed with its event loop at the latest, as ``asyncio.run`` closes open generators."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self._keeper = _keep(session)
        # The loop gets to know the generator when it begins, and it begins without waiting for anything.
        with contextlib.suppress(StopIteration):
            self._keeper.__anext__().send(None)

    async def aclose(self) -> None:
        """Close the session."""
        await self._keeper.aclose()


async def _keep(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await session.close()


class Proxies:
    """The choice of a proxy for each origin: the configured proxy, or that of the environment."""

    def __init__(self, proxy: str | None) -> None:
        self._proxy = proxy
        self._of: dict[str, str | None] = {}

    def of(self, origin: str) -> str | None:
        """Return the URL of the proxy for requests to ``origin``, or ``None`` if they need no proxy."""
        if self._proxy != "environment":
            return self._proxy
        if origin not in self._of:
            self._of[origin] = _from_environment(origin)
        return self._of[origin]


def _from_environment(origin: str) -> str | None:
    """Return the proxy that ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` specify."""
    parts = urlsplit(origin)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"

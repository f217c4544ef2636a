"""Requests over HTTP: one pooled session per source, retries, redirects, bounds, and errors with a code."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs

from operad import CallError, ErrorCode
from operad_openapi._document.origins import origin_of
from operad_openapi._http.failures import host_of, network_failure, retry_after
from operad_openapi._request.request import Credentials, Request
from operad_openapi.config import HTTPOptions

if TYPE_CHECKING:
    # aiohttp costs 114 ms to import: only what sends a request pays for it.
    from aiohttp import ClientResponse, ClientSession, ClientTimeout
    from yarl import URL

_RETRIED_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What may follow a redirect to another origin: anything else could be a secret.
_PUBLIC_HEADERS = ("Accept", "Content-Type")
USER_AGENT = "operad-openapi"
_NO_CREDENTIALS = Credentials()


class HTTPClient:
    """Sends the requests of one source.

    The session is made when the first request is sent, and closed by `aclose`.
    """

    def __init__(self, options: HTTPOptions, *, trusted: bool = False) -> None:
        self._options = options
        self._trusted = trusted
        self._session: ClientSession | None = None
        self._encoded_url: Callable[[str], URL]
        """Takes a URL as it is; there once the session is."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._namers: dict[str, str] = {}

    def guard(self, host: str, namer: str) -> None:
        """Refuse private addresses of ``host``, which ``namer`` named, unless ``namer`` has one itself.

        Not with a session that the configuration brought: it resolves names itself.
        """
        if not self._trusted and host != namer:
            self._namers[host] = namer

    async def aclose(self) -> None:
        """Close the session; idempotent. A session that the configuration brought stays open."""
        session, self._session = self._session, None
        if session is not None and session is not self._options.session:
            await session.close()

    def _open_session(self, loop: asyncio.AbstractEventLoop) -> ClientSession:
        """The session for calls in ``loop``, kept for the next ones."""
        from yarl import URL

        self._loop = loop
        self._encoded_url = partial(URL, encoded=True)
        if self._options.session is not None:
            self._session = given = cast("ClientSession", self._options.session)
            return given
        import aiohttp

        from operad_openapi._http.resolving import GuardedResolver

        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._namers.get),
            limit=self._options.limits.connections,
            ssl=True if self._options.ssl is None else self._options.ssl,
        )
        self._session = made = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie of one caller is not for the next
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=self._options.timeout, sock_connect=self._options.connect_timeout),
        )
        return made

    async def send(self, request: Request) -> ClientResponse:
        """The head of the response, after retries and redirects; the caller reads or closes it.

        Raises:
            CallError: ``UNAVAILABLE``, ``TIMEOUT`` or ``EXECUTION_ERROR``; the message names the server.
        """
        attempt = 0
        refreshed = False
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            credentials = _NO_CREDENTIALS if request.authorize is None else await request.authorize()
            try:
                # Awaited here, not in a coroutine of its own: most requests need nothing but this.
                response = await self._sending(request, credentials, loop)
                if response.status >= 300:
                    response = await self._follow(request, credentials, response, started)
            except Exception as error:
                failure = network_failure(error, request.method, request.url, self._options.timeout)
                if failure is None:
                    raise
                self._limit(request, started)
                delay = self._jitter(attempt)
                is_lost = failure.code == ErrorCode.UNAVAILABLE and self._may_repeat(request, attempt)
                if not is_lost or not _fits(delay, request.deadline):
                    if failure is error:
                        raise
                    raise failure from error
            else:
                if response.status < 300:
                    return response
                self._limit(request, started)
                can_refresh = None if refreshed or not _is_replayable(request) else credentials.refresh
                if response.status == 401 and can_refresh is not None:
                    refreshed = True
                    can_refresh()
                    response.close()
                    continue
                if response.status not in _RETRIED_STATUSES or not self._may_repeat(request, attempt):
                    return response
                wished = retry_after(response.headers.get("Retry-After"))
                delay = self._jitter(attempt) if wished is None else wished
                if delay > self._options.retries.max_delay or not _fits(delay, request.deadline):
                    return response
                response.close()
            attempt += 1
            await asyncio.sleep(delay)

    def _jitter(self, attempt: int) -> float:
        """Seconds to wait before sending again: at random, so that many callers do not come back together."""
        policy = self._options.retries
        return random.uniform(0, min(policy.max_delay, policy.backoff * 2**attempt))  # noqa: S311  # no secret

    def _may_repeat(self, request: Request, attempt: int) -> bool:
        """Whether sending the request once more does no more than sending it once, and was asked for."""
        return (
            attempt < self._options.retries.attempts
            and (request.method in _RETRIED_METHODS or "Idempotency-Key" in request.headers)
            and _is_replayable(request)
        )

    def _limit(self, request: Request, started: float) -> None:
        """Make the attempts to come share the time of the first, and end with the call."""
        ends = []
        if self._options.timeout is not None:
            ends.append(started + self._options.timeout)
        if request.expires is not None:
            ends.append(asyncio.get_running_loop().time() + request.expires / 1000 - time.time())
        request.deadline = min(ends, default=None)

    async def _follow(
        self, request: Request, credentials: Credentials, response: ClientResponse, started: float
    ) -> ClientResponse:
        """The response that a redirect leads to; any other one as it is."""
        if response.status not in _REDIRECTS or "Location" not in response.headers:
            return response
        left = self._options.limits.redirects
        origin, first = origin_of(request.url), request
        self._limit(request, started)
        while response.status in _REDIRECTS and (location := response.headers.get("Location")):
            repeats = response.status in (307, 308) and _is_replayable(request)
            if request.method not in ("GET", "HEAD") and not repeats:
                return response
            target = await self._target(response, location, left)
            response.close()
            left -= 1
            if origin_of(target) != origin:
                # Another origin gets neither credentials nor anything that a caller or configuration set.
                kept = {name: request.headers[name] for name in _PUBLIC_HEADERS if name in request.headers}
                headers = type(request.headers)(kept)
                request = attrs.evolve(request, url=target, headers=headers, cookies=[], authorize=None)
                credentials = _NO_CREDENTIALS
                origin = origin_of(target)
            else:
                request = attrs.evolve(request, url=target)
            first.redirected_to = target.partition("?")[0]
            response = await self._once(request, credentials)
        return response

    async def _target(self, response: ClientResponse, location: str, left: int) -> str:
        """Where a redirect may lead. Raises `CallError` for where it must not."""
        from yarl import URL

        from operad_openapi._http.resolving import is_private

        def refuse(reason: str) -> CallError:
            response.close()
            message = f"{response.method} {host_of(str(response.url))} answered {response.status}: {reason}"
            return CallError(
                ErrorCode.EXECUTION_ERROR, message, {"statusCode": response.status, "message": message}
            )

        if left <= 0:
            raise refuse(f"more than {self._options.limits.redirects} redirects (limit redirects)")
        try:
            target = response.url.join(URL(location))
        except ValueError as error:
            raise refuse("its Location is not a URL") from error
        if target.scheme not in ("http", "https") or not target.host:
            raise refuse(f"a redirect to scheme {target.scheme!r} is not followed")
        if response.url.scheme == "https" and target.scheme == "http":
            raise refuse("a redirect from https to http is not followed")
        source = response.url.host or ""
        if target.host != source and not self._trusted:
            if await is_private(target.host) and not await is_private(source):
                raise refuse(f"a redirect into the private address {target.host} is not followed")
            self.guard(target.host, source)
        return str(target.with_fragment(None))

    async def _once(self, request: Request, credentials: Credentials) -> ClientResponse:
        try:
            return await self._sending(request, credentials, asyncio.get_running_loop())
        except Exception as error:
            failure = network_failure(error, request.method, request.url, self._options.timeout)
            if failure is None:
                raise
            raise failure from error

    def _sending(
        self, request: Request, credentials: Credentials, loop: asyncio.AbstractEventLoop
    ) -> Awaitable[ClientResponse]:
        """What sends the request, once, when it is awaited. Raises what aiohttp raises."""
        session = self._session if self._loop is loop else None
        if session is None:
            session = self._open_session(loop)
        url = request.url
        for pair in credentials.query:
            if pair not in url:  # the Location of a redirect may repeat it
                url += ("&" if "?" in url else "?") + pair
        headers = request.headers
        cookies = request.cookies + credentials.cookies if credentials.cookies else request.cookies
        body = request.body
        if credentials.headers or cookies or body is not None:
            headers = headers.copy()
            headers.update(credentials.headers)
            if cookies:
                headers["Cookie"] = "; ".join(cookies)
            if body is not None:
                headers["Content-Type"] = body.content_type
                if body.data is None and body.length is not None:
                    headers["Content-Length"] = str(body.length)
        options: dict[str, Any] = {}
        if body is not None:
            options["data"] = body.data if body.stream is None else body.stream()
        if request.is_stream or request.deadline is not None or self._options.session is not None:
            options["timeout"] = self._timeout(request)
        return session.request(
            request.method, self._encoded_url(url), headers=headers, allow_redirects=False, **options
        )

    def _timeout(self, request: Request) -> ClientTimeout:
        from aiohttp import ClientTimeout

        total = None if request.is_stream else self._options.timeout
        if total is not None and request.deadline is not None:
            # aiohttp takes 0 for "no bound".
            total = max(0.001, request.deadline - asyncio.get_running_loop().time())
        connect = self._options.connect_timeout
        return ClientTimeout(total=total, sock_connect=connect, sock_read=request.idle_timeout)


def _is_replayable(request: Request) -> bool:
    """Whether the body, if there is one, can be sent again."""
    return request.body is None or request.body.replayable


def _fits(delay: float, deadline: float | None) -> bool:
    return deadline is None or asyncio.get_running_loop().time() + delay < deadline

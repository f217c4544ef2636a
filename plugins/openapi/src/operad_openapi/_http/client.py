"""The HTTP client of a source: it retries, follows redirects, and turns network failures into `CallError`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode
from operad_auth.http import RateLimits
from operad_auth.http.urls import shown_url
from operad_openapi._document.origins import origin_of
from operad_openapi._http.failures import network_failure
from operad_openapi._http.progress import LARGE, Progress, Report, in_chunks, told
from operad_openapi._http.redirects import STATUSES, Gate, redirected
from operad_openapi._http.tls import tls_of
from operad_openapi._request.request import Credentials, EncodedBody, HTTPRequest, Request
from operad_openapi.config import HTTPOptions

if TYPE_CHECKING:
    # aiohttp takes long to import: only what sends a request pays for it.
    from aiohttp import ClientResponse, ClientSession, ClientTimeout
    from yarl import URL

    from operad_openapi._http.session import Proxies, Sessions

logger = logging.getLogger("operad.openapi")

_NO_CREDENTIALS = Credentials()


class HTTPClient:
    """The HTTP client of one source.

    A session is opened for each event loop when its first request is sent; `aclose` closes the sessions.
    """

    def __init__(self, options: HTTPOptions, *, trusted: bool = False) -> None:
        self._options = options
        self._trusted = trusted
        self._tls = tls_of(options)
        self._origins = frozenset(map(origin_of, options.origins))
        self._gate = Gate(options.limits.redirects, trusted, self.guard)
        self._limits = RateLimits() if options.retries.rate_limit else None
        self._session: ClientSession | None = None
        self._sessions: Sessions | None = None
        self._proxies: Proxies | None = None
        self._middlewares: tuple[Any, ...] = ()
        """Middlewares of the client's own session; empty for a session from the configuration."""
        self._given: dict[str, Any] = {}
        """Options of each request."""
        self._encoded_url: Callable[[str], URL]
        """Makes a URL without encoding the text again; set when the session is opened."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._namers: dict[str, str] = {}

    def guard(self, host: str, namer: str) -> None:
        """Record that ``namer`` refers to ``host``. A host that a public one refers to must not be private.

        This has no effect if the source is trusted, or its session is from the configuration, because such a
        session resolves names itself.
        """
        if not self._trusted and host != namer:
            self._namers[host] = namer

    async def aclose(self) -> None:
        """Close the sessions; idempotent. A session from the configuration stays open."""
        self._session = None
        sessions, self._sessions = self._sessions, None
        if sessions is not None:
            await sessions.aclose()

    def _open_session(self, loop: asyncio.AbstractEventLoop) -> ClientSession:
        """Return the session for calls in ``loop``; it is kept for the next ones."""
        from yarl import URL

        from operad_openapi._http.session import Proxies, Sessions, request_options, send_once

        options = self._options
        self._loop = loop
        self._encoded_url = partial(URL, encoded=True)
        if self._sessions is None:
            self._sessions = Sessions(options, self._tls, self._namers.get)
            if options.proxy is not None:
                self._proxies = Proxies(options.proxy)
            if options.session is not None:
                self._given = request_options(options)
            else:
                self._middlewares = (send_once,)
        self._session = made = self._sessions.of(loop)
        return made

    async def send(self, request: Request) -> ClientResponse:
        """Send a request and return the response after retries and redirects; the caller reads or closes its body.

        A response with an error status is returned, too.

        Raises:
            CallError: ``UNAVAILABLE`` if the connection fails, ``TIMEOUT``, ``PAYLOAD_TOO_LARGE`` if the response
                has too large headers, or ``EXECUTION_ERROR`` for anything else, such as a rejected redirect. The
                message names the server.
        """
        attempt = 0
        refreshed = False
        loop = asyncio.get_running_loop()
        started = loop.time()
        policy = self._options.retries
        while True:
            credentials = _NO_CREDENTIALS if request.authorize is None else await request.authorize()
            if self._limits is not None:
                await self._wait_for_limits(request, credentials, started)
            delay: float | None
            try:
                # Awaited here, not in a coroutine of its own: most requests need nothing but this.
                response = await self._sending(request, credentials, loop)
                if self._limits is not None:
                    self._limits.observe(_counted(request, credentials), response.status, response.headers)
                if response.status >= 300:
                    response = await self._follow(request, credentials, response, started)
            except Exception as error:
                failure = network_failure(error, request.method, request.url, self._options.timeout)
                if failure is None:
                    raise
                self._limit(request, started)
                delay = self._delay(request, attempt) if failure.code == ErrorCode.UNAVAILABLE else None
                if delay is None or not _fits(delay, request.deadline):
                    _count(failure, request.attempts)
                    if failure is error:
                        raise
                    raise failure from error
                why = failure.message
            else:
                if response.status < 300:
                    return response
                self._limit(request, started)
                can_refresh = None if refreshed or not _is_replayable(request) else credentials.refresh
                if response.status == 401 and can_refresh is not None and can_refresh() is not False:
                    refreshed = True
                    response.close()
                    continue
                delay = self._delay(request, attempt, response)
                if delay is None or delay > policy.max_delay or not _fits(delay, request.deadline):
                    return response
                response.close()
                why = f"{request}: HTTP {response.status}"
            attempt += 1
            request.attempts = attempt + 1
            logger.info("%s; attempt %d follows in %.2f s", why, attempt + 1, delay)
            if request.report is not None:
                request.report("retry", why, level="warning", attempt=attempt, delay=delay)
            await asyncio.sleep(delay)

    def _delay(self, request: Request, attempt: int, response: ClientResponse | None = None) -> float | None:
        """Return the seconds to wait before the request is sent again; ``None`` to give up."""
        if not _is_replayable(request):
            return None
        return self._options.retries.wait(
            attempt,
            request.method,
            None if response is None else response.status,
            None if response is None else response.headers,
            repeatable="Idempotency-Key" in request.headers,
        )

    async def _wait_for_limits(self, request: Request, credentials: Credentials, started: float) -> None:
        """Wait if the server has announced that its limit is reached, unless that takes too long."""
        assert self._limits is not None
        wait = self._limits.wait(_counted(request, credentials))
        self._limit(request, started)
        if 0 < wait <= self._options.retries.max_delay and _fits(wait, request.deadline):
            await asyncio.sleep(wait)

    def _limit(self, request: Request, started: float) -> None:
        """Set the request's deadline: further attempts share the time of the first, and end with the call."""
        ends = []
        if self._options.timeout is not None:
            ends.append(started + self._options.timeout)
        if request.expires is not None:
            ends.append(asyncio.get_running_loop().time() + request.expires / 1000 - time.time())
        request.deadline = min(ends, default=None)

    async def _follow(
        self, request: Request, credentials: Credentials, response: ClientResponse, started: float
    ) -> ClientResponse:
        """Return the response that a redirect leads to; return any other response unchanged."""
        if response.status not in STATUSES or "Location" not in response.headers or not request.may_redirect:
            return response
        left = self._options.limits.redirects
        first = request
        self._limit(request, started)
        while response.status in STATUSES and (location := response.headers.get("Location")):
            target = await self._gate.target(response, location, left)
            following = redirected(request, response.status, target, self._origins)
            if following is None:
                return response
            response.close()
            left -= 1
            request = following
            if request.authorize is None:
                credentials = _NO_CREDENTIALS
            first.redirected_to = shown_url(target)
            response = await self._once(request, credentials)
        return response

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
        """Return an awaitable that sends the request once. Exceptions of aiohttp are not converted."""
        session = self._session if self._loop is loop else None
        if session is None:
            session = self._open_session(loop)
        url = request.url
        if credentials.query:
            url = _with_query(url, credentials.query, is_redirected=request.is_redirected)
        headers = request.headers
        cookies = request.cookies + credentials.cookies if credentials.cookies else request.cookies
        body = request.body
        if credentials.headers or cookies or body is not None:
            headers = headers.copy()
            headers.update(credentials.headers)
            if cookies:
                headers["Cookie"] = _joined_cookies(headers.get("Cookie", ""), cookies)
            if body is not None:
                headers["Content-Type"] = body.content_type
                if body.data is None and body.length is not None:
                    headers["Content-Length"] = str(body.length)
        options = self._given.copy()
        if self._proxies is not None:
            options["proxy"] = self._proxies.of(origin_of(url))
        if credentials.middlewares:
            options["middlewares"] = (*credentials.middlewares, *self._middlewares)
        if body is not None:
            options["data"] = _sent(body, headers, request.report)
        elif (
            request.method != "GET"
        ):  # aiohttp adds a content type to some methods, and asking it not to takes time
            options["skip_auto_headers"] = ("Content-Type",)
        if request.is_stream or request.deadline is not None or self._options.session is not None:
            options["timeout"] = self._timeout(request)
        if request.prepare is not None:
            return self._prepared(session, request, url, headers.copy(), options)
        return session.request(
            request.method, self._encoded_url(url), headers=headers, allow_redirects=False, **options
        )

    async def _prepared(
        self, session: ClientSession, request: Request, url: str, headers: Any, options: dict[str, Any]
    ) -> ClientResponse:
        """Send a request after the hook ``on_request`` has changed it."""
        assert request.prepare is not None
        sent = HTTPRequest(request.method, url, headers, None if request.body is None else request.body.data)
        await request.prepare(sent)
        return await session.request(
            sent.method, self._encoded_url(sent.url), headers=sent.headers, allow_redirects=False, **options
        )

    def _timeout(self, request: Request) -> ClientTimeout:
        from aiohttp import ClientTimeout

        total = None if request.is_stream else self._options.timeout
        if total is not None and request.deadline is not None:
            # aiohttp takes 0 for "no bound".
            total = max(0.001, request.deadline - asyncio.get_running_loop().time())
        connect = self._options.connect_timeout
        return ClientTimeout(total=total, sock_connect=connect, sock_read=request.idle_timeout)


def _sent(body: EncodedBody, headers: Any, report: Report | None) -> Any:
    """Return the body as aiohttp takes it; a large one in pieces, if their progress is to be reported."""
    total = body.length if body.data is None else len(body.data)
    if report is None or (total is not None and total < LARGE):
        return body.data if body.stream is None else body.stream()
    if total is not None:
        headers["Content-Length"] = str(total)
    chunks = in_chunks(body.data) if body.data is not None else body.stream() if body.stream is not None else None
    return None if chunks is None else told(chunks, Progress(report, "upload", total))


def _count(failure: CallError, attempts: int) -> None:
    """Add the number of attempts to the details of an error, if there was more than one."""
    if attempts > 1 and isinstance(failure.details, dict):
        failure.details["attempts"] = attempts


def _counted(request: Request, credentials: Credentials) -> tuple[str, int]:
    """Return the key of a rate limit: the origin, and a hash of the credentials, which are not stored."""
    shown = (*sorted(credentials.headers.items()), *credentials.query, *credentials.cookies)
    return origin_of(request.url), hash(shown)


def _with_query(url: str, pairs: list[str], *, is_redirected: bool) -> str:
    """Return ``url`` with credentials in its query, unless a redirect has repeated them already."""
    base, mark, query = url.partition("?")
    present = query.split("&") if is_redirected else []
    added = [pair for pair in pairs if pair not in present]
    return f"{base}{mark or '?'}{'&'.join(filter(None, [query, *added]))}" if added else url


def _joined_cookies(configured: str, cookies: list[str]) -> str:
    """Return one ``Cookie`` header; cookies of the call replace configured cookies of the same name."""
    if not configured:
        return "; ".join(cookies)
    names = {pair.partition("=")[0] for cookie in cookies for pair in cookie.split("; ")}
    kept = [pair for pair in configured.split("; ") if pair.partition("=")[0].strip() not in names]
    return "; ".join([*kept, *cookies])


def _is_replayable(request: Request) -> bool:
    """Return True if the body, if there is one, can be sent again."""
    return request.body is None or request.body.replayable


def _fits(delay: float, deadline: float | None) -> bool:
    return deadline is None or asyncio.get_running_loop().time() + delay < deadline

"""Requests over HTTP: one pooled session per source, retries, redirects, bounds, and errors with a code."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs

from operad.errors import CallError, ErrorCode
from operad_openapi._bodies import EncodedBody
from operad_openapi._security import Credentials
from operad_openapi._urls import origin_of
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


@attrs.define(eq=False)
class Request:
    """A request, without its credentials."""

    method: str
    url: str
    """Encoded; sent as it is."""
    headers: Any
    """A ``CIMultiDict``."""
    cookies: list[str]
    body: EncodedBody | None = None
    authorize: Callable[[], Awaitable[Credentials]] | None = None
    """Makes the credentials, for each attempt anew."""
    is_stream: bool = False
    """Whether the response may go on for ever: `idle_timeout` bounds silence, nothing the whole."""
    idle_timeout: float | None = None
    """Seconds between two reads of a stream."""
    deadline: float | None = None
    """Of the event loop's clock, in s; set when a request is sent again."""
    expires: float | None = None
    """The deadline of the call, in epoch ms; who waits for the answer is gone then."""
    redirected_to: str | None = None
    """The URL that a redirect led to, without its query, which may hold secrets."""

    def __str__(self) -> str:
        """Method and URL for a message, without the query."""
        return f"{self.method} {self.url.partition('?')[0]}"


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

        from operad_openapi._resolving import GuardedResolver

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

        from operad_openapi._resolving import is_private

        def refuse(reason: str) -> CallError:
            response.close()
            message = f"{response.method} {_host(str(response.url))} answered {response.status}: {reason}"
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


def retry_after(value: str | None) -> float | None:
    """The seconds of a ``Retry-After``, which holds seconds or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _host(url: str) -> str:
    return origin_of(url) or "the server"


def network_failure(error: Exception, method: str, url: str, timeout: float | None = None) -> CallError | None:
    """The `CallError` for what sending or reading raised; ``None`` for what has to do with neither."""
    import aiohttp

    if isinstance(error, CallError):
        return error
    if isinstance(error, (aiohttp.ClientError, OSError, ValueError)):
        return network_error(error, method, url, timeout)
    return None


def network_error(error: BaseException, method: str, url: str, timeout: float | None = None) -> CallError:
    """The `CallError` for a failure below HTTP; it names the server, never the whole URL."""
    import aiohttp

    where = f"{method} {_host(url)}"
    details = {"method": method, "url": url.partition("?")[0]}
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ServerTimeoutError):
        within = "in time" if timeout is None else f"within {timeout} s"
        return CallError(ErrorCode.TIMEOUT, f"{where} did not answer {within}", details)
    if isinstance(error, aiohttp.ServerTimeoutError):
        kind = (
            "the connection was not made" if isinstance(error, aiohttp.ConnectionTimeoutError) else "no data came"
        )
        return CallError(ErrorCode.TIMEOUT, f"{where}: {kind} in time", details)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CallError(ErrorCode.UNAVAILABLE, f"{where}: its certificate is not valid: {error}", details)
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or str(error.os_error)
        return CallError(ErrorCode.UNAVAILABLE, f"{where}: cannot connect: {reason}", details)
    if isinstance(error, aiohttp.ClientPayloadError):
        cause = error.__cause__
        if isinstance(cause, aiohttp.http_exceptions.ContentEncodingError):
            return CallError(ErrorCode.EXECUTION_ERROR, f"{where}: the compressed body is broken", details)
        return CallError(ErrorCode.UNAVAILABLE, f"{where}: the connection broke off within the response", details)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return CallError(ErrorCode.UNAVAILABLE, f"{where}: the server closed the connection", details)
    if isinstance(error, (aiohttp.ClientOSError, ConnectionError)):
        return CallError(ErrorCode.UNAVAILABLE, f"{where}: the connection was lost: {error}", details)
    if isinstance(error, aiohttp.ClientResponseError):
        return CallError(ErrorCode.EXECUTION_ERROR, f"{where}: the response is not HTTP: {error.message}", details)
    if isinstance(error, OSError):
        return CallError(ErrorCode.UNAVAILABLE, f"{where}: {error}", details)
    return CallError(ErrorCode.EXECUTION_ERROR, f"{where}: {type(error).__name__}: {error}", details)


async def chunks_of(response: ClientResponse) -> AsyncIterator[bytes]:
    """The chunks of a body as they come. Raises `CallError`."""
    import aiohttp

    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise network_error(error, response.method, str(response.url)) from error


async def read_body(
    response: ClientResponse, limit: int, name: str = "response_bytes", timeout: float | None = None
) -> bytes:
    """The body. Raises `CallError` ``PAYLOAD_TOO_LARGE`` beyond ``limit`` bytes, decompressed or not."""
    length = response.content_length
    if length is not None and length > limit:
        response.close()
        raise _too_large(response, limit, name)
    try:
        if length is not None and "Content-Encoding" not in response.headers:
            content = response.content
            # A small body is there with the head already: three coroutines less than reading it.
            return content.read_nowait() if content.is_eof() else await response.read()
        pieces: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > limit:
                response.close()
                raise _too_large(response, limit, name)
            pieces.append(chunk)
    except Exception as error:
        response.close()
        failure = network_failure(error, response.method, str(response.url), timeout)
        if failure is None or failure is error:
            raise
        raise failure from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def read_head(response: ClientResponse, limit: int) -> bytes:
    """At most ``limit`` bytes of a body that may be broken; a longer one is cut, and its connection closed."""
    pieces: list[bytes] = []
    left = limit
    try:
        async for chunk in chunks_of(response):
            pieces.append(chunk[:left])
            left -= len(chunk)
            if left <= 0:
                break
    except CallError:
        pass  # the status is the news; a body that breaks off does not hide it
    if left <= 0:
        response.close()
    return b"".join(pieces)


def _too_large(response: ClientResponse, limit: int, name: str) -> CallError:
    message = f"{response.method} {_host(str(response.url))}: the body is larger than {limit} bytes (limit {name})"
    return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {"limit": name, "bytes": limit})

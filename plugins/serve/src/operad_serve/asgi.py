"""The common base of the ASGI 3 applications: requests, responses, admission and lifespans.

The HTTP API, the front door and MCP over HTTP are built on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import attrs

from operad import CallError, ErrorCode, Identity
from operad_auth import AnyAuthenticator, Credentials, HostRules, as_authenticator, is_loopback
from operad_serve.problems import PROBLEM_TYPE, Problem, denied

logger = logging.getLogger("operad.serve")

Header = tuple[bytes, bytes]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
"""``await app(scope, receive, send)``: an ASGI 3.0 application."""

ADMISSION = "operad"
"""The key of the ASGI scope under which the front door puts the `Admission` of a request."""
RECORD = "operad.record"
"""The key of the ASGI scope under which the front door puts the `RequestRecord` of a request."""

_PART = 256 * 1024
"""How many bytes of a response are passed to the connection in one piece."""
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
"""Headers that proxies add."""
_DISCARDED = 16 * 1024 * 1024
"""How many bytes of a body beyond its limit are still read, so that the client gets to read the response."""
_CLOSE: tuple[Header, ...] = ((b"connection", b"close"),)

SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # A response may hold anything that an upstream sent. It must not run as a page of this origin.
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)


class ClientGoneError(Exception):
    """The client has closed the connection, or was too slow to read the response."""


@attrs.frozen(eq=False)
class Admission:
    """The caller of a request whose ``Host`` and ``Origin`` have been checked.

    Only this process can put an admission into a scope, because clients cannot set the keys of a scope.
    """

    identity: Identity | None = None
    """The caller; None for an anonymous one."""
    is_refused: bool = False
    """Whether the request has credentials that are not valid."""
    has_authenticator: bool = False
    """Whether the server authenticates callers. If so, an anonymous request is refused by default."""
    credentials: Credentials | None = None
    """The credentials of the request; None if the authenticator is missing or raised an error."""
    metadata_url: str | None = None
    """The URL of the resource metadata (RFC 9728), which responses with status 401 name."""


ANONYMOUS = Admission()


@attrs.define(eq=False)
class RequestRecord:
    """The id and the caller of a request, for the access log. Only this process can put it into a scope."""

    id: str
    """The id of the request, which is the request id of its call."""
    identity: str | None = None
    """The id of the caller; None for an anonymous one."""


class Exchange:
    """A request and its response.

    Args:
        scope: the ASGI scope.
        receive: the ASGI receive function.
        send: the ASGI send function.
        path: the decoded path below the root of the application.
        write_timeout: seconds that the client may take to read one part of the response; None for no limit.
    """

    __slots__ = (
        "_extra",
        "_send",
        "_write_timeout",
        "credentials",
        "headers",
        "identity",
        "method",
        "path",
        "receive",
        "request_id",
        "scope",
        "started",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, path: str, write_timeout: float | None = None
    ) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.path = path
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.identity: Identity | None = None
        self.credentials: Credentials | None = None
        record = scope.get(RECORD)
        self.request_id: str = record.id if isinstance(record, RequestRecord) else ""
        self.started = False
        """Whether the response has begun."""
        self._extra: list[Header] = []
        self._write_timeout = write_timeout

    @property
    def is_local(self) -> bool:
        """Whether the request came to a loopback address, under one of its names, and through no proxy."""
        name, colon, port = (self.header("host") or "").rpartition(":")
        host = name if colon and port.isdigit() else name + colon + port
        proxied = any(header in self.headers for header in _FORWARDED)
        return not proxied and is_loopback(self.scope.get("server")) and is_loopback((host.lower().strip("[]"),))

    def header(self, name: str) -> str | None:
        """Return a header of the request; None if it is missing. ``name`` is in lower case."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def add_header(self, name: bytes, value: str) -> None:
        """Add a header to the response, before it begins. Errors get the header too."""
        self._extra.append((name, value.encode("latin-1", "replace")))

    # --- the request -----------------------------------------------------------------------------

    async def body(self, limit: int, timeout: float, *, has_options: bool = True) -> bytes:
        """Read the whole body.

        Args:
            limit: the largest body, in bytes.
            timeout: the time for the whole body, in seconds.
            has_options: whether the options ``max_body`` and ``body_timeout`` set the limits. If so, errors name
                them.

        Raises:
            Problem: the body has more than ``limit`` bytes (413), or takes longer than ``timeout`` seconds (408).
            ClientGoneError: the client left before the body was complete.
        """
        text = self.headers.get(b"content-length", b"")
        declared = int(text) if text.isdigit() else 0
        # A client that waits for "100 Continue", or sends this much, is refused immediately.
        if declared > limit and (b"expect" in self.headers or declared > limit + _DISCARDED):
            raise _too_large(limit, has_options)
        try:
            async with asyncio.timeout(timeout):
                return await self._read(limit, has_options)
        except TimeoutError:
            option = " (body_timeout)" if has_options else ""
            detail = f"expected the whole body within {timeout:g} s{option}, got a part of it"
            raise Problem(408, detail, code=ErrorCode.TIMEOUT, headers=_CLOSE) from None

    async def _read(self, limit: int, has_options: bool) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            size += len(part)
            if size <= limit:
                parts.append(part)
            else:  # a connection that is closed with unread data loses the response
                parts.clear()
            more = message.get("more_body")
            if size > limit + _DISCARDED or (size > limit and not more):
                raise _too_large(limit, has_options)
            if not more:
                return b"".join(parts)

    # --- the response ----------------------------------------------------------------------------

    async def start(self, status: int, headers: Iterable[Header]) -> None:
        """Send the status and the headers of the response."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, message: Any) -> None:
        """Send an ASGI message of the response. Its start gets the headers of `add_header`."""
        if message["type"] == "http.response.start":
            self.started = True
            message = {**message, "headers": [*message["headers"], *self._extra]}
        await self._send(message)

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send a part of the body. Return when the connection has taken it. The last part has ``more=False``."""
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def write_in_time(self, data: bytes, *, more: bool = True) -> None:
        """Send a part of the body. Raises `ClientGoneError` if the client exceeds the write timeout."""
        try:
            async with asyncio.timeout(self._write_timeout):
                await self.write(data, more=more)
        except TimeoutError:
            raise ClientGoneError from None

    async def respond(
        self, status: int, body: bytes = b"", content_type: str | None = None, headers: Iterable[Header] = ()
    ) -> None:
        """Send a whole response. Its headers keep browsers from running it, guessing its type and storing it."""
        every: list[Header] = [*SECURITY, *headers]
        if content_type is not None:
            every.append((b"content-type", content_type.encode("latin-1", "replace")))
        if status != 204:
            every.append((b"content-length", str(len(body)).encode()))
        await self.start(status, every)
        if self.method == "HEAD":
            body = b""
        if len(body) <= _PART:
            await self.write(body, more=False)
            return
        for start in range(0, len(body), _PART):
            await self.write_in_time(body[start : start + _PART], more=start + _PART < len(body))

    async def respond_problem(self, problem: Problem) -> None:
        """Send a problem as the response; status 204 has no body."""
        if problem.status == 204:
            await self.respond(204, headers=problem.headers)
            return
        body = problem.to_json(self.request_id)
        await self.respond(problem.status, body, PROBLEM_TYPE, problem.headers)


def _too_large(limit: int, has_options: bool) -> Problem:
    detail = f"expected a body of at most {limit} bytes{' (max_body)' if has_options else ''}, got more"
    return Problem(413, detail, code=ErrorCode.PAYLOAD_TOO_LARGE, headers=_CLOSE)


class Gate:
    """The admission of requests: checks ``Host`` and ``Origin``, and authenticates callers.

    A request that the front door has admitted (an `Admission` in its scope) is not checked again.

    Args:
        authenticate: a function that returns the caller of `operad_auth.Credentials`, or None if it is unknown.
            Without it, every caller is anonymous.
        allowed_hosts: see `operad_auth.HostRules`; ``name:*`` means the same as ``name``.
        allowed_origins: see `operad_auth.HostRules`.
        anonymous: whether to accept requests without credentials although there is an authenticator.
        metadata_url: see `Admission`.

    Raises:
        ConfigError: ``authenticate`` cannot be called.
    """

    def __init__(
        self,
        authenticate: AnyAuthenticator | None = None,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        *,
        anonymous: bool = False,
        metadata_url: str | None = None,
    ) -> None:
        # `HostRules` takes a name without a port for the name with any port.
        hosts = [host.removesuffix(":*") for host in allowed_hosts]
        self._rules = HostRules(hosts, allowed_origins)
        self._authenticate = None if authenticate is None else as_authenticator(authenticate)
        self._anonymous = anonymous
        self._metadata_url = metadata_url

    @property
    def authenticates(self) -> bool:
        """Whether the gate has an authenticator. If not, every caller is anonymous."""
        return self._authenticate is not None

    def allow_origin(self, exchange: Exchange, *, methods: str, headers: str, expose: str) -> None:
        """Add the CORS headers to the response if a page of an allowed origin sent the request.

        Args:
            exchange: the request.
            methods: the methods that pages may use, separated by commas.
            headers: the headers that pages may send, separated by commas.
            expose: the response headers that pages may read, separated by commas.
        """
        origin = exchange.header("origin")
        if origin is None or not self._rules.allows_origin(origin):
            return
        exchange.add_header(b"access-control-allow-origin", origin)
        exchange.add_header(b"access-control-expose-headers", expose)
        exchange.add_header(b"vary", "Origin")
        if exchange.method == "OPTIONS":
            exchange.add_header(b"access-control-allow-methods", methods)
            exchange.add_header(b"access-control-allow-headers", headers)
            exchange.add_header(b"access-control-max-age", "600")

    def is_foreign_page(self, exchange: Exchange) -> bool:
        """Return True if a page of another origin sent the request, and that origin is not allowed."""
        origin = exchange.header("origin")
        is_own = origin is None or origin.partition("://")[2] == exchange.header("host")
        return not (is_own or (origin is not None and self._rules.allows_origin(origin)))

    def check(self, exchange: Exchange) -> None:
        """Raise `Problem` if ``Host`` (421) or ``Origin`` (403) is not allowed, or a header is ambiguous (400).

        A request that the front door has admitted is not checked again.
        """
        scope = exchange.scope
        if isinstance(scope.get(ADMISSION), Admission):
            return
        ambiguous = self._rules.ambiguity(scope["headers"])
        if ambiguous is not None:  # it is not certain where the next request begins
            raise Problem(*ambiguous, headers=_CLOSE)
        refused = self._rules.refusal(scope.get("server"), exchange.header("host"), exchange.header("origin"))
        if refused is not None:
            raise Problem(*refused)

    async def admission(self, exchange: Exchange) -> Admission:
        """Return the admission of a request. Raises `Problem` (503) if the caller cannot be authenticated now."""
        known = exchange.scope.get(ADMISSION)
        if isinstance(known, Admission):
            return known
        if self._authenticate is None:
            return ANONYMOUS
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
        client = exchange.scope.get("client")
        credentials = Credentials.from_headers(headers, client[0] if client else None)
        try:
            identity = await self._authenticate(credentials)
        except CallError as error:
            if error.code != ErrorCode.UNAVAILABLE:
                return Admission(None, is_refused=True, has_authenticator=True, metadata_url=self._metadata_url)
            logger.warning("a caller cannot be authenticated: %s", error)
            detail = "the caller cannot be authenticated now; try again"
            raise Problem(503, detail, code=error.code, headers=[(b"retry-after", b"5")]) from error
        is_refused = identity is None and credentials.token is not None
        return Admission(identity, is_refused, True, credentials, self._metadata_url)

    def requires_credentials(self, admission: Admission) -> bool:
        """Return True if a request must be refused because it has no credentials."""
        return admission.identity is None and admission.has_authenticator and not self._anonymous

    async def identify(self, exchange: Exchange) -> None:
        """Authenticate the caller; set the identity and the credentials of the exchange.

        Raises:
            Problem: the credentials are missing or not valid (401), or cannot be checked now (503).
        """
        admission = await self.admission(exchange)
        if admission.is_refused:
            detail = "the credentials are not valid; send a valid token"
            raise denied(detail, invalid=True, metadata_url=admission.metadata_url)
        if self.requires_credentials(admission):
            detail = "this server requires credentials; send Authorization: Bearer <token>"
            raise denied(detail, metadata_url=admission.metadata_url)
        exchange.identity, exchange.credentials = admission.identity, admission.credentials


def is_preflight(exchange: Exchange) -> bool:
    """Return True for a CORS preflight (WHATWG Fetch, 4.8), which browsers send without credentials."""
    headers = exchange.headers
    return exchange.method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


async def run_lifespan(
    receive: Receive, send: Send, start: Callable[[], Awaitable[Any]], stop: Callable[[], Awaitable[Any]]
) -> None:
    """Run the lifespan of an application (ASGI 3). An error of ``start`` is reported and raised.

    Args:
        receive: the ASGI receive function.
        send: the ASGI send function.
        start: a function that starts the application.
        stop: a function that drains and closes the application.
    """
    await receive()
    try:
        await start()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
        raise
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await stop()
    await send({"type": "lifespan.shutdown.complete"})


async def close_websocket(send: Send) -> None:
    """Refuse a WebSocket connection. No application of this distribution accepts one."""
    await send({"type": "websocket.close", "code": 1000})

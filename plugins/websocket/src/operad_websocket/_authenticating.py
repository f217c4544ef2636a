"""Authentication at a hub, by the handshake or, for browsers, by the first frame."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web

from operad import Identity
from operad.plugin import CallError, ErrorCode
from operad_auth import Authenticator as CredentialsAuthenticator
from operad_auth import Credentials, HostRules
from operad_auth.http.urls import is_loopback_host
from operad_calls.transport import ProtocolError, Reports
from operad_websocket._frames import read, value, write

RequestAuthenticator = Callable[[web.Request], "Identity | Awaitable[Identity | None] | None"]
"""``authenticate(request)`` returns the identity of the client, or ``None`` if the credentials are not valid."""
Authenticator = RequestAuthenticator | CredentialsAuthenticator
"""A function of the aiohttp request, or an authenticator of `operad.auth`."""

AUTHENTICATE, AUTHENTICATED = "link.authenticate", "link.authenticated"
FIRST_FRAME = "operad.authenticate"
"""The subprotocol by which a client announces that it sends its token in the first frame."""
TOKEN_PREFIX = "operad.bearer."  # noqa: S105  # what a token in Sec-WebSocket-Protocol starts with
"""The prefix of a subprotocol that contains a token as base64url without padding, for browsers."""
_BEARER = {"WWW-Authenticate": "Bearer"}
_LATER = "the client cannot be authenticated now; try again"
"""The message if the token may be valid, but cannot be checked now."""


def bearer_tokens(tokens: Mapping[str, Identity]) -> RequestAuthenticator:
    """Return an authenticator for the header ``Authorization: Bearer <token>``.

    Args:
        tokens: the identities, by token.
    """
    key = os.urandom(32)

    def digest(token: str) -> bytes:
        return hmac.digest(key, token.encode("utf-8", "surrogateescape"), hashlib.sha256)

    known = {digest(token): identity for token, identity in tokens.items()}

    def authenticate(request: web.Request) -> Identity | None:
        credentials = Credentials.from_headers(request.headers)
        return None if credentials.bearer is None else known.get(digest(credentials.bearer))

    return authenticate


class Gate:
    """The authentication of the clients of a hub.

    Args:
        authenticate: the authenticator; if ``None``, every client on this machine may connect, anonymously.
        origins: the origins of web pages that may connect.
        reports: counts and logs refusals.
        patience: seconds within which a first frame must arrive.
        anonymous: whether clients without credentials may connect although there is an authenticator.
    """

    def __init__(
        self,
        authenticate: Authenticator | None,
        origins: Collection[str],
        reports: Reports,
        patience: float,
        *,
        anonymous: bool = False,
    ) -> None:
        self._authenticate = authenticate
        self._anonymous = anonymous
        self._origins = frozenset(origins)
        self._reports = reports
        self._patience = patience

    @property
    def is_open(self) -> bool:
        """Whether every client may connect, because there is no authenticator."""
        return self._authenticate is None

    def asks_later(self, request: web.Request) -> bool:
        """Return True if the client announces a token in its first frame, and the hub has an authenticator."""
        return not self.is_open and FIRST_FRAME in _offered(request)

    def check_origin(self, request: web.Request) -> None:
        """Check the origin and the host name of a request, before authentication.

        Raises:
            web.HTTPForbidden: the origin is not allowed, or, without an authenticator, the host is not loopback.
            web.HTTPBadRequest: a header is ambiguous.
        """
        ambiguous = HostRules.ambiguity([(name.lower(), value) for name, value in request.raw_headers])
        if ambiguous is not None:
            raise web.HTTPBadRequest(text=f"{ambiguous[1]}\n")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            # Any web page could otherwise talk to a hub on this machine, as its user.
            raise web.HTTPForbidden(text=f"origin {origin[:200]!a} may not connect; add it to allowed_origins\n")
        host = urlsplit(f"//{request.host}").hostname or ""
        if self.is_open and not is_loopback_host(host):  # a rebound DNS name
            host = f"expected the host localhost, got {request.host[:200]!a}"
            raise web.HTTPForbidden(text=f"{host}; for other hosts, set up an authenticator of the hub\n")

    async def admit(self, request: web.Request) -> Identity | None:
        """Return the identity of a client from the headers of the handshake; ``None`` if the client is anonymous.

        Raises:
            web.HTTPUnauthorized: the credentials are missing or invalid (401).
            web.HTTPServiceUnavailable: the credentials cannot be checked now (503).
        """
        if self.is_open:
            return None
        token = _token_offered(request)
        try:
            identity = await self._identify(request, token)
        except CallError as error:
            if error.code == ErrorCode.UNAVAILABLE:
                raise web.HTTPServiceUnavailable(text=f"{_LATER}\n", headers={"Retry-After": "5"}) from None
            self._refuse(request)
            raise web.HTTPUnauthorized(text="the token is missing or invalid\n", headers=_BEARER) from None
        is_anonymous = token is None and "Authorization" not in request.headers
        if identity is None and not (self._anonymous and is_anonymous):
            self._refuse(request)
            raise web.HTTPUnauthorized(text="the token is missing or invalid\n", headers=_BEARER)
        return identity

    async def admit_by_frame(
        self, request: web.Request, socket: web.WebSocketResponse[Literal[False]]
    ) -> Identity | None:
        """Return the identity of a client from its first frame; ``None`` if it was refused and disconnected."""
        identity = None
        try:
            async with asyncio.timeout(self._patience):
                message = await socket.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                frame = read(message.data)
                token = value(frame.payload, "token")
                if frame.type == AUTHENTICATE and isinstance(token, str):
                    identity = await self._identify(request, token)
                    if identity is not None:
                        answer = write(AUTHENTICATED, {"identity": identity.id}, frame.id)
                        await socket.send_str(answer.decode())
                        return identity
        except CallError as error:
            if error.code == ErrorCode.UNAVAILABLE:
                await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=_LATER.encode())
                return None
        except (TimeoutError, ProtocolError, ConnectionError):
            pass
        self._refuse(request)
        await socket.close(
            code=WSCloseCode.POLICY_VIOLATION, message=f"expected {AUTHENTICATE} with a valid token".encode()
        )
        return None

    async def _identify(self, request: web.Request, token: str | None) -> Identity | None:
        """Return the identity of a client. ``token``, if given, replaces the token in the header."""
        authenticate = self._authenticate
        assert authenticate is not None
        if getattr(authenticate, "is_authenticator", False):
            if token is None:
                shown = Credentials.from_headers(request.headers, request.remote)
            else:
                shown = Credentials("bearer", token, request.headers, request.remote)
            by_credentials: Any = authenticate
            found: Identity | None = await by_credentials(shown)
            return found
        if token is not None:
            headers = {**request.headers, "Authorization": f"Bearer {token}"}
            request = request.clone(headers=headers)
        identity = authenticate(request)  # type: ignore[arg-type]  # one of the request
        return await identity if inspect.isawaitable(identity) else identity

    def _refuse(self, request: web.Request) -> None:
        where = request.remote or "?"
        self._reports.refuse(
            f"address {where}", f"refused a connection from {where}: the token is missing or invalid"
        )


def _offered(request: web.Request) -> list[str]:
    values = request.headers.getall("Sec-WebSocket-Protocol", ())
    return [name.strip() for value in values for name in value.split(",")]


def _token_offered(request: web.Request) -> str | None:
    """Return the token among the subprotocols, ``""`` if it is malformed, or None."""
    for name in _offered(request):
        if name.startswith(TOKEN_PREFIX):
            text = name.removeprefix(TOKEN_PREFIX)
            try:
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            except (binascii.Error, ValueError):
                return ""
    return None

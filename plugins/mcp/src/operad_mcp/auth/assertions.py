"""Tokens for an assertion (RFC 7523), such as that of a workload's platform.

The SDK has this for clients with a secret only. Imported with the first connection that logs in: it needs httpx2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit, urlunsplit

import httpx2

from operad_auth import OAuthOptions, OAuthToken, default_fetch
from operad_auth.server import AuthorizationServer
from operad_mcp.config import MCPAuth, maybe_await

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class AssertionAuth(httpx2.Auth):
    """Gets a token for an assertion, and a new one when it expires. A refusal is told, not tried again.

    Args:
        url: of the server.
        auth: ``issuer``, ``client_id`` and ``assertion``.
    """

    def __init__(self, url: str, auth: MCPAuth) -> None:
        parts = urlsplit(url)
        self._resource = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        self._auth = auth
        self._token: OAuthToken | None = None
        self._lock = asyncio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The request with a token, and once more with a new one where the old one is not accepted any more."""
        token, is_new = await self._current(None)
        request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401 and not is_new:
            token, _ = await self._current(token)
            request.headers["authorization"] = f"Bearer {token}"
            yield request

    async def _current(self, refused: str | None) -> tuple[str, bool]:
        """The token, and whether it was got just now. One is got however many ask."""
        async with self._lock:
            kept = self._token
            if kept is not None and kept.usable(time.time()) and kept.access_token != refused:
                return kept.access_token, False
            auth = self._auth
            issuer, found = auth.issuer or "", auth.assertion
            assertion = await maybe_await(found(issuer, self._resource)) if callable(found) else found
            options = OAuthOptions(
                client_id=auth.client_id or "",
                client_secret=auth.client_secret,
                client_auth="basic",
                issuer=issuer,
                scopes=auth.scope,
                resource=self._resource,
            )
            server = AuthorizationServer(options, default_fetch)
            fields = {"grant_type": _JWT_BEARER, "assertion": str(assertion), **server.fields()}
            self._token = OAuthToken.from_answer(await server.token(fields))
            return self._token.access_token, True

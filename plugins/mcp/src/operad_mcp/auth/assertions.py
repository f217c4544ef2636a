"""Tokens for an assertion (RFC 7523), such as that of a workload's platform.

The SDK has this for clients with a secret only. Imported with the first connection that logs in: it needs httpx2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from operad import CallError, ErrorCode
from operad_auth import default_fetch, discover
from operad_mcp.config import MCPAuth, maybe_await

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EARLY = 10.0
"""Seconds before its end that a token is renewed."""


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
        self._token: str | None = None
        self._until: float | None = None
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
            expired = self._until is not None and time.time() > self._until
            if self._token is not None and not expired and self._token != refused:
                return self._token, False
            issuer = self._auth.issuer or ""
            found = self._auth.assertion
            assertion = await maybe_await(found(issuer, self._resource)) if callable(found) else found
            fields = {"grant_type": _JWT_BEARER, "assertion": str(assertion), "resource": self._resource}
            if self._auth.scope:
                fields["scope"] = self._auth.scope
            endpoint = (await discover(issuer, default_fetch)).get("token_endpoint", "")
            answer = await _asked(endpoint, fields, self._auth)
            self._token = str(answer["access_token"])
            lasts = answer.get("expires_in")
            self._until = time.time() + lasts - _EARLY if isinstance(lasts, (int, float)) else None
            return self._token, True


async def _asked(url: str, fields: dict[str, str], client: MCPAuth) -> dict[str, Any]:
    """The answer of a token endpoint.

    Raises:
        CallError: it refuses; what it says of that is told.
    """
    auth: httpx2.Auth = httpx2.Auth()  # none
    if client.client_secret is not None:
        auth = httpx2.BasicAuth(quote(client.client_id or "", safe=""), quote(client.client_secret, safe=""))
    elif client.client_id is not None:
        fields = {**fields, "client_id": client.client_id}
    try:
        async with httpx2.AsyncClient(timeout=30) as http:
            response = await http.post(url, data=fields, auth=auth)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise CallError(ErrorCode.UNAVAILABLE, f"the token endpoint gives no answer: {error}") from error
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if response.status_code in (200, 201) and isinstance(answer, dict) and answer.get("access_token"):
        return answer
    said = answer if isinstance(answer, dict) else {}
    text = str(said.get("error_description") or said.get("error") or f"HTTP {response.status_code}")[:300]
    details = {"error": said.get("error"), "statusCode": response.status_code}
    raise CallError(ErrorCode.ACCESS_DENIED, f"the authorization server gives no token: {text}", details)

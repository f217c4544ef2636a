"""Access tokens that are fetched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from operad import CallError, ErrorCode
from operad_openapi._document.document import Json
from operad_openapi._document.origins import origin_of
from operad_openapi._request.text import check_header_value
from operad_openapi.config import HTTPAuth

TokenFetch = Callable[[str, HTTPAuth], Awaitable[Json]]


class Token:
    """An access token, fetched when it is needed and shared by all calls."""

    def __init__(self, url: str, auth: HTTPAuth, fetch: TokenFetch) -> None:
        self._url = url
        self._auth = auth
        self._fetch = fetch
        self._value: str | None = None
        self._expires = 0.0  # of the monotonic clock
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def forget(self) -> None:
        self._value = None

    async def get(self) -> str:
        if self._value is not None and time.monotonic() < self._expires:
            return self._value
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        async with self._lock:
            if self._value is None or time.monotonic() >= self._expires:
                answer = await self._fetch(self._url, self._auth)
                value = answer.get("access_token")
                if not isinstance(value, str):
                    raise CallError(
                        ErrorCode.EXECUTION_ERROR,
                        f"the token endpoint {origin_of(self._url)} gave no access_token",
                    )
                lifetime = answer.get("expires_in")
                seconds = float(lifetime) if isinstance(lifetime, (int, float)) else 300.0
                # Half a minute early, so that a token does not expire on its way.
                self._expires = time.monotonic() + max(1.0, seconds - 30)
                self._value = check_header_value(value)
            return self._value

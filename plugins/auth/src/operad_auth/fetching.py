"""HTTP requests of this package, sent by a function of the application or by the standard library in a thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs

from operad.errors import CallError, ConfigError, ErrorCode
from operad_auth.http.urls import is_loopback_host, shown_url

MAX_BODY = 1 << 20
"""The maximum size of the body of a response, in bytes."""


@attrs.frozen
class FetchResponse:
    """An HTTP response. Names of headers are in lower case, and the body is at most 1 MiB."""

    status: int
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: bytes = attrs.field(default=b"", repr=False)

    def json(self) -> Any:
        """Return the value of the body, which is JSON; ``None`` if the body is not valid JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def summary(self) -> str:
        """Return the status, and for status 200 the kind of the body, for messages."""
        if self.status != 200:
            return f"HTTP {self.status}"
        kinds = {dict: "a JSON object", list: "a JSON array", type(None): "no JSON"}
        return f"HTTP 200 with {kinds.get(type(self.json()), 'a JSON value that is not an object')}"


class Fetch(Protocol):
    """A function that sends one HTTP request and returns the response. It does not follow redirects.

    It raises `CallError` ``UNAVAILABLE`` if it cannot connect, if there is no response within ``timeout`` seconds,
    or if the body is larger than 1 MiB.
    """

    async def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 10.0,
    ) -> FetchResponse:
        """Send the request and return the response."""
        ...


async def default_fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout: float = 10.0,
) -> FetchResponse:
    """Send a request with the standard library, in a thread; ``HTTPS_PROXY`` and similar variables apply.

    Raises:
        CallError: ``UNAVAILABLE``; see `Fetch`.
        ConfigError: the URL is not an http or https URL.
    """
    return await asyncio.to_thread(_fetch, method, url, dict(headers or {}), body, timeout)


def _fetch(method: str, url: str, headers: dict[str, str], body: bytes | None, timeout: float) -> FetchResponse:
    # 25 ms to import, and an application whose adapters bring a client never needs it.
    import http.client
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    require_http(url)
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310  # the scheme is checked above
    try:
        try:
            answer: Any = urllib.request.build_opener(NoRedirect).open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            content = answer.read(MAX_BODY + 1)
            if len(content) > MAX_BODY:
                raise unavailable(url, f"the response is larger than {MAX_BODY} bytes")
            return FetchResponse(answer.status, {k.lower(): v for k, v in answer.headers.items()}, content)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise unavailable(url, str(getattr(error, "reason", None) or error) or type(error).__name__) from None


def require_http(url: str) -> None:
    """Raise `ConfigError` unless the URL's scheme is http or https."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f'expected an http or https URL, got "{shown_url(url)}"')


def require_secure(url: str, what: str) -> None:
    """Raise `ConfigError` unless a URL to which secrets are sent uses https, or http to this machine.

    ``what`` is the name of the URL in the message.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ConfigError(f"{what}: expected an https URL, got a text that is not a URL") from None
    if host and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))):
        return
    raise ConfigError(f'{what}: expected an https URL (http only for this machine), got "{shown_url(url)}"')


def unavailable(url: str, reason: str) -> CallError:
    """Return the `CallError` ``UNAVAILABLE`` for a server that gives no usable response, with the reason."""
    return CallError(ErrorCode.UNAVAILABLE, f"{shown_url(url)} gives no usable response: {reason[:300]}")

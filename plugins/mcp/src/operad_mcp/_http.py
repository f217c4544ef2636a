"""The HTTP transports: the SDK's, over a client that keeps what the SDK would lose.

The SDK turns every HTTP error into "Server returned an error response", and a refused connection ends its whole
session, with all calls in flight. `KeepingTransport` answers both with a JSON-RPC error that says what
happened, so that one request fails, and for its own reason; and it bounds what is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from operad_mcp._stdio import TOO_LARGE
from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import HTTP_ERROR, UNREACHABLE

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_BODY_KEPT = 2_000
_HEADERS_KEPT = ("www-authenticate", "retry-after", "content-type", "location")
_READ_TIMEOUT = 24 * 3600.0
"""Seconds; a stream may be silent for long, and a call's own deadline ends it."""


class KeepingTransport(httpx2.AsyncBaseTransport):
    """Passes requests on; errors in the answers to messages become JSON-RPC errors."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: str, limit: int) -> None:
        self._inner = inner
        self._url = httpx2.URL(url)
        self._limit = limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        if request.method != "POST" or request.url != self._url:
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            sent = not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return _error(request, 503, UNREACHABLE, text, {"sent": sent})
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        if response.status_code >= 400:
            return await self._failed(request, response, is_json)
        if is_json and response.status_code == 200:
            return await self._bounded(request, response)
        return response

    async def _failed(self, request: httpx2.Request, response: httpx2.Response, is_json: bool) -> httpx2.Response:
        try:
            body = await _read(response, min(self._limit, 1024 * 1024))
        except httpx2.TransportError:
            body = b""
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _REPLACED]
        if response.status_code == 404 or (is_json and b'"jsonrpc"' in body):
            # The SDK knows what these mean.
            return httpx2.Response(
                response.status_code,
                headers=[*headers, (b"content-type", response.headers.get("content-type", "").encode())],
                content=body,
                request=request,
            )
        status = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
        text = body[:_BODY_KEPT].decode("utf-8", "replace")
        kept = {name: response.headers[name] for name in _HEADERS_KEPT if name in response.headers}
        details = {"statusCode": response.status_code, "headers": kept, "body": text}
        return _error(request, response.status_code, HTTP_ERROR, f"the server answered {status}", details, headers)

    async def _bounded(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        body = await _read(response, self._limit + 1)
        if len(body) <= self._limit:
            headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _REPLACED]
            headers.append((b"content-type", b"application/json"))
            return httpx2.Response(200, headers=headers, content=body, request=request)
        message = f"the answer has more bytes than max_message_bytes, {self._limit}"
        return _error(request, 413, TOO_LARGE, message, {})

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


_REPLACED = frozenset({b"content-length", b"content-encoding", b"transfer-encoding", b"content-type"})


async def _read(response: httpx2.Response, limit: int) -> bytes:
    """Up to ``limit`` bytes of the body, decoded."""
    pieces, size = [], 0
    try:
        async for piece in response.aiter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size >= limit:
                break
    finally:
        await response.aclose()
    return b"".join(pieces)[:limit]


def _error(
    request: httpx2.Request, status: int, code: int, message: str, data: dict[str, Any], headers: Any = ()
) -> httpx2.Response:
    return httpx2.Response(
        status,
        headers=list(headers),
        json={"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": data}},
        request=request,
    )


@asynccontextmanager
async def http_streams(config: MCPClientConfig, auth: httpx2.Auth | None) -> AsyncIterator[TransportStreams]:
    """The two streams of a server over HTTP. Raises what the SDK raises."""
    assert config.url is not None
    headers = dict(config.headers)
    if config.auth is not None and config.auth.type == "bearer":
        headers["Authorization"] = f"Bearer {config.auth.token}"
    if config.transport == "sse":
        from mcp.client.sse import sse_client

        async with sse_client(
            config.url, headers, config.connect_timeout, sse_read_timeout=_READ_TIMEOUT, auth=auth
        ) as streams:
            yield streams
        return

    from mcp.client.streamable_http import streamable_http_client

    inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx2.AsyncClient(
                headers=headers,
                auth=auth,
                timeout=httpx2.Timeout(config.connect_timeout, read=_READ_TIMEOUT),
                transport=KeepingTransport(inner, config.url, config.max_message_bytes),
            )
        )
        yield await stack.enter_async_context(
            streamable_http_client(config.url, http_client=client, max_sse_event_size=config.max_message_bytes)
        )

"""Bodies of responses, within bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from operad import CallError, ErrorCode
from operad_openapi._http.failures import host_of, network_error, network_failure

if TYPE_CHECKING:
    from aiohttp import ClientResponse


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
    message = (
        f"{response.method} {host_of(str(response.url))}: the body is larger than {limit} bytes (limit {name})"
    )
    return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {"limit": name, "bytes": limit})

"""Read bodies of responses, decompressed and within limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from operad import CallError, ErrorCode
from operad_auth.http.urls import shown_url
from operad_openapi._http.decoding import Decoder, TruncatedError, decoder_of
from operad_openapi._http.failures import host_of, network_error, network_failure
from operad_openapi._http.progress import LARGE, Progress, Report

if TYPE_CHECKING:
    from aiohttp import ClientResponse


async def chunks_of(response: ClientResponse, report: Report | None = None) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a body as they arrive, decompressed; call ``report``, if given, with the progress.

    Raises:
        CallError: the connection is lost, or the body cannot be decompressed.
    """
    import aiohttp

    decoder = _decoder(response)
    progress = None if report is None else Progress(report, "download", response.content_length)
    try:
        async for chunk in response.content.iter_any():
            if progress is not None:
                progress.passed(len(chunk))
            if decoder is None:
                yield chunk
            else:
                for piece in _unpacked(decoder, chunk, response):
                    yield piece
        if decoder is not None:
            decoder.finish()
    except TruncatedError as error:
        raise _failed(response, ErrorCode.UNAVAILABLE, "the connection was lost during the response") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise network_error(error, response.method, str(response.url)) from error


def _decoder(response: ClientResponse) -> Decoder | None:
    encoding = response.headers.get("Content-Encoding")
    if encoding is None:
        return None
    try:
        return decoder_of(encoding)
    except ValueError as error:
        response.close()
        raise _failed(response, ErrorCode.EXECUTION_ERROR, str(error)) from error


def _unpacked(decoder: Decoder, chunk: bytes, response: ClientResponse) -> Iterator[bytes]:
    pieces = decoder.feed(chunk)
    while True:
        try:
            piece = next(pieces, None)
        except Exception as error:  # zlib, brotli and zstd have errors of their own each, with no base in common
            response.close()
            encoding = response.headers.get("Content-Encoding", "")
            reason = f'expected a body with content encoding "{encoding:.100}", got invalid data: {error}'
            raise _failed(response, ErrorCode.EXECUTION_ERROR, reason) from error
        if piece is None:
            return
        yield piece


async def read_body(
    response: ClientResponse,
    limit: int,
    name: str = "response_bytes",
    timeout: float | None = None,
    report: Report | None = None,
) -> bytes:
    """Return the body, decompressed.

    Args:
        response: the response.
        limit: the maximum size of the body in bytes, both compressed and decompressed.
        name: the name of the limit for the message.
        timeout: the timeout of the request in seconds, for the message.
        report: the function to call with the progress, or ``None``.

    Raises:
        CallError: ``PAYLOAD_TOO_LARGE`` if the body exceeds ``limit``, ``EXECUTION_ERROR`` if it cannot be
            decompressed, ``UNAVAILABLE`` if the connection is lost, or ``TIMEOUT``.
    """
    length = response.content_length
    if length is not None and length > limit:
        response.close()
        raise _too_large(response, limit, name)
    try:
        is_told = report is not None and (length is None or length >= LARGE)
        if length is not None and not is_told and "Content-Encoding" not in response.headers:
            content = response.content
            # A small body is there with the head already: three coroutines less than reading it.
            return content.read_nowait() if content.is_eof() else await response.read()
        pieces: list[bytes] = []
        size = 0
        async with aclosing(chunks_of(response, report)) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise _too_large(response, limit, name)
                pieces.append(chunk)
    except Exception as error:
        response.close()
        failure = network_failure(error, response.method, str(response.url), timeout)
        if failure is None or failure is error:
            raise
        raise failure from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def read_head(response: ClientResponse, limit: int, ends: float | None = None) -> bytes:
    """Return the first bytes of a body, even if reading fails. Close the connection unless all was read.

    Args:
        response: the response.
        limit: the maximum number of bytes to read.
        ends: when to stop reading, in seconds of the event loop's clock; the bytes that have arrived by then are
            returned. ``None`` for no such limit.
    """
    pieces: list[bytes] = []
    left = limit
    try:
        async with asyncio.timeout_at(ends), aclosing(chunks_of(response)) as chunks:
            async for chunk in chunks:
                pieces.append(chunk[:left])
                left -= len(chunk)
                if left <= 0:
                    break
    except (CallError, TimeoutError):
        left = 0  # the status is the news; a body that breaks off does not hide it
    if left <= 0:
        response.close()
    return b"".join(pieces)


def _failed(response: ClientResponse, code: ErrorCode, reason: str) -> CallError:
    message = f"{response.method} {host_of(str(response.url))}: {reason}"
    return CallError(code, message, {"method": response.method, "url": shown_url(str(response.url))})


def _too_large(response: ClientResponse, limit: int, name: str) -> CallError:
    message = (
        f"{response.method} {host_of(str(response.url))}: the body is larger than {limit} bytes (limit {name})"
    )
    return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {"limit": name, "bytes": limit})

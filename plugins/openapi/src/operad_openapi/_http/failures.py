"""What goes wrong below HTTP, as a `CallError`."""

from __future__ import annotations

import email.utils
import time

from operad import CallError, ErrorCode
from operad_openapi._document.origins import origin_of


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


def host_of(url: str) -> str:
    """The origin of ``url``, for a message."""
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

    where = f"{method} {host_of(url)}"
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

"""Convert failures of the network to `CallError`."""

from __future__ import annotations

import os

from operad import CallError, ErrorCode
from operad_auth.http.urls import shown_url
from operad_openapi._document.origins import origin_of


def host_of(url: str) -> str:
    """Return the origin of ``url`` for a message; ``the server`` if it has no origin."""
    return origin_of(url) or "the server"


def network_failure(error: Exception, method: str, url: str, timeout: float | None = None) -> CallError | None:
    """Return the `CallError` for an exception that sending or reading raised; ``None`` for any other exception."""
    import aiohttp

    if isinstance(error, CallError):
        return error
    if isinstance(error, (aiohttp.ClientError, OSError, ValueError)):
        return network_error(error, method, url, timeout)
    return None


def network_error(error: BaseException, method: str, url: str, timeout: float | None = None) -> CallError:
    """Return the `CallError` for a failure of the network or of HTTP. Its message names only the origin."""
    from operad_openapi._http.session import LostConnectionError

    if isinstance(error, LostConnectionError) and error.__cause__ is not None:
        error = error.__cause__
    code, reason = _in_words(error, timeout)
    details: dict[str, object] = {"method": method, "url": shown_url(url), "reason": reason.lstrip(": ")}
    if code == ErrorCode.PAYLOAD_TOO_LARGE:
        details["limit"] = "header_bytes"
    return CallError(code, f"{method} {host_of(url)}{reason}", details)


def _in_words(error: BaseException, timeout: float | None) -> tuple[ErrorCode, str]:
    """Return the code, and the end of a message that begins with the method and the server."""
    import aiohttp

    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ErrorCode.TIMEOUT, ": could not connect in time"
    if isinstance(error, aiohttp.ServerTimeoutError):
        return ErrorCode.TIMEOUT, ": no data was received in time"
    if isinstance(error, TimeoutError):
        within = "in time" if timeout is None else f"within {timeout} s"
        return ErrorCode.TIMEOUT, f" did not respond {within}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ErrorCode.UNAVAILABLE, f": its certificate is not valid: {error}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ErrorCode.UNAVAILABLE, ": cannot connect to the proxy"
    if isinstance(error, aiohttp.ClientConnectorError):
        return ErrorCode.UNAVAILABLE, f": cannot connect: {_why(error.os_error)}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ErrorCode.UNAVAILABLE, f": the proxy rejected the request: {error.status} {error.message}"
    if isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        is_within = isinstance(error, aiohttp.ClientPayloadError)
        broke = "the connection was lost during the response" if is_within else "the server closed the connection"
        return ErrorCode.UNAVAILABLE, f": {broke}"
    if isinstance(error, (aiohttp.ClientOSError, ConnectionError)):
        return ErrorCode.UNAVAILABLE, f": the connection was lost: {_why(error)}"
    if isinstance(error, aiohttp.ClientResponseError):
        if _is_caused_by(error, aiohttp.http_exceptions.LineTooLong):
            return ErrorCode.PAYLOAD_TOO_LARGE, ": a header of the response is too large (limit header_bytes)"
        return ErrorCode.EXECUTION_ERROR, f": the response is not HTTP: {' '.join(error.message.split())}"
    if isinstance(error, UnicodeError):
        return ErrorCode.EXECUTION_ERROR, ": the host name is not valid"
    if isinstance(error, OSError):
        return ErrorCode.UNAVAILABLE, f": {error.strerror or error}"
    return ErrorCode.EXECUTION_ERROR, f": {type(error).__name__}: {error}"


def _why(error: OSError) -> str:
    """Return why a connection failed, without the address, which asyncio puts into its messages."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    text = error.strerror or str(error)
    return "no address of the host accepts the connection" if text.startswith("Multiple exceptions") else text


def _is_caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause is not None

"""The errors of requests to a server.

A failure in this process or its transport is a `Fault`. An error that the server sent is a `ServerError`, and
becomes an `EXECUTION_ERROR`. The two are distinguished by their types, never by a code or a text, because a server
chooses these.
"""

from __future__ import annotations

from typing import Any

from operad import CallError, ErrorCode
from operad.words import in_words
from operad_mcp.foreign import one_line

_URL_ELICITATION = -32042


class Fault(Exception):
    """A failure of a request in this process or its transport. A server cannot send one."""

    def __init__(self, reason: str) -> None:
        super().__init__(one_line(reason))


class ConnectionLost(Fault):
    """The connection ended before the response to a request arrived.

    Args:
        reason: the cause.
        sent: whether the request may have reached the server.
        whole: whether the whole connection ended; False if only the HTTP exchange of this request did.
    """

    def __init__(self, reason: str, *, sent: bool = True, whole: bool = True) -> None:
        super().__init__(reason)
        self.sent = sent
        self.whole = whole


class SessionExpired(Fault):
    """The HTTP server no longer knows the session.

    Args:
        reason: the server's response.
        ran: whether the request may have been executed anyway.
    """

    def __init__(self, reason: str, *, ran: bool) -> None:
        super().__init__(reason)
        self.ran = ran


class HTTPRefusal(Fault):
    """The server responded with an HTTP error or redirect, and not with the response to the request.

    ``details`` has the status, some headers, and the beginning of the body.
    """

    def __init__(self, status: int, reason: str, headers: dict[str, str], body: str) -> None:
        super().__init__(f"the server responded with HTTP {status} {reason}".rstrip())
        self.status = status
        self.headers = headers
        self.details: dict[str, Any] = {"statusCode": status, "headers": headers, "body": body}


class TooLarge(Fault):
    """The response is larger than ``max_message_bytes``."""


class Unreadable(Fault):
    """The server sent a response that cannot be read. The request may have been executed."""


class Unusable(Fault):
    """The request could not be made, for example because the login failed.

    Args:
        reason: the cause.
        error: the error that the call raises instead of ``UNAVAILABLE``.
    """

    def __init__(self, reason: str, error: CallError | None = None) -> None:
        super().__init__(reason)
        self.error = error


class ServerError(Exception):
    """A JSON-RPC error that the server sent."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(one_line(message))
        self.code = code
        self.message = message
        self.data = data


def leaf(error: BaseException) -> BaseException:
    """Return the first error in nested exception groups; an error that is not a group is returned unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def unusable(error: Exception) -> Unusable:
    """Return the fault of a request that failed for a reason other than the server or the network.

    If ``error`` is or contains a `CallError`, the call raises that.
    """
    found = leaf(error)
    return Unusable(in_words(found), found if isinstance(found, CallError) else None)


def classify(error: Exception, what: str) -> Exception:
    """Return the exception for an error of a request: a `ConnectionLost`, a `SessionExpired`, or a `CallError`.

    ``what`` names the server at the beginning of the message.
    """
    if isinstance(error, (CallError, ConnectionLost, SessionExpired)):
        return error
    if isinstance(error, Fault):
        return _of_fault(error, what)
    if not isinstance(error, ServerError):
        text = in_words(error)
        return CallError(ErrorCode.EXECUTION_ERROR, f"{what}: {text}", {"message": text})
    details: dict[str, Any] = {"message": error.message, "jsonrpcCode": error.code}
    if error.data is not None:
        details["data"] = error.data
    url = _to_visit(error.code, error.data)
    if url is not None:
        details["url"] = url
        message = f"{what}: {error}; visit {one_line(url)}, then call again"
        return CallError(ErrorCode.EXECUTION_ERROR, message, details)
    return CallError(ErrorCode.EXECUTION_ERROR, f"{what}: {error}", details)


def _to_visit(code: int, data: Any) -> str | None:
    """Return the URL that a user must visit before the request is accepted (2025-11-25, URL elicitation)."""
    asked = data.get("elicitations") if code == _URL_ELICITATION and isinstance(data, dict) else None
    urls = [item.get("url") for item in asked if isinstance(item, dict)] if isinstance(asked, list) else []
    found = [url for url in urls if isinstance(url, str) and url.startswith(("https://", "http://"))]
    return found[0] if found else None


def _of_fault(fault: Fault, what: str) -> CallError:
    message = f"{what}: {fault}"
    if isinstance(fault, TooLarge):
        return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message)
    if isinstance(fault, Unusable):
        return fault.error or CallError(ErrorCode.UNAVAILABLE, message)
    details = fault.details if isinstance(fault, HTTPRefusal) else {}
    return CallError(ErrorCode.EXECUTION_ERROR, message, {"message": str(fault), **details})

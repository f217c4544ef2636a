"""Errors of the SDK and of its transports as `CallError`s."""

from __future__ import annotations

from typing import Any

from operad import CallError, ErrorCode
from operad_mcp._stdio import TOO_LARGE

CONNECTION_CLOSED = -32_000
REQUEST_TIMEOUT = -32_001
INVALID_REQUEST = -32_600

# Codes that stand, within this process, for what the transports saw.
HTTP_ERROR = -32_802
"""An HTTP status; ``data`` holds it."""
UNREACHABLE = -32_803
"""The server could not be reached, or was lost before it answered; ``data.sent`` tells which."""


class ConnectionLost(Exception):
    """The connection ended before the answer came.

    Args:
        reason: how it ended.
        sent: whether the request may have reached the server.
    """

    def __init__(self, reason: str, *, sent: bool = True) -> None:
        super().__init__(reason)
        self.sent = sent


class SessionExpired(Exception):
    """The HTTP server does not know the session any more; the request was not executed."""


def leaf(error: BaseException) -> BaseException:
    """The error inside of a task group's groups: the first that is no cancellation."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def classify(error: Exception, what: str) -> Exception:
    """What an exception of the SDK stands for: a `ConnectionLost`, a `SessionExpired`, or a `CallError`."""
    from mcp.shared.exceptions import MCPError

    if isinstance(error, (CallError, ConnectionLost, SessionExpired)):
        return error
    if not isinstance(error, MCPError):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return CallError(ErrorCode.EXECUTION_ERROR, f"{what}: {text}", {"message": text})
    code, message, data = error.code, error.message, error.data
    if code == CONNECTION_CLOSED:
        return ConnectionLost(message)
    if code == UNREACHABLE:
        return ConnectionLost(message, sent=bool(data.get("sent", True)) if isinstance(data, dict) else True)
    if code == INVALID_REQUEST and message.lower() in ("session not found", "session terminated"):
        return SessionExpired(message)
    if code == REQUEST_TIMEOUT:
        return CallError(ErrorCode.TIMEOUT, f"{what}: no answer in time")
    if code == TOO_LARGE:
        return CallError(ErrorCode.PAYLOAD_TOO_LARGE, f"{what}: {message}")
    details: dict[str, Any] = {"message": message}
    if code == HTTP_ERROR and isinstance(data, dict):
        return CallError(ErrorCode.EXECUTION_ERROR, f"{what}: {message}", {**details, **data})
    details["jsonrpcCode"] = code
    if data is not None:
        details["data"] = data
    return CallError(ErrorCode.EXECUTION_ERROR, f"{what}: {message}", details)

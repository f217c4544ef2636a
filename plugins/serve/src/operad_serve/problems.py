"""Error responses: problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from operad import CallError, ErrorCode, ErrorDefinition
from operad.wire import to_json
from operad.words import json_safe

PROBLEM_TYPE = "application/problem+json"

AUTHORIZATION_REQUIRED = "AUTHORIZATION_REQUIRED"
"""The code of a call that needs the consent of its user first. ``details`` may have the ``url`` to open."""
_STATUS: dict[str, int] = {
    ErrorCode.OPERATION_NOT_FOUND: 404,
    ErrorCode.ACCESS_DENIED: 403,
    ErrorCode.VALIDATION_ERROR: 422,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.OVERLOADED: 429,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.NO_RESPONDERS: 503,
    ErrorCode.PAYLOAD_TOO_LARGE: 413,
    AUTHORIZATION_REQUIRED: 403,
}


class Problem(Exception):
    """An exception that becomes an error response.

    Args:
        status: the HTTP status.
        detail: the error and how to fix it, as a message for the user.
        code: the error code, as in `CallError`; if None, it is left out.
        details: further data about the error, for programs; if None, they are left out.
        headers: further response headers.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        details: Any = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.details = details
        self.headers = tuple(headers)

    def to_json(self, request_id: str = "") -> bytes:
        """Return the problem as JSON, with ``requestId`` unless the id is empty."""
        wire: dict[str, Any] = {"title": _title(self.status), "status": self.status, "detail": self.detail}
        if self.code is not None:
            wire["code"] = self.code
        if self.details is not None:
            wire["details"] = self.details
        if request_id:
            wire["requestId"] = request_id
        try:
            return to_json(wire)
        except CallError:  # a handler raised it with details that JSON cannot hold
            return to_json(json_safe(wire))


def denied(detail: str, *, invalid: bool = False, details: Any = None, metadata_url: str | None = None) -> Problem:
    """Return a problem with status 401 and a ``Bearer`` challenge (RFC 6750, 3).

    Args:
        detail: see `Problem`.
        invalid: whether the request has credentials that are not valid.
        details: see `Problem`.
        metadata_url: the URL of the resource metadata (RFC 9728, 5.1), for the challenge.
    """
    parts = ['error="invalid_token"'] if invalid else []
    if metadata_url is not None:
        parts.append(f'resource_metadata="{metadata_url}"')
    challenge = f"Bearer {', '.join(parts)}".rstrip().encode("latin-1")
    return Problem(
        401, detail, code=ErrorCode.ACCESS_DENIED, details=details, headers=((b"www-authenticate", challenge),)
    )


def problem_of(error: CallError, declared: Iterable[ErrorDefinition], *, has_identity: bool) -> Problem:
    """Return the problem for the error of a call.

    Args:
        error: the error.
        declared: the errors that the operation declares. They can set the status.
        has_identity: whether the caller is authenticated. If not, ``ACCESS_DENIED`` is a 401.
    """
    status = _status(error, declared)
    if error.code == ErrorCode.ACCESS_DENIED and status == 403:
        if not has_identity:
            return denied(error.message, details=error.details)
        scopes = (error.details or {}).get("requiredScopes") or (error.details or {}).get("requiredScopesAny")
        headers = [(b"www-authenticate", _insufficient(scopes))] if isinstance(scopes, list) else []
        return Problem(403, error.message, code=error.code, details=error.details, headers=headers)
    headers = []
    if status in (429, 503):
        wait = (error.details or {}).get("retryAfter")
        seconds = wait if isinstance(wait, (int, float)) and 0 <= wait < 86_400 else 1
        headers.append((b"retry-after", str(max(1, round(seconds))).encode()))
    return Problem(status, error.message, code=error.code, details=error.details, headers=headers)


def _status(error: CallError, declared: Iterable[ErrorDefinition]) -> int:
    upstream = (error.details or {}).get("statusCode")
    if type(upstream) is int and error.code == ErrorCode.EXECUTION_ERROR:
        return upstream if 400 <= upstream < 500 else 502
    if error.code == ErrorCode.EXECUTION_ERROR and "jsonrpcCode" in (error.details or {}):
        return 502  # an MCP server's own error
    for definition in declared:
        status = definition.http_status
        if definition.code == error.code and status is not None and 400 <= status < 600:
            return status
    return _STATUS.get(error.code, 500)


def _insufficient(scopes: list[Any]) -> bytes:
    named = " ".join(str(scope) for scope in scopes)
    safe = "".join(c for c in named if c.isascii() and c.isprintable() and c not in '"\\')
    return f'Bearer error="insufficient_scope", scope="{safe}"'.encode()


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"

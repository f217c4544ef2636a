"""Convert bodies of responses to values, and failed responses to errors."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from operad import CallError, ErrorCode
from operad_auth.http import retry_after
from operad_auth.http.urls import shown_url
from operad_openapi._document.mediatypes import charset_of, essence, is_json
from operad_openapi._http.reading import read_head
from operad_openapi._request.request import Request
from operad_openapi.envelopes import join_headers

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_EXCERPT = 500


def decode_body(body: bytes, content_type: str, where: object, *, expects_json: bool = False) -> Any:
    """Return the value of a body by its content type: JSON, text, or bytes.

    An empty body is ``""`` if its content type is text, else ``None``. With ``expects_json``, a body without a
    content type, or of plain text, is parsed if it is valid JSON, and any empty body is ``None``. ``where`` names
    the request in messages.

    Raises:
        CallError: ``EXECUTION_ERROR`` if the content type is JSON but the body is not. ``details`` has an excerpt.
    """
    kind = essence(content_type)
    if not body:
        return "" if kind.startswith("text/") and not expects_json else None
    if is_json(kind):
        return decode_json(body, content_type, where)
    if expects_json and kind in ("", "text/plain"):
        with contextlib.suppress(CallError):
            return decode_json(body, content_type, where)
    if kind.startswith("text/") or kind.endswith(("+xml", "/xml")) or kind in _TEXT:
        return _text(body, content_type)
    return body


_TEXT = frozenset({"application/javascript", "application/yaml", "application/x-www-form-urlencoded"})


def _text(body: bytes, content_type: str) -> str:
    try:
        return body.decode(charset_of(content_type) or "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def decode_json(body: bytes, content_type: str, where: object) -> Any:
    """Return the value of a JSON text, also in another charset. Raises `CallError` if the text is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = error
    try:
        # Another charset, or a byte order mark; constants that JSON does not have stay refused.
        encoding = charset_of(content_type) or json.detect_encoding(body)
        return json.loads(body.decode(encoding).removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except (ValueError, LookupError, RecursionError):
        message = f"{where}: expected JSON, as the content type states: {reason}"
        details = {
            "contentType": content_type,
            "message": message,
            "body": body[:_EXCERPT].decode("utf-8", "replace"),
        }
        raise CallError(ErrorCode.EXECUTION_ERROR, message, details) from reason


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


async def failure_of(
    response: ClientResponse, limit: int, request: Request, ends: float | None = None
) -> CallError:
    """Return the error for a response that is not 2xx; see `read_head` for ``limit`` and ``ends``."""
    raw = await read_head(response, limit, ends)
    headers, _ = join_headers(response.headers.items())
    content_type = headers.get("content-type", "")
    try:
        body = decode_body(raw, content_type, request) if raw else None
    except CallError:
        body = _text(raw, "")
    if isinstance(body, bytes):
        body = _text(body, "")
    details: dict[str, Any] = {
        "statusCode": response.status,
        "headers": headers,
        "contentType": content_type,
        "body": body,
    }
    reason = response.reason or ""
    if essence(content_type) == "application/problem+json" and isinstance(body, dict):
        details["problem"] = body
        reason = str(body.get("detail") or body.get("title") or reason)
    elif said := _said(body):
        reason = f"{reason}: {said}" if reason else said
    wait = retry_after(headers.get("retry-after"))
    if wait is not None:
        details["retryAfter"] = wait
    if request.attempts > 1:
        details["attempts"] = request.attempts
    details["reason"] = reason = f"{response.status} {reason}".strip()
    if location := headers.get("location"):
        reason += f" (a redirect to {shown_url(location)} that is not followed)"
    return CallError(ErrorCode.EXECUTION_ERROR, f"{request}: {reason}", details)


_SAYING = ("message", "error_description", "detail", "title", "error", "errors", "msg", "reason", "description")
_MAX_SAID = 300


def said_by(body: bytes, content_type: str) -> str:
    """Return the error message in an unexpected body as one line, or ``""`` if it has no message."""
    try:
        return _said(decode_body(body, content_type, ""))
    except CallError:
        return ""


def _said(body: Any, depth: int = 0) -> str:
    """Return the message in the JSON of an error, from the members that APIs use for it, or ``""``."""
    if isinstance(body, str) and depth:
        return "".join(c if c.isprintable() else " " for c in body[:_MAX_SAID]).strip()
    if isinstance(body, list) and body and depth:
        return _said(body[0], depth + 1)
    if isinstance(body, dict) and depth < 4:
        return next((text for name in _SAYING if (text := _said(body.get(name), depth + 1))), "")
    return ""

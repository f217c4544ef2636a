"""Errors of upstream servers, without the details that callers of this server must not see."""

from __future__ import annotations

import re
from typing import Any

from operad import CallError

_URL = re.compile(r"(?:\b[A-Z]+ )?\bhttps?://[^\s\"'<>]*[^\s\"'<>:.,;)\]]")
"""An address in a message, with the method of the request before it."""
_CONSENT = "AUTHORIZATION_REQUIRED"
"""The code of a call whose user must agree first, on the page ``details.url``: a page of this server."""
_UPSTREAM = ("statusCode", "headers", "url")
"""Keys of details that only errors of an upstream server have."""


def without_upstream(error: CallError) -> CallError:
    """Return an error without the addresses and headers of upstream servers, but with their status and body.

    An error without them, and ``AUTHORIZATION_REQUIRED``, whose URL is for the user, are returned unchanged.
    """
    if error.code == _CONSENT:
        return error
    message, details = _outer(error.message, error.details)
    return error if details is error.details else CallError(error.code, message, details)


def _outer(message: str, details: Any) -> tuple[str, Any]:
    """Return the message and the details of an error as callers may see them."""
    if not isinstance(details, dict):
        return message, details
    outer = dict(details)
    cause = details.get("cause")
    if isinstance(cause, dict):  # the error of a nested call
        text, inner = _outer(str(cause.get("message", "")), cause.get("details"))
        if inner is cause.get("details"):
            return message, details
        outer["cause"] = {**cause, "message": text, "details": inner}
    elif not any(name in details for name in _UPSTREAM):
        return message, details
    for name in ("headers", "url", "method"):
        outer.pop(name, None)
    if isinstance(outer.get("message"), str):
        outer["message"] = _URL.sub("the upstream server", outer["message"])
    return _URL.sub("the upstream server", message), outer

"""The responses of an authorization server (RFC 6749, 5): tokens and errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import attrs

from operad.errors import CallError, ErrorCode
from operad_auth.http.urls import shown_url

RETRIED = frozenset({429, 502, 503, 504})
"""The HTTP statuses that mean that the server did not process the request."""


class OAuthError(CallError):
    """Raised if an authorization server refuses a request. ``details``: ``{error, description?, statusCode?}``."""

    @property
    def error(self) -> str:
        """The server's error code (RFC 6749, 5.2), such as ``invalid_grant``, or a code of this client.

        The codes of this client are ``no_token``, ``no_code``, ``invalid_issuer`` and ``unsupported_token_type``.
        """
        return str((self.details or {}).get("error", ""))


class LoginRequired(CallError):
    """Raised with the code ``AUTHORIZATION_REQUIRED`` if there is no valid token and the user must log in."""


@attrs.frozen(kw_only=True)
class OAuthToken:
    """An access token and its refresh token. Times are in seconds since 1970. The repr shows no secrets."""

    access_token: str = attrs.field(repr=False)
    token_type: str = "Bearer"  # noqa: S105  # a name, no secret
    refresh_token: str | None = attrs.field(default=None, repr=False)
    expires_at: float | None = None
    """When the access token expires; ``None`` if the server did not state it."""
    obtained_at: float = 0.0
    scope: str | None = None
    """The granted scopes, separated by spaces; ``None`` if the server did not state them."""

    def usable(self, now: float) -> bool:
        """Return True unless the token has expired, or expires within 30 s or a quarter of its lifetime.

        The shorter of the two times applies. A token without ``expires_at`` does not expire.
        """
        if self.expires_at is None:
            return True
        return now < self.expires_at - min(30.0, (self.expires_at - self.obtained_at) / 4)

    def to_record(self) -> dict[str, Any]:
        """Return the fields that are not ``None``, as the record for a `TokenStore`."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self | None:
        """Return the token of a record, or ``None`` if the record has no access token."""
        known = {field.name for field in attrs.fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        return cls(**values) if isinstance(values.get("access_token"), str) else None

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any], before: OAuthToken | None = None) -> Self:
        """Return the token in a response that a token endpoint has just sent (RFC 6749, 5.1).

        Args:
            answer: the JSON object of the response, with an ``access_token``.
            before: the token that was renewed; it supplies fields that the response omits (RFC 6749, 6).
        """
        now = time.time()
        lasts = answer.get("expires_in")
        try:
            seconds = None if lasts is None else max(0.0, min(float(lasts), 10.0**9))
        except (TypeError, ValueError, OverflowError):
            seconds = None
        kept = before or cls(access_token="")
        refresh, scope, kind = answer.get("refresh_token"), answer.get("scope"), answer.get("token_type")
        return cls(
            access_token=answer["access_token"],
            token_type=kind if isinstance(kind, str) and kind else "Bearer",
            refresh_token=refresh if isinstance(refresh, str) and refresh else kept.refresh_token,
            expires_at=None if seconds is None else now + seconds,
            obtained_at=now,
            scope=scope if isinstance(scope, str) else kept.scope,
        )


def refusal(url: str, status: int | None, answer: Mapping[str, Any]) -> CallError:
    """Return the error for a response from which a token, or a code for the user, is missing.

    ``status`` is None for the redirect of a browser.

    It is a `CallError` ``UNAVAILABLE`` if ``answer`` names no error and ``status`` is in `RETRIED` or 500 or more;
    else an `OAuthError`.
    """
    error = answer.get("error")
    if not isinstance(error, str) or not error:
        if status is not None and (status in RETRIED or status >= 500):
            return CallError(ErrorCode.UNAVAILABLE, f"{shown_url(url)} failed with HTTP {status}; try again later")
        message = f"{shown_url(url)}: expected a token or an error (RFC 6749), got HTTP {status}; check the URL"
        return OAuthError(ErrorCode.EXECUTION_ERROR, message, {"error": "no_token", "statusCode": status})
    description = answer.get("error_description")
    words = "".join(c for c in str(description or "") if c.isprintable())[:300]
    details: dict[str, Any] = {"error": error[:100]} | ({} if status is None else {"statusCode": status})
    details |= {"description": words} if words else {}
    why = words or ("" if status is None else f"HTTP {status}")
    message = f"{shown_url(url)} refused the request: {error[:100]}" + (f" ({why})" if why else "")
    return OAuthError(ErrorCode.EXECUTION_ERROR, message, details)

"""Responses of an authorization server (RFC 6749, 5): a token, or an error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import attrs

from operad.errors import CallError, ErrorCode
from operad_auth.http.urls import shown_url

RETRIED = frozenset({429, 502, 503, 504})
"""Statuses of requests that were not processed."""


class OAuthError(CallError):
    """An authorization server refused a request. ``details``: ``{error, description?, statusCode}``."""

    @property
    def error(self) -> str:
        """The server's error code (RFC 6749, 5.2), such as ``invalid_grant``."""
        return str((self.details or {}).get("error", ""))


class LoginRequired(CallError):
    """There is no valid token, and the user must log in. Its code is ``AUTHORIZATION_REQUIRED``."""


@attrs.frozen(kw_only=True)
class OAuthToken:
    """An access token, and the token that renews it. Times are epoch seconds; secrets are not in its repr."""

    access_token: str = attrs.field(repr=False)
    token_type: str = "Bearer"  # noqa: S105  # a name, no secret
    refresh_token: str | None = attrs.field(default=None, repr=False)
    expires_at: float | None = None
    """When it expires; ``None`` if the server did not say."""
    obtained_at: float = 0.0
    scope: str | None = None
    """The granted scopes, if the server named them."""

    def usable(self, now: float) -> bool:
        """Return True unless it has expired or will in 30 s, or in a quarter of its lifetime if that is less."""
        if self.expires_at is None:
            return True
        return now < self.expires_at - min(30.0, (self.expires_at - self.obtained_at) / 4)

    def to_record(self) -> dict[str, Any]:
        """Return the record for a `TokenStore`."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self | None:
        """Return the token of a record, or ``None`` if the record has none."""
        known = {field.name for field in attrs.fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        return cls(**values) if isinstance(values.get("access_token"), str) else None

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any], before: OAuthToken | None = None) -> Self:
        """Return the token in a response of a token endpoint (RFC 6749, 5.1), received now.

        Args:
            answer: the JSON object.
            before: the token that it renews; fields that the response omits are kept (RFC 6749, 6).
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


def refusal(url: str, status: int, answer: Mapping[str, Any]) -> CallError:
    """Return the error for a response without a token."""
    error = answer.get("error")
    if not isinstance(error, str) or not error:
        if status in RETRIED or status >= 500:
            return CallError(ErrorCode.UNAVAILABLE, f"{shown_url(url)} responded with HTTP {status}")
        error = "no_token"
    description = answer.get("error_description")
    words = "".join(c for c in str(description or "") if c.isprintable())[:300]
    details = {"error": error[:100], "statusCode": status} | ({"description": words} if words else {})
    message = f"{shown_url(url)} refused: {error[:100]}" + (f" ({words})" if words else f" (HTTP {status})")
    return OAuthError(ErrorCode.EXECUTION_ERROR, message, details)

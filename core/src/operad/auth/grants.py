"""The token endpoint of OAuth 2.0 (RFC 6749): what is asked there, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Mapping
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import attrs

from operad.auth.fetching import Fetch, FetchResponse, require_secure, shown
from operad.errors import CallError, ErrorCode

ClientAuth = Literal["auto", "basic", "post", "none", "private_key_jwt"]
RETRIED = frozenset({429, 502, 503, 504})
"""Answers that say that the request was not worked on."""
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ATTEMPTS = 3
_LONGEST_WAIT = 5.0


class OAuthError(CallError):
    """An authorization server refused. ``details``: ``{error, description?, statusCode}``."""

    @property
    def error(self) -> str:
        """The server's error code (RFC 6749, 5.2), such as ``invalid_grant``."""
        return str((self.details or {}).get("error", ""))


class LoginRequired(CallError):
    """There is no token, or none that counts; a person has to log in. Its code is ``AUTHORIZATION_REQUIRED``."""


@attrs.frozen(kw_only=True)
class OAuthToken:
    """An access token, and what renews it. Times are epoch seconds; secrets are not in its repr."""

    access_token: str = attrs.field(repr=False)
    token_type: str = "Bearer"  # noqa: S105  # a name, no secret
    refresh_token: str | None = attrs.field(default=None, repr=False)
    expires_at: float | None = None
    """When it expires; ``None``: nobody said."""
    obtained_at: float = 0.0
    scope: str | None = None
    """What was granted, where the server said so."""

    def usable(self, now: float) -> bool:
        """Whether it has not expired, nor will within 30 s (or a quarter of its life, if that is less)."""
        if self.expires_at is None:
            return True
        return now < self.expires_at - min(30.0, (self.expires_at - self.obtained_at) / 4)

    def to_record(self) -> dict[str, Any]:
        """As a `TokenStore` keeps it."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self | None:
        """The token of a record; ``None`` where it is none."""
        known = {field.name for field in attrs.fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        return cls(**values) if isinstance(values.get("access_token"), str) else None

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any], before: OAuthToken | None = None) -> Self:
        """The token in an answer of a token endpoint (RFC 6749, 5.1), received now.

        Args:
            answer: the JSON object.
            before: the token that it renews; what the answer leaves out stays (RFC 6749, 6).
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


@attrs.frozen(kw_only=True)
class Client:
    """A client as the authorization server knows it."""

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    private_key: str | None = attrs.field(default=None, repr=False)
    """Signs assertions (RFC 7523, 2.2) instead of a secret: a JWK or a PEM as text, or the path of either."""
    auth: ClientAuth = "auto"
    """How the secret is sent (RFC 6749, 2.3.1); ``auto``: as the server's metadata say, else ``basic``."""

    def authorize(self, metadata: Mapping[str, Any], url: str) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the form fields that name the client at an endpoint."""
        if self.private_key is not None and self.auth in ("auto", "private_key_jwt"):
            assertion = self._assertion(self.private_key, str(metadata.get("issuer") or url))
            return {}, {
                "client_id": self.client_id,
                "client_assertion_type": _ASSERTION,
                "client_assertion": assertion,
            }
        if self.client_secret is None or self.auth == "none":
            return {}, {"client_id": self.client_id}
        supported = metadata.get("token_endpoint_auth_methods_supported")
        listed = supported if isinstance(supported, list) else ["client_secret_basic"]
        by_post = "client_secret_basic" not in listed and "client_secret_post" in listed
        if self.auth == "post" or (self.auth == "auto" and by_post):
            return {}, {"client_id": self.client_id, "client_secret": self.client_secret}
        return self._basic()

    def _assertion(self, key: str, audience: str) -> str:
        from operad.auth.delegation import signing_key
        from operad.auth.keys import pyjwt

        jwk, now = signing_key(key), int(time.time())
        claims = {"iss": self.client_id, "sub": self.client_id, "aud": audience, "iat": now, "exp": now + 60}
        headers = {"kid": jwk.key_id} if jwk.key_id else None
        signed: str = pyjwt().encode(
            {**claims, "jti": uuid.uuid4().hex}, jwk.key, jwk.algorithm_name, headers=headers
        )
        return signed

    def _basic(self) -> tuple[dict[str, str], dict[str, str]]:
        assert self.client_secret is not None
        pair = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}, {}


async def post_form(
    fetch: Fetch,
    url: str,
    fields: Mapping[str, str | list[str]],
    client: Client,
    metadata: Mapping[str, Any],
    *,
    retry: bool = False,
) -> FetchResponse:
    """Post a form to an endpoint of an authorization server, in the client's name.

    Args:
        fetch: how.
        url: the endpoint; HTTPS, or on this machine.
        fields: the form.
        client: who asks.
        metadata: what the server says of itself.
        retry: whether a lost answer may be asked for again; an answer in `RETRIED` always is, twice.
    """
    require_secure(url, "endpoint of the authorization server")
    for attempt in range(1, _ATTEMPTS + 1):
        wait = 0.2 * 2**attempt
        # Anew each time: an assertion counts once.
        headers, own = client.authorize(metadata, url)
        headers |= {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        body = urlencode({**fields, **own}, doseq=True).encode()
        try:
            response = await fetch("POST", url, headers=headers, body=body)
        except CallError:
            if not retry or attempt == _ATTEMPTS:
                raise
        else:
            if response.status not in RETRIED or attempt == _ATTEMPTS:
                return response
            asked = response.headers.get("retry-after", "")
            wait = min(float(asked), _LONGEST_WAIT) if asked.isdecimal() else wait
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


async def request_token(
    fetch: Fetch,
    url: str,
    fields: Mapping[str, str | list[str]],
    client: Client,
    metadata: Mapping[str, Any],
    *,
    retry: bool = False,
) -> dict[str, Any]:
    """The answer of a token endpoint: a JSON object with an ``access_token``. As `post_form`.

    Raises:
        OAuthError: the server refused; its words are in the details.
        CallError: ``UNAVAILABLE``, it gave no answer.
    """
    response = await post_form(fetch, url, fields, client, metadata, retry=retry)
    answer = response.json()
    if not isinstance(answer, dict):
        raise refusal(url, response.status, {})
    token = answer.get("access_token")
    # Some answer 200 with an error in it.
    if not 200 <= response.status < 300 or not isinstance(token, str) or not token:
        raise refusal(url, response.status, answer)
    kind = answer.get("token_type")
    if isinstance(kind, str) and kind.lower() not in ("bearer", ""):
        raise OAuthError(
            ErrorCode.EXECUTION_ERROR,
            f'{shown(url)} gave a token of type "{kind[:40]}"; only bearer tokens can be used',
            {"error": "unsupported_token_type", "statusCode": response.status},
        )
    return answer


def refusal(url: str, status: int, answer: Mapping[str, Any]) -> CallError:
    """The error for an answer that is none."""
    error = answer.get("error")
    if not isinstance(error, str) or not error:
        if status in RETRIED or status >= 500:
            return CallError(ErrorCode.UNAVAILABLE, f"{shown(url)} answered HTTP {status}")
        error = "no_token"
    description = answer.get("error_description")
    words = "".join(c for c in str(description or "") if c.isprintable())[:300]
    details = {"error": error[:100], "statusCode": status} | ({"description": words} if words else {})
    message = f"{shown(url)} refused: {error[:100]}" + (f" ({words})" if words else f" (HTTP {status})")
    return OAuthError(ErrorCode.EXECUTION_ERROR, message, details)

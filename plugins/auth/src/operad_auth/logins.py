"""The two ways to log in: a browser on this machine (RFC 8252, 7636), or a code in any browser (RFC 8628)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from operad.errors import CallError, ErrorCode
from operad_auth.grants import OAuthError, refusal
from operad_auth.http.urls import shown_url
from operad_auth.login import OpenURL, Tell
from operad_auth.loopback import LoopbackListener
from operad_auth.server import AuthorizationServer, Fields


def pkce() -> tuple[str, str]:
    """Return a new code verifier and its S256 challenge (RFC 7636, 4.1 and 4.2)."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    return verifier, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


async def authorization_code(
    server: AuthorizationServer, *, tell: Tell, open_url: OpenURL | None, timeout: float
) -> dict[str, Any]:
    """Let the user log in with a browser on this machine. Return the response of the token endpoint.

    Raises:
        CallError: the user or the server refused, or the user did not log in within ``timeout`` seconds.
        ConfigError: an endpoint is unknown, or ``redirect_uri`` cannot be used.
    """
    options = server.options
    address = await server.endpoint("authorization_endpoint", options.authorization_url)
    verifier, challenge = pkce()
    state = secrets.token_urlsafe(24)
    async with LoopbackListener(state, options.redirect_uri) as listener:
        query = {
            "response_type": "code",
            "client_id": options.client_id,
            "redirect_uri": listener.redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **server.fields(),
        }
        url = with_query(address, query)
        tell(f"Log in at: {url}")
        async with _opened(open_url, url, tell):
            answer = await listener.wait(timeout)
        redirect_uri = listener.redirect_uri
    code = code_of(answer, address, options.issuer, await server.metadata())
    fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
    return await server.token({**server.fields(scope=False), **fields, "code_verifier": verifier})


def code_of(answer: Mapping[str, str], url: str, issuer: str | None, metadata: Mapping[str, Any]) -> str:
    """Return the code in a redirect.

    Args:
        answer: the query parameters of the redirect.
        url: the authorization endpoint, for messages.
        issuer: the expected issuer; ``None`` to accept any.
        metadata: the metadata of the issuer, which may require ``iss`` in the redirect.

    Raises:
        OAuthError: the redirect is from another authorization server (RFC 9207), or has an error or no code.
    """
    named = answer.get("iss")
    promised = metadata.get("authorization_response_iss_parameter_supported") is True
    if issuer is not None and ((named is not None and named != issuer) or (named is None and promised)):
        got = "none" if named is None else f"{shown_url(named):.200}"
        raise OAuthError(
            ErrorCode.EXECUTION_ERROR,
            f"expected iss {issuer} in the redirect (RFC 9207), got {got}; its code was not used; log in again",
            {"error": "invalid_issuer"},
        )
    if answer.get("error"):
        raise refusal(url, None, answer)
    if not answer.get("code"):
        message = f"{shown_url(url)}: expected a code in the redirect, got none; log in again"
        raise OAuthError(ErrorCode.EXECUTION_ERROR, message, {"error": "no_code"})
    return answer["code"]


async def device_code(
    server: AuthorizationServer, *, tell: Tell, open_url: OpenURL | None, timeout: float
) -> dict[str, Any]:
    """Let the user enter a code in any browser (RFC 8628). Return the response of the token endpoint.

    Raises:
        CallError: the user or the server refused, or the user did not enter the code within ``timeout`` seconds or
            before it expired.
        ConfigError: an endpoint is unknown.
    """
    options = server.options
    url = await server.endpoint("device_authorization_endpoint", options.device_url)
    response = await server.post(url, server.fields())
    answer = response.json()
    code = answer.get("device_code") if isinstance(answer, dict) else None
    if not 200 <= response.status < 300 or not isinstance(code, str):
        raise refusal(url, response.status, answer if isinstance(answer, dict) else {})
    page = str(answer.get("verification_uri") or answer.get("verification_url") or "")
    complete = answer.get("verification_uri_complete")
    tell(f"Open {_printable(page)} and enter the code: {_printable(answer.get('user_code'))}")
    target = complete if isinstance(complete, str) else page
    lasts = min(timeout, _seconds(answer.get("expires_in"), timeout))
    fields = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": code}
    async with _opened(open_url if urlsplit(target).scheme in ("https", "http") else None, target, tell):
        return await _poll(server, fields, _seconds(answer.get("interval"), 5.0), lasts)


async def _poll(server: AuthorizationServer, fields: Fields, interval: float, lasts: float) -> dict[str, Any]:
    until = time.monotonic() + lasts
    while time.monotonic() + interval < until:
        await asyncio.sleep(interval)
        try:
            return await server.token(fields)
        except OAuthError as error:
            if error.error == "slow_down":
                interval += 5.0
            elif error.error != "authorization_pending":
                raise
        except CallError:  # RFC 8628, 3.5: no answer is a reason to ask less often
            interval *= 2
    why = "the user did not enter and approve the code, or the authorization server did not respond"
    raise CallError(ErrorCode.TIMEOUT, f"the login was not completed within {lasts:g} s: {why}; log in again")


@asynccontextmanager
async def _opened(open_url: OpenURL | None, url: str, tell: Tell) -> AsyncIterator[None]:
    """Open the URL in a thread: some browsers, such as those in a terminal, block until they are closed."""

    async def run() -> None:
        if open_url is not None:
            try:
                await asyncio.to_thread(open_url, url)
            except Exception as error:  # noqa: BLE001  # each system's browsers fail in ways of their own
                tell(f"The browser cannot be opened ({type(error).__name__}); open the address yourself.")

    opening = asyncio.create_task(run())
    try:
        yield
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)


def _seconds(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 86_400 else default


def _printable(value: Any) -> str:
    return "".join(c for c in str(value) if c.isprintable())[:300]


def with_query(url: str, query: Mapping[str, str | list[str]]) -> str:
    """Return the URL with the fields added to its query (RFC 6749, 3.1), and without a fragment."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    text = urlencode(pairs) + ("&" if pairs else "") + urlencode(query, doseq=True)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, text, ""))

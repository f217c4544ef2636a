"""The tokens of the authorization server: the token endpoint, revocation, and the authenticator of the front door.

Tokens are opaque: a kind, the id of the grant, and a random text of 256 bits whose digest the store has. No key
signs them, so no key must be protected or shared between processes, and revocation is immediate.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_plus

import attrs

from operad import Identity
from operad_auth import Credentials
from operad_serve.oauth.clients import Client, Clients
from operad_serve.oauth.options import OAuthServerOptions
from operad_serve.oauth.store import Grant, Store, digest
from operad_serve.oauth.upstream import LoginFailed, Upstream, challenge_of

Kind = Literal["ac", "at", "rt"]
"""The kind of a token: authorization code, access token or refresh token."""

_TOKEN = re.compile(r"operad_(ac|at|rt)_([0-9a-f]{32})[\w-]{43}", re.ASCII)
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
"""A PKCE challenge of the method S256."""


class TokenError(Exception):
    """The error for a refused request for a token (RFC 6749, 5.2).

    Args:
        error: the error code.
        detail: the message: what was expected, and how to fix it.
    """

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(detail)
        self.error = error


def new_grant_id() -> str:
    """Return a new random id for a grant, in hexadecimal."""
    return secrets.token_hex(16)


def new_token(kind: Kind, grant: str) -> str:
    """Return a new token of a kind. ``grant`` is the id of its grant."""
    return f"operad_{kind}_{grant}{secrets.token_urlsafe(32)}"


def grant_of(token: Any, *kinds: Kind) -> str | None:
    """Return the grant id in a token; None for anything but a token of one of ``kinds``. It is not verified."""
    found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    return found[2] if found is not None and found[1] in kinds else None


class OwnTokens:
    """An authenticator of the access tokens of this server.

    The identity has the scopes of the token that the options still give to its user. A token of a user who was
    removed from the options is not valid.
    """

    is_authenticator = True

    def __init__(self, options: OAuthServerOptions, base_dir: Path) -> None:
        self._options = options
        self._store = Store(options, base_dir)

    async def __call__(self, credentials: Credentials) -> Identity | None:
        """Return the identity of a valid access token, or None. Raises `CallError` if the store cannot be read."""
        token = credentials.bearer
        id = grant_of(token, "at")
        grant = None if id is None else self._store.grant(id)
        if token is None or grant is None or not _is_access(grant, digest(token)):
            return None
        if grant.resource not in self._options.resources:
            return None
        scopes = self._options.scopes_of(grant.user)
        if scopes is None:
            return None
        return Identity(grant.user, [scope for scope in grant.scopes if scope in scopes])


def _is_access(grant: Grant, key: bytes) -> bool:
    now = time.time()
    pairs = ((grant.access, grant.access_expires), (grant.former, grant.former_expires))
    return any(
        known is not None and expires is not None and now < expires and hmac.compare_digest(known, key)
        for known, expires in pairs
    )


class TokenEndpoint:
    """The token endpoint and the revocation: issues tokens for codes and refresh tokens, and ends grants."""

    def __init__(self, options: OAuthServerOptions, store: Store, clients: Clients, upstream: Upstream) -> None:
        self._options, self._store, self._clients, self._upstream = options, store, clients, upstream

    def client(self, form: Mapping[str, str], credentials: Credentials) -> Client:
        """Return the client that sends a request (RFC 6749, 2.3).

        Raises `TokenError` ``invalid_client`` if the client is unknown, its secret is wrong, or the header and the
        form contradict each other.
        """
        id, secret = form.get("client_id"), form.get("client_secret")
        if credentials.scheme:
            pair = credentials.basic
            if pair is None or secret is not None:
                got = f"a header of the scheme {credentials.scheme!r:.50}" if pair is None else "both"
                got = "a malformed header" if pair is None and credentials.scheme == "basic" else got
                raise TokenError("invalid_client", f"expected HTTP Basic or client_secret in the form, got {got}")
            named, secret = (unquote_plus(part) for part in pair)
            if id is not None and id != named:
                raise TokenError(
                    "invalid_client", "the header and the form name two clients; send the same client_id"
                )
            id = named
        client = None if not id else self._clients.of_grant(id)
        if client is None or not client.proves(secret or None):
            detail = "the client is not registered here, or its secret is wrong; register it again"
            if not id:
                detail = "expected client_id in the form, or HTTP Basic, got neither"
            raise TokenError("invalid_client", detail)
        return client

    async def respond(self, form: Mapping[str, str], client: Client) -> dict[str, Any]:
        """Return the response to a request for tokens (RFC 6749, 5.1). Raises `TokenError` if it is refused."""
        resource = form.get("resource")
        if resource is not None and resource not in self._options.resources:
            raise TokenError(
                "invalid_target",
                f"resource: expected {self._options.mcp_url} or {self._options.base}, got {resource!r:.200}",
            )
        kind = form.get("grant_type")
        if kind == "authorization_code":
            return await self._redeemed(form, client)
        if kind == "refresh_token":
            return await self._refreshed(form, client)
        why = f"grant_type: expected authorization_code or refresh_token, got {kind!r:.100}"
        raise TokenError("unsupported_grant_type", why)

    async def _redeemed(self, form: Mapping[str, str], client: Client) -> dict[str, Any]:
        code = form.get("code", "")
        id = grant_of(code, "ac")
        grant = None if id is None else await self._store.redeem(id, client.id, code)
        if grant is None:
            raise TokenError("invalid_grant", "the code is not valid, has expired or was used; log in again")
        verifier, expected = form.get("code_verifier", ""), grant.record
        is_proven = _VERIFIER.fullmatch(verifier) and hmac.compare_digest(
            challenge_of(verifier), expected["challenge"]
        )
        if not is_proven or form.get("redirect_uri") != expected["redirect_uri"]:
            await self._store.end(grant.id)
            wrong = "redirect_uri" if is_proven else "code_verifier"
            raise TokenError("invalid_grant", f"{wrong} does not match the request of the login; log in again")
        return await self._issued(grant, grant.scopes, None, refreshes=bool(expected["refreshes"]))

    async def _refreshed(self, form: Mapping[str, str], client: Client) -> dict[str, Any]:
        token = form.get("refresh_token", "")
        id = grant_of(token, "rt")
        grant = None if id is None else self._store.grant(id)
        if grant is None or grant.client != client.id:
            raise TokenError(
                "invalid_grant", "the refresh token is not valid, has expired or was revoked; log in again"
            )
        if self._options.scopes_of(grant.user) is None:
            await self._store.end(grant.id)
            raise TokenError("invalid_grant", "the user may no longer log in; ask the operator of this server")
        if not {*form.get("scope", "").split()} <= {*grant.scopes}:
            most = " ".join(grant.scopes)
            raise TokenError("invalid_scope", f"scope: expected no more than {most!r}, got {form['scope']!r:.200}")
        if "login" in grant.record and hmac.compare_digest(grant.refresh or b"", digest(token)):
            try:
                login = await self._upstream.renew(grant.record["login"])
            except LoginFailed as failed:
                await self._store.end(grant.id)
                raise TokenError("invalid_grant", f"{failed}; log in again") from None
            grant = attrs.evolve(grant, record={**grant.record, "login": login})
        return await self._issued(grant, grant.scopes, token, refreshes=True)

    async def _issued(
        self, grant: Grant, scopes: list[str], before: str | None, *, refreshes: bool
    ) -> dict[str, Any]:
        now = time.time()
        access = new_token("at", grant.id)
        refresh = new_token("rt", grant.id) if refreshes else None
        expires = min(now + self._options.access_lifetime, grant.expires)
        if not await self._store.issue(grant, access, expires, refresh, before):
            why = "the code was used twice" if before is None else "the refresh token was used before"
            raise TokenError("invalid_grant", f"{why}, or the login has ended; log in again")
        response = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": max(1, int(expires - now)),
            "scope": " ".join(scopes),
        }
        return response if refresh is None else {**response, "refresh_token": refresh}

    async def revoke(self, form: Mapping[str, str], client: Client) -> None:
        """End the grant of a token (RFC 7009). A token that is not valid, or of another client, is ignored."""
        token = form.get("token", "")
        id = grant_of(token, "at", "rt")
        grant = None if id is None else self._store.grant(id)
        if grant is None or grant.client != client.id:
            return
        key = digest(token)
        if any(
            known is not None and hmac.compare_digest(known, key)
            for known in (grant.refresh, grant.access, grant.former)
        ):
            await self._store.end(grant.id)

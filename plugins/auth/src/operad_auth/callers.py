"""Credentials with which a source acts on behalf of the caller of each call: ``[[credentials]]``."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from operad.context import OperationContext
from operad.errors import CallError, ConfigError, ErrorCode
from operad_auth.credentials import Credentials
from operad_auth.fetching import Fetch, default_fetch, require_secure
from operad_auth.grants import OAuthError, OAuthToken
from operad_auth.http.urls import origin_of, shown_url
from operad_auth.server import AuthorizationServer, ClientAuth, OAuthOptions, client_of

_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # a name, no secret
_MAX_TOKENS = 10_000
"""Exchanged tokens that are kept; the oldest are dropped first."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

AuthTable = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class CallerCredentials:
    """One table of ``[[credentials]]``: how a source gets the credential of the caller of a call.

    A source uses it with ``auth = {type = "caller", provider = "NAME"}``.
    """

    name: str
    """What ``provider`` in the table of a source calls it."""
    type: Literal["table", "forward", "exchange", "oauth"]
    """``table``: a credential for each identity; ``forward``: the caller's own bearer token; ``exchange``: a token
    that an authorization server gives for the caller's own one (RFC 8693); ``oauth``: a token to which the user
    behind the identity agreed in a browser (authorization code with PKCE)."""
    entries: Mapping[str, str | dict[str, Any]] = attrs.field(factory=dict, repr=False)
    """For ``table``: the credential of each identity id: a bearer token, or a table as ``auth`` of a source."""
    origins: list[str] = attrs.field(factory=list)
    """For ``forward``: where the caller's token may be sent, such as ``https://api.example.com``."""
    issuer: str | None = None
    """For ``exchange`` and ``oauth``: the authorization server, whose metadata name its endpoints (RFC 8414)."""
    token_url: str | None = None
    """Its token endpoint, if it has no metadata."""
    authorization_url: str | None = None
    """For ``oauth``: where the user agrees, if it has no metadata."""
    revocation_url: str | None = None
    """For ``oauth``: where tokens are revoked, if it has no metadata (RFC 7009)."""
    public_url: str | None = None
    """For ``oauth``: the URL of `operad serve` as browsers see it, such as ``https://gateway.example.com``. The
    redirect URI to register is ``<public_url>/connect/<name>/callback``."""
    client_id: str | None = None
    """The client as which this process is registered there."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """Its secret."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """Its key instead of a secret (RFC 7523): a JWK or PEM, or the path of one."""
    client_auth: ClientAuth = "auto"
    """How the client authenticates: ``basic``, ``post``, ``private_key_jwt``, ``none``."""
    audience: str | None = None
    """The service that the new token is for."""
    resource: list[str] = attrs.field(factory=list)
    """The same by RFC 8707."""
    scopes: list[str] = attrs.field(factory=list)
    """The scopes that the new token should have."""
    extra: dict[str, str] = attrs.field(factory=dict, repr=False)
    """For ``oauth``: further fields of requests to the server, such as ``access_type = "offline"``."""

    def __attrs_post_init__(self) -> None:
        if self.type == "table" and not self.entries:
            raise ConfigError(
                'credentials: type = "table" needs entries, such as entries = {ann = "${ANN_TOKEN}"}'
            )
        if self.type == "forward" and not self.origins:
            raise ConfigError('credentials: type = "forward" needs origins: where the caller\'s token may be sent')
        if self.type == "exchange" and self.client_id is None:
            raise ConfigError('credentials: type = "exchange" needs a client_id')
        if self.type == "oauth":
            self._check_oauth()
        for origin in self.origins:
            _origin(origin)

    def _check_oauth(self) -> None:
        if self.client_id is None or self.public_url is None:
            raise ConfigError('credentials: type = "oauth" needs a client_id and the public_url of this server')
        require_secure(self.public_url, "public_url")
        if self.issuer is None and (self.authorization_url is None or self.token_url is None):
            raise ConfigError(
                'credentials: type = "oauth" needs the issuer, or authorization_url and token_url of a server '
                "without metadata"
            )
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f'credentials: expected a name of letters, digits, "_" and "-", which is part of a URL; got '
                f'"{self.name}"'
            )

    def oauth_options(self) -> OAuthOptions:
        """Return the client of the authorization server."""
        return client_of(
            self,
            token_url=self.token_url,
            authorization_url=self.authorization_url,
            revocation_url=self.revocation_url,
            scopes=self.scopes,
            audience=self.audience,
            resource=self.resource,
            extra=self.extra,
        )


def _origin(url: str) -> str:
    """Return the origin of a URL: scheme, host and port in lower case. Raises `ConfigError`."""
    try:
        return origin_of(url)
    except ValueError:
        shown = shown_url(url)
        raise ConfigError(
            f'credentials: expected an origin such as "https://api.example.com", got "{shown}"'
        ) from None


class Entries:
    """A credential for each identity, from the configuration."""

    def __init__(self, options: CallerCredentials) -> None:
        self._name = options.name
        self._entries = {
            id: {"type": "bearer", "token": entry} if isinstance(entry, str) else entry
            for id, entry in options.entries.items()
        }

    def check(self, origin: str) -> None:
        """Allow every origin."""

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the credential of the caller. Raises ``ACCESS_DENIED`` if it has none."""
        identity = context.identity
        found = None if identity is None else self._entries.get(identity.id)
        if found is None:
            raise denied(context, f'has no entry in the credentials "{self._name}"')
        return found


class Forward:
    """Forwards the caller's own bearer token, to some origins only."""

    def __init__(self, options: CallerCredentials) -> None:
        self._name, self._origins = options.name, {_origin(origin) for origin in options.origins}

    def check(self, origin: str) -> None:
        """Raise `ConfigError` for an origin that the table does not name."""
        if _origin(origin) not in self._origins:
            raise ConfigError(f'credentials "{self._name}" may not be sent to {origin}; add it to origins')

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the token. Raises ``ACCESS_DENIED`` if the caller has none, or for another origin."""
        if _origin(origin) not in self._origins:
            raise denied(context, f"has a token that may not be sent to {origin}")
        return {"type": "bearer", "token": _bearer(context)}


class Exchange:
    """Exchanges the caller's own token for another one at an authorization server (RFC 8693).

    The new token is kept until it expires, and used only with the caller's token that it was exchanged for.
    """

    def __init__(self, options: CallerCredentials, fetch: Fetch = default_fetch) -> None:
        self._server = AuthorizationServer(options.oauth_options(), fetch)
        self._kept: dict[str, OAuthToken] = {}
        self._asking: dict[str, asyncio.Task[OAuthToken]] = {}

    def check(self, origin: str) -> None:
        """Allow every origin: the new token is meant for the service."""

    def refused(self, context: OperationContext, credential: AuthTable) -> bool:
        """Forget a token that the service did not accept, so that the next request exchanges a new one."""
        token = credential.get("token")
        self._kept = {key: kept for key, kept in self._kept.items() if kept.access_token != token}
        return True

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the new token.

        Raises:
            CallError: ``ACCESS_DENIED``, the caller has no token or the server refuses it; ``UNAVAILABLE``, the
                server gives no response.
        """
        token = _bearer(context)
        key = hashlib.sha256(token.encode()).hexdigest()
        found = self._kept.get(key)
        if found is None or not found.usable(time.time()):
            if key not in self._asking:
                self._asking[key] = asyncio.create_task(self._exchanged(token, key))
            try:
                # Several calls wait for one request; the first one to leave must not end it for the others.
                found = await asyncio.shield(self._asking[key])
            except OAuthError as error:
                raise denied(context, f"has a token that cannot be exchanged: {error.message}") from None
        return {"type": "bearer", "token": found.access_token}

    async def _exchanged(self, token: str, key: str) -> OAuthToken:
        fields = {**self._server.fields(), "grant_type": _EXCHANGE, "subject_token": token}
        try:
            answer = await self._server.token({**fields, "subject_token_type": _ACCESS_TOKEN}, retry=True)
        finally:
            del self._asking[key]
        while len(self._kept) >= _MAX_TOKENS:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = made = OAuthToken.from_answer(answer)
        return made


def _bearer(context: OperationContext) -> str:
    """Return the bearer token of the caller. Raises ``ACCESS_DENIED`` if it came without one."""
    shown = context.credentials
    token = shown.bearer if isinstance(shown, Credentials) else None
    if token is None or context.identity is None:
        raise denied(context, "did not authenticate with a bearer token here")
    return token


def denied(context: OperationContext, what: str) -> CallError:
    """Return the error for a caller without a credential."""
    who = "an anonymous caller" if context.identity is None else f'the caller "{context.identity.id}"'
    return CallError(ErrorCode.ACCESS_DENIED, f"{who} {what}")

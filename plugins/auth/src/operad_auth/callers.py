"""The ``[[credentials]]`` tables: how a source acts on behalf of the caller of each call."""

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
"""The maximum number of exchanged tokens in memory; the oldest are dropped first."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

AuthTable = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class CallerCredentials:
    """One ``[[credentials]]`` table: how a source gets the credential of the caller of a call.

    A source refers to the table with ``auth = {type = "caller", provider = "NAME"}``.

    Raises:
        ConfigError: an option that ``type`` requires is missing, or a URL, an origin or the name is not valid.
    """

    name: str
    """The name to which ``provider`` in the table of a source refers."""
    type: Literal["table", "forward", "exchange", "oauth"]
    """``table``: a credential for each identity; ``forward``: the caller's own bearer token; ``exchange``: a token
    that an authorization server issues in exchange for the caller's token (RFC 8693); ``oauth``: a token that the
    user has granted in a browser (authorization code with PKCE)."""
    entries: Mapping[str, str | dict[str, Any]] = attrs.field(factory=dict, repr=False)
    """For ``table``: the credential of each identity id, a bearer token or a table like ``auth`` of a source."""
    origins: list[str] = attrs.field(factory=list)
    """For ``forward``: origins to which the caller's token may be sent, such as ``https://api.example.com``."""
    issuer: str | None = None
    """For ``exchange`` and ``oauth``: the URL of the authorization server, whose metadata name its endpoints (RFC
    8414)."""
    token_url: str | None = None
    """The token endpoint of the authorization server; default: the one in its metadata."""
    authorization_url: str | None = None
    """For ``oauth``: the page where the user grants access; default: the one in the server's metadata."""
    revocation_url: str | None = None
    """For ``oauth``: the endpoint that revokes tokens (RFC 7009); default: the one in the server's metadata."""
    public_url: str | None = None
    """For ``oauth``: the URL of `operad serve` as browsers see it, such as ``https://gateway.example.com``. The
    redirect URI to register is ``<public_url>/connect/<name>/callback``."""
    client_id: str | None = None
    """The id of the client that is registered with the authorization server for this process."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The secret of the client."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The private key of the client, instead of a secret (RFC 7523): a JWK, a PEM, or the path of one."""
    client_auth: ClientAuth = "auto"
    """How the client authenticates: ``basic``, ``post``, ``private_key_jwt``, ``none``; ``auto``: with
    the private key if there is one, else with the secret as the server's metadata state."""
    audience: str | None = None
    """The name of the service that the new token is for (RFC 8693, 2.1)."""
    resource: list[str] = attrs.field(factory=list)
    """The URLs of the services that the new token is for (RFC 8707)."""
    scopes: list[str] = attrs.field(factory=list)
    """The scopes to request for the new token."""
    extra: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Further fields of requests to the authorization server, such as ``access_type = "offline"``."""

    def __attrs_post_init__(self) -> None:
        if self.type == "table" and not self.entries:
            raise ConfigError(
                f'credentials "{self.name}": type "table" requires entries; add entries = {{id = "${{TOKEN}}"}}'
            )
        if self.type == "forward" and not self.origins:
            raise ConfigError(
                f'credentials "{self.name}": type "forward" requires origins, to which the caller\'s token may be '
                'sent; add origins = ["https://api.example.com"]'
            )
        if self.type == "exchange" and self.client_id is None:
            raise ConfigError(f'credentials "{self.name}": type "exchange" requires client_id; add client_id')
        if self.type == "oauth":
            self._check_oauth()
        for origin in self.origins:
            _origin(origin)

    def _check_oauth(self) -> None:
        if self.client_id is None or self.public_url is None:
            raise ConfigError(
                f'credentials "{self.name}": type "oauth" requires client_id and public_url, the URL of this '
                "server; add them"
            )
        require_secure(self.public_url, "public_url")
        if self.issuer is None and (self.authorization_url is None or self.token_url is None):
            raise ConfigError(
                f'credentials "{self.name}": type "oauth" requires issuer; add it, or authorization_url and '
                "token_url for a server without metadata"
            )
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                'credentials: expected a name of 1 to 64 letters, digits, "_" and "-", because it is part of a '
                f'URL; got "{self.name}"'
            )

    def oauth_options(self) -> OAuthOptions:
        """Return the options of the OAuth 2.0 client of the table. Raises `ConfigError` for invalid ones."""
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
    """Return the origin of a URL: scheme, host and port in lower case. Raises `ConfigError` for any other text."""
    try:
        return origin_of(url)
    except ValueError:
        shown = shown_url(url)
        raise ConfigError(
            f'credentials: origins: expected an origin such as "https://api.example.com", got "{shown}"'
        ) from None


class Entries:
    """A provider of the credentials that a table lists, one for each identity id."""

    def __init__(self, options: CallerCredentials) -> None:
        self._name = options.name
        self._entries = {
            id: {"type": "bearer", "token": entry} if isinstance(entry, str) else entry
            for id, entry in options.entries.items()
        }

    def check(self, origin: str) -> None:
        """Allow every origin, because the credentials are listed for the source."""

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the credential of the caller. Raises `CallError` ``ACCESS_DENIED`` if the caller has no entry."""
        identity = context.identity
        found = None if identity is None else self._entries.get(identity.id)
        if identity is None:
            raise denied(context, f'cannot use the credentials "{self._name}"; authenticate first')
        if found is None:
            raise denied(context, f'has no entry in the credentials "{self._name}"; add one to entries')
        return found


class Forward:
    """A provider of the caller's own bearer token, for the listed origins only."""

    def __init__(self, options: CallerCredentials) -> None:
        self._name, self._origins = options.name, {_origin(origin) for origin in options.origins}

    def check(self, origin: str) -> None:
        """Raise `ConfigError` for an origin that the table does not list."""
        if _origin(origin) not in self._origins:
            raise ConfigError(
                f'credentials "{self._name}": tokens may not be sent to {origin}; add this origin to origins'
            )

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the caller's token as ``{"type": "bearer", "token": "…"}``.

        Raises `CallError` ``ACCESS_DENIED`` if the caller sent no token, or the table does not list the origin.
        """
        if _origin(origin) not in self._origins:
            where = f'origins of the credentials "{self._name}"'
            raise denied(context, f"has a token that may not be sent to {origin}; add this origin to {where}")
        return {"type": "bearer", "token": _bearer(context, self._name)}


class Exchange:
    """A provider of tokens that an authorization server gives in exchange for the caller's token (RFC 8693).

    A new token is kept until it expires. It is used only for a caller who sends the same original token.
    """

    def __init__(self, options: CallerCredentials, fetch: Fetch = default_fetch) -> None:
        self._name, self._server = options.name, AuthorizationServer(options.oauth_options(), fetch)
        self._kept: dict[str, OAuthToken] = {}
        self._asking: dict[str, asyncio.Task[OAuthToken]] = {}

    def check(self, origin: str) -> None:
        """Allow every origin: the new token is meant for the service."""

    def refused(self, context: OperationContext, credential: AuthTable) -> bool:
        """Forget a token that the service rejected, so that `get` requests a new one. Return True."""
        token = credential.get("token")
        self._kept = {key: kept for key, kept in self._kept.items() if kept.access_token != token}
        return True

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the new token, kept or requested now, as ``{"type": "bearer", "token": "…"}``.

        Raises:
            CallError: ``ACCESS_DENIED`` if the caller sent no token or the authorization server refuses it;
                ``UNAVAILABLE`` if the authorization server does not respond.
            ConfigError: the token endpoint is unknown.
        """
        token = _bearer(context, self._name)
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


def _bearer(context: OperationContext, name: str) -> str:
    """Return the bearer token of the caller. Raises ``ACCESS_DENIED`` if the caller sent none."""
    shown = context.credentials
    token = shown.bearer if isinstance(shown, Credentials) else None
    if token is None or context.identity is None:
        raise denied(context, f'did not authenticate with a bearer token, which the credentials "{name}" require')
    return token


def denied(context: OperationContext, what: str) -> CallError:
    """Return the error ``ACCESS_DENIED``. Its message is the name of the caller, followed by ``what``."""
    who = "an anonymous caller" if context.identity is None else f'the caller "{context.identity.id}"'
    return CallError(ErrorCode.ACCESS_DENIED, f"{who} {what}")

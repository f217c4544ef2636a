"""Tokens that each user allows this server to use: ``type = "oauth"`` of ``[[credentials]]``.

A call without a token fails with a link to a page of this server. The link has a ticket for one identity, and only
a browser that is authenticated as this identity can use it. So a user who follows the link of another caller does
not connect an account to that caller. The state between two requests is encrypted and kept by the browser, so any
process of the server can take the next step.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from asyncio import to_thread
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

from operad.context import OperationContext
from operad.errors import CallError, ConfigError
from operad_auth.callers import AuthTable, CallerCredentials, denied
from operad_auth.fetching import Fetch, default_fetch
from operad_auth.grants import LoginRequired, OAuthToken
from operad_auth.logins import code_of, pkce, with_query
from operad_auth.oauth import OAuthClient
from operad_auth.server import AuthorizationServer
from operad_auth.store import KEY_VARIABLE, TokenKey, TokenStore

if TYPE_CHECKING:
    from operad import OperationRegistry

FOREIGN = "This link was made for another user. Call the operation yourself to get a link of your own."
LIFETIME = 600
"""The lifetime of a link, and of a login in a browser, in seconds."""
FRESH = 60.0
"""Seconds until a token is read from the store again: another process may have disconnected the account."""
_MAX_CLIENTS = 10_000
"""The maximum number of identities with tokens in memory; the least recently used are dropped first."""
_MAX_SEALED = 4_096


class ConnectRefused(Exception):
    """Raised if a link, or the redirect of the authorization server, is not valid. The message is for the user."""


class UserTokens:
    """The tokens of the users of one ``[[credentials]]`` table, one token for each identity.

    Args:
        options: the table, with ``type = "oauth"``.
        store: the store of the tokens, which must encrypt; default: a file in the user's configuration folder.
        fetch: sends requests to the authorization server.

    Raises:
        ConfigError: the store has no encryption key, or an option is not valid.
    """

    def __init__(
        self, options: CallerCredentials, store: TokenStore | None = None, fetch: Fetch = default_fetch
    ) -> None:
        assert options.public_url is not None
        # No keyring: it belongs to one user of this machine, and a server has none.
        self._store = TokenStore(keyring=False) if store is None else store
        self._cipher = self._store.cipher()
        if self._cipher is None:
            raise ConfigError(
                f'credentials "{options.name}": tokens of users are stored only if they are encrypted; set the '
                f"environment variable {KEY_VARIABLE} to a key; make one with: python -c "
                '"from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'
            )
        self.name = options.name
        self.public_url = options.public_url.rstrip("/")
        self._options = options.oauth_options()
        self._fetch = fetch
        self._server = AuthorizationServer(self._options, fetch)
        self._clients: OrderedDict[str, tuple[float, OAuthClient]] = OrderedDict()

    # --- the credential of a call ----------------------------------------------------------------------

    def check(self, origin: str) -> None:
        """Allow every origin: the token is meant for the service."""

    async def get(self, context: OperationContext, origin: str) -> AuthTable:
        """Return the token of the caller, renewed if it has expired, as ``{"type": "bearer", "token": "…"}``.

        Raises:
            CallError: ``ACCESS_DENIED`` if the caller is anonymous; ``AUTHORIZATION_REQUIRED`` if the user must
                first grant access, on the page ``details.url``; ``UNAVAILABLE`` if the authorization server does
                not respond, or another process renews the token for too long.
            OAuthError: the authorization server refuses the renewal, and not because the login has expired.
            ConfigError: the token cannot be read or stored.
        """
        if context.identity is None:
            raise denied(context, f'cannot connect to "{self.name}"; authenticate first')
        identity = context.identity.id
        try:
            token = await self._client(identity).token()
        except LoginRequired:
            url = self.link(identity)
            message = f'"{self.name}" requires the consent of the user; open {url} in a browser, then call again'
            details = {"url": url, "provider": self.name}
            error = CallError("AUTHORIZATION_REQUIRED", message, details)
            error.ran, error.forwarded = False, True  # the same call, with its idempotency key, may be made again
            raise error from None
        return {"type": "bearer", "token": token.access_token}

    def refused(self, context: OperationContext, credential: AuthTable) -> bool:
        """Mark a token as rejected, so that `get` renews it. Return True, or False for an anonymous caller."""
        if context.identity is not None:
            self._client(context.identity.id).refused(str(credential.get("token")))
        return context.identity is not None

    def _client(self, identity: str) -> OAuthClient:
        now = time.monotonic()
        made, client = self._clients.get(identity, (0.0, None))
        if client is None or now - made >= FRESH:
            while len(self._clients) >= _MAX_CLIENTS:
                self._clients.popitem(last=False)
            issuer = self._options.issuer or self._options.token_url
            key = TokenKey(f"connect {self.name} {issuer}", self._options.client_id, identity)
            client = OAuthClient(self._options, store=self._store, fetch=self._fetch, name=self.name, key=key)
            self._clients[identity] = now, client
        self._clients.move_to_end(identity)
        return client

    # --- connecting an account -------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path of the page where the user connects an account, from the root of this server."""
        return f"/connect/{self.name}"

    @property
    def redirect_uri(self) -> str:
        """The URL to which the authorization server redirects the browser."""
        return f"{self.public_url}{self.path}/callback"

    @property
    def authorization_host(self) -> str:
        """The host and port of the authorization server, to show to the user."""
        return urlsplit(self._options.issuer or self._options.authorization_url or "").netloc

    def link(self, identity: str) -> str:
        """Return a link to the page. Only this identity can use the link, once and within `LIFETIME` seconds."""
        ticket = self._seal("ticket", {"identity": identity, "id": secrets.token_urlsafe(16)})
        return f"{self.public_url}{self.path}?ticket={quote(ticket)}"

    def identity_of(self, ticket: str) -> str:
        """Return the id of the identity of a ticket. Raises `ConnectRefused` if it is invalid or has expired."""
        identity: str = self._opened("ticket", ticket)["identity"]
        return identity

    async def begin(self, ticket: str, identity: str) -> tuple[str, str]:
        """Use up a ticket. Return the URL of the login page, and the value of a cookie for `finish`.

        Args:
            ticket: the ticket of the link.
            identity: the id of the identity as which the browser is authenticated.

        Raises:
            ConnectRefused: the ticket is not valid, has expired, was used, or is for another identity.
            CallError: ``UNAVAILABLE`` if the authorization server does not respond.
            ConfigError: the authorization endpoint is unknown.
        """
        if not hmac.compare_digest(self.identity_of(ticket).encode(), identity.encode()):
            raise ConnectRefused(FOREIGN)
        address = await self._server.endpoint("authorization_endpoint", self._options.authorization_url)
        if not await to_thread(self._use_up, self._opened("ticket", ticket)["id"]):
            raise ConnectRefused("This link was used already. Call the operation again to get a new one.")
        verifier, challenge = pkce()
        state = secrets.token_urlsafe(24)
        query: dict[str, str | list[str]] = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": self.redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **self._server.fields(),
        }
        kept = {"identity": identity, "state": state, "verifier": verifier}
        return with_query(address, query), self._seal("login", kept)

    def identity_of_login(self, kept: str) -> str:
        """Return the id of the identity in a cookie of `begin`.

        Raises `ConnectRefused` if the cookie is invalid or has expired.
        """
        identity: str = self._opened("login", kept)["identity"]
        return identity

    async def finish(self, answer: Mapping[str, str], kept: str) -> str:
        """Exchange the code of the redirect for a token, and store the token. Return the id of the identity.

        Args:
            answer: the parameters of the redirect.
            kept: the value of the cookie that `begin` returned.

        Raises:
            ConnectRefused: the cookie is invalid or has expired, or the redirect belongs to another login.
            CallError: the user or the authorization server refused, or the server does not respond.
            ConfigError: an endpoint is unknown, or the token cannot be stored.
        """
        login = self._opened("login", kept)
        if not hmac.compare_digest(str(login["state"]).encode(), answer.get("state", "").encode()):
            raise ConnectRefused("This response belongs to another login. Open your own link again.")
        address = self._options.issuer or self._options.authorization_url or ""
        code = code_of(answer, address, self._options.issuer, await self._server.metadata())
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri}
        response = await self._server.token(
            {**self._server.fields(scope=False), **fields, "code_verifier": login["verifier"]}
        )
        await self._client(login["identity"]).keep(OAuthToken.from_answer(response))
        identity: str = login["identity"]
        return identity

    async def disconnect(self, identity: str) -> str:
        """Delete the token of an identity, and revoke it if the server can. Return a sentence with the outcome.

        Raises the same errors as `OAuthClient.logout`.
        """
        return await self._client(identity).logout()

    # --- what a browser keeps --------------------------------------------------------------------------

    def _seal(self, kind: str, values: Mapping[str, str]) -> str:
        text = json.dumps({**values, "kind": kind, "name": self.name})
        sealed: bytes = self._cipher.encrypt(text.encode())
        return sealed.decode()

    def _opened(self, kind: str, sealed: str) -> dict[str, str]:
        """Return the values that `_seal` encrypted. Raises `ConnectRefused` if they are invalid or expired."""
        from cryptography.fernet import InvalidToken

        try:
            if len(sealed) > _MAX_SEALED:
                raise ValueError
            values = json.loads(self._cipher.decrypt(sealed.encode(), ttl=LIFETIME))
        except (InvalidToken, ValueError):
            values = {}
        if values.get("kind") != kind or values.get("name") != self.name:
            what = "link is not valid" if kind == "ticket" else "login did not begin in this browser"
            raise ConnectRefused(f"This {what}, or it has expired. Call the operation again to get a new link.")
        found: dict[str, str] = values
        return found

    def _use_up(self, id: str) -> bool:
        """Mark a ticket as used. Return False if any process did so before. Remove marks of expired tickets."""
        folder = self._store.folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in folder.glob("ticket-*"):
            if old.stat().st_mtime < time.time() - 2 * LIFETIME:
                old.unlink(missing_ok=True)
        name = f"ticket-{hashlib.sha256(id.encode()).hexdigest()[:32]}"
        try:
            os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True


_MADE: WeakKeyDictionary[OperationRegistry, tuple[Any, dict[str, UserTokens]]] = WeakKeyDictionary()


def user_tokens(registry: OperationRegistry) -> dict[str, UserTokens]:
    """Return the `UserTokens` of each ``[[credentials]]`` table with ``type = "oauth"``, by the name of the table.

    The dictionary is empty if the configuration has no such table.

    Raises:
        ConfigError: a table is not valid, or the key that encrypts tokens is missing.
    """
    configuration = registry.configuration
    if configuration is None or "credentials" not in configuration.tables:
        return {}
    known = _MADE.get(registry)
    if known is None or known[0] is not configuration:
        tables = configuration.array("credentials", CallerCredentials)
        made = {table.name: UserTokens(table) for table in tables if table.type == "oauth"}
        known = _MADE[registry] = configuration, made
    return known[1]

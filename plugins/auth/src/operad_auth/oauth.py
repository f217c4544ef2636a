"""The OAuth 2.0 client, which gets, stores and renews tokens of this user."""

from __future__ import annotations

import asyncio
import time

from operad.errors import CallError, ConfigError
from operad_auth.fetching import Fetch, default_fetch
from operad_auth.grants import LoginRequired, OAuthError, OAuthToken
from operad_auth.login import Login, OpenURL, Tell
from operad_auth.logins import authorization_code, device_code
from operad_auth.server import AuthorizationServer, OAuthOptions
from operad_auth.store import TokenKey, TokenStore


class OAuthClient(Login):
    """An OAuth 2.0 client that gets, stores and renews the access token of one account.

    Args:
        options: the authorization server, the client and the grant.
        store: keeps tokens for later processes; default: a `TokenStore`.
        fetch: sends requests; default: the standard library in a thread.
        name: the argument of ``operad login`` in messages.
        key: the key of the token in the store; default: ``options.key``.
    """

    def __init__(
        self,
        options: OAuthOptions,
        *,
        store: TokenStore | None = None,
        fetch: Fetch | None = None,
        name: str = "NAME",
        key: TokenKey | None = None,
    ) -> None:
        self.options = options
        self._key = key or options.key
        self._store = store or TokenStore()
        self._server = AuthorizationServer(options, fetch or default_fetch)
        self._name = name
        self._token: OAuthToken | None = None
        self._refused: set[str] = set()
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def __repr__(self) -> str:
        return f"OAuthClient({self.options!r})"

    # --- the token, when it is needed ------------------------------------------------------------------

    async def token(self) -> OAuthToken:
        """Return a valid token: the stored one, a renewed one, or a new one. Concurrent callers share one request.

        Raises:
            LoginRequired: the user must log in.
            OAuthError: the authorization server refused to issue or renew a token.
            CallError: ``UNAVAILABLE`` if the server does not respond, or another process holds the lock.
            ConfigError: the store cannot be read, or an endpoint is unknown.
        """
        if self._counts(self._token):
            assert self._token is not None
            return self._token
        async with self._once():
            if not self._counts(self._token):
                credentials = self.options.grant == "client_credentials"
                self._token = await (self._by_credentials() if credentials else self._kept())
            assert self._token is not None
            return self._token

    def refused(self, access_token: str) -> None:
        """Report that the service rejected a token (401), so that `token` returns another one next time."""
        self._refused = {access_token}

    def _counts(self, token: OAuthToken | None) -> bool:
        return token is not None and token.access_token not in self._refused and token.usable(time.time())

    def _once(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def _by_credentials(self) -> OAuthToken:
        fields = {"grant_type": "client_credentials", **self._server.fields()}
        return OAuthToken.from_answer(await self._server.token(fields, retry=True))

    async def _kept(self) -> OAuthToken:
        kept = await self._stored()
        if self._counts(kept):
            assert kept is not None
            return kept
        if kept is None:
            raise self.login_required("the user has not logged in yet")
        # What another process renewed meanwhile is found inside: a refresh token may count only once.
        async with self._store.lock(self._key):
            kept = await self._stored()
            if kept is None or kept.refresh_token is None:
                raise self.login_required("the token has expired or was refused")
            return kept if self._counts(kept) else await self._refreshed(kept)

    async def _refreshed(self, kept: OAuthToken) -> OAuthToken:
        fields = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token or ""}
        try:
            answer = await self._server.token({**fields, **self._server.fields(scope=False)})
        except OAuthError as error:
            if error.error != "invalid_grant":
                raise
            await self._store.delete(self._key)
            raise self.login_required("the login has expired") from error
        token = OAuthToken.from_answer(answer, kept)
        await self._store.set(self._key, token.to_record())
        return token

    async def _stored(self) -> OAuthToken | None:
        record = await self._store.get(self._key)
        kept = None if record is None else OAuthToken.from_record(record)
        if kept is None and self.options.refresh_token is not None:
            return OAuthToken(access_token="", refresh_token=self.options.refresh_token, expires_at=0.0)
        return kept

    def login_required(self, why: str) -> LoginRequired:
        """Return the error that asks the user to run ``operad login``; ``why`` is the reason in its message."""
        account = f" --account {self.options.account}" if self.options.account else ""
        command = f"operad login {self._name}{account}"
        return LoginRequired("AUTHORIZATION_REQUIRED", f"{why}; run: {command}", {"command": command})

    # --- logging in and out ----------------------------------------------------------------------------

    async def login(self, *, tell: Tell = print, open_url: OpenURL | None = None, timeout: float = 300.0) -> str:
        """Log in with the grant of the options and store the token. Return a phrase that states where it is.

        If ``open_url`` is ``None``, the device flow is used if the server supports it. With the grant
        ``client_credentials``, only check that the server issues a token, and store nothing.

        Raises:
            CallError: the user or the server refused, or the user did not log in within ``timeout`` seconds.
            ConfigError: an endpoint is unknown, or the token cannot be stored.
        """
        if self.options.grant == "client_credentials":
            self._token = await self._by_credentials()
            return "no login is needed: the client gets tokens with its own credentials"
        by_device = self.options.grant == "device_code"
        if open_url is None and not by_device:
            by_device = bool(
                self.options.device_url or (await self._server.metadata()).get("device_authorization_endpoint")
            )
        flow = device_code if by_device else authorization_code
        await self._server.endpoint("token_endpoint", self.options.token_url)  # before a person does anything
        answer = await flow(self._server, tell=tell, open_url=open_url, timeout=timeout)
        return f"the token is in {await self.keep(OAuthToken.from_answer(answer))}"

    async def keep(self, token: OAuthToken) -> str:
        """Store a token in place of an earlier one. Return a phrase that states where, as `TokenStore.set`.

        Raises the same errors as `TokenStore.set`.
        """
        # Not during a renewal, in whichever process: its result would replace this token.
        async with self._once(), self._store.lock(self._key):
            where = await self._store.set(self._key, token.to_record())
            self._token, self._refused = token, set()
        return where

    async def has_token(self) -> bool:
        """Return True if a token is stored, even if it has expired, or ``refresh_token`` is set in the options.

        Raises `ConfigError` if the store cannot be read.
        """
        return await self._stored() is not None

    async def logout(self) -> str:
        """Delete the token, and revoke it (RFC 7009) if the server can. Return a phrase with the outcome.

        Raises:
            ConfigError: the store cannot be changed.
            CallError: ``UNAVAILABLE`` if another process holds the lock of the token or of the store.
        """
        # Not during a renewal, in whichever process: its result would be kept after the logout.
        async with self._once(), self._store.lock(self._key):
            kept, self._token = await self._stored_or_nothing(), None
            found = await self._store.delete(self._key)
        if not found:
            return "there was no token"
        if kept is None or not await self._revoke(kept):
            return "the token was deleted here; the server could not revoke it"
        return "the token was deleted here and revoked by the server"

    async def _stored_or_nothing(self) -> OAuthToken | None:
        try:
            return await self._stored()
        except ConfigError:  # encrypted with a key that is gone, say: it can still be forgotten
            return None

    async def _revoke(self, token: OAuthToken) -> bool:
        hint = "access_token" if token.refresh_token is None else "refresh_token"
        secret = token.refresh_token or token.access_token
        try:
            url = await self._server.endpoint("revocation_endpoint", self.options.revocation_url)
            response = await self._server.post(url, {"token": secret, "token_type_hint": hint}, retry=True)
        except (CallError, ConfigError):
            return False
        return response.status == 200

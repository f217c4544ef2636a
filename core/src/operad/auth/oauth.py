"""A client of OAuth 2.0 in the name of this user: its token when it is needed, and the logins that bring one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from operad.auth.discovery import discover
from operad.auth.fetching import Fetch, FetchResponse, default_fetch, require_secure, shown
from operad.auth.grants import (
    Client,
    ClientAuth,
    LoginRequired,
    OAuthError,
    OAuthToken,
    post_form,
    request_token,
)
from operad.auth.logins import authorization_code, device_code
from operad.auth.store import TokenKey, TokenStore
from operad.errors import CallError, ConfigError
from operad.sources import Login, OpenURL, Tell

Grant = Literal["authorization_code", "device_code", "client_credentials"]


def _words(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else tuple(value or ())


@attrs.frozen(kw_only=True)
class OAuthOptions:
    """How to get tokens from an authorization server, as a table of a configuration says it.

    Args:
        client_id: the client, as registered with the server.
        client_secret: its secret, if it has one.
        private_key: its key, for assertions instead of a secret (RFC 7523): a JWK or PEM, or the path of one.
        grant: ``authorization_code`` (RFC 6749, 4.1, with PKCE; a browser), ``device_code`` (RFC 8628; any
            browser anywhere), or ``client_credentials`` (RFC 6749, 4.4; nobody logs in).
        issuer: the server; its metadata (RFC 8414) name the endpoints that are not named here.
        token_url, authorization_url, device_url, revocation_url: its endpoints.
        scopes: what to ask for.
        audience: the service that the token is for, where the server wants it (Auth0 and others).
        resource: the same by RFC 8707.
        extra: further fields of token requests.
        client_auth: how the client proves itself: ``basic``, ``post``, ``private_key_jwt``, ``none``; ``auto`` by
            its key if it has one, else as the server says.
        redirect_uri: where the browser returns to; on this machine; port 0 is any free one.
        account: which of several accounts of this user.
    """

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    private_key: str | None = attrs.field(default=None, repr=False)
    grant: Grant = "authorization_code"
    issuer: str | None = None
    token_url: str | None = None
    authorization_url: str | None = None
    device_url: str | None = None
    revocation_url: str | None = None
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_words)
    audience: str | None = None
    resource: tuple[str, ...] = attrs.field(default=(), converter=_words)
    extra: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    client_auth: ClientAuth = "auto"
    redirect_uri: str = "http://127.0.0.1:0/callback"
    account: str = ""

    def __attrs_post_init__(self) -> None:
        if self.issuer is None and self.token_url is None:
            raise ConfigError("oauth: name the issuer, or the token_url")
        has_own = self.client_secret is not None or self.private_key is not None
        if self.grant == "client_credentials" and not has_own and self.client_auth != "none":
            raise ConfigError("oauth: client_credentials needs a client_secret, or a private_key")
        if self.client_auth == "private_key_jwt" and self.private_key is None:
            raise ConfigError('oauth: client_auth "private_key_jwt" needs a private_key')
        for url in (self.issuer, self.token_url, self.authorization_url, self.device_url, self.revocation_url):
            if url is not None:
                require_secure(url, "oauth")

    @property
    def key(self) -> TokenKey:
        """Under what the token is kept."""
        return TokenKey(self.issuer or self.token_url or "", self.client_id, self.account)


class OAuthClient(Login):
    """Gets, keeps and renews the access token of one client and account.

    Args:
        options: the server, the client, the grant.
        store: where tokens outlive the process; default: a `TokenStore`.
        fetch: how the server is asked; default: the standard library in a thread.
        name: what ``operad login`` calls it, for messages.
    """

    def __init__(
        self,
        options: OAuthOptions,
        *,
        store: TokenStore | None = None,
        fetch: Fetch | None = None,
        name: str = "NAME",
    ) -> None:
        self.options = options
        self._store = store or TokenStore()
        self._fetch: Fetch = fetch or default_fetch
        self._name = name
        self._client = Client(
            client_id=options.client_id,
            client_secret=options.client_secret,
            private_key=options.private_key,
            auth=options.client_auth,
        )
        self._token: OAuthToken | None = None
        self._refused: set[str] = set()
        self._metadata: dict[str, Any] | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def __repr__(self) -> str:
        return f"OAuthClient({self.options!r})"

    # --- the token, when it is needed ------------------------------------------------------------------

    async def token(self) -> OAuthToken:
        """A token that counts, as far as is known: kept, renewed, or fetched. One request, however many ask.

        Raises:
            LoginRequired: a person has to log in.
            OAuthError: the server refused.
            CallError: ``UNAVAILABLE``, it gives no answer.
            ConfigError: the store cannot be read, or an endpoint is missing.
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
        """Say that the service refused a token (a 401): the next `token` is another one."""
        self._refused = {access_token}

    def _counts(self, token: OAuthToken | None) -> bool:
        return token is not None and token.access_token not in self._refused and token.usable(time.time())

    def _once(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def _by_credentials(self) -> OAuthToken:
        metadata = await self.metadata()
        url = await self.endpoint("token_endpoint", self.options.token_url)
        fields = {"grant_type": "client_credentials", **self.fields()}
        answer = await request_token(self._fetch, url, fields, self._client, metadata, retry=True)
        return OAuthToken.from_answer(answer)

    async def _kept(self) -> OAuthToken:
        kept = await self._stored()
        if self._counts(kept):
            assert kept is not None
            return kept
        if kept is None:
            raise self.login_required("nobody has logged in yet")
        # What another process renewed meanwhile is found inside: a refresh token may count only once.
        async with self._store.lock(self.options.key):
            kept = await self._stored()
            if kept is None or kept.refresh_token is None:
                raise self.login_required("the token has expired or was refused")
            return kept if self._counts(kept) else await self._refreshed(kept)

    async def _refreshed(self, kept: OAuthToken) -> OAuthToken:
        url = await self.endpoint("token_endpoint", self.options.token_url)
        fields = {
            "grant_type": "refresh_token",
            "refresh_token": kept.refresh_token or "",
            **self.fields(scope=False),
        }
        try:
            answer = await request_token(self._fetch, url, fields, self._client, await self.metadata())
        except OAuthError as error:
            if error.error != "invalid_grant":
                raise
            await self._store.delete(self.options.key)
            raise self.login_required("the login is no longer valid") from error
        token = OAuthToken.from_answer(answer, kept)
        await self._store.set(self.options.key, token.to_record())
        return token

    async def _stored(self) -> OAuthToken | None:
        record = await self._store.get(self.options.key)
        return None if record is None else OAuthToken.from_record(record)

    def login_required(self, why: str) -> LoginRequired:
        """The error that asks for a login."""
        account = f" --account {self.options.account}" if self.options.account else ""
        command = f"operad login {self._name}{account}"
        return LoginRequired("AUTHORIZATION_REQUIRED", f"{why}; run: {command}", {"command": command})

    # --- logging in and out ----------------------------------------------------------------------------

    async def login(self, *, tell: Tell = print, open_url: OpenURL | None = None, timeout: float = 300.0) -> str:
        """Log in by the grant of the options, and keep the token; the answer says where it is kept.

        Without ``open_url`` and with an endpoint for it, the device flow is taken instead of a browser here.

        Raises:
            CallError: the person or the server refused, or nobody came within ``timeout`` seconds.
            ConfigError: an endpoint is missing, or the token cannot be kept.
        """
        if self.options.grant == "client_credentials":
            self._token = await self._by_credentials()
            return "nobody has to log in: the client's own credentials bring a token when it is needed"
        by_device = self.options.grant == "device_code"
        if open_url is None and not by_device:
            by_device = bool(
                self.options.device_url or (await self.metadata()).get("device_authorization_endpoint")
            )
        flow = device_code if by_device else authorization_code
        answer = await flow(self, tell=tell, open_url=open_url, timeout=timeout)
        token = OAuthToken.from_answer(answer)
        async with self._store.lock(self.options.key):  # not between another process's request and its answer
            where = await self._store.set(self.options.key, token.to_record())
        self._token, self._refused = token, set()
        return f"the token is in {where}"

    async def logout(self) -> str:
        """Forget the token, and revoke it (RFC 7009) where the server lets us; the answer says what was done."""
        kept, self._token = await self._stored_or_nothing(), None
        found = await self._store.delete(self.options.key)
        if not found:
            return "there was no token"
        if kept is None or not await self._revoke(kept):
            return "the token is forgotten here; the server does not know, or was not told"
        return "the token is forgotten here, and revoked"

    async def _stored_or_nothing(self) -> OAuthToken | None:
        try:
            return await self._stored()
        except ConfigError:  # encrypted with a key that is gone, say: it can still be forgotten
            return None

    async def _revoke(self, token: OAuthToken) -> bool:
        secret, hint = token.refresh_token or token.access_token, "refresh_token"
        if token.refresh_token is None:
            hint = "access_token"
        try:
            url = await self.endpoint("revocation_endpoint", self.options.revocation_url)
            fields = {"token": secret, "token_type_hint": hint}
            response = await post_form(self._fetch, url, fields, self._client, await self.metadata(), retry=True)
        except (CallError, ConfigError):
            return False
        return response.status == 200

    # --- what the flows need ---------------------------------------------------------------------------

    async def metadata(self) -> Mapping[str, Any]:
        """What the issuer says of itself; nothing where no issuer is named."""
        if self._metadata is None:
            issuer = self.options.issuer
            self._metadata = {} if issuer is None else await self._discover(issuer)
        return self._metadata

    async def _discover(self, issuer: str) -> dict[str, Any]:
        try:
            return await discover(issuer, self._fetch)
        except ConfigError:
            if self.options.token_url is None:
                raise
            return {}  # it publishes nothing, and need not

    async def endpoint(self, name: str, configured: str | None) -> str:
        """The endpoint of that name in RFC 8414. Raises `ConfigError` if nobody names it."""
        url = configured or (await self.metadata()).get(name)
        if not isinstance(url, str) or not url:
            option = {"device_authorization_endpoint": "device_url"}.get(name, name.replace("_endpoint", "_url"))
            where = shown(self.options.issuer or self.options.token_url or "")
            raise ConfigError(f"{where}: the authorization server names no {name}; set {option}")
        require_secure(url, name)
        return url

    def fields(self, *, scope: bool = True) -> dict[str, str | list[str]]:
        """The fields of a request that say what is asked for.

        Args:
            scope: whether scopes are among them: a code and a refresh token have theirs already (RFC 6749, 6).
        """
        fields: dict[str, str | list[str]] = dict(self.options.extra)
        if self.options.scopes and scope:
            fields["scope"] = " ".join(self.options.scopes)
        if self.options.audience:
            fields["audience"] = self.options.audience
        if self.options.resource:
            fields["resource"] = list(self.options.resource)
        return fields

    async def ask(self, url: str, fields: Mapping[str, str | list[str]]) -> dict[str, Any]:
        """The answer of the token endpoint to a flow's request."""
        return await request_token(self._fetch, url, fields, self._client, await self.metadata())

    async def post(self, url: str, fields: Mapping[str, str | list[str]]) -> FetchResponse:
        """The answer of another endpoint to a flow's request."""
        return await post_form(self._fetch, url, fields, self._client, await self.metadata())

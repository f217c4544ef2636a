"""OAuth for servers over HTTP: the SDK's flows, with tokens that can outlive the process, and JWT assertions.

This module imports the SDK. It is imported by logins, and by connections with ``auth`` other than a bearer token.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from operad import ConfigError
from operad_auth import LoginRequired, OAuthOptions, OAuthToken, TokenKey, TokenStore, default_fetch
from operad_auth.server import AuthorizationServer
from operad_mcp.auth.tokens import KeptTokens, MemoryTokens, OwnTokens
from operad_mcp.config import MCPAuth, MCPClientConfig, maybe_await

# The SDK logs failed logins with tracebacks, which a program that configured no logging would print.
logging.getLogger("mcp").addHandler(logging.NullHandler())

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
Redirect = Callable[[str], Awaitable[None]]
Answer = Callable[[], Awaitable[Sequence[str | None]]]


def http_auth(config: MCPClientConfig, name: str) -> httpx2.Auth | None:
    """Return the httpx2 authentication for a configuration; ``None`` for a bearer token, or without ``auth``.

    ``name`` is the name of the source, for the command in the error that requests a login.
    """
    auth = config.auth
    if auth is None or auth.type == "bearer":
        return None
    if auth.type == "provider":
        provider: httpx2.Auth = auth.provider
        return provider
    assert config.url is not None
    if auth.type == "jwt_bearer":
        return AssertionAuth(config.url, auth)
    if auth.type == "client_credentials":
        return _client_credentials(config.url, auth)
    if isinstance(auth.store, TokenStore) or auth.store is None:
        return KeptAuth(config.url, auth, auth.redirect_handler, auth.callback_handler, name)
    own = OwnTokens(auth.store, client_of(auth), auth.issuer)
    provider = _code_provider(config.url, auth, own, auth.redirect_handler, auth.callback_handler, name)
    own.context = provider.context
    return provider


def _client_credentials(url: str, auth: MCPAuth) -> httpx2.Auth:
    assert auth.client_id is not None
    assert auth.issuer is not None
    store: Any = auth.store if auth.store is not None else MemoryTokens()
    if auth.private_key is not None:
        signed = SignedJWTParameters(
            issuer=auth.client_id,
            subject=auth.client_id,
            signing_key=auth.private_key,
            signing_algorithm=auth.signing_algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            server_url=url,
            storage=store,
            client_id=auth.client_id,
            assertion_provider=signed.create_assertion_provider(),
            scope=auth.scope,
            issuer=auth.issuer,
        )
    assert auth.client_secret is not None
    method: Any = auth.token_endpoint_auth_method or "client_secret_basic"
    return ClientCredentialsOAuthProvider(
        server_url=url,
        storage=store,
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        token_endpoint_auth_method=method,
        scope=auth.scope,
        issuer=auth.issuer,
    )


def client_of(auth: MCPAuth) -> OAuthClientInformationFull | None:
    """Return the OAuth client that a configuration describes; ``None`` if ``client_id`` is not set."""
    if auth.client_id is None:
        return None
    given = "none" if auth.client_secret is None else "client_secret_basic"
    values: dict[str, Any] = {**_metadata(auth)}
    values["token_endpoint_auth_method"] = auth.token_endpoint_auth_method or given
    return OAuthClientInformationFull(
        client_id=auth.client_id, client_secret=auth.client_secret, issuer=auth.issuer, **values
    )


def _metadata(auth: MCPAuth) -> dict[str, Any]:
    values: dict[str, Any] = {
        "client_name": auth.client_name,
        "redirect_uris": [AnyUrl(auth.redirect_uri)],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "scope": auth.scope,
    }
    if auth.token_endpoint_auth_method is not None:
        values["token_endpoint_auth_method"] = auth.token_endpoint_auth_method
    return values


def _code_provider(
    url: str, auth: MCPAuth, store: Any, redirect: Redirect | None, callback: Answer | None, name: str
) -> OAuthClientProvider:
    async def ask(_: str) -> None:
        account = f" --account {auth.account}" if auth.account else ""
        command = f"operad login {name}{account}"
        message = f'MCP server "{name}" requires a login; run: {command}'
        raise LoginRequired("AUTHORIZATION_REQUIRED", message, {"command": command})

    async def answered() -> AuthorizationCodeResult:
        if callback is None:
            raise ConfigError("auth: expected callback_handler with redirect_handler, got None; set both")
        result: Any = await callback()
        if isinstance(result, AuthorizationCodeResult):
            return result
        code, state, issuer = (*result, None, None)[:3]
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)

    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(**_metadata(auth)),
        storage=store,
        redirect_handler=redirect or ask,
        callback_handler=answered,
        client_metadata_url=auth.client_metadata_url,
    )


class KeptAuth(httpx2.Auth):
    """An httpx2 authentication that runs the SDK's OAuth flow, with tokens in a `TokenStore`.

    Only one process at a time renews the tokens.

    Args:
        url: the URL of the server.
        auth: the options, of type ``oauth``.
        redirect: awaited with the URL that the user must visit; if ``None``, `LoginRequired` is raised instead.
        callback: awaited for ``code``, ``state`` and ``iss`` of the redirect; required with ``redirect``.
        name: the name of the source, for the command in `LoginRequired`.
    """

    def __init__(
        self, url: str, auth: MCPAuth, redirect: Redirect | None, callback: Answer | None, name: str
    ) -> None:
        store = auth.store if auth.store is not None else TokenStore()
        key = TokenKey(f"mcp {url}", auth.client_id or "", auth.account)
        self.kept = KeptTokens(store, key, client_of(auth), auth.issuer)
        self._provider = _code_provider(url, auth, self.kept, redirect, callback, name)
        self.kept.context = self._provider.context
        self._loaded = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield ``request``, and before and after it the requests of the OAuth flow that it needs.

        Raises `LoginRequired` if the user must log in, and there is no ``redirect``.
        """
        if not self._loaded:
            self._loaded = True
            context = self._provider.context
            context.current_tokens = await self.kept.get_tokens()
            context.client_info = await self.kept.get_client_info()
        async with AsyncExitStack() as stack:
            if self.kept.has_expired():
                # A refresh token may be valid only once, so look for tokens that another process got meanwhile.
                await stack.enter_async_context(self.kept.store.lock(self.kept.key))
                await self.kept.renewed_elsewhere()
            flow = self._provider.async_auth_flow(request)
            try:
                outgoing = await anext(flow)
                while True:
                    if outgoing is request:
                        await stack.aclose()
                    response = yield outgoing
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                return
            finally:
                await flow.aclose()


class AssertionAuth(httpx2.Auth):
    """An httpx2 authentication that exchanges an assertion for a token (RFC 7523).

    It does so again when the token expires or is rejected. The SDK supports this only for clients with a secret.
    ``url`` is the URL of the server, and ``auth`` has ``issuer`` and ``assertion``.
    """

    def __init__(self, url: str, auth: MCPAuth) -> None:
        parts = urlsplit(url)
        self._resource = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        self._auth = auth
        self._token: OAuthToken | None = None
        self._lock = asyncio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield ``request`` with a token; if the server rejects an earlier token (401), again with a new one.

        Raises `CallError` or `ConfigError` if the authorization server issues no token.
        """
        token, is_new = await self._current(None)
        request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401 and not is_new:
            token, _ = await self._current(token)
            request.headers["authorization"] = f"Bearer {token}"
            yield request

    async def _current(self, refused: str | None) -> tuple[str, bool]:
        """Return the token, and whether it was just requested. Concurrent callers share one request."""
        async with self._lock:
            kept = self._token
            if kept is not None and kept.usable(time.time()) and kept.access_token != refused:
                return kept.access_token, False
            auth = self._auth
            issuer, found = auth.issuer or "", auth.assertion
            assertion = await maybe_await(found(issuer, self._resource)) if callable(found) else found
            options = OAuthOptions(
                client_id=auth.client_id or "",
                client_secret=auth.client_secret,
                client_auth="basic",
                issuer=issuer,
                scopes=auth.scope,
                resource=self._resource,
            )
            server = AuthorizationServer(options, default_fetch)
            fields = {"grant_type": _JWT_BEARER, "assertion": str(assertion), **server.fields()}
            self._token = OAuthToken.from_answer(await server.token(fields))
            return self._token.access_token, True

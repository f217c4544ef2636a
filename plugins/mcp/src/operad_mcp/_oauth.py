"""OAuth for servers over HTTP: the SDK's flow, with tokens that outlive the process where a keyring is."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Any

from operad import ConfigError
from operad_mcp.config import MCPAuth, MCPClientConfig

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import TokenStorage
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

logger = logging.getLogger("operad.mcp")
SERVICE = "operad-mcp"


async def http_auth(config: MCPClientConfig, name: str) -> httpx2.Auth | None:
    """The httpx2 authentication of a configuration; ``None`` where a header will do.

    Raises:
        ConfigError: OAuth without the handlers that it needs.
    """
    auth = config.auth
    if auth is None or auth.type == "bearer":
        return None
    if auth.type == "provider":
        provider: httpx2.Auth = auth.provider
        return provider
    assert config.url is not None
    store: TokenStorage = auth.store if auth.store is not None else _default_store(config.url)
    if auth.type == "client_credentials":
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

        assert auth.client_id is not None
        assert auth.client_secret is not None
        assert auth.issuer is not None
        return ClientCredentialsOAuthProvider(
            server_url=config.url,
            storage=store,
            client_id=auth.client_id,
            client_secret=auth.client_secret,
            token_endpoint_auth_method=_credentials_method(auth),
            scope=auth.scope,
            issuer=auth.issuer,
        )
    return await _authorization_code(config.url, auth, store, name)


def _credentials_method(auth: MCPAuth) -> Any:
    return auth.token_endpoint_auth_method or "client_secret_basic"


async def _authorization_code(url: str, auth: MCPAuth, store: TokenStorage, name: str) -> httpx2.Auth:
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
    from pydantic import AnyUrl

    redirect, callback = auth.redirect_handler, auth.callback_handler
    if redirect is None or callback is None:
        raise ConfigError(
            f'server "{name}": auth type "oauth" needs redirect_handler and callback_handler, which a file cannot '
            'hold; load the server from Python, or use type "client_credentials" or "bearer"'
        )
    values: dict[str, Any] = {
        "client_name": auth.client_name,
        "redirect_uris": [AnyUrl(auth.redirect_uri)],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "scope": auth.scope,
    }
    if auth.token_endpoint_auth_method is not None:
        values["token_endpoint_auth_method"] = auth.token_endpoint_auth_method
    if auth.client_id is not None and await store.get_client_info() is None:
        given = {"token_endpoint_auth_method": "none" if auth.client_secret is None else "client_secret_basic"}
        await store.set_client_info(
            OAuthClientInformationFull(
                client_id=auth.client_id, client_secret=auth.client_secret, **{**given, **values}
            )
        )

    async def answered() -> AuthorizationCodeResult:
        result: Any = await callback()
        if isinstance(result, AuthorizationCodeResult):
            return result
        code, state, issuer = (*result, None, None)[:3]
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)

    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(**values),
        storage=store,
        redirect_handler=redirect,
        callback_handler=answered,
        client_metadata_url=auth.client_metadata_url,
    )


def _default_store(url: str) -> TokenStorage:
    try:
        keyring: Any = importlib.import_module("keyring")
        no_keyring: Any = importlib.import_module("keyring.backends.fail").Keyring
    except ImportError:
        return MemoryStore()
    return MemoryStore() if isinstance(keyring.get_keyring(), no_keyring) else KeyringStore(url, keyring)


class MemoryStore:
    """Tokens for as long as the process lives."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """What the authorization server knows this client as."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it."""
        self._client = client_info


class KeyringStore:
    """Tokens in the system's keyring, under the server's URL. What cannot be read counts as absent."""

    def __init__(self, url: str, keyring: Any) -> None:
        self._url = url
        self._keyring = keyring

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens."""
        from mcp.shared.auth import OAuthToken

        text = await self._get("tokens")
        try:
            return None if text is None else OAuthToken.model_validate_json(text)
        except ValueError:
            return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        await self._set("tokens", tokens.model_dump_json(exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """What the authorization server knows this client as."""
        from mcp.shared.auth import OAuthClientInformationFull

        text = await self._get("client")
        try:
            return None if text is None else OAuthClientInformationFull.model_validate_json(text)
        except ValueError:
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it."""
        await self._set("client", client_info.model_dump_json(exclude_none=True))

    # In a thread: a keyring may ask the user for a password.
    async def _get(self, what: str) -> str | None:
        try:
            return await asyncio.to_thread(self._keyring.get_password, SERVICE, f"{what} {self._url}")
        except Exception as error:  # noqa: BLE001  # each backend raises its own
            logger.warning("the keyring cannot be read: %s", error)
            return None

    async def _set(self, what: str, text: str) -> None:
        try:
            await asyncio.to_thread(self._keyring.set_password, SERVICE, f"{what} {self._url}", text)
        except Exception as error:  # noqa: BLE001  # each backend raises its own
            logger.warning("the keyring cannot be written, tokens are kept for this process only: %s", error)

"""Where the SDK's OAuth flow keeps what it learns, so that a login outlives the process.

The SDK keeps tokens as they came, with the seconds that they were to last. Kept here with them: when they expire,
whose they are, and the authorization server, so that they can be renewed by another process.

Imported with the first connection that logs in: it needs the SDK.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata

from operad import CallError, ConfigError, ErrorCode, OperadError
from operad_auth import TokenKey, TokenStore, default_fetch, discover
from operad_mcp.foreign import one_line

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage
    from mcp.client.auth.oauth2 import OAuthContext

Json = dict[str, Any]
_LONG_AGO = 1.0


class KeptTokens:
    """The tokens of one account at one server, in a `TokenStore`.

    Args:
        store: where.
        key: whose.
        client: the client of the configuration, if it names one; it counts before what was kept.
        issuer: the only authorization server that clients may be registered at; None: any.
    """

    def __init__(
        self, store: TokenStore, key: TokenKey, client: OAuthClientInformationFull | None, issuer: str | None
    ) -> None:
        self.store = store
        self.key = key
        self.context: OAuthContext | None = None
        self.where = ""
        """Where the tokens are, in words, once some were kept."""
        self._client = client
        self._issuer = issuer
        self._found: Json | None = None

    async def load(self) -> Json:
        """The record; empty where there is none, or one of another client."""
        found = await self.store.get(self.key) or {}
        kept = found.get("client")
        if self._client is not None and isinstance(kept, dict) and kept.get("client_id") != self._client.client_id:
            found = {}
        self._found = found
        return found

    async def renewed_elsewhere(self) -> None:
        """Take the tokens as they are now: another process may have renewed them."""
        context = self.context
        if context is not None:
            context.current_tokens = await self.get_tokens()

    def has_expired(self) -> bool:
        """Whether tokens are known that no longer count, and could be renewed."""
        context = self.context
        return context is not None and not context.is_token_valid() and context.can_refresh_token()

    async def delete(self, *, client_too: bool = False) -> bool:
        """Forget the tokens, and the client's registration too if that is said; whether there were tokens."""
        found = await self.load()
        if client_too or not found.get("client"):
            await self.store.delete(self.key)
        elif found:
            await self.store.set(self.key, {"client": found["client"]})
        return "token" in found

    # --- mcp.client.auth.TokenStorage ----------------------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens; the context learns when they expire, and where they come from."""
        found = await self.load()
        try:
            token = OAuthToken.model_validate(found["token"])
            server, resource = found.get("server"), found.get("resource")
            if self.context is not None:
                self.context.token_expiry_time = found.get("expires_at")
                self.context.oauth_metadata = OAuthMetadata.model_validate(server) if server else None
                if resource:
                    self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)
                self.context.auth_server_url = found.get("auth_server_url")
        except (KeyError, ValueError):
            return None
        return token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        context = self.context
        record: Json = {"token": tokens.model_dump(mode="json", exclude_none=True)}
        if tokens.expires_in is not None:
            record["expires_at"] = time.time() + tokens.expires_in
        if context is not None:
            for name, model in (
                ("client", context.client_info),
                ("server", context.oauth_metadata),
                ("resource", context.protected_resource_metadata),
            ):
                if model is not None:
                    record[name] = model.model_dump(mode="json", exclude_none=True)
            record["auth_server_url"] = context.auth_server_url
        self.where = await self.store.set(self.key, record)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """What the authorization server knows this client as."""
        if self._client is not None:
            return self._client
        found = (await self.load() if self._found is None else self._found).get("client")
        try:
            return None if found is None else OAuthClientInformationFull.model_validate(found)
        except ValueError:
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it. Raises `CallError` if it is registered at another authorization server."""
        _check_issuer(client_info, self._issuer)
        found = {**await self.load(), "client": client_info.model_dump(mode="json", exclude_none=True)}
        await self.store.set(self.key, found)


class OwnTokens:
    """The tokens of a store of the application, with the four methods of ``mcp.client.auth.TokenStorage``.

    It says neither when tokens expire nor where they come from: those that can be renewed are, at first.
    """

    def __init__(self, store: TokenStorage, client: OAuthClientInformationFull | None, issuer: str | None) -> None:
        self._store = store
        self._client = client
        self._issuer = issuer
        self.context: OAuthContext | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens, unless they are another client's."""
        known, tokens = await self._store.get_client_info(), await self._store.get_tokens()
        if self._client is not None and known is not None and known.client_id != self._client.client_id:
            return None
        if self.context is not None and tokens is not None and tokens.expires_in and tokens.refresh_token:
            self.context.token_expiry_time = _LONG_AGO
            if self.context.oauth_metadata is None and known is not None and known.issuer:
                self.context.oauth_metadata = await _metadata(known.issuer)
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        await self._store.set_tokens(tokens)
        if self._client is not None:
            await self._store.set_client_info(self._client)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """What the authorization server knows this client as."""
        return self._client if self._client is not None else await self._store.get_client_info()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it. Raises `CallError` if it is registered at another authorization server."""
        _check_issuer(client_info, self._issuer)
        await self._store.set_client_info(client_info)


def _check_issuer(client: OAuthClientInformationFull, issuer: str | None) -> None:
    """Raise `CallError` before the user is sent to a server that is not the configured one."""
    named = str(client.issuer or "a server without metadata")
    if issuer is not None and named.rstrip("/") != issuer.rstrip("/"):
        message = f"auth: expected the authorization server {issuer} (issuer), the MCP server names {named}"
        raise CallError(ErrorCode.ACCESS_DENIED, one_line(message))


async def _metadata(issuer: str) -> OAuthMetadata | None:
    try:
        return OAuthMetadata.model_validate(await discover(issuer, default_fetch))
    except (OperadError, ConfigError, ValueError):
        return None  # then the flow takes the endpoints that it supposes


class MemoryTokens:
    """Tokens for as long as the process lives: those that nobody has to log in for."""

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

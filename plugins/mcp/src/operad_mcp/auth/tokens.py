"""Storage for the state of the SDK's OAuth flow, so that a login outlives the process.

The SDK stores tokens as received, with their lifetime in seconds. `KeptTokens` also stores the time at which they
expire, their client and the authorization server, so that another process can renew them.

This module imports the SDK. It is imported by logins, and by connections with ``auth`` other than a bearer token.
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
        store: the store.
        key: the key of the account and the server in the store.
        client: the client in the configuration, or ``None``. It takes precedence over a stored client.
        issuer: the only authorization server at which this client may register; ``None``: any server.
    """

    def __init__(
        self, store: TokenStore, key: TokenKey, client: OAuthClientInformationFull | None, issuer: str | None
    ) -> None:
        self.store = store
        self.key = key
        self.context: OAuthContext | None = None
        self.where = ""
        """A description of where the tokens are stored; empty until some were stored."""
        self._client = client
        self._issuer = issuer
        self._found: Json | None = None

    async def load(self) -> Json:
        """Return the stored record: ``token``, ``client``, ``server``, …; empty if missing or another client's."""
        found = await self.store.get(self.key) or {}
        kept = found.get("client")
        if self._client is not None and isinstance(kept, dict) and kept.get("client_id") != self._client.client_id:
            found = {}
        self._found = found
        return found

    async def renewed_elsewhere(self) -> None:
        """Load the tokens into `context` again, because another process may have renewed them."""
        context = self.context
        if context is not None:
            context.current_tokens = await self.get_tokens()

    def has_expired(self) -> bool:
        """Return True if the tokens in `context` have expired, but can be renewed."""
        context = self.context
        return context is not None and not context.is_token_valid() and context.can_refresh_token()

    async def delete(self, *, client_too: bool = False) -> bool:
        """Delete the tokens; also the client's registration if ``client_too``. Return True if tokens existed."""
        found = await self.load()
        if client_too or not found.get("client"):
            await self.store.delete(self.key)
        elif found:
            await self.store.set(self.key, {"client": found["client"]})
        return "token" in found

    # --- mcp.client.auth.TokenStorage ----------------------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens, and set their expiry and authorization server in `context`.

        Return ``None`` if no valid tokens are stored.
        """
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
        """Store tokens with the time at which they expire, their client and their authorization server."""
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
        """Return the configured client, else the stored registration; ``None`` if that is missing or invalid."""
        if self._client is not None:
            return self._client
        found = (await self.load() if self._found is None else self._found).get("client")
        try:
            return None if found is None else OAuthClientInformationFull.model_validate(found)
        except ValueError:
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client's registration. Raises `CallError` if it is not at the configured issuer."""
        _check_issuer(client_info, self._issuer)
        found = {**await self.load(), "client": client_info.model_dump(mode="json", exclude_none=True)}
        await self.store.set(self.key, found)


class OwnTokens:
    """The tokens in a store of the application, an object with the methods of ``mcp.client.auth.TokenStorage``.

    The store does not have the time at which tokens expire. So tokens with a lifetime and a refresh token are
    renewed before this process first uses them. ``client`` and ``issuer`` are as in `KeptTokens`.
    """

    def __init__(self, store: TokenStorage, client: OAuthClientInformationFull | None, issuer: str | None) -> None:
        self._store = store
        self._client = client
        self._issuer = issuer
        self.context: OAuthContext | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens; ``None`` if the store has no tokens, or they are another client's."""
        known, tokens = await self._store.get_client_info(), await self._store.get_tokens()
        if self._client is not None and known is not None and known.client_id != self._client.client_id:
            return None
        if self.context is not None and tokens is not None and tokens.expires_in and tokens.refresh_token:
            self.context.token_expiry_time = _LONG_AGO
            if self.context.oauth_metadata is None and known is not None and known.issuer:
                self.context.oauth_metadata = await _metadata(known.issuer)
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens, and the configured client unless it is ``None``."""
        await self._store.set_tokens(tokens)
        if self._client is not None:
            await self._store.set_client_info(self._client)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the configured client, else the stored registration; ``None`` if neither exists."""
        return self._client if self._client is not None else await self._store.get_client_info()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client's registration. Raises `CallError` if it is not at the configured issuer."""
        _check_issuer(client_info, self._issuer)
        await self._store.set_client_info(client_info)


def _check_issuer(client: OAuthClientInformationFull, issuer: str | None) -> None:
    """Raise `CallError` before the user is sent to a server that is not the configured one."""
    named = str(client.issuer or "a server without metadata")
    if issuer is not None and named.rstrip("/") != issuer.rstrip("/"):
        message = f"auth: expected the authorization server {issuer} (issuer), got {named} from the MCP server"
        raise CallError(ErrorCode.ACCESS_DENIED, one_line(message))


async def _metadata(issuer: str) -> OAuthMetadata | None:
    try:
        return OAuthMetadata.model_validate(await discover(issuer, default_fetch))
    except (OperadError, ConfigError, ValueError):
        return None  # then the flow uses its default endpoints


class MemoryTokens:
    """The tokens and the registration of a client that needs no login by a user, in memory."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens; ``None`` if `set_tokens` was not called yet."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens in memory, instead of earlier ones."""
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return this client's registration; ``None`` if `set_client_info` was not called yet."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client's registration in memory."""
        self._client = client_info

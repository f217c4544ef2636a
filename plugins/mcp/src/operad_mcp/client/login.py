"""The login and the logout at a server, for the commands ``operad login`` and ``operad logout``."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

from operad import CallError, ConfigError, ErrorCode
from operad.plugin import OpenURL, Tell
from operad_auth import LoopbackListener, OAuthOptions, default_fetch
from operad_auth.server import AuthorizationServer
from operad_mcp.auth.oauth import KeptAuth
from operad_mcp.config import MCPAuth, MCPClientConfig
from operad_mcp.wire.connection import Connection

_PATIENCE = 60.0
"""Seconds that the server gets in addition to the seconds of the user."""


class MCPLogin:
    """The login and the logout of a user at one server, by OAuth."""

    def __init__(self, name: str, config: MCPClientConfig) -> None:
        assert config.auth is not None
        assert config.url is not None
        self._name = name
        self._config = config
        self._auth: MCPAuth = config.auth
        self._url = config.url

    async def login(self, *, tell: Tell, open_url: OpenURL | None, timeout: float) -> str:
        """Delete the stored token, log in with a browser on this machine, and store the new token.

        Return a message that states where the token is. ``tell`` shows the URL to visit. ``open_url`` opens it; if
        ``None``, the user does.

        Raises:
            CallError: the user or a server refused, the server cannot be reached, or the user took longer than
                ``timeout`` seconds.
            ConfigError: the ``redirect_uri`` or a file in the configuration cannot be used.
        """
        visit = _Visit(tell, open_url, timeout)
        auth = KeptAuth(self._url, self._auth, visit.begin, visit.answer, self._name)
        await auth.kept.delete()
        config = attrs.evolve(
            self._config, auth=MCPAuth(type="provider", provider=auth), connect_timeout=timeout + _PATIENCE
        )
        connection = Connection(self._name, config)
        try:
            await connection.open()
        finally:
            await connection.aclose()
            await visit.end()
        if not auth.kept.where:
            return f"{config.where} accepted the connection without a token"
        return f"the token is in {auth.kept.where}"

    async def logout(self) -> str:
        """Delete the token and the client's registration, and revoke the token (RFC 7009) if the server can.

        Return a message that states what was done.
        """
        kept = KeptAuth(self._url, self._auth, None, None, self._name).kept
        record = await kept.load()
        if not await kept.delete(client_too=True):
            return "there was no token"
        if await _revoked(record):
            return "the token is deleted here, and revoked"
        return "the token is deleted here; it was not revoked at the server"


class _Visit:
    """The visit of the user to the authorization server, in a browser."""

    def __init__(self, tell: Tell, open_url: OpenURL | None, timeout: float) -> None:
        self._tell = tell
        self._open_url = open_url
        self._timeout = timeout
        self._stack = AsyncExitStack()
        self._listener: LoopbackListener | None = None

    async def begin(self, url: str) -> None:
        """Listen for the redirect, show the URL to the user, and open it if a function for that was given."""
        query = parse_qs(urlsplit(url).query)
        state, redirect = query.get("state", [""])[0], query.get("redirect_uri", [""])[0]
        self._listener = await self._stack.enter_async_context(LoopbackListener(state, redirect))
        self._tell(f"Log in at: {url}")
        if self._open_url is not None and urlsplit(url).scheme in ("https", "http"):
            await asyncio.to_thread(self._open_url, url)

    async def answer(self) -> list[str | None]:
        """Wait for the redirect; return its ``code``, ``state`` and ``iss``, each ``None`` if missing.

        Raises `CallError` if the redirect has an error, or does not arrive in time.
        """
        assert self._listener is not None
        found = await self._listener.wait(self._timeout)
        await self.end()
        if "error" in found:
            said = "".join(c for c in found.get("error_description", found["error"]) if c.isprintable())[:300]
            message = f"the authorization server refused the login: {said}"
            raise CallError(ErrorCode.ACCESS_DENIED, message, {"error": found["error"]})
        return [found.get(name) for name in ("code", "state", "iss")]

    async def end(self) -> None:
        """Stop listening for the redirect."""
        await self._stack.aclose()


async def _revoked(record: dict[str, Any]) -> bool:
    """Revoke the tokens of a record at the authorization server; return True if it succeeded."""
    token, client, server = (record.get(name) or {} for name in ("token", "client", "server"))
    endpoint = server.get("revocation_endpoint")
    secret = token.get("refresh_token") or token.get("access_token")
    if not endpoint or not secret:
        return False
    hint = "refresh_token" if token.get("refresh_token") else "access_token"
    by_post = client.get("token_endpoint_auth_method") == "client_secret_post"
    try:
        options = OAuthOptions(
            client_id=client.get("client_id", ""),
            client_secret=client.get("client_secret"),
            client_auth="post" if by_post else "basic",
            token_url=endpoint,
        )
        asked = AuthorizationServer(options, default_fetch)
        response = await asked.post(endpoint, {"token": secret, "token_type_hint": hint})
    except (CallError, ConfigError):
        return False
    return response.status == 200

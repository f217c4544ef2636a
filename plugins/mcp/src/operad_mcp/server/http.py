"""The ASGI application that serves all revisions of MCP over streamable HTTP. It requires operad-serve."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from operad import AccessControl, CallError, Identity, check_access
from operad.wire import to_json
from operad_auth import Authenticator
from operad_mcp.server.door import CALLER, CREDENTIALS
from operad_mcp.server.sdk import Served
from operad_mcp.server.sessions import ResumableManager, Sessions
from operad_serve.asgi import (
    ClientGoneError,
    Exchange,
    Gate,
    Header,
    Receive,
    Scope,
    Send,
    close_websocket,
    is_preflight,
    run_lifespan,
)
from operad_serve.problems import Problem

_RETRY_MS = 500
"""Milliseconds after which a client reconnects to a stream that ended early."""
_CORS = {
    "methods": "GET, POST, DELETE",
    "headers": "Authorization, *",  # further headers carry arguments of tools; * does not include Authorization
    "expose": "Mcp-Session-Id, WWW-Authenticate",
}
"""The methods and headers that pages of an allowed origin may send, and the headers that they may read."""
_WELL_KNOWN = "/.well-known/oauth-protected-resource"


class MCPApplication:
    """An ASGI 3 application that serves MCP at its root and at ``path``, and the metadata of RFC 9728.

    It starts with the lifespan of its host, or with its first request if the host forwards no lifespan. It can be
    started again after it ended. A request that the front door of `operad serve` admitted is not checked again.

    Args:
        served: the registry that is served.
        authenticate: returns the caller of a request; if ``None``, every caller is anonymous.
        path: the path besides the root.
    """

    def __init__(self, served: Served, authenticate: Authenticator | None = None, path: str = "/mcp") -> None:
        self._served = served
        self._config = config = served.door.config
        self._gate = Gate(authenticate, config.allowed_hosts, config.allowed_origins, anonymous=config.anonymous)
        self._requires_token = bool(config.authorization_servers) and not config.anonymous
        self._paths = frozenset({"", "/", path, f"{path}/"})
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Sessions] | None = None
        self._stop = asyncio.Event()
        self._draining = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            exchange = Exchange(scope, receive, send, path)
            try:
                await self._serve(exchange)
            except ClientGoneError:
                return
            except Problem as problem:
                await exchange.respond_problem(problem)
        elif scope["type"] == "lifespan":
            await run_lifespan(receive, send, self._sessions, self.aclose)
        else:
            await close_websocket(send)

    # --- lifespan --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End all sessions. Call this if the host forwards no lifespan. Idempotent."""
        owner, self._owner = self._owner, None
        if owner is not None and owner.get_loop() is asyncio.get_running_loop():
            self._stop.set()
            await asyncio.gather(owner, return_exceptions=True)

    async def drain(self, timeout: float) -> None:
        """Reject new calls (503), end the streams of changes, and close when the running calls have finished.

        Close after ``timeout`` seconds in any case.
        """
        self._draining = True
        self._served.changes.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        await self.aclose()

    async def _sessions(self) -> Sessions:
        """Return the session manager of this event loop. A manager can run once, so each start makes a new one."""
        loop = asyncio.get_running_loop()
        owner = self._owner
        if owner is None or owner.done() or owner.get_loop() is not loop:
            self._draining, self._calls, self._idle = False, 0, asyncio.Event()
            self._idle.set()
            self._stop, self._ready = asyncio.Event(), loop.create_future()
            self._owner = loop.create_task(self._own(self._ready, self._stop))
        assert self._ready is not None
        if self._ready.done():  # for all requests except the first
            return self._ready.result()
        return await asyncio.shield(self._ready)

    async def _own(self, ready: asyncio.Future[Sessions], stop: asyncio.Event) -> None:
        """Hold the task group of the manager, because the task that enters it must leave it."""
        config = self._config
        manager = (ResumableManager if config.resumable else StreamableHTTPSessionManager)(
            self._served.server(),
            json_response=config.json_response,
            retry_interval=_RETRY_MS if config.resumable else None,
            max_request_body_size=config.max_body,
            session_idle_timeout=config.session_idle,
            max_sessions=config.max_sessions,
        )
        try:
            async with manager.run():
                ready.set_result(Sessions(manager, config.max_sessions))
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
                return
            raise

    # --- requests --------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange) -> None:
        """Serve one request. Raises `Problem` for a request that does not reach the SDK."""
        scope = exchange.scope
        if scope["path"].startswith(_WELL_KNOWN) or exchange.path.startswith(_WELL_KNOWN):
            await self._metadata(exchange)
            return
        if exchange.path not in self._paths:
            raise Problem(404, f"no such path; expected one of {', '.join(sorted(self._paths - {''}))}")
        self._gate.check(exchange)
        self._gate.allow_origin(exchange, **_CORS)
        if is_preflight(exchange):  # browsers send it without credentials
            raise Problem(204, "", headers=[(b"allow", _CORS["methods"].encode())])
        if self._draining:
            raise Problem(503, "the server is stopping; try again", headers=[(b"retry-after", b"1")])
        sessions = await self._sessions()
        await self._identify(exchange)
        if exchange.method != "POST":
            await sessions.handle_request(scope, exchange.receive, exchange.send)
            return
        body = await exchange.body(self._config.max_body, self._config.body_timeout)
        self._check_access(body, exchange.identity)
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return messages.pop() if messages else await exchange.receive()

        self._calls += 1
        self._idle.clear()
        try:
            await sessions.handle_request(scope, replay, exchange.send)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _identify(self, exchange: Exchange) -> None:
        """Put the caller into the scope. Raises `Problem` (401) if the credentials are missing or not valid."""
        admission = await self._gate.admission(exchange)
        if admission.is_refused:
            raise self._challenge(401, "the credentials are not valid; send a valid token", "invalid_token")
        is_missing = self._requires_token and admission.identity is None
        if is_missing or self._gate.requires_credentials(admission):
            raise self._challenge(401, "this server requires a token; send Authorization: Bearer <token>")
        exchange.identity = exchange.scope[CALLER] = identity = admission.identity
        exchange.scope[CREDENTIALS] = admission.credentials
        if identity is not None:
            # The SDK compares this with the caller who opened the session: a session belongs to one caller.
            # The token itself is not kept.
            token = AccessToken(token="", client_id=identity.id, scopes=[], subject=identity.id)
            exchange.scope["user"] = AuthenticatedUser(token)

    def _check_access(self, body: bytes, identity: Identity | None) -> None:
        """Raise `Problem` (401 or 403) if the request calls an operation that the caller may not call.

        This cannot be checked later, because the response may be a stream with the status 200.
        """
        target = self._target(body) if self._served.door.listing.guarded else None
        if target is None:
            return
        access, input = target
        try:
            check_access(access, identity, input)
        except CallError as error:
            if identity is None:
                message = "this operation requires a token; send Authorization: Bearer <token>"
                raise self._challenge(401, message) from error
            raise self._challenge(403, error.message, "insufficient_scope", _scopes(access)) from error

    def _target(self, body: bytes) -> tuple[AccessControl, Any] | None:
        """Return the access control and input of the operation that a request calls; None if it calls none."""
        try:
            message = msgspec.json.decode(body)
            method, params = message["method"], message["params"]
            door, arguments = self._served.door, params.get("arguments")
            if method == "tools/call" and door.searches:
                spec = door.registry.get_spec(arguments["id"]) if params["name"] == "call" else None
                arguments = arguments.get("input")
            elif method == "tools/call":
                spec = door.listing.tools.get(params["name"])
            elif method == "prompts/get":
                spec = door.listing.prompts.get(params["name"])
            elif method == "resources/read":
                spec = self._served.resources.target(params["uri"])
            else:
                return None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None  # not a valid request; the SDK reports the mistake
        return None if spec is None else (spec.access_control, arguments)

    # --- authorization (RFC 6750, RFC 9728) ------------------------------------------------------

    def _challenge(self, status: int, detail: str, error: str | None = None, scope: str = "") -> Problem:
        parts = [] if error is None else [f'error="{error}"']
        if scope:
            parts.append(f'scope="{scope}"')
        if self._config.metadata_url is not None:
            parts.append(f'resource_metadata="{self._config.metadata_url}"')
        value = f"Bearer {', '.join(parts)}" if parts else "Bearer"
        return Problem(status, detail, headers=[(b"www-authenticate", value.encode())])

    async def _metadata(self, exchange: Exchange) -> None:
        document = self._config.resource_metadata
        if document is None:
            raise Problem(404, "no such path: this server has no resource_url, and so no metadata")
        if exchange.method not in ("GET", "HEAD"):
            raise Problem(405, f"expected GET, got {exchange.method}", headers=[(b"allow", b"GET, HEAD")])
        allow: Header = (b"access-control-allow-origin", b"*")
        await exchange.respond(200, to_json(document), "application/json", [allow])


def _scopes(access: AccessControl) -> str:
    """Return all scopes that an operation names (RFC 6750, 3), except those that a header cannot contain."""
    named = [*access.required_scopes, *access.required_scopes_any]
    return " ".join(scope for scope in named if scope.isascii() and scope.isprintable() and '"' not in scope)

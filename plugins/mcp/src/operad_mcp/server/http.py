"""A served registry over streamable HTTP: an ASGI application for both generations of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request

from operad import AccessControl, CallError, Identity, check_access
from operad.sources import Admission
from operad_auth import Authenticator, Credentials, HostRules
from operad_mcp.server.door import CALLER
from operad_mcp.server.events import ResumableManager
from operad_mcp.server.kinds import Json
from operad_mcp.server.sdk import Served
from operad_mcp.server.sessions import Sessions

logger = logging.getLogger("operad.mcp")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_RETRY_MS = 500
"""After which a client takes up a stream that ended early."""
_KNOWN = 256
"""Pairs of ``Host`` and ``Origin`` that are remembered as allowed."""
_NOBODY = Admission()
_WELL_KNOWN = "/.well-known/oauth-protected-resource"


class MCPApplication:
    """An ASGI 3 application that answers at its own root, and at ``path``.

    It starts with the lifespan of its host, or on its first request where the host forwards none, and can be
    started again. Requests that a composition of servers has let in (an `Admission` in ``scope["operad"]``) are
    not asked for host, origin and credentials again.

    Args:
        served: what is served.
        authenticate: who calls; without it everybody is nobody.
        path: where it answers besides its root.
    """

    def __init__(self, served: Served, authenticate: Authenticator | None = None, path: str = "/mcp") -> None:
        self._served = served
        self._config = config = served.door.config
        self._authenticate = authenticate
        self._paths = frozenset({"", "/", path, f"{path}/"})
        hosts = [*_LOOPBACK, *(f"{host}:*" for host in _LOOPBACK), *config.allowed_hosts]
        origins = [f"http://{host}{port}" for host in _LOOPBACK for port in ("", ":*")]
        self._guard = TransportSecurityMiddleware(
            TransportSecuritySettings(
                enable_dns_rebinding_protection="*" not in config.allowed_hosts,
                allowed_hosts=hosts,
                allowed_origins=[*origins, *config.allowed_origins],
            )
        )
        self._known: set[tuple[bytes | None, bytes | None]] = set()
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Sessions] | None = None
        self._stop = asyncio.Event()
        self._draining = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    # --- life ------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End all sessions; idempotent. Needed only where the host forwards no lifespan."""
        owner, self._owner = self._owner, None
        if owner is not None and owner.get_loop() is asyncio.get_running_loop():
            self._stop.set()
            await asyncio.gather(owner, return_exceptions=True)

    async def drain(self, timeout: float) -> None:
        """Take no new call, end what listens, and give calls ``timeout`` seconds to finish; then close."""
        self._draining = True
        self._served.changes.listen.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        await self.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._sessions()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _sessions(self) -> Sessions:
        """The running session manager of this event loop; one can run only once, so each start has its own."""
        loop = asyncio.get_running_loop()
        owner = self._owner
        if owner is None or owner.done() or owner.get_loop() is not loop:
            self._draining, self._calls, self._idle = False, 0, asyncio.Event()
            self._idle.set()
            self._stop, self._ready = asyncio.Event(), loop.create_future()
            self._owner = loop.create_task(self._own(self._ready, self._stop))
        assert self._ready is not None
        if self._ready.done():  # for all requests but the first
            return self._ready.result()
        return await asyncio.shield(self._ready)

    async def _own(self, ready: asyncio.Future[Sessions], stop: asyncio.Event) -> None:
        """Hold the manager's task group: it has to be left by the task that entered it."""
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

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["path"].startswith(_WELL_KNOWN) or path.startswith(_WELL_KNOWN):
            await self._metadata(scope, send)
        elif path not in self._paths:
            await respond(send, 404, {"error": "not_found"})
        elif self._draining:
            await respond(send, 503, {"error": "shutting_down"})
        else:
            sessions = await self._sessions()
            admitted = await self._admitted(scope, receive, send)
            if admitted is None:
                return
            if scope["method"] != "POST":
                await sessions.handle_request(scope, receive, send)
                return
            messages = await self._read(receive, send)
            if messages is None or await self._refuses(messages, send, admitted):
                return

            async def replay() -> Any:
                return messages.popleft() if messages else await receive()

            await self._call(sessions, scope, replay, send)

    async def _call(self, sessions: Sessions, scope: Scope, receive: Receive, send: Send) -> None:
        self._calls += 1
        self._idle.clear()
        try:
            await sessions.handle_request(scope, receive, send)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> Scope | None:
        """Let a request in, with its caller in the scope; or answer it. ``None``: it is answered."""
        admission = scope.get("operad")
        if not isinstance(admission, Admission):
            ambiguous = HostRules.ambiguity(scope["headers"])
            if ambiguous is not None:
                status, reason = ambiguous
                await respond(
                    send, status, {"error": "bad_request", "detail": reason}, [(b"connection", b"close")]
                )
                return None
            if not await self._is_from_here(scope, receive, send):
                return None
            try:
                admission = await self._asked(scope)
            except CallError:
                await respond(send, 503, {"error": "temporarily_unavailable"}, [(b"retry-after", b"5")])
                return None
        if admission.is_refused or (admission.identity is None and not self._config.takes_anybody):
            await self._challenge(send, 401, "invalid_token" if admission.is_refused else None)
            return None
        scope[CALLER] = identity = admission.identity
        if identity is not None:
            # The SDK compares this with who opened the session: one caller's session is no other's.
            token = AccessToken(token="", client_id=identity.id, scopes=[], subject=identity.id)  # none is kept
            scope["user"] = AuthenticatedUser(token)
        return scope

    async def _is_from_here(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether ``Host`` and ``Origin`` are allowed, which is answered where they are not.

        The few pairs that clients really send are judged once.
        """
        headers = dict(scope["headers"])
        pair = headers.get(b"host"), headers.get(b"origin")
        if pair in self._known:
            return True
        refusal = await self._guard.validate_request(Request(scope, receive), is_post=False)
        if refusal is not None:
            await refusal(scope, receive, send)
            return False
        if len(self._known) < _KNOWN:  # with a port that is left open, there may be many
            self._known.add(pair)
        return True

    async def _asked(self, scope: Scope) -> Admission:
        """Who shows the credentials of a request. Raises `CallError`: that cannot be decided now."""
        if self._authenticate is None:
            return _NOBODY
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer = scope.get("client")
        identity = await self._authenticate(Credentials.from_headers(headers, peer[0] if peer else None))
        return Admission(identity, identity is None and "authorization" in headers)

    async def _read(self, receive: Receive, send: Send) -> deque[Any] | None:
        """The messages of a body, of as much as is allowed; ``None``: it did not come, which is answered."""
        first = await receive()
        messages: deque[Any] = deque([first])
        if not first.get("more_body", False):
            return messages
        size = len(first.get("body", b""))
        try:
            async with asyncio.timeout(self._config.body_timeout):
                while messages[-1].get("more_body", False) and size <= self._config.max_body:
                    messages.append(await receive())
                    size += len(messages[-1].get("body", b""))
        except TimeoutError:
            detail = f"the body did not come within {self._config.body_timeout:g} s (body_timeout)"
            headers = [(b"connection", b"close")]
            await respond(send, 408, {"error": "request_timeout", "detail": detail}, headers)
            return None
        return messages

    async def _refuses(self, messages: Iterable[Any], send: Send, admitted: Scope) -> bool:
        """Answer 401 or 403 where the operation that is asked for requires what the caller lacks.

        Behind this the answer may be a stream, whose status is 200 whatever becomes of the call.
        """
        if not self._served.door.listing.guarded:
            return False
        body = b"".join(message.get("body", b"") for message in messages)
        refused = self._refused(body, admitted[CALLER])
        if refused is None:
            return False
        access, identity = refused
        if identity is None:
            await self._challenge(send, 401, None)
        else:
            await self._challenge(send, 403, "insufficient_scope", _scopes(access))
        return True

    def _refused(self, body: bytes, identity: Identity | None) -> tuple[AccessControl, Identity | None] | None:
        target = self._target(body)
        if target is None:
            return None
        access, input = target
        try:
            check_access(access, identity, input)
        except CallError:
            return access, identity
        return None

    def _target(self, body: bytes) -> tuple[AccessControl, Any] | None:
        """What a request asks for; ``None`` for all that needs no rights, or is no request."""
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
            return None  # no request that runs anything; the SDK says what is wrong with it
        return None if spec is None else (spec.access_control, arguments)

    # --- authorization (RFC 6750, RFC 9728) ------------------------------------------------------

    async def _challenge(self, send: Send, status: int, error: str | None, scope: str = "") -> None:
        parts = [] if error is None else [f'error="{error}"']
        if scope:
            parts.append(f'scope="{scope}"')
        if self._config.metadata_url is not None:
            parts.append(f'resource_metadata="{self._config.metadata_url}"')
        value = f"Bearer {', '.join(parts)}" if parts else "Bearer"
        await respond(send, status, {"error": error or "unauthorized"}, [(b"www-authenticate", value.encode())])

    async def _metadata(self, scope: Scope, send: Send) -> None:
        document = self._config.resource_metadata
        if document is None or scope["method"] not in ("GET", "HEAD"):
            await respond(send, 404, {"error": "not_found"})
        else:
            await respond(send, 200, document, [(b"access-control-allow-origin", b"*")])


def _scopes(access: AccessControl) -> str:
    """All scopes that an operation names (RFC 6750, 3), of what a header's value may hold."""
    named = [*access.required_scopes, *access.required_scopes_any]
    return " ".join(scope for scope in named if scope.isascii() and scope.isprintable() and '"' not in scope)


async def respond(send: Send, status: int, body: Json, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer a small JSON object."""
    data = json.dumps(body).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": data})

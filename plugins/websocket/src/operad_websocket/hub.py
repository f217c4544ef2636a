"""The hub, a WebSocket server that routes calls between the spokes that connect to it."""

from __future__ import annotations

import asyncio
import logging
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web
from aiohttp.http import HttpProcessingError

from operad import Identity
from operad.plugin import ConfigError
from operad_auth.http.metrics import CONTENT_TYPE, metrics_text
from operad_auth.http.urls import is_loopback_host
from operad_calls import CallEventMap
from operad_calls.transport import FrameCheck, Reports, keep_memory
from operad_websocket._authenticating import Authenticator, Gate, bearer_tokens
from operad_websocket._connection import Connection, Unfinished
from operad_websocket._door import Door
from operad_websocket._local import HubTransport
from operad_websocket._peers import Peer
from operad_websocket._switch import Switch
from operad_websocket.config import HEADROOM, MAX_PAYLOAD, MAX_PAYLOAD_HEADER, SUBPROTOCOL, Limits

__all__ = ["Authenticator", "Hub", "bearer_tokens"]

_SWEEP = 5.0
_FINISHED = 0.05
"""Seconds between two checks whether a drain has finished."""


class Hub:
    """A WebSocket server that routes calls between spokes, each of which may call and serve.

    Use it as an async context manager, or call `start` and `close`.

    Args:
        authenticate: a function of the aiohttp request, or an authenticator of `operad.auth`, that returns the
            identity of the client, or ``None`` to refuse the connection. Browsers send their token among the
            subprotocols or in the first frame. Without an authenticator every client is anonymous, and ``host``
            must be a loopback address.
        host: the address to listen on.
        port: the port; 0 takes a free port, which is in `url`.
        ssl: the TLS context to serve ``wss://``; default: ``ws://`` without TLS.
        limits: the limits for clients; default: those of ``Limits()``.
        authorize: ``authorize(identity, address)`` returns True if the identity may serve an address ``op:…`` or
            ``all:…``. By default every identity may serve the operations that no other identity serves.
        max_payload: the maximum size of an event, in bytes.
        max_buffer: the number of unwritten bytes above which a connection is closed.
        ping: seconds after which a silent connection is pinged. It is closed after twice this time.
        allowed_origins: the origins of web pages that may connect; by default no web page may connect.
        anonymous: whether clients without credentials may connect although there is an authenticator. They may
            call, but serve only what ``authorize`` allows; without ``authorize`` they may not serve.
        check_frames: whether to check each frame against its published schema, and to refuse invalid frames with
            ``link.error``. It helps to test a client, and requires ``operad-websocket[check]``.

    Raises:
        ConfigError: other machines could connect without authentication, or fastjsonschema is not installed.
    """

    def __init__(
        self,
        authenticate: Authenticator | None = None,
        host: str = "127.0.0.1",
        port: int = 8765,
        *,
        ssl: ssl_module.SSLContext | None = None,
        limits: Limits | None = None,
        authorize: Callable[[Identity | None, str], bool] | None = None,
        max_payload: int = MAX_PAYLOAD,
        max_buffer: int = 16 * 2**20,
        ping: float = 20.0,
        allowed_origins: Collection[str] = (),
        anonymous: bool = False,
        check_frames: bool = False,
    ) -> None:
        if authenticate is None and not is_loopback_host(host):
            raise ConfigError(
                f"host: expected a loopback address for a hub without an authenticator, got {host}: any client "
                "could call and serve; pass authenticate=, such as bearer_tokens({token: identity})"
            )
        self._host = host
        self._port = port
        self._ssl = ssl
        self._max_payload = max_payload
        self._max_buffer = max_buffer
        self._ping = ping
        self._runner: web.AppRunner | None = None
        self._door: Door | None = None
        self._draining = False
        self._connections: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._check: asyncio.TimerHandle | None = None
        if anonymous and authenticate is not None and authorize is None:
            authorize = _is_authenticated
        self.switch = Switch(limits, authorize)
        limits = self.switch.limits
        self._gate = Gate(
            authenticate, allowed_origins, self.switch.reports, limits.handshake, anonymous=anonymous
        )
        self._unfinished = Unfinished(limits.unfinished)
        self._frames = _frame_check() if check_frames else None
        self.transport = HubTransport(self.switch, max_payload)
        """The transport for callers and handlers in the process of the hub, without a socket."""

    @property
    def url(self) -> str:
        """The URL for spokes. After `start` it has the port in use."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'ws' if self._ssl is None else 'wss'}://{host}:{self._port}"

    @property
    def connections(self) -> int:
        """The number of connected spokes."""
        return len(self._connections)

    @property
    def pending(self) -> int:
        """The number of requests in progress."""
        return self.switch.pending

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start to listen for spokes. Raises `OSError` if the address cannot be used."""
        keep_memory()
        app = web.Application(middlewares=[_end_after_answer])
        app.router.add_get("/health", self._on_health)
        app.router.add_get("/metrics", self._on_metrics)
        app.router.add_get("/{path:.*}", self._on_request)
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=2.0,
            lingering_time=0.0,
            logger=_ServerLog(self.switch.reports),
        )
        await runner.setup()
        assert runner.server is not None
        door = Door(runner.server, self.switch.limits, self._ssl, self.switch.reports)
        try:
            self._port = await door.open(self._host, self._port)
        except BaseException:
            await runner.cleanup()
            raise
        self._runner, self._door, self._draining = runner, door, False
        self._on_sweep()
        self._on_check()

    async def drain(self, timeout: float) -> bool:
        """Refuse new spokes and requests, and wait for requests in progress. From now on ``/health`` returns 503.

        Args:
            timeout: the maximum time to wait, in seconds.

        Returns:
            True if all requests have finished; False after ``timeout`` seconds. `close` ends unfinished requests.
        """
        self._draining = self.switch.draining = True
        limit = asyncio.get_running_loop().time() + timeout
        while self.switch.pending and asyncio.get_running_loop().time() < limit:  # noqa: ASYNC110  # of many peers
            await asyncio.sleep(_FINISHED)
        return not self.switch.pending

    async def close(self) -> None:
        """Disconnect all spokes and stop listening; idempotent."""
        runner, self._runner = self._runner, None
        if runner is None or self._door is None:
            return
        for timer in (self._sweep, self._check):
            if timer is not None:
                timer.cancel()
        try:
            await self._door.close()
            await asyncio.gather(*(connection.close() for connection in tuple(self._connections)))
        finally:  # also if it was cancelled
            await runner.cleanup()
            self.switch.draining = False

    def _on_sweep(self) -> None:
        self.switch.expire()
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._on_sweep)

    def _on_check(self) -> None:
        for connection in tuple(self._connections):
            connection.check()
        self._check = asyncio.get_running_loop().call_later(self._ping / 2, self._on_check)

    # --- what comes in ---------------------------------------------------------------------------

    async def _on_request(self, request: web.Request) -> web.StreamResponse:
        self._gate.check_origin(request)
        later = self._gate.asks_later(request)
        identity = None if later else await self._gate.admit(request)
        socket: web.WebSocketResponse[Literal[False]] = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            autoping=False,  # see `Connection.check`
            max_msg_size=self._max_payload + HEADROOM,
            compress=False,
            decode_text=False,
        )
        socket.headers[MAX_PAYLOAD_HEADER] = str(self._max_payload)
        if not socket.can_prepare(request):
            raise web.HTTPUpgradeRequired(
                text="expected a WebSocket handshake: this is an operad hub\n", headers={"Upgrade": "websocket"}
            )
        if not later:
            self._check_room(request, identity)
        await socket.prepare(request)
        if later:
            identity = await self._gate.admit_by_frame(request, socket)
            if identity is None:
                return socket
            if self._draining or not self._has_room(request, identity):
                await socket.close(code=1013, message=b"too many connections, or the hub is closing")
                return socket
        await self._run(request, socket, identity)
        return socket

    def _check_room(self, request: web.Request, identity: Identity | None) -> None:
        if self._draining:
            raise web.HTTPServiceUnavailable(text="the hub is closing\n")
        if not self._has_room(request, identity):
            raise web.HTTPTooManyRequests(
                text=f"expected at most {self.switch.limits.links} connections of one client (limits.links)\n"
            )

    def _has_room(self, request: web.Request, identity: Identity | None) -> bool:
        return self.switch.has_room(Peer(lambda data: None, identity, address=request.remote or ""))

    async def _run(
        self, request: web.Request, socket: web.WebSocketResponse[Literal[False]], identity: Identity | None
    ) -> None:
        """Run the connection of a spoke until the connection ends."""
        if request.transport is None:
            return
        connection = Connection(
            self.switch,
            request.transport,
            socket,
            identity,
            address=request.remote or "",
            max_payload=self._max_payload,
            max_buffer=self._max_buffer,
            unfinished=self._unfinished,
            frames=self._frames,
        )
        if self._door is not None:
            self._door.let_in(request.protocol)
        self._connections.add(connection)
        self.switch.join(connection.peer)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self.switch.leave(connection.peer)

    async def _on_health(self, request: web.Request) -> web.StreamResponse:
        """Respond with 200, or with 503 while the hub drains. No token is required."""
        if _is_upgrade(request):
            return await self._on_request(request)
        self._gate.check_origin(request)
        status = 503 if self._draining else 200
        return web.json_response({"status": "draining" if self._draining else "ok"}, status=status)

    async def _on_metrics(self, request: web.Request) -> web.StreamResponse:
        if _is_upgrade(request):
            return await self._on_request(request)
        self._gate.check_origin(request)
        await self._gate.admit(request)
        return web.Response(text=self.metrics(), headers={"Content-Type": CONTENT_TYPE})

    def metrics(self) -> str:
        """Return the metrics of the hub in the OpenMetrics format, which ``/metrics`` serves."""
        switch, waiting = self.switch, 0 if self._door is None else self._door.waiting
        return metrics_text(
            [
                ("operad_hub_connections", "gauge", "Connected spokes.", self.connections),
                ("operad_hub_handshakes", "gauge", "Connections that have not finished their handshake.", waiting),
                ("operad_hub_pending", "gauge", "Requests in progress.", switch.pending),
                ("operad_hub_addresses", "gauge", "Addresses that are served.", switch.addresses),
                ("operad_hub_requests", "counter", "Requests sent to a handler.", switch.routed),
                ("operad_hub_refused", "counter", "Refused frames and connections.", switch.refused),
            ]
        )


class _ServerLog(logging.LoggerAdapter[logging.Logger]):
    """The log of the aiohttp server. It has no traceback for malformed requests, which any client can send."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(logging.getLogger("operad.websocket"), {})
        self._reports = reports

    def exception(self, msg: object, *args: object, exc_info: Any = True, **options: Any) -> None:
        """Report a malformed request as refused, and log any other exception."""
        if isinstance(exc_info, HttpProcessingError):
            where = args[0] if args else "?"
            self._reports.refuse(f"address {where}", f"refused a request from {where}: {exc_info.message}")
        else:
            super().exception(msg, *args, exc_info=exc_info, **options)


def _frame_check() -> FrameCheck:
    """Return a check of frames between spokes and a hub. Raises `ConfigError` if fastjsonschema is missing."""
    from operad_websocket._schemas import LINK_FRAMES

    try:
        return FrameCheck({**CallEventMap, **LINK_FRAMES})
    except ModuleNotFoundError:
        message = "check_frames requires fastjsonschema, which is not installed"
        raise ConfigError(f"{message}: pip install 'operad-websocket[check]'") from None


def _is_authenticated(identity: Identity | None, address: str) -> bool:
    """Return True for an authenticated identity. Anonymous spokes could take the names of other spokes."""
    return identity is not None


@web.middleware
async def _end_after_answer(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Close a connection after any response except the one that opens a WebSocket."""
    try:
        answer = await handler(request)
    except web.HTTPException as refusal:
        refusal.force_close()
        raise
    if not answer.prepared:
        answer.force_close()
    return answer


def _is_upgrade(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"

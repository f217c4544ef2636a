"""The hub: a WebSocket server that routes calls between the spokes that connect to it."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import ipaddress
import logging
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web

from operad import protocol
from operad.access import Identity
from operad.errors import ConfigError
from operad.transports import Event, PayloadTooLargeError
from operad_websocket._corked import Corked
from operad_websocket._direct import DirectResponse, taking
from operad_websocket._local import HubTransport
from operad_websocket._routing import Limits, Peer, Switch

logger = logging.getLogger("operad.hub")

Authenticator = Callable[[web.Request], "Identity | Awaitable[Identity | None] | None"]
"""``authenticate(request)``: who connects; ``None`` refuses the connection."""

SUBPROTOCOL = "operad.v1"
MAX_PAYLOAD = 4 * 2**20
"""The default limit of an event, in bytes."""
HEADROOM = 64 * 2**10
"""What a hub may add to an event, in bytes: the identity that it stamps, and an address."""

_SLOW = 1 * 2**20
"""Bytes that wait for a peer; above it, streams without credit end with ``SLOW_CONSUMER``."""
_SWEEP = 5.0
_PING = b"\x89\x00"
"""RFC 6455, 5.5.2: a ping without data; a server does not mask."""
ENDS = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})
"""What aiohttp says when a connection is over."""


def bearer_tokens(tokens: Mapping[str, Identity]) -> Authenticator:
    """An authenticator for the header ``Authorization: Bearer <token>``.

    Args:
        tokens: whom each token stands for.
    """

    def authenticate(request: web.Request) -> Identity | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = None
        for known, identity in tokens.items():  # all of them: the time taken tells nothing
            if hmac.compare_digest(known.encode(), token.strip().encode()):
                found = identity
        return found

    return authenticate


class Hub:
    """Routes calls between spokes: each of them may call and serve.

    Use it as an async context manager, or `start` and `close` it.

    Args:
        authenticate: who a connection is; ``None`` from it refuses the connection. Without an authenticator
            everybody is anonymous, and the hub listens on loopback addresses only.
        host: the address to listen on.
        port: the port; 0 takes a free one (see `url`).
        ssl: serves ``wss://`` with this context.
        limits: what one identity may have at once.
        authorize: ``authorize(identity, address)``: whether it may serve an address ``op:…``. By default anyone
            may, but not what another identity serves.
        max_payload: the largest event, in bytes.
        max_buffer: bytes that may wait for one connection; above it, the connection is closed.
        ping: seconds within which a silent connection is pinged; one that stays silent is closed soon after.
        allowed_origins: web pages that may connect; browsers tell where a page comes from. None by default.
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
    ) -> None:
        if authenticate is None and not _is_loopback(host):
            raise ConfigError(
                f"a hub without an authenticator listens on loopback only, not on {host}: everybody who can reach "
                "it could call and serve. Pass authenticate=, such as bearer_tokens({token: identity})."
            )
        self._authenticate = authenticate
        self._host = host
        self._port = port
        self._ssl = ssl
        self._max_payload = max_payload
        self._max_buffer = max_buffer
        self._ping = ping
        self._origins = frozenset(allowed_origins)
        self._runner: web.AppRunner | None = None
        self._connections: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._check: asyncio.TimerHandle | None = None
        self.switch = Switch(limits, authorize)
        self.transport = HubTransport(self.switch, max_payload)
        """For parts of the hub's own process, which call and serve without a socket."""

    @property
    def url(self) -> str:
        """Where spokes connect, with the port in use."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'ws' if self._ssl is None else 'wss'}://{host}:{self._port}"

    @property
    def connections(self) -> int:
        """How many spokes are connected."""
        return len(self._connections)

    @property
    def pending(self) -> int:
        """How many requests are under way."""
        return self.switch.pending

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Listen. Raises `OSError` if the address cannot be used."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._on_request)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port, ssl_context=self._ssl)
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self._port = runner.addresses[0][1]
        self._on_sweep()
        self._on_check()

    async def close(self) -> None:
        """Disconnect everybody and stop listening; idempotent."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for timer in (self._sweep, self._check):
            if timer is not None:
                timer.cancel()
        for site in list(runner.sites):
            await site.stop()
        await asyncio.gather(*(connection.close() for connection in tuple(self._connections)))
        await runner.cleanup()

    def _on_sweep(self) -> None:
        self.switch.expire()
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._on_sweep)

    def _on_check(self) -> None:
        for connection in tuple(self._connections):
            connection.check()
        self._check = asyncio.get_running_loop().call_later(self._ping / 2, self._on_check)

    async def _on_request(self, request: web.Request) -> web.StreamResponse:
        identity = await self._admitted(request)
        if not self.switch.has_room(identity):
            raise web.HTTPTooManyRequests(text=f"more than {self.switch.limits.links} connections\n")
        socket = DirectResponse(
            protocols=(SUBPROTOCOL,),
            autoping=False,  # see `_Connection.check`
            max_msg_size=self._max_payload + HEADROOM,
            compress=False,
        )
        if not socket.can_prepare(request):
            raise web.HTTPUpgradeRequired(
                text="this is an operad hub: connect with a WebSocket\n", headers={"Upgrade": "websocket"}
            )
        await socket.prepare(request)
        connection = _Connection(self, request, socket, identity)
        self._connections.add(connection)
        self.switch.join(connection.peer)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self.switch.leave(connection.peer)
        return socket

    async def _admitted(self, request: web.Request) -> Identity | None:
        """Who connects. Raises an HTTP error for those who may not."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            # Any web page could otherwise talk to a hub on this machine, as its user.
            raise web.HTTPForbidden(text=f"origin {origin[:200]} is not in allowed_origins\n")
        if self._authenticate is None:
            if not _is_loopback(urlsplit(f"//{request.host}").hostname or ""):  # a rebound DNS name
                raise web.HTTPForbidden(text="without an authenticator the hub answers to loopback names only\n")
            return None
        identity = self._authenticate(request)
        if inspect.isawaitable(identity):
            identity = await identity
        if identity is None:
            logger.warning("refused a connection from %s: not authenticated", request.remote)
            raise web.HTTPUnauthorized(text="not authenticated\n", headers={"WWW-Authenticate": "Bearer"})
        return identity


class _Connection:
    """A spoke's socket, as the hub holds it.

    Frames are written to the socket's transport itself: the hub never waits for a spoke, and one that does not
    read only fills its own buffer.
    """

    def __init__(self, hub: Hub, request: web.Request, socket: DirectResponse, identity: Identity | None) -> None:
        assert request.transport is not None
        self.peer = Peer(self._deliver, identity, is_slow=self._is_slow, deliver_text=self._send)
        self._hub = hub
        self._socket = socket
        self._transport = Corked(request.transport, self._under_way)
        self._limit = hub._max_payload + HEADROOM
        self._closing: asyncio.Task[bool] | None = None
        self._silent = 0
        """For how many checks nothing has come."""

    async def run(self) -> None:
        """Take events until the connection ends."""
        with taking(self._socket, self._take, self._hear):
            while True:
                message = await self._socket.receive()
                self._silent = 0
                if message.type is WSMsgType.BINARY or message.type is WSMsgType.TEXT:
                    self._take(message.data)
                elif message.type is WSMsgType.PING:
                    await self._socket.pong(message.data)
                elif message.type in ENDS:
                    break
        if self._closing is not None:
            await asyncio.wait({self._closing})

    def _hear(self) -> None:
        self._silent = 0

    def _take(self, data: bytes | str) -> None:
        hub, peer = self._hub, self.peer
        self._silent = 0
        try:
            event, text = protocol.decode_compared(data)
        except protocol.ProtocolError as error:
            hub.switch.refused += 1
            logger.warning("refused from %s: %s", peer.name, error)
            return
        if len(data) > hub._max_payload and event["type"] == protocol.REQUESTED:
            too_large = f"the event has {len(data)} bytes, the hub carries {hub._max_payload}"
            logger.warning("refused from %s: %s", peer.name, too_large)
            return
        hub.switch.route(peer, event, text)

    def check(self) -> None:
        """Twice in the time between pings: ping a peer that is silent, and let go of one that stays so."""
        self._silent += 1
        if self._silent > 3:
            logger.warning("%s does not answer: disconnected", self.peer.name)
            self._transport.abort()
        elif self._silent > 1 and not self._transport.is_closing():
            self._transport.write(_PING)

    def _deliver(self, event: Event) -> None:
        self._send(protocol.encode_checked(event))

    def _send(self, data: bytes) -> None:
        size = len(data)
        if size > self._limit:
            raise PayloadTooLargeError(f"the event has {size} bytes, the hub carries {self._limit}")
        # RFC 6455, 5.2: a final text frame; a server does not mask.
        if size < 126:
            header = bytes((0x81, size))
        elif size < 65_536:
            header = b"\x81\x7e" + size.to_bytes(2, "big")
        else:
            header = b"\x81\x7f" + size.to_bytes(8, "big")
        transport = self._transport
        if transport.is_closing() or self._socket.closed:
            return
        transport.write(header + data)
        if transport.get_write_buffer_size() > self._hub._max_buffer:
            logger.warning("%s does not read: disconnected", self.peer.name)
            transport.abort()

    def _under_way(self) -> int:
        return len(self.peer.calls) + len(self.peer.serving)

    def _is_slow(self) -> bool:
        return self._transport.get_write_buffer_size() > _SLOW

    async def close(self) -> None:
        """Say goodbye and disconnect."""
        self._transport.flush()
        if not self._socket.closed:
            self._closing = asyncio.ensure_future(
                self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"the hub is closing")
            )
            await asyncio.wait({self._closing}, timeout=2.0)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

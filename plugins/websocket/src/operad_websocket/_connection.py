"""A spoke's socket, as the hub holds it."""

from __future__ import annotations

import asyncio
import contextlib
from struct import Struct
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from operad import Identity
from operad.plugin import PayloadTooLargeError
from operad_calls.transport import ProtocolError, protocol
from operad_websocket._corked import Corked, Reading, Turn
from operad_websocket._direct import ENDS, DirectResponse, taking
from operad_websocket._frames import read
from operad_websocket._peers import Peer
from operad_websocket._switch import Switch
from operad_websocket.config import HEADROOM

_SLOW = 1 * 2**20
"""Bytes that wait for a peer; above it, streams without credit end with ``SLOW_CONSUMER``."""
_GOODBYE_WITHIN = 2.0
_FEW, _MANY = 8, 16
"""Frames that a spoke gets together at most: it may begin with them, while the hub passes on the rest."""
_header = Struct(">HH").pack
_PING = b"\x89\x00"
"""RFC 6455, 5.5.2: a ping without data; a server does not mask."""
_LARGE = 32 * 2**10
"""Bytes of a message that is not whole, from which on it is a large one."""
_COUNTED = 64 * 2**10
"""Bytes of an unfinished message up to which nobody counts."""


class Unfinished:
    """Bytes of messages whose end has not come, by account.

    Args:
        limit: how many one account may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: dict[str, int] = {}

    def add(self, account: str, size: int) -> bool:
        """Count bytes, or take them off again; answers whether they are within the limit."""
        total = self._bytes.get(account, 0) + size
        if total:
            self._bytes[account] = total
        else:
            self._bytes.pop(account, None)
        return total <= self._limit


class Connection:
    """A connection of a spoke.

    Frames are written to the socket's transport itself: the hub never waits for a spoke, and one that does not
    read only fills its own buffer.

    Args:
        switch: where its frames go.
        request: how it came.
        socket: its socket, prepared.
        identity: whom the hub authenticated.
        max_payload: the largest event, in bytes.
        max_buffer: bytes that may wait for it.
        unfinished: counts what has not come whole.
        turn: of all connections of the hub.
    """

    def __init__(
        self,
        switch: Switch,
        request: web.Request,
        socket: DirectResponse,
        identity: Identity | None,
        *,
        max_payload: int,
        max_buffer: int,
        unfinished: Unfinished,
        turn: Turn,
    ) -> None:
        assert request.transport is not None
        self.peer = Peer(self._deliver, identity, is_slow=self._is_slow, address=request.remote or "")
        self._switch = switch
        self._socket = socket
        Reading.begin(request.transport, self._is_within_large, turn)
        self._transport = Corked(
            request.transport, self._together, may_write=self._may_write, written=self._written, turn=turn
        )
        self._max_payload = max_payload
        self._largest = max_payload + HEADROOM
        self._max_buffer = max_buffer
        self._unfinished = unfinished
        self._come = 0
        """Bytes that have come since the last whole message."""
        self._counted = 0
        """How many of them are counted."""
        self._closing: asyncio.Task[bool] | None = None
        self._silent = 0
        """For how many checks nothing has come."""
        _tap(request, self._hear)

    async def run(self) -> None:
        """Take events until the connection ends."""
        try:
            with taking(self._socket, self._take):
                while True:
                    message = await self._socket.receive()
                    self._silent = 0
                    if message.type is WSMsgType.BINARY or message.type is WSMsgType.TEXT:
                        self._take(message.data)
                    elif message.type is WSMsgType.PING:
                        with contextlib.suppress(ConnectionError, RuntimeError):  # lost: `receive` will say so
                            await self._socket.pong(message.data)
                    elif message.type in ENDS:
                        self.peer.said_goodbye = message.type is WSMsgType.CLOSE and message.data in (1000, 1001)
                        break
            if self._closing is not None:
                await asyncio.wait({self._closing})
        finally:
            self._unfinished.add(self.peer.account, -self._counted)

    def _hear(self, size: int) -> None:
        """Bytes have come, of a whole message or of a part of one."""
        self._silent = 0
        self._come += size
        fresh = self._come - self._counted
        if fresh > _COUNTED:
            self._counted = self._come
            if not self._unfinished.add(self.peer.account, fresh):
                self._switch.reports.refuse(
                    self.peer.account, f"{self.peer.name} finishes no message: disconnected"
                )
                self._transport.abort()

    def _is_within_large(self) -> bool:
        return self._come >= _LARGE

    def _take(self, data: bytes | str) -> None:
        switch, peer = self._switch, self.peer
        self._silent = self._come = 0
        if self._counted:
            self._unfinished.add(peer.account, -self._counted)
            self._counted = 0
        try:
            frame = read(data)
        except ProtocolError as error:
            switch.on_unreadable(peer, data, error)
            return
        if len(data) > self._max_payload and frame.type == protocol.REQUESTED:
            switch.on_too_large(peer, frame, len(data), self._max_payload)
            return
        switch.route(peer, frame)

    def check(self) -> None:
        """Twice in the time between pings: ping a peer that is silent, and let go of one that stays so."""
        self._silent += 1
        if self._silent > 3:
            self._switch.reports.warn(self.peer.account, f"{self.peer.name} does not answer: disconnected")
            self._transport.abort()
        elif self._silent > 1 and not self._transport.is_closing():
            self._transport.write(_PING)

    def _deliver(self, data: bytes) -> None:
        size = len(data)
        if size > self._largest:
            raise PayloadTooLargeError(f"the event has {size} bytes, the hub carries {self._largest}")
        transport = self._transport
        # RFC 6455, 5.2: a final text frame; a server does not mask.
        if 125 < size < 65_536:
            transport.write(_header(0x817E, size) + data)
        elif size < 126:
            transport.write(bytes((0x81, size)) + data)
        else:  # a copy of it would cost more than a second write
            transport.write(b"\x81\x7f" + size.to_bytes(8, "big"))
            transport.write(data)

    def _may_write(self) -> bool:
        return not self._socket.closed

    def _written(self) -> None:
        if self._transport.get_write_buffer_size() > self._max_buffer:
            self._switch.reports.warn(self.peer.account, f"{self.peer.name} does not read: disconnected")
            self._transport.abort()

    def _together(self) -> int:
        """Half of the calls under way, so that both sides have work at the same time."""
        half = (len(self.peer.calls) + len(self.peer.serving)) // 2
        return min(max(half, _FEW), _MANY)

    def _is_slow(self) -> bool:
        return self._transport.get_write_buffer_size() > _SLOW

    async def close(self) -> None:
        """Say goodbye and disconnect."""
        self._transport.flush()
        if not self._socket.closed:
            self._closing = asyncio.ensure_future(
                self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"the hub is closing")
            )
            await asyncio.wait({self._closing}, timeout=_GOODBYE_WITHIN)


class _Tap:
    """A parser of aiohttp's, and what hears how much is fed to it."""

    def __init__(self, parser: Any, hear: Any) -> None:
        self._parser = parser
        self._feed = parser.feed_data
        self._hear = hear

    def feed_data(self, data: bytes) -> Any:
        self._hear(len(data))
        return self._feed(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _tap(request: web.Request, hear: Any) -> None:
    """Hear of each piece that comes, if this aiohttp has its parser where others had it."""
    protocol = request.protocol
    parser = getattr(protocol, "_payload_parser", None)
    if parser is not None and hasattr(parser, "feed_data"):
        protocol._payload_parser = _Tap(parser, hear)

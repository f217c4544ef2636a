"""The hub's side of the connection to a spoke."""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import Literal

from aiohttp import WSCloseCode, WSMsgType, web

from operad import Identity
from operad.plugin import PayloadTooLargeError
from operad_calls.transport import FrameCheck, ProtocolError, protocol
from operad_websocket._frames import read
from operad_websocket._peers import Peer
from operad_websocket._switch import Switch
from operad_websocket._wire import ENDS, Corked, Wire
from operad_websocket.config import HEADROOM

logger = logging.getLogger("operad.websocket")

_SLOW = 1 * 2**20
"""The number of unwritten bytes above which streams without credit end with ``SLOW_CONSUMER``."""
_GOODBYE_WITHIN = 2.0
_header = Struct(">HH").pack
_PING = b"\x89\x00"
"""A ping frame without data and mask (RFC 6455, 5.5.2 and 5.1)."""
_UNCOUNTED = 64 * 2**10
"""The size in bytes below which an unfinished message is not counted. Nearly all messages are smaller."""


class Unfinished:
    """A counter of the bytes of unfinished messages, by account (`Peer.account`).

    Args:
        limit: the maximum number of bytes of one account.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes: dict[str, int] = {}

    def add(self, account: str, size: int) -> bool:
        """Add a number of bytes, which may be negative. Return True if the account is then within the limit."""
        total = self._bytes.get(account, 0) + size
        if total:
            self._bytes[account] = total
        else:
            self._bytes.pop(account, None)
        return total <= self._limit


class Connection:
    """The hub's side of the connection to a spoke.

    Frames are written directly to the transport. The hub never waits for a spoke: if a spoke does not read, its
    frames stay in the hub's memory. A spoke with more than ``max_buffer`` unwritten bytes is disconnected.

    Args:
        switch: receives the frames of the spoke.
        transport: the asyncio transport of the connection.
        socket: the prepared WebSocket of the connection.
        identity: the authenticated identity; ``None`` for an anonymous spoke.
        address: the network address of the spoke.
        max_payload: the maximum size of an event, in bytes.
        max_buffer: the maximum number of unwritten bytes.
        unfinished: counts the bytes of unfinished messages.
        frames: checks each frame against its schema; if ``None``, frames are not checked.
    """

    def __init__(
        self,
        switch: Switch,
        transport: asyncio.Transport,
        socket: web.WebSocketResponse[Literal[False]],
        identity: Identity | None,
        *,
        address: str,
        max_payload: int,
        max_buffer: int,
        unfinished: Unfinished,
        frames: FrameCheck | None = None,
    ) -> None:
        self.peer = Peer(self._deliver, identity, is_slow=self._is_slow, address=address)
        self._switch = switch
        self._socket = socket
        self._transport = transport
        self._wire = Wire(transport, self._on_growth)
        self._wire.counted = _UNCOUNTED
        self._corked = Corked(transport, max_buffer, self._on_overflow)
        self._max_payload = max_payload
        self._largest = max_payload + HEADROOM
        self._unfinished = unfinished
        self._frames = frames
        self._counted = 0
        """The number of counted bytes of the unfinished message."""
        self._closing: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Handle messages until the connection ends."""
        receive = self._socket.receive
        try:
            while True:
                message = await receive()
                type_ = message.type
                if type_ is WSMsgType.TEXT or type_ is WSMsgType.BINARY:
                    self._take(message.data)
                elif type_ is WSMsgType.PING:
                    self._corked.write(bytes((0x8A, len(message.data))) + message.data)
                elif type_ in ENDS:
                    self.peer.said_goodbye = type_ is WSMsgType.CLOSE and message.data in (1000, 1001)
                    break
            if self._closing is not None:
                await asyncio.wait({self._closing})
        finally:
            self._unfinished.add(self.peer.account, -self._counted)

    def _on_growth(self, size: int) -> None:
        fresh, self._counted = size - self._counted, size
        self._wire.counted = size + _UNCOUNTED
        if not self._unfinished.add(self.peer.account, fresh):
            self._switch.reports.refuse(
                self.peer.account,
                f"disconnected {self.peer.name}: its unfinished messages exceed limits.unfinished",
            )
            self.abort()

    def _take(self, data: bytes) -> None:
        switch, peer = self._switch, self.peer
        self._wire.unfinished = 0
        if self._counted:
            self._unfinished.add(peer.account, -self._counted)
            self._counted, self._wire.counted = 0, _UNCOUNTED
        try:
            frame = read(data)
            frames = self._frames
            if frames is not None and (error := frames.error(protocol.decode(data))) is not None:
                switch.on_invalid(peer, frame, data, error)
            elif len(data) > self._max_payload and frame.type == protocol.REQUESTED:
                switch.on_too_large(peer, frame, len(data), self._max_payload)
            else:
                switch.route(peer, frame)
        except ProtocolError as unreadable:
            switch.on_unreadable(peer, data, unreadable)
        except Exception:  # one message must not end all calls of its connection
            logger.exception("a message of %s could not be routed", peer.name)

    def check(self) -> None:
        """Ping or disconnect the peer if it has been silent for too long. Call this every ``ping / 2`` seconds."""
        self._wire.silent += 1
        if self._wire.silent > 3:
            self._switch.reports.warn(
                self.peer.account, f"disconnected {self.peer.name}: it does not respond to pings"
            )
            self.abort()
        elif self._wire.silent > 1:
            self._corked.write(_PING)

    def _deliver(self, data: bytes) -> None:
        size = len(data)
        if size > self._largest:
            raise PayloadTooLargeError(f"the event has {size} bytes; the limit of the hub is {self._largest}")
        if self._socket.closed:
            return
        # RFC 6455, 5.2: a final text frame; a server does not mask.
        if 125 < size < 65_536:
            self._corked.write(_header(0x817E, size) + data)
        elif size < 126:
            self._corked.write(bytes((0x81, size)) + data)
        else:
            self._corked.write(b"\x81\x7f" + size.to_bytes(8, "big") + data)

    def _on_overflow(self) -> None:
        self._switch.reports.warn(
            self.peer.account,
            f"disconnected {self.peer.name}: it does not read, and its unwritten bytes exceed max_buffer",
        )

    def _is_slow(self) -> bool:
        return self._corked.unwritten > _SLOW

    def abort(self) -> None:
        """Disconnect immediately, without a close frame."""
        self._transport.abort()

    async def close(self) -> None:
        """Send a close frame, and wait at most 2 s for that of the spoke."""
        self._corked.flush()
        if not self._socket.closed:
            self._closing = asyncio.ensure_future(
                self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"the hub is closing")
            )
            await asyncio.wait({self._closing}, timeout=_GOODBYE_WITHIN)

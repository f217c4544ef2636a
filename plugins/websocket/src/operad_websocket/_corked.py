"""Writing frames: many small ones in few system calls, each sender waiting for itself."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from struct import Struct
from time import perf_counter as _now
from typing import Any

from aiohttp import ClientWebSocketResponse, WSMsgType

from operad_calls.transport import protocol

try:
    from aiohttp._websocket import helpers as _helpers
except ImportError:  # pragma: no cover  # an aiohttp that has moved it
    _helpers = None  # type: ignore[assignment]  # for "not there"

_CLOSE_BY = 0.0001
"""Seconds: writes that follow each other more quickly are taken for a burst."""
_LONG = 0.001
"""Seconds that a frame waits for those that follow it in the same turn of the event loop."""
_LARGE = 64 * 2**10
"""Bytes from which on a piece is written by itself."""
_AT_ONCE = 2**20
"""Bytes read at once."""
_OF_LARGE = 256 * 2**10
"""Bytes read at once from a peer that is not trusted, while a large message is under way."""
_OF_MANY = 32 * 2**10
"""Bytes read at once from such a peer else: at most 4,096 frames."""
_ALL = 2**62
"""More frames than are ever kept."""
_BURST = 4
"""Frames of one read to one connection that are not worth waiting for others."""
_room = threading.local()


class Turn:
    """The end of a read, at which bursts that it brought are written, or else of the turn of the event loop.

    What a hub reads it passes on at once: after a read that brought a burst there is nothing to wait for, and
    another turn of the loop, with another look at all sockets, would be for nothing.
    """

    def __init__(self) -> None:
        self.due: list[Corked] | None = None
        """Who has something to write after the read that is under way; ``None``: none is."""

    def flush(self, corked: Corked) -> None:
        """Have it flushed then."""
        if self.due is None:
            asyncio.get_running_loop().call_soon(corked.flush)
        else:
            self.due.append(corked)

    def read(self, receive: Callable[[bytes], object], data: bytes) -> None:
        """Pass on what was read."""
        due: list[Corked] = []
        self.due = due
        try:
            receive(data)
        finally:
            self.due = None
            for corked in due:
                if corked.kept >= _BURST:
                    corked.flush()
                else:  # other connections may bring more for it
                    asyncio.get_running_loop().call_soon(corked.flush)


class Reading(asyncio.BufferedProtocol):
    """Reads as much as is there, into one piece of memory for all connections of a thread.

    asyncio's own way makes room for each read anew, 256 KiB of it, which the C library takes from the system and
    gives back: three system calls and their page faults for each frame. What is read is passed on before the next
    read begins, so nobody meets another one's bytes.

    Args:
        protocol: what takes the bytes.
        is_within_large: whether a large message is under way. While none is, less is read at once: all frames of a
            read are taken in one turn of the event loop, and a peer may send a hundred thousand in a mebibyte.
        turn: whose bursts are written after each read.
        before: called before what was read is taken.
    """

    def __init__(
        self,
        protocol: Any,
        is_within_large: Callable[[], bool] | None = None,
        turn: Turn | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._protocol = protocol
        self._turn = turn
        self._before = before
        self._receive = protocol.data_received
        if not hasattr(_room, "view"):
            _room.view = memoryview(bytearray(_AT_ONCE))
        self._room: memoryview = _room.view
        self._some: memoryview = self._room[:_OF_MANY]
        self._more: memoryview = self._room[:_OF_LARGE]
        self._is_within_large = is_within_large

    @classmethod
    def begin(
        cls,
        transport: asyncio.WriteTransport,
        is_within_large: Callable[[], bool] | None = None,
        turn: Turn | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Have a connection read so, from its next read on."""
        protocol = transport.get_protocol()
        if hasattr(protocol, "data_received"):
            transport.set_protocol(cls(protocol, is_within_large, turn, before))

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        if self._is_within_large is None:
            return self._room
        return self._more if self._is_within_large() else self._some

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        data = bytes(self._room[:nbytes])
        if self._before is not None:
            self._before()
        if self._turn is None:
            self._receive(data)
        else:
            self._turn.read(self._receive, data)

    def eof_received(self) -> bool | None:
        """See `asyncio.BufferedProtocol`."""
        return bool(self._protocol.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._protocol.resume_writing()


class Corked:
    """A transport that writes at once, but writes a burst together at the end of the turn of the event loop.

    A single call loses no time, and many at once cost one system call instead of one each, and one waking of the
    other side: at 64 in flight that is most of what a frame costs. No frame waits long for slow ones that follow
    it, though, and no more bytes are kept than a socket takes.

    Args:
        transport: what writes.
        together: asked when a burst begins: how many frames of it travel together at most. Default: all.
        may_write: asked before each write; what may not be written is dropped, as where the transport is closing.
        written: called after each write.
        turn: at whose end a burst is written; that of the event loop by default.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        together: Callable[[], int] | None = None,
        may_write: Callable[[], bool] | None = None,
        written: Callable[[], None] | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._transport = transport
        self._together = together
        self._may_write, self._written = may_write, written
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._turn = Turn() if turn is None else turn
        self._last = 0.0
        self._is_burst = False
        """Whether the last turn brought one."""
        self._is_long = False
        """Whether a part of this one has been written already."""
        self._is_due = False
        """Whether `flush` is going to be called."""
        self._later: list[bytes | bytearray] = []
        self._kept = 0
        """Bytes of these."""
        self._most = _ALL
        """How many of them travel together at most."""

    def write(self, data: bytes | bytearray) -> None:
        """Write now, or at the end of the turn."""
        size = len(data)
        if size >= _LARGE:  # not worth a copy to save a system call
            self._write_later()
            self._write(data)
            return
        later = self._later
        if not self._is_due:
            now = _now()
            is_single = not self._is_burst and now - self._last >= _CLOSE_BY
            self._last = now
            if is_single:
                self._write(data)
                return
            self._is_due = True
            if self._together is not None:
                self._most = self._together()
            self._turn.flush(self)
        later.append(data)
        self._kept += size
        if len(later) >= self._most or self._kept >= _LARGE:
            self._write_later()
            self._is_long = True
        elif self._turn.due is None and _now() - self._last >= _LONG:  # a read ends soon
            self._write_later()
            self._last = _now()

    @property
    def kept(self) -> int:
        """How many frames wait to be written."""
        return len(self._later)

    def flush(self) -> None:
        """Write what has been kept; idempotent."""
        self._is_due = False
        self._is_burst = self._is_long or len(self._later) > 1
        self._is_long = False
        self._write_later()

    def write_kept(self) -> None:
        """Write what has been kept so far; the turn goes on."""
        if self._later:
            self._write_later()
            self._is_long = True

    def abort(self) -> None:
        """See `asyncio.WriteTransport`."""
        self._transport.abort()

    def _write_later(self) -> None:
        later = self._later
        if later:
            self._write(b"".join(later))
            later.clear()
            self._kept = 0

    def _write(self, data: bytes | bytearray) -> None:
        if not self.is_closing() and (self._may_write is None or self._may_write()):
            self._transport.write(data)
            if self._written is not None:
                self._written()


class Rest:
    """A corked transport for aiohttp's own writer, with all else that a transport has.

    A class of its own: where one has a ``__getattr__``, each of its attributes takes ten times as long.
    """

    def __init__(self, corked: Corked, transport: asyncio.WriteTransport) -> None:
        self.write = corked.write
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Unshared:
    """aiohttp's protocol, whose drain each sender awaits for itself.

    All senders that wait for one socket share a future of aiohttp's; to cancel one of them would cancel it, and
    with it all others.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol

    async def _drain_helper(self) -> None:
        drained = asyncio.ensure_future(self._protocol._drain_helper())
        drained.add_done_callback(_seen)  # whoever waited may be gone when the connection is lost
        await asyncio.shield(drained)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)


_EMPTY = bytearray()
Parts = protocol.Parts
_header = Struct(">HH4s").pack
_FULL = 64 * 2**10
"""Bytes that wait to be written; above it, whoever sends waits until they are."""


class Writer:
    """Writes the frames of a client's socket.

    Args:
        socket: the socket.
    """

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._next_key = _keys().__next__
        self._transport: Corked | None = None
        writer = getattr(socket, "_writer", None)
        transport = getattr(writer, "transport", None)
        if writer is None or transport is None:  # an aiohttp that has its writer elsewhere
            return
        corked = Corked(transport)
        # The next read comes before the end of the turn, and to take it is work: what is kept does not wait.
        Reading.begin(transport, before=corked.write_kept)
        writer.transport = Rest(corked, transport)
        if hasattr(writer, "protocol"):
            self._protocol, writer.protocol = writer.protocol, Unshared(writer.protocol)
            self._drain = writer.protocol._drain_helper
            if hasattr(_helpers, "websocket_mask") and hasattr(self._protocol, "_paused"):
                self._transport, self._mask = corked, _helpers.websocket_mask

    def put(self, data: bytes | Parts) -> Awaitable[None] | None:
        """Write JSON as a binary frame, which need not be decoded to text first.

        Answers what to await where too much is unwritten; for most frames, that there is nothing to await saves a
        coroutine. Both raise `ConnectionError` and what else aiohttp raises where the connection is lost.
        """
        transport = self._transport
        if transport is None:
            return self._socket.send_frame(bytes(data), WSMsgType.BINARY)
        if transport.is_closing():
            raise ConnectionResetError("the socket is closing")
        # RFC 6455, 5.2 and 5.3: a final binary frame; a client masks, with a key that nobody can foresee.
        size = len(data)
        key = self._next_key()
        if size < 126:
            header, turned = bytes((0x82, 0x80 | size)) + key, key[2:] + key[:2]
        elif size < 65_536:
            header, turned = _header(0x82FE, size, key), key
        else:
            header, turned = b"\x82\xff" + size.to_bytes(8, "big") + key, key[2:] + key[:2]
        # All of it is masked, by the key turned as far as the header is long, and the header put back: one copy.
        frame = _EMPTY.join((header, *data.pieces) if isinstance(data, Parts) else (header, data))
        self._mask(turned, frame)
        frame[: len(header)] = header
        transport.write(frame)
        if self._protocol._paused and transport.get_write_buffer_size() > _FULL:
            unwritten: Awaitable[None] = self._drain()
            return unwritten
        return None


def _seen(drained: asyncio.Future[None]) -> None:
    if not drained.cancelled():
        drained.exception()


def _keys() -> Iterator[bytes]:
    """Masking keys; a thousand of them for one question to the system."""
    while True:
        pool = os.urandom(4_096)
        for start in range(0, 4_096, 4):
            yield pool[start : start + 4]

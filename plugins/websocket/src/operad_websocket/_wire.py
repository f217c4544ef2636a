"""The connection below aiohttp: the size of reads, the unwritten bytes, and the time of writes.

aiohttp reads the frames. This module only uses the public interface of asyncio's transports and protocols.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import perf_counter as _now

from aiohttp import WSMsgType

ENDS = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})
"""The types of aiohttp messages that end a connection."""

_AT_ONCE = 32 * 2**10
"""The maximum number of bytes of a read. All its frames, at most 5,000, are handled in one turn of the loop."""
_WITHIN_LARGE = 256 * 2**10
"""The maximum number of bytes of a read while a large message arrives."""
_CLOSE_BY = 0.0001
"""The interval between frames, in seconds, below which they are written together."""
_TOGETHER = 64 * 2**10
"""The number of bytes above which frames are written immediately."""
_shared = threading.local()


class Wire(asyncio.BufferedProtocol):
    """A protocol that passes received bytes to the protocol of aiohttp, and handles the pausing of writes.

    All connections of a thread read into one buffer, because each read is handled before the next one begins.

    aiohttp does not learn that writing is paused. Its senders would wait for one shared future, and cancelling one
    of them would cancel all.

    Args:
        transport: the asyncio transport of the connection.
        on_growth: receives the size of an unfinished message when it becomes larger than ``counted``.
    """

    def __init__(self, transport: asyncio.Transport, on_growth: Callable[[int], None] | None = None) -> None:
        protocol = transport.get_protocol()
        assert isinstance(protocol, asyncio.Protocol)
        self.transport = transport
        self.silent = 0
        """The number of checks since the last read. The owner of the connection adds 1 at each check."""
        self.unfinished = 0
        """The number of bytes read since `unfinished` was last set to 0."""
        self.counted = 2**63
        self.is_full = False
        """Whether the transport has paused writing."""
        self._protocol = protocol
        self._on_growth = on_growth
        self._writable = asyncio.Event()
        if not hasattr(_shared, "room"):
            _shared.room = memoryview(bytearray(_WITHIN_LARGE))
        self._room: memoryview = _shared.room
        self._some: memoryview = self._room[:_AT_ONCE]
        transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._some if self.unfinished < _AT_ONCE else self._room

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        self.silent = 0
        self.unfinished += nbytes
        if self.unfinished > self.counted and self._on_growth is not None:
            self._on_growth(self.unfinished)
        self._protocol.data_received(bytes(self._room[:nbytes]))

    def eof_received(self) -> bool | None:
        """See `asyncio.BufferedProtocol`."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.set()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self.is_full = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self.is_full = False
        self._writable.set()

    async def drained(self) -> None:
        """Wait until writing is not paused, or the connection is lost."""
        await self._writable.wait()


class Corked:
    """A writer that writes a single frame immediately, and the frames of a burst together.

    A burst is written when the turn of the event loop ends. With many calls in flight, a system call for each
    frame would be most of the cost of a frame.

    Args:
        transport: the transport to write to.
        max_buffer: the number of unwritten bytes above which the connection is aborted.
        on_overflow: called after the connection was aborted for this reason.
    """

    def __init__(
        self, transport: asyncio.WriteTransport, max_buffer: float, on_overflow: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._max_buffer = max_buffer
        self._on_overflow = on_overflow
        self._call_soon = asyncio.get_running_loop().call_soon
        self._kept: list[bytes] = []
        self._size = 0
        self._last = 0.0
        self._is_burst = False
        """Whether the last flush wrote more than one frame."""

    @property
    def unwritten(self) -> int:
        """The number of unwritten bytes."""
        return self._size + self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Write a frame immediately or, in a burst, together with others when the turn of the event loop ends."""
        if not self._kept:
            now = _now()
            is_single = not self._is_burst and now - self._last >= _CLOSE_BY
            self._last = now
            if is_single:
                self._write(data)
                return
            self._call_soon(self.flush)
        self._kept.append(data)
        self._size += len(data)
        if self._size >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write all kept frames; idempotent."""
        kept = self._kept
        if kept:
            self._is_burst = len(kept) > 1
            self._write(b"".join(kept))
            kept.clear()
            self._size = 0

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._max_buffer:
            transport.abort()
            self._on_overflow()

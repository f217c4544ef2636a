"""Writing frames: many small ones in few system calls, each sender waiting for itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from time import perf_counter as _now
from typing import Any

from aiohttp import ClientWebSocketResponse, WSMsgType

try:
    from aiohttp._websocket import helpers as _helpers
except ImportError:  # pragma: no cover  # an aiohttp that has moved it
    _helpers = None  # type: ignore[assignment]  # for "not there"

_CLOSE_BY = 0.0001
"""Seconds: writes that follow each other more quickly are taken for a burst."""
_AT_ONCE = 64 * 2**10
"""Bytes read at once. asyncio makes room for four times as many before each read, which the C library takes from
the system and gives back: three system calls and their page faults for each frame."""


class Corked:
    """A transport that writes at once, but writes a burst together at the end of the turn of the event loop.

    A single call loses no time, and many at once cost one system call instead of one each, and one waking of the
    other side: at 64 in flight that is most of what a frame costs. No more than half of the calls under way
    travel together, though, so that both sides have work at the same time.

    Args:
        transport: what writes.
        under_way: how many calls are under way on this connection.
    """

    def __init__(self, transport: asyncio.WriteTransport, under_way: Callable[[], int]) -> None:
        self._transport = transport
        self._under_way = under_way
        if getattr(transport, "max_size", 0) > _AT_ONCE:
            transport.max_size = _AT_ONCE  # type: ignore[attr-defined]  # of asyncio's own, not of uvloop's
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._write = transport.write
        self._call_soon = asyncio.get_running_loop().call_soon
        self._last = 0.0
        self._is_burst = False
        self._is_due = False
        """Whether `flush` is going to be called."""
        self._later: list[bytes | bytearray] = []

    def write(self, data: bytes | bytearray) -> None:
        """Write now, or at the end of the turn."""
        later, under_way = self._later, self._under_way()
        if not self._is_due:
            now = _now()
            is_single = under_way < 2 and not self._is_burst and now - self._last >= _CLOSE_BY
            self._last = now
            if is_single:
                self._write(data)
                return
            self._is_due = True
            self._call_soon(self.flush)
        later.append(data)
        if 1 < under_way <= 2 * len(later):
            self._write_later()
            self._is_burst = True

    def flush(self) -> None:
        """Write what has been kept; idempotent."""
        self._is_due = False
        self._is_burst = len(self._later) > 1
        self._write_later()

    def _write_later(self) -> None:
        later = self._later
        if later:
            if not self._transport.is_closing():
                self._write(b"".join(later))
            later.clear()

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


_FULL = 64 * 2**10
"""Bytes that wait to be written; above it, whoever sends waits until they are."""


class Writer:
    """Writes the frames of a client's socket.

    Args:
        socket: the socket.
        under_way: how many calls are under way on it.
    """

    def __init__(self, socket: ClientWebSocketResponse, under_way: Callable[[], int]) -> None:
        self._socket = socket
        self._next_key = _keys().__next__
        self._transport: Corked | None = None
        writer = getattr(socket, "_writer", None)
        transport = getattr(writer, "transport", None)
        if writer is None or transport is None:  # an aiohttp that has its writer elsewhere
            return
        writer.transport = Corked(transport, under_way)
        if hasattr(writer, "protocol"):
            self._protocol = writer.protocol = Unshared(writer.protocol)
            if hasattr(_helpers, "websocket_mask") and hasattr(self._protocol, "_paused"):
                self._transport = writer.transport

    async def write(self, data: bytes) -> None:
        """Write JSON as a binary frame, which need not be decoded to text first; wait while too much is unwritten.

        Raises `ConnectionError` and what else aiohttp raises where the connection is lost.
        """
        transport = self._transport
        if transport is None:
            await self._socket.send_frame(data, WSMsgType.BINARY)
            return
        if transport.is_closing():
            raise ConnectionResetError("the socket is closing")
        # RFC 6455, 5.2 and 5.3: a final binary frame; a client masks, with a key that nobody can foresee.
        size = len(data)
        if size < 126:
            header = bytes((0x82, 0x80 | size))
        elif size < 65_536:
            header = b"\x82\xfe" + size.to_bytes(2, "big")
        else:
            header = b"\x82\xff" + size.to_bytes(8, "big")
        key, masked = self._next_key(), bytearray(data)
        _helpers.websocket_mask(key, masked)
        transport.write(b"".join((header, key, masked)))
        if self._protocol._paused and transport.get_write_buffer_size() > _FULL:
            await self._protocol._drain_helper()


def _seen(drained: asyncio.Future[None]) -> None:
    if not drained.cancelled():
        drained.exception()


def _keys() -> Iterator[bytes]:
    """Masking keys; a thousand of them for one question to the system."""
    while True:
        pool = os.urandom(4_096)
        for start in range(0, 4_096, 4):
            yield pool[start : start + 4]

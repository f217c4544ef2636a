"""Writing many small frames in few system calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter as _now
from typing import Any

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
        await asyncio.shield(self._protocol._drain_helper())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

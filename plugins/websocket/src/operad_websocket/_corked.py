"""Writing many small frames in few system calls."""

from __future__ import annotations

import asyncio
from time import perf_counter as _now
from typing import Any

_CLOSE_BY = 0.0001
"""Seconds: writes that follow each other more quickly are taken for a burst."""
_AT_ONCE = 64 * 2**10
"""Bytes read at once. asyncio makes room for four times as many before each read, which the C library takes from
the system and gives back: three system calls and their page faults for each frame."""


class Corked:
    """A transport that writes at once, but writes a burst together at the end of the turn of the event loop.

    A single call loses no time, and many at once cost one system call instead of one each: at 64 in flight that
    is most of what a frame costs. Where the last turn wrote a burst, the first frame of the next one waits for
    the others: alone it would wake the other side for one frame.
    """

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        if getattr(transport, "max_size", 0) > _AT_ONCE:
            transport.max_size = _AT_ONCE  # type: ignore[attr-defined]  # of asyncio's own, not of uvloop's
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._write = transport.write
        self._call_soon = asyncio.get_running_loop().call_soon
        self._last = 0.0
        self._is_burst = False
        self._later: list[bytes | bytearray] = []

    def write(self, data: bytes | bytearray) -> None:
        """Write now, or at the end of the turn."""
        if self._later:
            self._later.append(data)
            return
        now = _now()
        if self._is_burst or now - self._last < _CLOSE_BY:
            self._later.append(data)
            self._call_soon(self.flush)
        else:
            self._write(data)
        self._last = now

    def flush(self) -> None:
        """Write what has been kept; idempotent."""
        later = self._later
        self._is_burst = len(later) > 1
        if later:
            if not self._transport.is_closing():
                self._write(b"".join(later))
            later.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

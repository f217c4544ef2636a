"""Writing many small frames in few system calls."""

from __future__ import annotations

import asyncio
import time
from typing import Any

_CLOSE_BY = 0.0001
"""Seconds: writes that follow each other more quickly are taken for a burst."""


class Corked:
    """A transport that writes at once, but writes a burst together at the end of the turn of the event loop.

    A single call loses no time, and many at once cost one system call instead of one each: at 64 in flight that
    is most of what a frame costs.
    """

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self._later: list[bytes | bytearray] = []

    def write(self, data: bytes | bytearray) -> None:
        """Write now, or at the end of the turn."""
        if self._later:
            self._later.append(data)
            return
        now = time.perf_counter()
        if now - self._last > _CLOSE_BY:
            self._transport.write(data)
        else:
            self._later.append(data)
            self._loop.call_soon(self.flush)
        self._last = now

    def flush(self) -> None:
        """Write what has been kept; idempotent."""
        if self._later and not self._transport.is_closing():
            self._transport.write(b"".join(self._later))
        self._later.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

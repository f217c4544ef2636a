"""Writing many small frames in few system calls."""

from __future__ import annotations

import asyncio
from typing import Any


class Corked:
    """A transport of which only the first write in a turn of the event loop goes out at once.

    What is written later in the same turn goes out together at its end. A single call loses no time, and many at
    once cost one system call instead of one each: at 64 in flight that is most of what a frame costs.
    """

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._loop = asyncio.get_running_loop()
        self._later: list[bytes | bytearray] | None = None

    def write(self, data: bytes | bytearray) -> None:
        """Write now, or at the end of the turn."""
        if self._later is None:
            self._later = []
            self._loop.call_soon(self.flush)
            self._transport.write(data)
        else:
            self._later.append(data)

    def flush(self) -> None:
        """Write what has been kept; idempotent."""
        later, self._later = self._later, None
        if later and not self._transport.is_closing():
            self._transport.write(b"".join(later))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

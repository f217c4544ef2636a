"""The serving of a registry on standard streams, to which only the protocol is written."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.server.stdio import stdio_server

from operad_mcp.server.sdk import Served

MAX_LINE = 64 * 1024 * 1024
"""The maximum size of one received message in bytes."""
_AHEAD = 64
"""The maximum number of lines that are read before they are handled."""


async def serve_stdio(served: Served) -> None:
    """Serve a registry on standard streams until stdin ends, or the task is cancelled."""
    server = served.server()
    with _wires() as (stdin, stdout):
        lines: Any = _Lines(stdin)
        out: Any = anyio.wrap_file(io.TextIOWrapper(stdout, encoding="utf-8", write_through=True))
        async with stdio_server(lines, out) as (read, write):
            await server.run(read, write, server.create_initialization_options())


@contextmanager
def _wires() -> Iterator[tuple[Any, Any]]:
    """Reserve stdin and stdout for the protocol. Other output goes to stderr, and other reads find no input."""
    sys.stdout.flush()
    private_in, private_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    printed, sys.stdout = sys.stdout, sys.stderr
    try:
        # Not closed: a thread may still read them, and their descriptors must not be reused for another file.
        yield os.fdopen(private_in, "rb", closefd=False), os.fdopen(private_out, "wb", buffering=0, closefd=False)
    finally:
        sys.stdout = printed
        os.dup2(private_in, 0)
        os.dup2(private_out, 1)


class _Lines:
    """The lines of a stream, read by a daemon thread, because a read of stdin cannot be cancelled."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)

    def __aiter__(self) -> AsyncIterator[str]:
        threading.Thread(target=self._read, name="mcp-stdin", daemon=True).start()
        return self._each()

    async def _each(self) -> AsyncIterator[str]:
        while line := await self._lines.get():
            self._room.release()
            yield line.decode("utf-8", "replace")

    def _read(self) -> None:
        while True:
            self._room.acquire()
            try:
                line = self._stream.readline(MAX_LINE)
            except (OSError, ValueError):
                line = b""
            try:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            except RuntimeError:  # the loop is closed, so there is no reader
                return
            if not line:
                return

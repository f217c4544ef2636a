"""A NATS server as a test wants it: it introduces itself, answers pings, and keeps what it read."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self


class FakeServer:
    """A server on a free port of 127.0.0.1.

    Args:
        port: 0 for a free one.
        info: fields of its INFO.
    """

    def __init__(self, port: int = 0, **info: Any) -> None:
        self._port = port
        self._info = {"max_payload": 1_048_576, "headers": True, **info}
        self.read: list[bytes] = []
        """What came on each connection."""
        self.reading = asyncio.Event()
        """Clear it to stand still."""
        self.reading.set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """``nats://127.0.0.1:port``."""
        return f"nats://127.0.0.1:{self._port}"

    def say(self, line: bytes) -> None:
        """Send a control line on all connections."""
        for writer in self._writers:
            writer.write(line + b"\r\n")

    async def close(self) -> None:
        """Listen no longer, and end all connections; idempotent."""
        self._server.close()
        self.reading.set()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.read)
        self.read.append(b"")
        self._writers.append(writer)
        writer.write(b"INFO %b\r\n" % json.dumps(self._info).encode())
        try:
            while line := await reader.readline():
                self.read[number] += line
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
                await self.reading.wait()
        except (OSError, ValueError):  # hung up; a message longer than a line may be
            pass
        finally:
            writer.close()

"""One connection for one call: lines of JSON in both directions.

The caller sends one line, the request. The server sends ``{"item": <envelope>}`` for each envelope, and ends with
``{"done": true}`` or ``{"error": {"code": …, "message": …, "details"?: …}}``. Each side can close the connection
earlier to end the call.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import attrs

from operad import CallError, ErrorCode
from operad.wire import from_json, to_json

MAX_LINE = 4 * 1024 * 1024
"""The maximum size of a message, in bytes."""


@attrs.frozen(kw_only=True)
class Request:
    """The request of a caller. `check_options` checks the names and types of its fields."""

    operation: str
    stream: bool = False
    input: Any = None
    timeout_ms: float | None = None
    """The remaining time from the arrival of the request, so that the clocks need not agree."""
    identity: dict[str, Any] | None = None
    parent: str | None = None
    key: str | None = None


class Connection:
    """Messages on a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message and wait while the peer does not read.

        Raises:
            CallError: the message has no JSON form or is too large.
            OSError: the connection is lost.
        """
        line = to_json(message) + b"\n"
        if len(line) > MAX_LINE:
            raise CallError(ErrorCode.PAYLOAD_TOO_LARGE, f"expected at most {MAX_LINE} bytes, got {len(line)}")
        self._writer.write(line)
        await self._writer.drain()

    async def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            OSError: the connection is lost.
            ValueError: the line is not a JSON object, or is too long.
        """
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection was lost")
        message = from_json(line)
        if not isinstance(message, dict):
            raise ValueError("expected a JSON object")
        return message

    async def left(self) -> None:
        """Wait until the peer closes the connection, or sends more although it has nothing to send."""
        with contextlib.suppress(OSError):
            await self._reader.read(1)

    async def close(self) -> None:
        """Close the connection once the peer has read what was sent, or after a second; idempotent."""
        self._writer.close()
        try:
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        except OSError:  # it was lost, or (TimeoutError is an OSError) the peer does not read
            pass
        finally:
            self._writer.transport.abort()

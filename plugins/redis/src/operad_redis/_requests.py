"""The connection that reads requests from the stream of a link."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection

from operad_redis._connection import LOST, disconnect, pack, stop

logger = logging.getLogger("operad.redis")

READ_AT_ONCE = 64
"""The maximum number of requests that one read returns. A stream belongs to one link."""


_DIGITS = 16
"""An upper bound for the number of digits of a time in ms."""


class Requests:
    """A reader of the stream of a link, which remembers the last entry that it has read."""

    def __init__(
        self,
        stream: str,
        receive: Callable[[str, dict[bytes, bytes]], None],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self._stream = stream
        self._receive = receive
        self._on_lost = on_lost
        self._connection: AbstractConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._last = (0, 0)
        self._changed = asyncio.Event()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that is done when the link can receive requests, or has the error of a failed start."""

    def start(self, connection: AbstractConnection) -> None:
        """Start to read on a connection, which the reader then owns."""
        self._connection = connection
        self._task = asyncio.get_running_loop().create_task(self._read(connection))
        self.ready.set_result(None)

    async def seen(self, entry_id: str) -> None:
        """Wait until the entry with this id or a later entry has been read."""
        while self._last < order(entry_id):
            self._changed.clear()
            await self._changed.wait()

    async def _read(self, connection: AbstractConnection) -> None:
        group = ("GROUP", "operad", "link", "COUNT", READ_AT_ONCE, "BLOCK", 0)
        command = pack("XREADGROUP", *group, "STREAMS", self._stream, ">")
        try:
            await connection.send_packed_command(command, check_health=False)
            while True:
                reply = await connection.read_response()
                # The next read is in progress while these requests are handed out.
                await connection.send_packed_command(command, check_health=False)
                for _, entries in reply or ():
                    for entry_id, pairs in entries:
                        name = entry_id.decode()
                        self._last = order(name)
                        if pairs is not None:
                            self._receive(name, dict(zip(pairs[::2], pairs[1::2], strict=True)))
                self._changed.set()
        except LOST as error:
            self._on_lost(error)
        except Exception as error:  # a link that silently stopped reading would look alive
            logger.exception("reading requests failed; the link reconnects")
            self._on_lost(error)

    async def close(self) -> None:
        """Stop reading, and close the connection."""
        if self._task is not None:
            await stop(self._task)
        if self._connection is not None:
            await disconnect(self._connection)


class ServerClock:
    """The clock of the server, which measures how long a request was stored there."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def set(self, now: int) -> None:
        """Set the clock to the current time of the server, in ms since 1970."""
        self._ahead = now - time.monotonic() * 1000

    def since(self, began: int) -> float | None:
        """Return the ms since ``began``, which is in ms since 1970 by the server's clock; None before `set`."""
        return None if self._ahead is None else max(0.0, time.monotonic() * 1000 + self._ahead - began)


def began(entry_id: str, fields: dict[bytes, bytes]) -> int:
    """Return when a request was first dispatched, in ms by the clock of the server."""
    told = fields.get(b"t", b"")
    return int(told) if told.isdigit() and len(told) < _DIGITS else order(entry_id)[0]


def came_to(fields: dict[bytes, bytes]) -> str:
    """Return the operation id of the address at which a request arrived; empty if it cannot be read."""
    try:
        return fields.get(b"o", b"").decode("utf-8", "surrogatepass").removeprefix("op:")
    except UnicodeDecodeError:  # any client on the bus may have written it
        return ""


def order(entry_id: str) -> tuple[int, int]:
    """Return an entry id ``milliseconds-sequence`` as two integers, which order ids by time."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)

"""Connections of redis-py with many commands in flight, one writer, and replies in order."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from operad_calls.transport import protocol

HIGH_WATER = 4 * 1024 * 1024
"""The number of unwritten bytes above which senders wait."""
SMALL = 64 * 1024
"""The size in bytes up to which a command waits only if twice `HIGH_WATER` is unwritten."""
_TOGETHER = 256 * 1024
"""The maximum number of bytes of small commands that are written together."""

LOST = (RedisError, OSError, EOFError)
"""The errors of a connection that is lost, or whose server does not behave like Redis."""


def connections(url: str, options: dict[str, Any]) -> ConnectionPool:
    """Return a pool for the connections to a URL.

    Its connections do not retry, because redis-py would then reconnect silently and miss messages.

    Args:
        url: the URL, with TLS, user, password, database and options of redis-py.
        options: further options of redis-py. Options in the URL take precedence.
    """
    pool = ConnectionPool.from_url(url, **options)
    pool.connection_kwargs.update(
        protocol=2,
        decode_responses=False,
        socket_timeout=None,
        socket_keepalive=True,
        health_check_interval=0,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        retry_on_error=[],
    )
    return pool


Argument = str | bytes | int | protocol.Parts


def pack(*arguments: Argument) -> bytes:
    """Return a command in RESP, as an array of bulk strings."""
    parts: list[bytes | memoryview] = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        if isinstance(argument, protocol.Parts):
            parts += (b"$%d\r\n" % len(argument), *argument.pieces, b"\r\n")
            continue
        data = argument if type(argument) is bytes else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Script:
    """A Lua script, and the digest by which the server knows the script after it was loaded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


class Pipeline:
    """A connection with any number of commands in flight.

    Args:
        connection: an open connection, which the pipeline then owns.
        on_lost: receives the error, once, if the connection is lost before `close`.
    """

    def __init__(self, connection: AbstractConnection, on_lost: Callable[[BaseException], None]) -> None:
        self._connection = connection
        self._on_lost = on_lost
        self._waiting: deque[asyncio.Future[Any] | Callable[[], None] | None] = deque()
        """The future of the reply to each command in flight, or a function to call if it is refused; in order."""
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._write()), loop.create_task(self._read())]

    def post(self, packed: bytes, refused: Callable[[], None] | None = None) -> None:
        """Send a command and ignore its reply. Raises `ConnectionError` if the connection is closed or lost.

        Args:
            packed: the command.
            refused: called if the server refuses the command, or if the connection is lost before the reply.
        """
        self._append(packed, refused)

    def ask(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a command and return the future of its reply. Raises `ConnectionError` if closed or lost."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._append(packed, reply)
        return reply

    async def room(self, size: int) -> None:
        """Wait while more than `HIGH_WATER` bytes are unwritten; for commands up to `SMALL`, twice as many.

        Args:
            size: the size of the command in bytes.
        """
        while not self._room.is_set() and (size > SMALL or self._buffered > 2 * HIGH_WATER):
            await self._room.wait()

    def _append(self, packed: bytes, reply: asyncio.Future[Any] | Callable[[], None] | None) -> None:
        if self._closed:
            raise ConnectionError("the connection to Redis is closed; the command was not sent")
        self._waiting.append(reply)
        self._buffer.append(packed)
        self._buffered += len(packed)
        self._wake.set()
        if self._buffered > HIGH_WATER:
            self._room.clear()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._buffer:
                    await self._connection.send_packed_command(self._next_batch(), check_health=False)
                    if self._buffered <= HIGH_WATER:
                        self._room.set()
        except LOST as error:
            self._lost(error)

    def _next_batch(self) -> bytes:
        """Return the bytes to write next: several small commands, or one large command without a copy."""
        buffer, size, count = self._buffer, 0, 0
        while count < len(buffer) and (not count or size + len(buffer[count]) <= _TOGETHER):
            size += len(buffer[count])
            count += 1
        batch = buffer[0] if count == 1 else b"".join(buffer[:count])
        del buffer[:count]
        self._buffered -= size
        return batch

    async def _read(self) -> None:
        read = self._connection.read_response
        waiting = self._waiting
        try:
            while True:
                try:
                    value = await read()
                except ResponseError as error:
                    reply = waiting.popleft()
                    if callable(reply):
                        reply()
                    elif reply is not None and not reply.done():
                        reply.set_exception(error)
                    continue
                reply = waiting.popleft()
                if reply is not None and not callable(reply) and not reply.done():
                    reply.set_result(value)
        except Exception as error:  # noqa: BLE001  # a damaged stream may hold more replies than there were commands
            self._lost(error)

    def _lost(self, error: BaseException) -> None:
        if not self._closed:
            self._fail(error)
            self._on_lost(error)

    def _fail(self, error: BaseException) -> None:
        self._closed = True
        self._room.set()
        for reply in self._waiting:
            if callable(reply):
                reply()
            elif reply is not None and not reply.done():
                reply.set_exception(error)
                reply.exception()  # retrieved, for those that no longer wait
        self._waiting.clear()

    async def flushed(self) -> None:
        """Wait until the server has replied to all earlier commands. Raises one of `LOST` if it does not."""
        await self.ask(pack("PING"))

    async def close(self) -> None:
        """Close the connection; idempotent. Commands in flight raise `ConnectionError`."""
        self._fail(ConnectionError("the connection to Redis is closed"))
        await stop(*self._tasks)
        await disconnect(self._connection)


async def disconnect(connection: AbstractConnection) -> None:
    """Close a connection in any state, and ignore its errors."""
    with contextlib.suppress(*LOST):
        await connection.disconnect()


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, except the current one, and wait until they have ended."""
    current = asyncio.current_task()
    others = [task for task in tasks if task is not current]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

"""The connection below nats-py's client: messages go straight to their receiver, all else to nats-py's parser."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import ParseResult

from nats import errors
from nats.aio.transport import Transport

Receive = Callable[[bytes, bytes | None, bytes | memoryview, bytes | None], None]
"""Called with subject, reply, data and headers of each message, in the order of the connection. Data that are a
view hold until it returns: the next large message is read to the same place."""

LARGE = 16 * 1024
"""Bytes of a payload from which on it is worth to leave it where it is: it is neither joined nor sliced."""
_AT_ONCE = 64 * 1024
"""Bytes that are read in one turn of the event loop, unless they are of one message."""
_FIRST = 4 * 2**20
"""Bytes of a message for which there is room at once."""
_KEPT = 2**20 + 64
"""Bytes of room that a connection keeps for its next large message: what a server takes by default, and more."""
_LONGEST_LINE = 1024 * 1024
"""Bytes of a control line. Servers of large clusters name all their addresses in one."""
_LONGEST_CLOSE = 1.0
"""Seconds in which what waits to be written may still go out when a connection is closed."""


class _Scratch(threading.local):
    """Where a thread's connections read to: each has copied what it needs before another one reads."""

    def __init__(self) -> None:
        self.bytes = memoryview(bytearray(_AT_ONCE))


_scratch = _Scratch()


class Reader(asyncio.BufferedProtocol):
    """Takes the server's stream apart.

    Of a large message the socket writes into the very bytes that its receiver gets. nats-py's own reader copies
    each message six times.
    """

    def __init__(self, receive: Receive) -> None:
        self.receive: Receive | None = receive
        """``None`` when the connection is given up: nothing of it counts any more."""
        self.lines = bytearray()
        """Control lines for nats-py: whole ones."""
        self.failure: Exception | None = None
        self.is_over = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""
        self._arguments: tuple[bytes, bytes, int] = b"", b"", 0
        self._room = memoryview(b"")
        self._payload: memoryview | None = None
        self._filled = self._size = 0
        self._reading: asyncio.Future[None] | None = None
        self._paused = False
        self._writers: deque[asyncio.Future[None]] = deque()

    # --- what asyncio calls ------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return _scratch.bytes if self._payload is None else self._payload[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """So many bytes are there."""
        if self.is_over:
            return  # what follows an error may be anything
        if self._payload is None:
            self._take(self._rest + bytes(_scratch.bytes[:count]))
            return
        self._filled += count
        if self._filled == len(self._payload):
            payload, self._payload = self._payload, None
            if self._filled == self._size + 2:
                if bytes(payload[self._size :]) == b"\r\n":
                    self._deliver(payload[: self._size])
                else:
                    self._end(errors.ProtocolError())
                if len(self._room) > _KEPT:
                    self._room = memoryview(b"")
            else:
                self._expect(payload)

    def connection_lost(self, failure: Exception | None) -> None:
        """Nothing more comes."""
        self._end(failure)
        if not self.ended.done():
            self.ended.set_result(None)
        for writer in self._writers:
            _wake(writer)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket has taken most of what waited."""
        self._paused = False
        for writer in self._writers:
            _wake(writer)

    # --- the stream --------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        at, last = 0, len(data)
        while at < last:
            end = data.find(b"\r\n", at)
            if end < 0:
                if last - at > _LONGEST_LINE:
                    self._end(errors.ProtocolError())
                    return
                break
            if data.startswith(b"MSG ", at) or data.startswith(b"HMSG ", at):
                size = self._read_arguments(data[at:end])
                if size is None:
                    return
                begin, end = end + 2, end + 2 + size
                if end + 2 > last:
                    if end - last <= LARGE:
                        break
                    self._size = size
                    self._expect(data[begin:])
                    at = last
                    break
                if not data.startswith(b"\r\n", end):  # what follows would be read as something else
                    self._end(errors.ProtocolError())
                    return
                self._deliver(data[begin:end])
            elif end > at:  # an empty line says nothing
                self.lines += data[at : end + 2]
                self._wake_reader()
            at = end + 2
        self._rest = data[at:]

    def _expect(self, begun: bytes | memoryview) -> None:
        """Make room for the rest of a large message; a size that a server claims and never sends takes little."""
        wanted = min(self._size + 2, max(_FIRST, 2 * len(begun)))  # with its line end
        if len(self._room) < wanted:
            self._room = memoryview(bytearray(wanted))
        self._payload = self._room[:wanted]
        self._filled = len(begun)
        self._payload[: self._filled] = begun

    def _read_arguments(self, line: bytes) -> int | None:
        """Note what a message is about; answers its size, ``None`` if that cannot be read."""
        name, *arguments = line.split()
        count = 1 if name == b"MSG" else 2
        sizes = arguments[-count:]
        if len(arguments) - count in (2, 3) and all(size.isdigit() for size in sizes):
            total, headers = int(sizes[-1]), int(sizes[0]) if count == 2 else 0
            if headers <= total:
                self._arguments = arguments[0], arguments[2] if len(arguments) - count == 3 else b"", headers
                return total
        self._end(errors.ProtocolError())
        return None

    def _deliver(self, data: bytes | memoryview) -> None:
        subject, reply, length = self._arguments
        if self.receive is not None:
            headers = bytes(data[:length]) if length else None
            self.receive(subject, reply, data[length:] if length else data, headers)

    def _end(self, failure: Exception | None) -> None:
        self.receive = None
        if failure is not None and not isinstance(failure, OSError | errors.ProtocolError):
            failure = ConnectionAbortedError(repr(failure))  # nats-py connects again after these two alone
        self.failure = self.failure or failure
        self.is_over = True
        self._rest = b""
        self._wake_reader()

    # --- what nats-py asks -------------------------------------------------------------------------

    async def line(self) -> bytes:
        """The next control line; what there is of one when the connection has ended."""
        while b"\n" not in self.lines and not self.is_over:
            await self._more()
        end = self.lines.find(b"\n") + 1 or len(self.lines)
        line = bytes(self.lines[:end])
        del self.lines[:end]
        return line

    async def all_lines(self) -> bytes:
        """All control lines that have come, one at least; none at the end. Raises what it failed with."""
        while not self.lines and not self.is_over:
            await self._more()
        if not self.lines and self.failure is not None:
            raise self.failure
        lines = bytes(self.lines)
        self.lines.clear()
        return lines

    async def _more(self) -> None:
        self._reading = asyncio.get_running_loop().create_future()
        try:
            await self._reading
        finally:
            self._reading = None

    def _wake_reader(self) -> None:
        if self._reading is not None:
            _wake(self._reading)

    async def room(self) -> None:
        """Wait while the socket takes nothing. Raises `ConnectionResetError` when the connection is lost."""
        if self._paused and not self.ended.done():
            # One future for each who waits: to cancel one of them cancels no other.
            writer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._writers.append(writer)
            try:
                await writer
            finally:
                self._writers.remove(writer)
        if self.ended.done():
            raise self.failure or ConnectionResetError("the connection was lost")


class Connection(Transport):
    """A socket as nats-py's client wants it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._reader: Reader | None = None
        self._socket: asyncio.Transport | None = None

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: float) -> None:
        """Connect. Raises `OSError`, `TimeoutError`."""
        loop, reader = asyncio.get_running_loop(), Reader(self._receive)
        async with asyncio.timeout(connect_timeout):
            self._socket, self._reader = await loop.create_connection(lambda: reader, uri.hostname, uri.port)  # type: ignore[arg-type]  # URLs of servers have both

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: float
    ) -> None:
        """Go on with TLS; what came before in plain text is forgotten. Raises `OSError`, `TimeoutError`."""
        assert self._socket is not None
        reader = Reader(self._receive)
        host = uri if isinstance(uri, str) else uri.hostname
        async with asyncio.timeout(connect_timeout):
            secured = await asyncio.get_running_loop().start_tls(
                self._socket, reader, ssl_context, server_hostname=host
            )
        if secured is None:
            raise ConnectionResetError("the connection was lost during the TLS handshake")
        self._socket, self._reader = secured, reader

    def write(self, payload: bytes | bytearray | memoryview) -> None:
        """Write, or buffer what the socket does not take."""
        if self._socket is not None:
            self._socket.write(payload)

    def writelines(self, payload: Sequence[bytes | memoryview]) -> None:
        """Write pieces; the small ones together, large ones as they are."""
        small: list[bytes | memoryview] = []
        for piece in payload:
            if len(piece) <= LARGE:
                small.append(piece)
                continue
            self.write(b"".join(small))
            small.clear()
            self.write(memoryview(piece))  # of which asyncio copies what the socket does not take, and no more
        if small:
            self.write(b"".join(small))

    async def read(self, buffer_size: int) -> bytes:
        """Control lines, of any length; ``b""`` at the end. Raises what the connection failed with."""
        return await self._reader.all_lines() if self._reader is not None else b""

    async def readline(self) -> bytes:
        """The next control line."""
        return await self._reader.line() if self._reader is not None else b""

    async def drain(self) -> None:
        """Wait while the socket takes nothing. Raises `OSError`."""
        if self._reader is not None:
            await self._reader.room()

    def close(self) -> None:
        """Close; what comes meanwhile does not count."""
        if self._reader is not None:
            self._reader.receive = None
        if self._socket is not None:
            self._socket.close()

    async def wait_closed(self) -> None:
        """Return when it is closed. A peer that takes nothing more holds nobody up: it is given a second."""
        if self._reader is None or self._socket is None:
            return
        # Not `wait_for`, which before Python 3.12 forgets that it was cancelled where what it waits for is done.
        await asyncio.wait({self._reader.ended}, timeout=_LONGEST_CLOSE)
        if not self._reader.ended.done():
            self._socket.abort()

    def at_eof(self) -> bool:
        """Whether the server has ended the connection, and all has been read."""
        reader = self._reader
        return reader is None or (reader.is_over and not reader.lines and reader.failure is None)

    def __bool__(self) -> bool:
        return True  # else nats-py makes one of its own


def _wake(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)

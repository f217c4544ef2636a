"""Messages straight from aiohttp's frame parser, without the turn of the event loop that its queue costs.

aiohttp hands messages over through a queue that a task awaits: another turn of the loop, and another look at all
sockets, for each of them. Here the queue is one that passes messages on as they are parsed; what is no message
(close, ping, pong) still comes out of ``receive()``. This leans on names that aiohttp does not promise. Where one
of them is missing, the queue stays aiohttp's own, and messages come out of ``receive()`` as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import ClientWebSocketResponse, WSMsgType, web

logger = logging.getLogger("operad.websocket")

try:
    from aiohttp._websocket.reader import WebSocketDataQueue as Queue
    from aiohttp.http import WebSocketReader as Parser
except ImportError:  # pragma: no cover  # an aiohttp that has moved them
    Queue = Parser = None  # type: ignore[assignment]  # for "not there"

_BINARY, _TEXT = WSMsgType.BINARY, WSMsgType.TEXT  # for each message: to find a member of an enum is not free

Take = Callable[["bytes | str"], None]
"""Takes a message, at once and without waiting."""
_CONTROL = 2**16
"""Bytes of control frames that may wait before reading pauses: aiohttp's own figure."""

ENDS = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})
"""What aiohttp says when a connection is over."""

if Queue is not None:

    class DirectQueue(Queue):
        """Keeps messages until somebody takes them, and none from then on."""

        _take: Take | None = None

        def feed_data(self, data: Any, size: int) -> None:
            """A message or control frame has come."""
            take, kind = self._take, data.type
            if take is None or (kind is not _BINARY and kind is not _TEXT):
                super().feed_data(data, size)
                return
            try:
                take(data.data)
            except Exception:  # the parser, which is C, would lose it
                logger.exception("a message could not be taken")

        def start(self, take: Take) -> None:
            """Pass on what has come, and from now on what comes; what is no message stays for ``receive()``."""
            come = []
            while self._buffer:
                try:
                    self.read().send(None)  # awaits nothing while something is there
                except StopIteration as read:
                    come.append(read.value)
            self._take = take
            for message in come:
                self.feed_data(message, 0)


class DirectResponse(web.WebSocketResponse):
    """A server's socket, whose messages can be taken as they are parsed."""

    _queue: Any = None

    @property
    def _reader(self) -> Any:
        return self._queue

    @_reader.setter
    def _reader(self, queue: Any) -> None:
        # aiohttp is about to make the parser for this queue: from here on no byte is lost to another one.
        if Queue is not None and type(queue) is Queue:
            queue = DirectQueue(queue._protocol, _CONTROL, loop=asyncio.get_running_loop())
        self._queue = queue


@contextmanager
def taking(
    socket: DirectResponse | ClientWebSocketResponse, take: Take, hear: Callable[[], None] | None = None
) -> Iterator[bool]:
    """Have messages taken by ``take`` from now on, and dropped afterwards.

    ``hear`` is called for each piece that comes, so that a large message on a slow line is not taken for silence
    (aiohttp 3.14 and newer). Answers whether all that can be; if not, ``receive()`` has the messages.
    """
    queue = getattr(socket, "_reader", None)
    if Queue is None or not isinstance(queue, DirectQueue):
        yield False
        return
    queue.start(take)
    if hear is not None and hasattr(queue._protocol, "_data_received_cb"):
        queue._protocol._data_received_cb = hear
    try:
        yield True
    finally:
        queue.start(_drop)


def _drop(message: bytes | str) -> None:
    """What comes after the end of a connection concerns nobody."""


def make_direct(socket: ClientWebSocketResponse, max_size: int) -> None:
    """Let `taking` work on a client's socket; right after the connection is made, before anything is read.

    Args:
        socket: the socket.
        max_size: the largest message, in bytes.
    """
    connection = getattr(getattr(socket, "_response", None), "connection", None)
    queue, protocol = getattr(socket, "_reader", None), getattr(connection, "protocol", None)
    if Queue is None or protocol is None or type(queue) is not Queue or queue._buffer:  # or lost already
        return
    direct = DirectQueue(protocol, _CONTROL, loop=asyncio.get_running_loop())
    try:
        parser = Parser(direct, max_size, compress=False, decode_text=False)
    except TypeError:  # aiohttp < 3.14
        parser = Parser(direct, max_size, compress=False)  # type: ignore[call-arg]  # the older signature
    protocol.set_parser(parser, direct)
    socket._reader = direct
    socket._parser = parser

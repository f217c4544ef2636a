"""The door of a hub, which limits the number and time of connections that have not finished their handshake.

Such a connection uses a file descriptor and needs no token. The server of asyncio accepts all of them, and logs a
traceback for each attempt when no descriptor is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket as sockets
import ssl as ssl_module
from collections.abc import Callable
from typing import Any

from operad_calls.transport import Reports
from operad_websocket.config import Limits

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE = 0.2
"""Seconds until the next attempt if no file descriptor is left."""
_BACKLOG = 512


class _Visitor:
    """A connection that has not finished its handshake."""

    __slots__ = ("address", "protocol", "socket", "task", "timer")

    def __init__(self, socket: sockets.socket, address: str) -> None:
        self.socket = socket
        self.address = address
        self.task: asyncio.Task[None] | None = None
        self.protocol: asyncio.BaseProtocol | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        connected = self.task is not None and self.task.done()
        return connected and getattr(self.protocol, "transport", None) is None


class Door:
    """The listening sockets of a hub, and its connections that have not finished their handshake.

    If too many connections wait for their handshake, the one that has waited longest is closed. A normal handshake
    takes milliseconds, so this is unlikely to interrupt one.

    Args:
        make: makes the asyncio protocol of a connection.
        limits: the maximum number of waiting connections, and how long a handshake may take.
        ssl: the TLS context; ``None`` for connections without TLS.
        reports: counts and logs refusals.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        limits: Limits,
        ssl: ssl_module.SSLContext | None,
        reports: Reports,
    ) -> None:
        self._make = make
        self._limits = limits
        self._ssl = ssl
        self._reports = reports
        self._listening: list[sockets.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._visitors: dict[_Visitor, None] = {}
        self._inside: dict[asyncio.BaseProtocol, _Visitor] = {}
        self._of: dict[str, dict[_Visitor, None]] = {}

    @property
    def waiting(self) -> int:
        """The number of connections that have not finished their handshake."""
        self._forget_gone()
        return len(self._visitors)

    async def open(self, host: str, port: int) -> int:
        """Listen on an address and return the port; port 0 takes a free one. Raises `OSError` if that fails."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=sockets.SOCK_STREAM, flags=sockets.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._listening.append(_listen(family, address))
        except OSError:
            await self.close()
            raise
        self._accepting = [loop.create_task(self._accept(listening)) for listening in self._listening]
        return int(self._listening[0].getsockname()[1])

    async def shut(self) -> None:
        """Stop accepting connections; idempotent."""
        accepting, self._accepting = self._accepting, []
        for task in accepting:
            task.cancel()
        if accepting:
            await asyncio.wait(accepting)
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    async def close(self) -> None:
        """Stop accepting connections, and close connections without a finished handshake; idempotent."""
        await self.shut()
        for visitor in tuple(self._visitors):
            self._send_away(visitor)

    def let_in(self, protocol: asyncio.BaseProtocol) -> None:
        """Stop limiting a connection, because its handshake has finished."""
        visitor = self._inside.get(protocol)
        if visitor is not None:
            self._forget(visitor)

    async def _accept(self, listening: sockets.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._reports.warn(
                        "door", f"no connection can be accepted: {error.strerror}; raise LimitNOFILE or ulimit -n"
                    )
                await asyncio.sleep(_PAUSE if error.errno in _EXHAUSTED else 0)  # or the client has left already
                continue
            self._enter(connection, str(address[0]))
            await asyncio.sleep(0)  # so that a flood of them does not delay other work

    def _enter(self, connection: sockets.socket, address: str) -> None:
        loop, limits = asyncio.get_running_loop(), self._limits
        same = self._of.get(address, {})
        if len(same) >= limits.handshakes_per_address or len(self._visitors) >= limits.handshakes:
            self._forget_gone()
        if len(same) >= limits.handshakes_per_address:
            self._turn_out(next(iter(same)), f"limits.handshakes_per_address is {limits.handshakes_per_address}")
        elif len(self._visitors) >= limits.handshakes:
            self._turn_out(next(iter(self._visitors)), f"limits.handshakes is {limits.handshakes}")
        visitor = _Visitor(connection, address)
        self._visitors[visitor] = None
        self._of.setdefault(address, {})[visitor] = None
        visitor.timer = loop.call_later(limits.handshake, self._expire, visitor)
        visitor.task = loop.create_task(self._connect(visitor))

    async def _connect(self, visitor: _Visitor) -> None:
        loop = asyncio.get_running_loop()
        options = {} if self._ssl is None else {"ssl_handshake_timeout": self._limits.handshake}
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol_of(visitor), visitor.socket, ssl=self._ssl, **options
            )
        except (OSError, EOFError):  # no TLS, or gone
            self._forget(visitor)
            visitor.socket.close()
            return

    def _protocol_of(self, visitor: _Visitor) -> asyncio.BaseProtocol:
        protocol = visitor.protocol = self._make()
        if visitor in self._visitors:
            self._inside[protocol] = visitor
        return protocol

    def _turn_out(self, visitor: _Visitor, why: str) -> None:
        self._reports.refuse(
            f"address {visitor.address}",
            f"closed the oldest connection without a finished handshake, from {visitor.address}: {why}",
        )
        self._send_away(visitor)

    def _expire(self, visitor: _Visitor) -> None:
        if visitor.is_gone:
            self._forget(visitor)
        elif visitor in self._visitors:
            seconds = self._limits.handshake
            line = f"disconnected {visitor.address}: it did not finish its handshake within {seconds:g} s"
            self._reports.refuse(f"address {visitor.address}", line)
            self._send_away(visitor)

    def _send_away(self, visitor: _Visitor) -> None:
        self._forget(visitor)
        transport = getattr(visitor.protocol, "transport", None)
        if transport is not None:
            transport.abort()
        elif visitor.task is not None:
            visitor.task.cancel()  # in the middle of its TLS handshake
            visitor.socket.close()

    def _forget_gone(self) -> None:
        """Forget connections that have ended."""
        for visitor in [visitor for visitor in self._visitors if visitor.is_gone]:
            self._forget(visitor)

    def _forget(self, visitor: _Visitor) -> None:
        if visitor.timer is not None:
            visitor.timer.cancel()
        self._visitors.pop(visitor, None)
        if visitor.protocol is not None:
            self._inside.pop(visitor.protocol, None)
        same = self._of.get(visitor.address)
        if same is not None:
            same.pop(visitor, None)
            if not same:
                del self._of[visitor.address]


def _listen(family: int, address: tuple[Any, ...]) -> sockets.socket:
    listening = sockets.socket(family, sockets.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        if family == sockets.AF_INET6:
            with contextlib.suppress(OSError):
                listening.setsockopt(sockets.IPPROTO_IPV6, sockets.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening

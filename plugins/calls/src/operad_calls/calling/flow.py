"""Flow control in bytes, at the calling side.

A request states how many bytes its handler may send without asking (``creditBytes``). For more bytes, the handler
asks (``call.credit`` with ``wantsBytes``). The caller grants them (``totalBytes``) in the order of asking,
while the granted bytes that have not arrived fit into the window of the link. A response that is larger than the
window is granted alone. So large responses slow down, and never fill the buffers of a hub or broker, which would
close the connection with every call on it.

Items that have arrived and are not read use only the window of their own stream, so a slow reader of one stream
delays no other call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from operad_calls.requests import Pending, wake

LEAST, MOST = 1024, 64 * 1024
"""The least and the most bytes of a single response that may arrive without asking."""
FEW = 4
"""The number of concurrent calls that may each get an eighth of the window instead, together half of it."""
_PATIENCE = 2.0
"""Seconds after which a large request is assumed to have arrived although no handler has acknowledged it."""


class Arrivals:
    """The bytes that handlers ask to send to this link. They are granted in the order of asking.

    Args:
        size: the maximum number of granted bytes in flight.
        tell: informs the handler of a request how many bytes it may send.
    """

    def __init__(self, size: int, tell: Callable[[Pending], None]) -> None:
        self._size = size
        self._tell = tell
        self._waiting: dict[Pending, None] = {}  # in the order of asking
        self.in_flight = 0
        """The number of bytes that were granted and have not arrived."""

    def unasked(self, others: int, most: int | None = None) -> int:
        """Return the number of bytes that the handler of a new request may send without asking.

        With the default window, 1,000 requests together may then send 2 to 3 windows, and 10,000 may send 4 to 5.

        Args:
            others: the number of other requests that wait.
            most: the largest result. Default, for single calls: 64 KiB, or an eighth of the window (1 MiB by
                default) while fewer than 4 others wait.
        """
        if most is None:
            most = max(MOST, self._size // 8) if others < FEW else MOST
        share = self._size // 2 // (others + 1)
        if share >= most:
            return most
        return share if share > LEAST else min(most, LEAST)

    def ask(self, pending: Pending) -> bool:
        """Grant the bytes for which a request asks, now or in its turn. Return True if they were granted now."""
        self._waiting[pending] = None
        self._serve()
        return pending not in self._waiting

    def arrived(self, pending: Pending, total: int) -> None:
        """Record the total number of bytes that have arrived for a request."""
        left = max(0, pending.granted - total)
        if left < pending.reserved:
            self.in_flight -= pending.reserved - left
            pending.reserved = left
            self._serve()

    def ended(self, pending: Pending) -> None:
        """Release the bytes that were granted to a request that has ended."""
        self._waiting.pop(pending, None)
        if pending.reserved:
            self.in_flight -= pending.reserved
            pending.reserved = 0
            self._serve()

    def _serve(self) -> None:
        while self._waiting:
            pending = next(iter(self._waiting))
            need = pending.wants - pending.granted
            if self.in_flight and self.in_flight + need > self._size:
                return
            del self._waiting[pending]
            if need > 0:
                self.in_flight += need
                pending.reserved += need
                pending.granted = pending.wants
                self._tell(pending)


class Departures:
    """The large requests in flight, of at most ``size`` bytes together. A larger request is sent alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._in_flight = 0
        self._patience: dict[Pending, asyncio.TimerHandle] = {}
        self.waiting: dict[Pending, tuple[int, asyncio.Future[None]]] = {}
        """Requests that wait for their turn, in order; none of them has been sent."""

    def take(self, pending: Pending, size: int) -> bool:
        """Return True if a request of ``size`` bytes may be sent immediately, and record it as sent."""
        if self.waiting or not self._fits(size):
            return False
        self._take(pending, size)
        return True

    async def enter(self, pending: Pending, size: int) -> None:
        """Wait until a request of ``size`` bytes may be sent, or `forget` is called for it."""
        if self.take(pending, size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[pending] = (size, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self.forget(pending)
            raise

    def forget(self, pending: Pending) -> None:
        """End the wait of a request for its turn, if it waits."""
        if (entry := self.waiting.pop(pending, None)) is not None:
            wake(entry[1])
            self._serve()

    def leave(self, pending: Pending) -> None:
        """Release the bytes of a request that a handler has acknowledged or that has ended; idempotent."""
        if pending.outgoing:
            self._in_flight -= pending.outgoing
            pending.outgoing = 0
            self._patience.pop(pending).cancel()
            self._serve()

    def _fits(self, size: int) -> bool:
        return not self._in_flight or self._in_flight + size <= self._size

    def _take(self, pending: Pending, size: int) -> None:
        self._in_flight += size
        pending.outgoing = size
        self._patience[pending] = asyncio.get_running_loop().call_later(_PATIENCE, self.leave, pending)

    def _serve(self) -> None:
        while self.waiting:
            pending, (size, turn) = next(iter(self.waiting.items()))
            if not self._fits(size):
                return
            del self.waiting[pending]
            if not turn.done():
                self._take(pending, size)
                wake(turn)

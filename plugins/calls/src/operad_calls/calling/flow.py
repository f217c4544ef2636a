"""Flow in bytes, at the calling side: how much of answers and items may be on its way to a link, and of requests
from it.

A request says how many bytes its handler may send unasked (``creditBytes``). For more the handler asks
(``call.credit`` with ``wantsBytes``), and is granted (``totalBytes``) what it asked for in its turn: while the sum
of what was granted and has not arrived is below the link's window, or alone. So large answers slow down; they
never fill the buffers of a hub or broker, which cuts the connection then, with every call on it.

What has arrived and is not read is bounded by each stream's own window: who reads none of one stream holds up no
other call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from operad_calls.requests import Pending, wake

LEAST, MOST = 1024, 64 * 1024
"""How many bytes of a single answer may come unasked, at least and at most."""
_PATIENCE = 2.0
"""Seconds after which a large request counts as arrived although no handler has said that it has it."""


class Arrivals:
    """What may come to a link beyond what may come unasked.

    Args:
        size: how many bytes may be on their way.
        tell: tells the handler of a request what it may send.
    """

    def __init__(self, size: int, tell: Callable[[Pending], None]) -> None:
        self._size = size
        self._tell = tell
        self._waiting: dict[Pending, None] = {}  # in the order of asking
        self.under_way = 0
        """Bytes that were granted and have not arrived."""

    def unasked(self, waiting: int, most: int = MOST) -> int:
        """How many bytes a request may be answered with unasked, when so many others wait.

        All of them together then come to some 2 windows with 1,000 requests, and 3 with 10,000.
        """
        share = self._size // 2 // (waiting + 1)
        if share >= most:
            return most
        return share if share > LEAST else min(most, LEAST)

    def ask(self, pending: Pending) -> bool:
        """Grant what a request wants, now or in its turn; answers whether its handler has been told just now."""
        self._waiting[pending] = None
        self._serve()
        return pending not in self._waiting

    def arrived(self, pending: Pending, total: int) -> None:
        """So many bytes have come for a request, in all."""
        left = max(0, pending.granted - total)
        if left < pending.reserved:
            self.under_way -= pending.reserved - left
            pending.reserved = left
            self._serve()

    def ended(self, pending: Pending) -> None:
        """Nothing more comes for a request."""
        self._waiting.pop(pending, None)
        if pending.reserved:
            self.under_way -= pending.reserved
            pending.reserved = 0
            self._serve()

    def _serve(self) -> None:
        while self._waiting:
            pending = next(iter(self._waiting))
            need = pending.wants - pending.granted
            if self.under_way and self.under_way + need > self._size:
                return
            del self._waiting[pending]
            if need > 0:
                self.under_way += need
                pending.reserved += need
                pending.granted = pending.wants
                self._tell(pending)


class Departures:
    """Large requests that were sent, and of which no handler has said that it has them.

    Args:
        size: how many bytes of them may be on their way.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._under_way = 0
        self._patience: dict[Pending, asyncio.TimerHandle] = {}
        self.waiting: dict[Pending, tuple[int, asyncio.Future[None]]] = {}
        """Requests whose turn has not come, in the order of their turns; none of them has been sent."""

    def take(self, pending: Pending, size: int) -> bool:
        """Whether a request of so many bytes may be sent at once; then it counts as sent."""
        if self.waiting or not self._fits(size):
            return False
        self._take(pending, size)
        return True

    async def enter(self, pending: Pending, size: int) -> None:
        """Wait until a request of so many bytes may be sent, or has ended."""
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
        """A request whose turn has not come is not sent any more; idempotent."""
        if (entry := self.waiting.pop(pending, None)) is not None:
            wake(entry[1])
            self._serve()

    def leave(self, pending: Pending) -> None:
        """A handler has the request, or it has ended; idempotent."""
        if pending.outgoing:
            self._under_way -= pending.outgoing
            pending.outgoing = 0
            self._patience.pop(pending).cancel()
            self._serve()

    def _fits(self, size: int) -> bool:
        return not self._under_way or self._under_way + size <= self._size

    def _take(self, pending: Pending, size: int) -> None:
        self._under_way += size
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

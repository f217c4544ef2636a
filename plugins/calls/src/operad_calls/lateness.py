"""How long a request was on its way, without a common clock: what comes after its deadline must not run."""

from __future__ import annotations

import asyncio
import time
from typing import Any

_PERIOD = 60.0
"""Seconds after which the quickest way of a peer's requests is measured anew: clocks drift, and are set."""
_MAX_PEERS = 10_000
_SETTLING = 1.0
"""Seconds after a standstill in which what comes may have waited for its end."""
_SLACK = 0.25
"""Seconds that a busy loop may be behind without having stood still."""
LONGEST = 1e10
"""Milliseconds: a longer timeout means no timeout to any clock."""
LATEST = 1e15
"""Epoch ms: what lies beyond is no time."""


def overdue(timer: asyncio.TimerHandle | None, loop: asyncio.AbstractEventLoop) -> float:
    """Seconds by which the callback of a timer runs too late: for so long its loop stood still, or was busy.

    Signs of life that came meanwhile are unread: a lease counts up to when the timer was due.
    """
    return 0.0 if timer is None else max(0.0, loop.time() - timer.when())


class Lateness:
    """How late requests are.

    A request says when it has to be over (``deadline``, by its caller's clock) and how long that was when it was
    sent (``timeoutMs``). The difference is when it was sent; how much later than the quickest request of the same
    peer it came, that much later it is. Of a peer whose quickest way is not known yet, how long this process's own
    loop stood still is what can be known.
    """

    def __init__(self) -> None:
        self._shortest: dict[str, tuple[float, float, float]] = {}
        """For each peer the shortest way (ms, of two clocks) in this period and in the last, and since when."""
        self._ticked = time.monotonic()
        self._stood = 0.0
        self._until = 0.0
        self._ahead = time.time() - self._ticked
        """How far the wall clock is ahead of the one that is never set, in seconds."""
        self._set_at: float | None = None

    def tick(self, period: float) -> None:
        """The loop is running: called every ``period`` seconds."""
        now, wall = time.monotonic(), time.time()
        self._look(now, wall, period)
        self._ticked = now
        if abs(wall - now - self._ahead) <= _SLACK:
            self._ahead = wall - now  # clocks are slewed, too

    def _look(self, now: float, wall: float, period: float) -> None:
        behind = now - self._ticked
        if behind > period + _SLACK and behind > (self._stood if now < self._until else 0.0):
            self._stood, self._until = behind, now + _SETTLING
        moved = wall - now - self._ahead
        if not -_SLACK <= moved <= _SLACK:
            self._on_clock_set(moved, now)

    def _on_clock_set(self, moved: float, now: float) -> None:
        """This process's clock was set by so many seconds; or the machine was suspended, which nothing else tells:
        what comes at once may have waited. Then, what was measured by that clock is moved as far."""
        if moved > 0:
            if self._set_at is None:
                self._set_at = now
                self._stood, self._until = moved, now + _SETTLING
            if now < self._set_at + _SETTLING:
                return
        self._set_at = None
        self._ahead += moved
        for peer, (current, last, since) in self._shortest.items():
            self._shortest[peer] = (current + moved * 1000, last + moved * 1000, since)

    def of(self, peer: str, payload: dict[str, Any], now: float, period: float) -> float:
        """Milliseconds that a request is late, at least 0.

        Args:
            peer: who sent it.
            payload: the request.
            now: epoch ms.
            period: of `tick`, in seconds.
        """
        clock = time.monotonic()
        wall = time.time()
        if clock - self._ticked > period + _SLACK or not -_SLACK <= wall - clock - self._ahead <= _SLACK:
            self._look(clock, wall, period)
        stood = self._stood * 1000 if clock < self._until else 0.0
        deadline, timeout = payload.get("deadline"), payload.get("timeoutMs")
        if not isinstance(deadline, (int, float)) or not isinstance(timeout, (int, float)):
            return stood
        # An integer beyond the range of a float would raise below.
        if not (-LATEST <= deadline <= LATEST and -LONGEST <= timeout <= LONGEST):
            return stood
        way = now - (deadline - timeout)
        known = self._shortest.get(peer)
        if known is None:
            if not stood:  # what waited for the end of a standstill tells nothing of the way
                self._keep(peer, (way, way, clock))
            return stood
        current, last, since = known
        if clock - since > _PERIOD:
            self._keep(peer, (way, current, clock))
        elif way < current:
            self._keep(peer, (way, last, since))
        late = way - (current if current < last else last)
        return late if late > 0.0 else 0.0

    def _keep(self, peer: str, measured: tuple[float, float, float]) -> None:
        self._shortest[peer] = measured
        if len(self._shortest) > _MAX_PEERS:
            del self._shortest[next(iter(self._shortest))]

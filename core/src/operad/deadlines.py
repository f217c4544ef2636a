"""Ending what runs in the current task when its time is up, at a fraction of what `asyncio.timeout` costs."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Awaitable, Callable, Generator
from heapq import heapify, heappop, heappush
from math import inf, isnan
from time import time as _now
from types import CoroutineType, coroutine
from typing import Any

from operad.errors import CallError, ErrorCode

_DROPPED = 1_000
"""How many deadlines that nobody waits for are kept at least."""
_RESOLUTION = 1e-6
"""Seconds that a timer may come early."""


class DeadlineExpired(Exception):
    """The time was up before the awaitable was done."""


Entry = list[Any]
"""A deadline of `Deadlines`: when (`loop.time`), its number, what to call; ``None``: it came or was dropped."""


class Deadlines:
    """The deadlines of one event loop, with one timer for all of them: making and cancelling one for each of them
    is what costs, and nearly all are cancelled.

    Args:
        loop: it.
    """

    __slots__ = ("_alarm", "_at", "_context", "_dropped", "_heap", "_number", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._heap: list[Entry] = []
        self._number = itertools.count().__next__
        self._dropped = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._at = inf
        """When the timer comes; early enough for each deadline."""
        self._context = contextvars.Context()  # the timer needs none, and copying the current one is not free

    @property
    def waiting(self) -> int:
        """How many deadlines are to come; without any, a timer that is left waits for nothing."""
        return len(self._heap) - self._dropped

    def add(self, when: float, expire: Callable[[], object]) -> Entry:
        """Call ``expire`` at a time of the loop's clock, unless `drop` is called before."""
        entry = [when, self._number(), expire]
        heappush(self._heap, entry)
        if when < self._at:
            self._arm(when)
        return entry

    def drop(self, entry: Entry) -> None:
        """What this deadline is for has ended; idempotent."""
        if entry[2] is None:
            return
        entry[2] = None  # which may hold an answer of megabytes
        self._dropped += 1
        if self._dropped > _DROPPED and 2 * self._dropped > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapify(self._heap)
            self._dropped = 0

    def _arm(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._at, self._alarm = when, self.loop.call_at(when, self.ring, context=self._context)

    def ring(self) -> None:
        """Call what is due."""
        self._alarm, self._at = None, inf
        due, heap = self.loop.time() + _RESOLUTION, self._heap
        while heap and (heap[0][2] is None or heap[0][0] <= due):
            entry = heappop(heap)
            if entry[2] is None:
                self._dropped -= 1
                continue
            expire, entry[2] = entry[2], None
            expire()
            heap = self._heap
        if heap and self._alarm is None:
            self._arm(heap[0][0])


class _Local(threading.local):
    """Of each thread its own: two event loops cannot be in one thread at the same time."""

    deadlines: Deadlines | None = None


_LOCAL = _Local()


def deadlines_of(loop: asyncio.AbstractEventLoop) -> Deadlines:
    """The deadlines of the running event loop."""
    deadlines = _LOCAL.deadlines
    if deadlines is None or deadlines.loop is not loop:
        deadlines = _LOCAL.deadlines = Deadlines(loop)
    return deadlines


async def until(deadline: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """``await function(*args)``, cancelled when the deadline (epoch ms) comes; not begun if it has passed.

    A cancellation from outside passes through, and wins over an expiry at the same time. What never waits cannot
    be cancelled, and costs no timer.

    Raises:
        DeadlineExpired: the time was up, whatever the awaitable made of its cancellation.
    """
    if deadline / 1000 <= _now():
        raise DeadlineExpired
    work = function(*args)
    if work.__class__ is not CoroutineType:
        work = _awaited(work)
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return done.value
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    if task is None:
        work.close()
        raise RuntimeError("a deadline needs a running asyncio task")
    requested = task.cancelling()
    deadlines = deadlines_of(loop)
    entry = deadlines.add(loop.time() + deadline / 1000 - _now(), task.cancel)
    try:
        result = await _go_on(work, waits_for)
    except BaseException as error:
        if entry[2] is None and task.uncancel() <= requested:
            raise DeadlineExpired from error
        deadlines.drop(entry)
        raise
    if entry[2] is None:  # it came, and the function went on
        if task.uncancel() > requested:
            raise asyncio.CancelledError
        raise DeadlineExpired
    deadlines.drop(entry)
    return result


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


@coroutine
def _go_on(work: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that has begun, and waits for something."""
    while True:
        error: BaseException | None = None
        try:
            yield waits_for
        except BaseException as raised:  # noqa: BLE001  # whatever it is, it is for the coroutine
            error = raised
        if error is None:
            return (yield from work)
        try:  # out here it is handled by nobody but the coroutine, and the context of no error that follows
            waits_for = work.throw(error)
        except StopIteration as done:
            return done.value
        finally:
            error = None  # whose traceback holds this frame


def earlier(deadline: float | None, timeout: float | None) -> float | None:
    """The deadline (epoch ms), or ``timeout`` seconds from now, whichever comes first; ``None``: there is none.

    Raises:
        CallError: ``VALIDATION_ERROR`` for a timeout that is no number of seconds. (NaN in the event loop's
            heap of timers would delay those of everybody else.)
    """
    if timeout is None:
        return deadline
    limit = (_now() + checked_number(timeout, "timeout", "seconds")) * 1000
    return limit if deadline is None else min(limit, deadline)


def checked_number(value: Any, name: str, unit: str) -> float:
    """A time as a float. Raises `CallError` ``VALIDATION_ERROR`` for what is none, NaN included."""
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not isnan(number := float(value)):
            return number
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    message = f"{name}: expected {unit} as a number, got {value!r:.60}"
    raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})

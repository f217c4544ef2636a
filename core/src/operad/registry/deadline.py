"""Ending what runs in the current task when its time is up, at a fraction of what `asyncio.timeout` costs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from math import isnan
from time import time as _now
from typing import Any

from operad.errors import CallError, ErrorCode


class DeadlineExpired(Exception):
    """The time was up before the awaitable was done."""


class _Expiry:
    """What the timer calls; a small class is quicker than a closure that keeps a state."""

    __slots__ = ("expired", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.expired = False

    def __call__(self) -> None:
        self.expired = True
        self.task.cancel()


class _Local(threading.local):
    """Of each thread its own: two event loops cannot be in one context at the same time."""

    def __init__(self) -> None:
        self.context = contextvars.Context()  # the timer needs none, and copying the current one is not free


_LOCAL = _Local()


async def until(deadline: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """``await function(*args)``, cancelled when the deadline (epoch ms) comes; not begun if it has passed.

    A cancellation from outside passes through, and wins over an expiry at the same time.

    Raises:
        DeadlineExpired: the time was up, whatever the awaitable made of its cancellation.
    """
    delay = deadline / 1000 - _now()
    if delay <= 0:
        raise DeadlineExpired
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    if task is None:
        raise RuntimeError("a deadline needs a running asyncio task")
    requested = task.cancelling()
    expiry = _Expiry(task)
    timer = loop.call_at(loop.time() + delay, expiry, context=_LOCAL.context)
    try:
        result = await function(*args)
    except BaseException as error:
        if expiry.expired and task.uncancel() <= requested:
            raise DeadlineExpired from error
        raise
    finally:
        timer.cancel()
    if expiry.expired:
        if task.uncancel() > requested:
            raise asyncio.CancelledError
        raise DeadlineExpired
    return result


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

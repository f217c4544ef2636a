"""Ending what runs in the current task when its time is up, at a fraction of what `asyncio.timeout` costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class DeadlineExpired(Exception):
    """The time was up before the awaitable was done."""


async def within(delay: float, awaitable: Awaitable[T]) -> T:
    """The awaitable's result, if it comes within ``delay`` seconds; else it is cancelled.

    A cancellation from outside passes through, and wins over an expiry at the same time.

    Raises:
        DeadlineExpired: the time was up, whatever the awaitable made of its cancellation.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a deadline needs a running asyncio task")
    requested = task.cancelling()
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(delay, expire)
    try:
        result = await awaitable
    except BaseException as error:
        if expired and task.uncancel() <= requested:
            raise DeadlineExpired from error
        raise
    finally:
        timer.cancel()
    if expired:
        if task.uncancel() > requested:
            raise asyncio.CancelledError
        raise DeadlineExpired
    return result

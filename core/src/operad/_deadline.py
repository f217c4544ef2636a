"""Ending what runs in the current task when its time is up, at a fraction of what `asyncio.timeout` costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any


class DeadlineExpired(Exception):
    """The time was up before the awaitable was done."""


async def until(deadline: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """``await function(*args)``, cancelled when the deadline (epoch ms) comes; not begun if it has passed.

    A cancellation from outside passes through, and wins over an expiry at the same time.

    Raises:
        DeadlineExpired: the time was up, whatever the awaitable made of its cancellation.
    """
    delay = deadline / 1000 - time.time()
    if delay <= 0:
        raise DeadlineExpired
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a deadline needs a running asyncio task")
    requested = task.cancelling()
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    loop = asyncio.get_running_loop()
    timer = loop.call_at(loop.time() + delay, expire)
    try:
        result = await function(*args)
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

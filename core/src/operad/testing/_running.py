"""Running a test's coroutine without any pytest plugin, in bounded time, leaving nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT = 30.0
"""Seconds that one test may take."""
GRACE = 2.0
"""Seconds that tasks get to end after a test."""


def run(main: Coroutine[Any, Any, T], *, timeout: float = LIMIT) -> T:
    """Run a coroutine in an event loop of its own.

    Args:
        main: the body of a test.
        timeout: seconds.

    Raises:
        AssertionError: it does not end in time, or leaves tasks behind that do not end by themselves.
    """

    async def bounded() -> T:
        try:
            async with asyncio.timeout(timeout) as limit:
                result = await main
        except TimeoutError:
            if limit.expired():
                raise AssertionError(f"the test did not end within {timeout:g} s") from None
            raise
        await _nothing_left()
        return result

    return asyncio.run(bounded())


async def _nothing_left() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        _, tasks = await asyncio.wait(tasks, timeout=GRACE)
    assert not tasks, f"left running: {', '.join(sorted(repr(task.get_coro()) for task in tasks))}"

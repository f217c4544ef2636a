"""Run a coroutine as a test without a pytest plugin, in bounded time, leaving nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import Any, TypeVar

from operad_testing._leaks import assert_nothing_pending

T = TypeVar("T")

LIMIT = 60.0
"""Seconds that one test may take."""
GRACE = 2.0
"""Seconds to wait for tasks and timers to end after a test."""


def run(main: Coroutine[Any, Any, T], *, timeout: float = LIMIT) -> T:
    """Run a coroutine in an event loop of its own.

    Args:
        main: the body of a test.
        timeout: seconds.

    Raises:
        AssertionError: it does not end in time, or leaves tasks or timers behind that do not end by themselves.
    """

    async def bounded() -> T:
        try:
            async with asyncio.timeout(timeout) as limit:
                result = await main
        except TimeoutError:
            if limit.expired():
                raise AssertionError(f"the test did not end within {timeout:g} s") from None
            raise
        await assert_nothing_pending(grace=GRACE)
        return result

    return asyncio.run(bounded())


async def pause(seconds: float) -> None:
    """Wait while the event loop runs: in many short sleeps, because a busy machine stalls for longer than one."""
    for _ in range(round(seconds * 100)):
        await asyncio.sleep(0.01)


Body = Callable[..., Coroutine[Any, Any, None]]


def tests_with(arrange: Callable[[Any, Body], None]) -> Callable[[Body], Callable[[Any], None]]:
    """Return a decorator that makes plain tests, which any runner accepts, from coroutine methods of a suite.

    Args:
        arrange: ``arrange(suite, body)`` runs ``body``, the method of that suite, with the resources that it
            prepared.
    """

    def decorate(test: Body) -> Callable[[Any], None]:
        def plain(suite: Any) -> None:
            arrange(suite, partial(test, suite))

        update_wrapper(plain, test)
        del plain.__wrapped__  # type: ignore[attr-defined]  # else pytest takes its parameters for fixtures
        return plain

    return decorate


in_loop = tests_with(lambda _, body: run(body()))
"""Decorator for a test that prepares its resources itself."""

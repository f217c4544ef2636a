"""Run coroutines as tests: with a time limit, with a check for leaks, and without a pytest plugin."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, update_wrapper
from typing import Any, ParamSpec, TypeVar

from operad_testing._leaks import assert_nothing_pending

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LIMIT = 60.0
"""Seconds that one test may take."""
GRACE = 2.0
"""Seconds to wait after a test until its tasks, timers and threads have ended."""


def run(main: Coroutine[Any, Any, T], *, timeout: float = LIMIT) -> T:
    """Run a coroutine in a new event loop, and return its result.

    Args:
        main: the body of a test.
        timeout: seconds that the coroutine may take.

    Raises:
        AssertionError: the coroutine does not end in time, or leaves tasks, timers or threads of
            `asyncio.to_thread` that do not end within `GRACE` seconds.
    """
    threads = _Threads()

    async def bounded() -> T:
        asyncio.get_running_loop().set_default_executor(threads)
        try:
            async with asyncio.timeout(timeout) as limit:
                result = await main
        except TimeoutError:
            if limit.expired():
                raise AssertionError(f"the test did not end within {timeout:g} s") from None
            raise
        await assert_nothing_pending(grace=GRACE)
        return result

    try:
        return asyncio.run(bounded())
    finally:
        threads.assert_ended(GRACE)


class _Threads(ThreadPoolExecutor):
    """An executor for `asyncio.to_thread`. A function that never ends keeps neither test nor process alive."""

    def __init__(self) -> None:
        super().__init__(1)
        self._running: list[threading.Thread] = []

    def submit(self, function: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> Future[R]:
        future: Future[R] = Future()

        def body() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args, **keywords))
            except BaseException as error:  # noqa: BLE001  # the future carries it, as that of a pool does
                future.set_exception(error)

        thread = threading.Thread(target=body, daemon=True)
        self._running = [each for each in self._running if each.is_alive()] + [thread]
        thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do not wait for threads: `assert_ended` waits for them in bounded time."""

    def assert_ended(self, grace: float) -> None:
        """Raise `AssertionError` if a function still runs after ``grace`` seconds."""
        until = time.monotonic() + grace
        for thread in self._running:
            thread.join(max(0.0, until - time.monotonic()))
        for thread in self._running:
            frame = sys._current_frames().get(thread.ident or 0)
            if frame is not None and thread.is_alive():
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise AssertionError(
                    f"a thread still runs {grace:g} s after the test, at {place}. "
                    "A cancellation does not stop the function of asyncio.to_thread: interrupt its work when the "
                    "task that waits gets CancelledError"
                )


async def pause(seconds: float) -> None:
    """Wait for ``seconds`` in short sleeps, so that other tasks also run if a busy machine stalls for a while."""
    for _ in range(round(seconds * 100)):
        await asyncio.sleep(0.01)


Body = Callable[..., Coroutine[Any, Any, None]]


def tests_with(arrange: Callable[[Any, Body], None]) -> Callable[[Body], Callable[[Any], None]]:
    """Return a decorator that turns a coroutine method of a suite into a plain function that any runner can run.

    Args:
        arrange: a function that prepares resources and runs the method with them as arguments. It is called as
            ``arrange(suite, body)``, and ``body`` is the method, bound to the suite.
    """

    def decorate(test: Body) -> Callable[[Any], None]:
        def plain(suite: Any) -> None:
            arrange(suite, partial(test, suite))

        update_wrapper(plain, test)
        del plain.__wrapped__  # type: ignore[attr-defined]  # else pytest takes its parameters for fixtures
        return plain

    return decorate


in_loop = tests_with(lambda _, body: run(body()))
"""Decorator that runs a coroutine method as a test, without arguments."""

"""Deadlines: cancel the work of the current task when its time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from time import time as _now
from types import CoroutineType, coroutine
from typing import Any

from operad.errors import CallError, ErrorCode


class DeadlineExpired(Exception):
    """Raised by `until` if the deadline passes before the function has returned."""


async def until(deadline: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Return ``await function(*args)``, and cancel the function at the deadline (epoch ms).

    If the deadline has already passed, the function is not called.

    `asyncio.timeout` sets and cancels a timer for every call, which costs as much as a call. Most functions called
    here never wait, so the first step runs without a timer, and only a function that waits gets one.

    A cancellation from outside passes through, and takes precedence over an expiry at the same time.

    Raises:
        DeadlineExpired: the deadline passed, even if the function caught its cancellation.
        RuntimeError: the function waits, and the caller does not run in an asyncio task.
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
        raise RuntimeError("a call with a deadline needs a running asyncio task; use asyncio.create_task")
    requested, expired = task.cancelling(), False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = loop.call_later(deadline / 1000 - _now(), expire)
    try:
        result = await _go_on(work, waits_for)
    except BaseException as error:
        if expired and task.uncancel() <= requested:
            raise DeadlineExpired from error
        raise
    finally:
        timer.cancel()
    if expired:  # the function caught its cancellation and returned
        if task.uncancel() > requested:
            raise asyncio.CancelledError
        raise DeadlineExpired
    return result


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


@coroutine
def _go_on(work: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    """Run the rest of a coroutine that has started and waits for ``waits_for``."""
    while True:
        error: BaseException | None = None
        try:
            yield waits_for
        except BaseException as raised:  # noqa: BLE001  # passed to the coroutine
            error = raised
        if error is None:
            return (yield from work)
        try:  # outside the except block, so that the error is not the context of a later one
            waits_for = work.throw(error)
        except StopIteration as done:
            return done.value
        finally:
            error = None  # whose traceback holds this frame


def earlier(deadline: float | None, timeout: float | None) -> float | None:
    """Return the earlier of a deadline and ``timeout`` seconds from now, in epoch ms; ``None`` if neither is set.

    Raises:
        CallError: ``VALIDATION_ERROR`` if the timeout is not a number, or NaN, which would delay all timers of the
            event loop.
    """
    if timeout is None:
        return deadline
    limit = (_now() + checked_number(timeout, "timeout", "seconds")) * 1000
    return limit if deadline is None else min(limit, deadline)


def checked_number(value: Any, name: str, unit: str) -> float:
    """Return a time as a float. Raises `CallError` ``VALIDATION_ERROR`` if it is not a number, or is NaN."""
    try:
        if isinstance(value, (int, float)) and value.__class__ is not bool and value == value:  # NaN is not
            return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    message = f"{name}: expected {unit} as a number, got {value!r:.60}"
    raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})

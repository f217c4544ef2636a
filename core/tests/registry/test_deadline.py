"""Deadlines: what runs in the current task ends when its time is up, and only then."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

import pytest

from core.tests.kit import error_of, registry_of
from operad import CallError, ErrorCode, OperationContext
from operad import deadlines as module
from operad.deadlines import DeadlineExpired, earlier, until


def stubborn(times: int = 1, then: Any = None, at_last: Any = lambda: "done") -> Any:
    """Return a function that waits on, and does something, each time that it is cancelled."""

    async def wait() -> Any:
        for _ in range(times):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                then and then()
        return at_last()

    return wait


pytestmark = pytest.mark.usefixtures("standing_clock")


def soon(seconds: float = 0.02) -> float:
    """A deadline by the clock that stands still."""
    return (module._now() + seconds) * 1000


async def sleep(seconds: float = 60.0) -> str:
    await asyncio.sleep(seconds)
    return "slept"


async def test_a_result_in_time_is_returned() -> None:
    assert await until(soon(60), sleep, 0) == "slept"


async def test_an_expiry_cancels_what_runs_and_leaves_the_task_uncancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(DeadlineExpired):
        await until(soon(), sleep)
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_deadline_that_has_passed_begins_nothing() -> None:
    begun = []

    async def note() -> None:
        begun.append(True)

    with pytest.raises(DeadlineExpired):
        await until(soon(-1), note)
    assert not begun


async def test_an_expiry_counts_even_if_the_cancellation_is_answered_with_a_result_or_another_error() -> None:
    task = asyncio.current_task()
    assert task is not None
    for function in (stubborn(), stubborn(at_last=lambda: 1 / 0)):
        with pytest.raises(DeadlineExpired):
            await until(soon(), function)
        assert task.cancelling() == 0


async def test_a_cancellation_from_outside_wins_over_an_expiry_at_the_same_time() -> None:
    async def both() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            task.cancel()  # while the expiry is on its way

    task = asyncio.create_task(until(soon(), both))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_outside_wins_over_a_result_that_comes_too_late() -> None:
    # Not delivered any more: what was to be cancelled returns.
    task = asyncio.create_task(until(soon(), stubborn(then=lambda: task.cancel())))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_inner_deadline_does_not_end_the_outer_one() -> None:
    async def inner() -> str:
        with pytest.raises(DeadlineExpired):
            await until(soon(), sleep)
        return "still here"

    assert await until(soon(60), inner) == "still here"


async def test_an_enclosing_asyncio_timeout_is_not_taken_for_ours() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await until(soon(60), sleep)


async def test_what_never_waits_takes_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> int:
        return 1

    def refuse(*_: Any) -> None:
        raise AssertionError("a timer was set")

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", refuse)
    assert await until(soon(60), work) == 1


async def test_what_is_no_coroutine_has_a_deadline_too() -> None:
    class Later:
        def __await__(self) -> Any:
            return sleep().__await__()

    future = asyncio.get_running_loop().create_future()
    for function in (Later, lambda: future):
        with pytest.raises(DeadlineExpired):
            await until(soon(), function)

    async def items() -> Any:
        await asyncio.sleep(0)
        yield 1

    assert await until(soon(60), anext, items()) == 1


async def test_an_error_that_comes_while_something_waits_reaches_it_each_time() -> None:
    seen: list[bool] = []
    task = asyncio.create_task(until(soon(60_000), stubborn(3, lambda: seen.append(True))))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    assert await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 30) == ["done"]
    assert len(seen) == 3


async def test_an_error_that_was_dealt_with_is_not_the_context_of_the_next_one() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("dealt with")

    async def handler() -> None:
        with suppress(KeyError):
            await asyncio.ensure_future(work())
        assert sys.exc_info()[1] is None
        raise ValueError("the next one")

    with pytest.raises(ValueError, match="the next one") as caught:
        await until(soon(60), handler)
    assert caught.value.__context__ is None


async def test_a_deadline_of_what_waits_needs_a_task() -> None:
    raised = asyncio.get_running_loop().create_future()

    def outside() -> None:
        try:
            until(soon(5), sleep).send(None)
        except Exception as error:
            raised.set_exception(error)

    asyncio.get_running_loop().call_soon(outside)
    with pytest.raises(RuntimeError, match="needs a running asyncio task"):
        await raised


async def nap(input: Any, context: OperationContext) -> str:
    await asyncio.sleep(0)
    return "awake"


async def test_a_call_that_takes_too_long_times_out_and_names_the_deadline() -> None:
    closed = []

    async def slow(input: Any, context: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    error = await error_of(registry_of(slow=slow).execute("t.slow", timeout=0.02))
    assert error.code == ErrorCode.TIMEOUT
    assert error.details is not None
    assert (error.details["deadline"], closed) == (soon(0.02), [True])


async def test_the_earlier_of_timeout_and_deadline_counts() -> None:
    async def look(input: Any, context: OperationContext) -> Any:
        return context.deadline

    registry = registry_of(look=look)
    for deadline, timeout, counts in ((soon(5), 50, soon(5)), (soon(50), 5, soon(5)), (None, None, None)):
        context = OperationContext(deadline=deadline)
        assert (await registry.execute("t.look", {}, context, timeout=timeout)).data == counts


async def test_a_nested_call_inherits_the_deadline_and_may_only_shorten_it() -> None:
    seen: list[Any] = []

    async def inner(input: Any, context: OperationContext) -> None:
        seen.append(context.deadline)

    async def outer(input: Any, context: OperationContext) -> None:
        await context.env.t.inner({})
        await context.env.t.inner({}, timeout=600)
        await context.env.t.inner({}, timeout=1)
        seen.append(context.deadline)

    await registry_of(inner=inner, outer=outer).execute("t.outer", timeout=30)
    assert seen[0] == seen[1] == seen[3]
    assert seen[2] < seen[0]


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["expiry", "cancellation"])
async def test_an_expiry_or_a_cancellation_ends_nested_calls_inside_out(is_cancelled: bool) -> None:
    begun, ended = asyncio.Event(), []

    async def inner(input: Any, context: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("inner")

    async def outer(input: Any, context: OperationContext) -> None:
        try:
            await context.env.t.inner({})
        finally:
            ended.append("outer")

    registry = registry_of(inner=inner, outer=outer)
    call = asyncio.create_task(registry.execute("t.outer", timeout=None if is_cancelled else 0.02))
    await begun.wait()
    if is_cancelled:
        call.cancel()
    with pytest.raises(asyncio.CancelledError if is_cancelled else CallError) as caught:
        await call
    assert getattr(caught.value, "code", None) == (None if is_cancelled else ErrorCode.TIMEOUT)
    assert ended == ["inner", "outer"]


@pytest.mark.parametrize("timeout", [float("nan"), "5", True, [5], 1j])
async def test_a_timeout_that_is_no_number_of_seconds_is_refused_in_words(timeout: Any) -> None:
    registry = registry_of(nap=nap)
    for call in (registry.execute("t.nap", timeout=timeout), anext(registry.subscribe("t.nap", timeout=timeout))):
        error = await error_of(call, "timeout: expected seconds as a number, got")
        assert error.code == ErrorCode.VALIDATION_ERROR


@pytest.mark.parametrize("deadline", [float("nan"), "tomorrow"])
async def test_a_deadline_that_is_no_time_is_refused_in_words(deadline: Any) -> None:
    with pytest.raises(CallError, match="deadline: expected epoch ms as a number, got"):
        await registry_of(nap=nap).execute("t.nap", context=OperationContext(deadline=deadline))


@pytest.mark.parametrize("timeout", [10**400, float("inf")])
async def test_a_timeout_beyond_all_numbers_is_no_timeout(timeout: float) -> None:
    assert (await registry_of(nap=nap).execute("t.nap", timeout=timeout)).data == "awake"


async def test_a_cancellation_that_comes_with_an_expiry_counts_although_both_were_taken_for_nothing() -> None:
    async def stubborn() -> str:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(2):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "done"
        return "never"

    task = asyncio.ensure_future(until(soon(), stubborn))
    await asyncio.wait({task})
    assert task.cancelled()


def test_a_timeout_that_no_float_can_hold_is_endless_or_over() -> None:
    assert earlier(None, 10**400) == float("inf")
    assert earlier(5.0, -(10**400)) == float("-inf")
    assert earlier(None, None) is None
    assert earlier(5.0, 10**400) == 5.0


async def test_what_has_to_end_now_does_not_begin() -> None:
    with pytest.raises(DeadlineExpired):
        await until(soon(0), pytest.fail, "it has begun")

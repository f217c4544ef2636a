"""Streams: every item through the pipeline, closed at once however they are left, deadlines between items."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from core.tests.kit import data_of, error_of, giving, op, registry_of, streaming
from operad import CallError, ErrorCode, OperationContext, OperationRegistry, Subscription, subscribe
from operad_testing import assert_nothing_pending


def ticks_of(handler: Any, **fields: Any) -> OperationRegistry:
    return registry_of(op("ticks", handler, type="subscription", **fields))


def ticks(handler: Any, **options: Any) -> Subscription:
    """Subscribe to a handler."""
    return ticks_of(handler).subscribe("t.ticks", **options)


async def reading(ticker: Ticker) -> tuple[Subscription, asyncio.Task[tuple[list[Any], int]]]:
    """Return a subscription and the task that waits for its first item."""
    subscription = ticks(ticker)
    reader = asyncio.create_task(read(subscription))
    while not ticker.made:
        await asyncio.sleep(0)
    return subscription, reader


class Ticker:
    """A subscription handler that tells what happened to it."""

    def __init__(self, *, items: int = 1_000_000, pause: float = 0.0, stubborn: bool = False) -> None:
        self.items = items
        self.pause = pause
        self.stubborn = stubborn
        self.closed = 0
        self.made = 0

    async def __call__(self, input: Any, context: OperationContext) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.items):
                self.made += 1
                try:
                    await asyncio.sleep(self.pause)
                except asyncio.CancelledError:
                    if not self.stubborn:
                        raise
                yield number
        finally:
            await asyncio.sleep(0)  # closing may take its time
            self.closed += 1


async def read(subscription: Subscription) -> tuple[list[Any], int]:
    """Return the items, and how often this task was cancelled meanwhile."""
    seen = [envelope async for envelope in subscription]
    task = asyncio.current_task()
    assert task is not None
    await asyncio.sleep(0)
    return seen, task.cancelling()


async def settled(ticker: Ticker) -> None:
    for _ in range(10):
        if ticker.closed:
            return
        await asyncio.sleep(0)
    raise AssertionError("the handler is still open")


async def test_a_stream_yields_envelopes_through_the_pipeline_and_ends() -> None:
    ticker = Ticker(items=3)
    registry = ticks_of(ticker, output_schema={"type": "string"})
    envelopes = [envelope async for envelope in registry.subscribe("t.ticks")]
    assert [envelope.data for envelope in envelopes] == ["0", "1", "2"]
    assert {envelope.meta.operation_id for envelope in envelopes} == {"t.ticks"}
    assert ticker.closed == 1


async def test_subscribing_to_a_query_yields_its_one_envelope() -> None:
    registry = registry_of(op("one", giving(1), type="query"))
    assert await data_of(registry.subscribe("t.one", timeout=5)) == [1]
    assert await data_of(subscribe(registry, "t.one")) == [1]


async def test_a_handler_may_return_an_async_iterator() -> None:
    ticker = Ticker(items=2)

    async def handler(input: Any, context: Any) -> Any:
        return ticker(input, context)

    assert await data_of(ticks(handler)) == [0, 1]
    assert ticker.closed == 1


async def test_break_closes_the_handler_at_once() -> None:
    ticker = Ticker()
    gc.disable()  # not when collected
    try:
        async for envelope in ticks(ticker):
            if envelope.data == 3:
                break
        await settled(ticker)
    finally:
        gc.enable()
    assert ticker.made == 4


async def test_an_exception_in_the_loop_body_closes_the_handler() -> None:
    ticker = Ticker()
    with suppress(ZeroDivisionError):
        async for _ in ticks(ticker):
            raise ZeroDivisionError
    await settled(ticker)


async def test_break_within_async_with_closes_once_and_waits_for_it() -> None:
    ticker = Ticker()
    async with ticks(ticker) as subscription:
        async for _ in subscription:
            break
    assert ticker.closed == 1
    await assert_nothing_pending()


async def test_aclose_is_idempotent_and_a_closed_stream_has_ended() -> None:
    ticker = Ticker()
    subscription = ticks(ticker)
    assert (await anext(subscription)).data == 0
    await asyncio.gather(subscription.aclose(), subscription.aclose())
    await subscription.aclose()
    assert ticker.closed == 1
    assert [envelope async for envelope in subscription] == []


async def test_a_stream_that_nobody_read_can_be_closed_or_dropped() -> None:
    ticker = Ticker()
    await ticks(ticker).aclose()
    ticks(ticker)
    assert ticker.made == 0


async def test_the_first_item_of_a_loop_that_nobody_keeps() -> None:
    for first in (anext, lambda subscription: anext(aiter(subscription))):
        ticker = Ticker()
        assert (await first(ticks(ticker))).data == 0
        await settled(ticker)


@pytest.mark.parametrize(
    "stubborn", [False, True], ids=["", "though the handler makes an item of its cancellation"]
)
async def test_aclose_from_another_task_ends_the_loop_of_the_reader(stubborn: bool) -> None:
    ticker = Ticker(pause=60, stubborn=stubborn)
    subscription, reader = await reading(ticker)
    await asyncio.gather(subscription.aclose(), subscription.aclose())
    assert ticker.closed == 1
    assert await reader == ([], 0)


@pytest.mark.parametrize("is_closed", [False, True], ids=["", "while it is closed"])
async def test_a_reader_that_is_cancelled_closes_the_handler_and_stays_cancelled(is_closed: bool) -> None:
    ticker = Ticker(pause=60)
    subscription, reader = await reading(ticker)
    closing = asyncio.create_task(subscription.aclose() if is_closed else asyncio.sleep(0))
    await asyncio.sleep(0)
    reader.cancel()
    await closing
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert ticker.closed == 1


async def test_two_readers_at_once_are_refused() -> None:
    subscription, reader = await reading(Ticker(pause=60))
    with pytest.raises(RuntimeError, match="another task"):
        await anext(subscription)
    await subscription.aclose()
    assert await reader == ([], 0)


async def test_an_error_ends_the_stream_as_a_call_error() -> None:
    subscription = ticks(streaming(1, ValueError("broken")))
    assert (await anext(subscription)).data == 1
    with pytest.raises(CallError, match="EXECUTION_ERROR: ValueError: broken"):
        await anext(subscription)
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_access_and_input_are_checked_when_the_first_item_is_asked_for() -> None:
    registry = ticks_of(Ticker(), access_control={"required_scopes": ["s"]}, input_schema={"type": "object"})
    for id, input, trusted, code in (
        ("t.ticks", {}, False, "ACCESS_DENIED"),
        ("t.ticks", [], True, "VALIDATION_ERROR"),
        ("t.nothing", {}, False, "OPERATION_NOT_FOUND"),
    ):
        with pytest.raises(CallError, match=code):
            await anext(registry.subscribe(id, input, OperationContext(trusted=trusted)))


async def read_into(seen: list[Any], subscription: Subscription) -> None:
    while True:
        seen.append((await anext(subscription)).data)


async def test_the_timeout_bounds_the_wait_for_each_item_and_not_the_whole() -> None:
    async def slowing(input: Any, context: Any) -> AsyncIterator[int]:
        for number in range(4):
            await asyncio.sleep(0.04)
            yield number
        await asyncio.sleep(60)

    for seconds in (0.12, 1.0, 5.0):
        seen: list[Any] = []
        error = await error_of(read_into(seen, ticks(slowing, timeout=seconds)))
        if len(seen) == 4:  # on a busy machine one item may take long
            break
    assert seen == [0, 1, 2, 3]
    assert error.code == ErrorCode.TIMEOUT
    assert error.details is not None
    assert set(error.details) == {"deadline"}


async def test_the_consumer_may_take_its_time_between_items() -> None:
    for seconds in (0.05, 1.0, 5.0):
        seen: list[Any] = []
        try:
            async for envelope in ticks(Ticker(items=2), timeout=seconds):
                seen.append(envelope.data)
                await asyncio.sleep(2 * seconds)
        except CallError:  # on a busy machine an item that is there may take long
            continue
        break
    assert seen == [0, 1]


async def test_the_deadline_of_the_context_bounds_the_whole() -> None:
    for seconds in (0.06, 1.0, 5.0):
        ticker = Ticker(pause=0.01)
        context = OperationContext(deadline=(time.time() + seconds) * 1000)
        error = await error_of(data_of(ticks(ticker, context=context)))
        if ticker.made:  # on a busy machine its time may be up before it begins
            break
    assert (error.code, ticker.closed) == (ErrorCode.TIMEOUT, 1)


async def test_the_handler_s_code_runs_in_the_task_of_the_reader() -> None:
    """Otherwise a handler could not hold a task group or a timeout across its items."""
    tasks = set()

    async def grouped(input: Any, context: Any) -> AsyncIterator[int]:
        async with asyncio.timeout(60):
            for number in range(3):
                tasks.add(asyncio.current_task())
                yield number

    async with ticks(grouped) as subscription:
        for _ in range(2):
            await anext(subscription)
    assert tasks == {asyncio.current_task()}


async def test_a_subscription_that_is_being_closed_has_ended() -> None:
    closing, may_close = asyncio.Event(), asyncio.Event()

    async def items() -> AsyncGenerator[Any, None]:
        try:
            yield 0
        finally:
            closing.set()
            await may_close.wait()

    subscription = Subscription(items())
    await anext(subscription)
    task = asyncio.create_task(subscription.aclose())
    await closing.wait()
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)
    may_close.set()
    await task


async def test_a_subscription_can_be_made_of_any_stream_of_envelopes() -> None:
    async def none() -> AsyncGenerator[Any, None]:
        return
        yield

    async with Subscription(none()) as subscription:
        assert [item async for item in subscription] == []

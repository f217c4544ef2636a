"""Nothing but a result or a `CallError` comes out of a call, whatever a handler raises or returns."""

import asyncio
import gc
import math
import weakref
from contextlib import suppress

import pytest

from operad import (
    CallError,
    CallHandler,
    ErrorCode,
    InProcessTransport,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
)
from plugins.calls.tests.parts import Lone, error_of


class Odd(BaseException):
    """No `Exception`."""


class Speechless(Exception):
    """Cannot be told."""

    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


def circle():
    made = []
    made.append(made)
    return made


def deep():
    made = []
    for _ in range(100_000):
        made = [made]
    return made


RAISED = [
    StopIteration(1),
    StopAsyncIteration(),
    GeneratorExit(),
    asyncio.CancelledError(),
    Odd("x"),
    BaseExceptionGroup("several", [Odd("y")]),
    RecursionError(),
    MemoryError(),
    TimeoutError(),
    CallError("X", "details that are no JSON", {"a": object()}),
    CallError("\ud800", "\ud800", {"a": "\ud800"}),
    CallError("X", "in a circle", {"a": circle()}),
    CallError("X", "no number", math.nan),
]
RETURNED = [
    math.nan,
    {1},
    circle(),
    deep(),
    "\ud800",
    {"\udfff": 1},
    10**5000,
    {1: 2},
    object(),
    [object()],
    int,
    1j,
]


def registry():
    made = OperationRegistry()

    async def fail(input, context):
        raise RAISED[input] if input < len(RAISED) else Speechless()

    async def give(input, context):
        return RETURNED[input]

    async def fail_later(input, context):
        yield 1
        raise RAISED[input] if input < len(RAISED) else Speechless()

    async def give_later(input, context):
        yield 1
        yield RETURNED[input]

    async def cancel(input, context):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    for function, type_ in (
        (fail, "query"),
        (give, "query"),
        (cancel, "query"),
        (fail_later, "subscription"),
        (give_later, "subscription"),
    ):
        made.register(OperationSpec(namespace="odd", name=function.__name__, type=type_), function)
    return made


async def items(calls, operation_id, input):
    return [item.data async for item in calls.subscribe(operation_id, input, timeout=10)]


@pytest.mark.parametrize("strict", [False, True], ids=["handed over", "as JSON"])
async def test_whatever_a_handler_raises_is_a_call_error(strict):
    """Also what ends tasks, generators and loops elsewhere; and the handler serves on."""
    transport = InProcessTransport(strict=strict)
    async with CallHandler(registry(), transport) as handler, PendingRequestMap(transport) as calls:
        for number in range(len(RAISED) + 1):
            with pytest.raises(CallError):
                await calls.call("odd.fail", number, timeout=10)
            with pytest.raises(CallError):
                await items(calls, "odd.fail_later", number)
        with pytest.raises(CallError):
            await calls.call("odd.cancel", timeout=10)
        assert (calls.pending, handler.active) == (0, 0)


async def test_whatever_a_handler_returns_is_a_result_or_a_call_error():
    """What has no JSON form is refused, in an answer and in the middle of a stream."""
    transport = InProcessTransport(strict=True)
    async with CallHandler(registry(), transport) as handler, PendingRequestMap(transport) as calls:
        for number in range(len(RETURNED)):
            with pytest.raises(CallError, match="SERIALIZATION_ERROR"):
                await calls.call("odd.give", number, timeout=10)
            with pytest.raises(CallError, match="SERIALIZATION_ERROR"):
                await items(calls, "odd.give_later", number)
        assert (calls.pending, handler.active) == (0, 0)


async def test_whatever_is_asked_with_is_refused_before_it_is_sent():
    """An input that has no JSON form, and an id that no address can have."""
    transport = InProcessTransport(strict=True)
    async with CallHandler(registry(), transport), PendingRequestMap(transport) as calls:
        for value in RETURNED:
            if value not in ({1}, {1: 2}):  # these are converted
                with pytest.raises(CallError, match="SERIALIZATION_ERROR"):
                    await calls.call("odd.cancel", value, timeout=10)
        for operation_id in ("", "\ud800.x", "a b.\x00\r\n", "a." + "x" * 100_000):
            with pytest.raises(CallError):
                await calls.call(operation_id, timeout=10)
        assert calls.pending == 0


async def test_a_call_that_was_cancelled_goes_at_once_and_not_when_the_collector_comes() -> None:
    """A thousand that are given up together would be kept, with what they hold."""

    async def send():
        return "inbox:nobody"

    async with PendingRequestMap(Lone(send)) as calls:
        gc.collect()
        gc.disable()
        try:
            task = asyncio.create_task(calls.call("a.wait"))
            await asyncio.sleep(0)
            kept = weakref.ref(task)
            task.cancel()
            await asyncio.wait({task})
            del task
            await asyncio.sleep(0)
            assert kept() is None
        finally:
            gc.enable()


async def test_a_transport_that_swallows_a_cancellation_holds_no_call_beyond_its_deadline():
    """As one that takes it for its own."""

    async def swallow():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)

    async with PendingRequestMap(Lone(swallow)) as calls:
        assert (await error_of(calls.call("t.op", timeout=0.05))).code == ErrorCode.TIMEOUT
        assert asyncio.current_task().cancelling() == 0
        assert calls.pending == 0

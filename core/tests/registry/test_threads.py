"""Plain functions as handlers: worker threads, generators in them, and calls made from them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from core.tests.kit import data_of, echo, error_of, op, registry_of, spec, until
from operad import CallError, ErrorCode, Identity, Operation, OperationContext, OperationRegistry
from operad.registry.workers import _close
from operad_testing import assert_nothing_pending

LIMIT = 30.0


async def test_a_plain_function_runs_in_a_worker_thread_and_the_loop_goes_on() -> None:
    gate = threading.Event()

    def wait(input: Any, context: Any) -> str:
        assert gate.wait(LIMIT)
        return threading.current_thread().name

    async with registry_of(f=wait) as registry:
        call = asyncio.create_task(registry.execute("t.f"))
        await asyncio.sleep(0.01)
        gate.set()  # the loop could not do this if the function blocked it
        assert (await call).data.startswith("operad")


async def test_blocking_false_runs_it_in_the_loop() -> None:
    here = Operation(spec(), lambda _, context: threading.get_ident(), blocking=False)
    assert (await registry_of(here).execute("t.op")).data == threading.get_ident()


async def test_a_plain_function_may_return_an_awaitable() -> None:
    async with registry_of(f=lambda _, context: echo(3, context)) as registry:
        assert (await registry.execute("t.f")).data == 3


async def test_context_variables_reach_the_thread() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    async with registry_of(f=lambda _, context: variable.get()) as registry:
        variable.set("seen")
        assert (await registry.execute("t.f")).data == "seen"


async def test_as_many_functions_run_at_once_as_the_registry_allows() -> None:
    running = most = 0
    lock = threading.Lock()

    def work(input: Any, context: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    async with registry_of(max_threads=2, f=work) as registry:
        await asyncio.gather(*(registry.execute("t.f") for _ in range(8)))
    assert most <= 2
    with pytest.raises(ValueError, match="max_threads"):
        OperationRegistry(max_threads=0)


async def test_stop_iteration_of_a_plain_function_is_an_error_and_no_hang() -> None:
    async with registry_of(f=lambda _, context: next(iter(()))) as registry:
        error = await error_of(asyncio.wait_for(registry.execute("t.f"), LIMIT), "StopIteration")
        assert error.code == ErrorCode.EXECUTION_ERROR


async def test_a_call_ends_on_time_and_the_function_can_look(standing_clock: float) -> None:
    looked = threading.Event()

    def work(input: Any, context: OperationContext) -> None:
        while not context.cancelled:
            time.sleep(0.002)
        looked.set()

    async with registry_of(f=work) as registry:
        with pytest.raises(CallError, match="^TIMEOUT"):
            await registry.execute("t.f", timeout=0.02)
        await until(looked.is_set)


async def test_a_function_that_waits_for_a_thread_is_never_begun_when_its_call_ends() -> None:
    gate = threading.Event()
    begun: list[str] = []

    def first(input: Any, context: Any) -> None:
        begun.append("first")
        gate.wait(LIMIT)

    def second(input: Any, context: Any) -> None:
        begun.append("second")

    async with registry_of(max_threads=1, first=first, second=second) as registry:
        holding = asyncio.create_task(registry.execute("t.first"))
        await until(lambda: begun)
        with pytest.raises(CallError):
            await registry.execute("t.second", timeout=0.01)
        gate.set()
        await holding
    assert begun == ["first"]


# --- call_sync ---------------------------------------------------------------------------------------


async def test_call_sync_calls_another_operation_as_env_does() -> None:
    async def inner(input: Any, context: OperationContext) -> Any:
        return context.parent_request_id, context.identity, context.trusted

    def outer(input: Any, context: OperationContext) -> Any:
        return context.call_sync("t.inner", {}).data, context.request_id

    guarded = op("inner", inner, access_control={"required_scopes": ["never"]})
    async with registry_of(guarded, outer=outer) as registry:
        ann = OperationContext(identity=Identity("ann"))
        (parent, identity, trusted), request_id = (await registry.execute("t.outer", {}, ann)).data
        assert (parent, identity, trusted) == (request_id, Identity("ann"), True)


async def test_call_sync_raises_the_error_of_the_call() -> None:
    def outer(input: Any, context: OperationContext) -> str:
        with pytest.raises(CallError) as caught:
            context.call_sync("no.such")
        return caught.value.code

    async with registry_of(f=outer) as registry:
        assert (await registry.execute("t.f")).data == "OPERATION_NOT_FOUND"


async def test_what_call_sync_called_is_cancelled_with_the_call_and_later_calls_are_refused() -> None:
    begun: list[str] = []
    ended: list[str] = []
    codes: list[str] = []

    async def inner(input: Any, context: Any) -> None:
        begun.append("inner")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("inner")

    def outer(input: Any, context: OperationContext) -> None:
        for _ in range(2):
            try:
                context.call_sync("t.inner")
            except CallError as error:
                codes.append(error.code)

    async with registry_of(inner=inner, outer=outer) as registry:
        task = asyncio.create_task(registry.execute("t.outer"))
        await until(lambda: begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: ended and len(codes) == 2)
        assert (codes, ended) == (["ABORTED", "ABORTED"], ["inner"])
        await assert_nothing_pending()


async def test_call_sync_in_the_event_loop_is_refused_rather_than_waiting_for_itself() -> None:
    async def outer(input: Any, context: OperationContext) -> None:
        context.call_sync("t.f")

    def plain(input: Any, context: OperationContext) -> Any:
        return outer(input, context)

    async with registry_of(outer=outer, plain=plain) as registry:
        for name in ("outer", "plain"):
            with pytest.raises(CallError, match=r"context\.env"):
                await registry.execute(f"t.{name}")


# --- generators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [None, False], ids=["in threads", "in the loop"])
async def test_a_plain_generator_is_a_stream_of_steps_and_closed_where_it_runs(blocking: bool | None) -> None:
    stepped: set[int] = set()
    closed: list[int] = []

    def count(input: Any, context: Any) -> Iterator[int]:
        try:
            for number in range(input["to"]):
                stepped.add(threading.get_ident())
                yield number
        finally:
            closed.append(threading.get_ident())

    async with registry_of(Operation(spec("f", type="subscription"), count, blocking=blocking)) as registry:
        assert await data_of(registry.subscribe("t.f", {"to": 4})) == [0, 1, 2, 3]
        assert (await registry.execute("t.f", {"to": 4})).data == 0
        async for envelope in registry.subscribe("t.f", {"to": 100}):
            if envelope.data == 2:  # the reader leaves early
                break
        await until(lambda: len(closed) == 3)
    if blocking is False:
        assert stepped == {*closed} == {threading.get_ident()}
    else:
        assert threading.get_ident() not in stepped | {*closed}


async def test_a_generator_that_is_in_a_step_is_closed_when_the_step_ends(standing_clock: float) -> None:
    gate = threading.Event()
    closed = threading.Event()

    def slow(input: Any, context: Any) -> Iterator[int]:
        try:
            gate.wait(LIMIT)
            yield 1
        finally:
            closed.set()

    async with registry_of(op("f", slow, type="subscription")) as registry:
        with pytest.raises(CallError, match="^TIMEOUT"):
            await anext(registry.subscribe("t.f", timeout=0.02))
        assert not closed.is_set()
        gate.set()
        await until(closed.is_set)


async def test_an_error_in_a_plain_generator_ends_the_stream_with_it() -> None:
    def fail(input: Any, context: Any) -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    async with registry_of(op("f", fail, type="subscription")) as registry:
        subscription = registry.subscribe("t.f")
        assert (await anext(subscription)).data == 1
        with pytest.raises(CallError, match="no more"):
            await anext(subscription)


async def test_a_registry_that_is_closed_ends_its_threads_and_begins_nothing_that_waits_for_one() -> None:
    gate, ran = threading.Event(), []

    def wait(input: Any, context: Any) -> bool:
        ran.append((input, threading.current_thread()))
        return gate.wait(LIMIT)

    registry = registry_of(max_threads=1, f=wait)
    calls = [asyncio.create_task(registry.execute("t.f", number)) for number in range(2)]
    await until(lambda: ran)
    await registry.aclose()
    with pytest.raises(CallError, match="ABORTED"):
        await calls[1]
    gate.set()
    assert (await calls[0]).data is True
    ((first, thread),) = ran
    thread.join(LIMIT)
    assert (first, thread.is_alive()) == (0, False)


def test_what_a_generator_raises_as_it_is_closed_is_raised() -> None:
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("mine")

    generator: Any = stubborn()
    next(generator)
    with pytest.raises(ValueError, match="mine"):
        _close(generator)


def nesting() -> OperationRegistry:
    """Plain functions that call plain functions: directly, through an async one, several at once, in a chain."""

    def outer(number: int, context: OperationContext) -> int:
        return int(context.call_sync("t.plain", number).data)

    async def fan(number: int, context: OperationContext) -> int:
        found = await asyncio.gather(*(context.env.t.plain(number) for _ in range(3)))
        return sum(envelope.data for envelope in found)

    def through(number: int, context: OperationContext) -> int:
        return int(context.call_sync("t.fan", number).data)

    def chain(number: int, context: OperationContext) -> int:
        return number and 1 + int(context.call_sync("t.chain", number - 1).data)

    handlers = {"outer": outer, "fan": fan, "through": through, "chain": chain}
    return registry_of(max_threads=4, plain=lambda number, context: number, **handlers)


@pytest.mark.parametrize("count", [4, 32, 64, 200])
@pytest.mark.parametrize(("name", "factor"), [("t.outer", 1), ("t.through", 3)])
async def test_plain_functions_that_call_plain_functions_end_however_many_run(
    count: int, name: str, factor: int
) -> None:
    async with nesting() as registry, asyncio.timeout(LIMIT):
        calls = (registry.execute(name, number) for number in range(count))
        results = await asyncio.gather(*calls, registry.execute("t.plain", -1))
        assert [result.data for result in results] == [*(factor * number for number in range(count)), -1]
    await assert_nothing_pending()


async def test_a_chain_of_plain_functions_may_be_longer_than_the_pool() -> None:
    async with nesting() as registry, asyncio.timeout(LIMIT):
        assert (await registry.execute("t.chain", 60)).data == 60


async def test_a_nested_plain_function_uses_a_free_thread_so_that_its_timeout_holds() -> None:
    gate = threading.Event()

    def wait(input: Any, context: Any) -> None:
        assert gate.wait(LIMIT)

    def outer(input: Any, context: OperationContext) -> str:
        with pytest.raises(CallError) as caught:
            context.call_sync("t.wait", timeout=0.05)
        return caught.value.code

    async with registry_of(max_threads=2, wait=wait, outer=outer) as registry:
        try:
            assert (await registry.execute("t.outer")).data == "TIMEOUT"
        finally:
            gate.set()

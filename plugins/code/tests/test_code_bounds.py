"""Hostile programs: bounds, escapes, cancellation, and what programs leave behind."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from operad import CallError, OperationContext, OperationRegistry, operation
from plugins.calls.tests.links import until
from plugins.code.tests.programs import failure, registry_of, run

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

running: set[asyncio.Task[Any] | None] = set()


@operation(namespace="work")
async def wait() -> None:
    """Wait until the call is cancelled."""
    running.add(asyncio.current_task())
    try:
        await asyncio.Event().wait()
    finally:
        running.discard(asyncio.current_task())


@operation(namespace="work", type="query")
async def echo(value: Any) -> Any:
    return value


@operation(namespace="work", type="query")
async def large(size: int) -> str:
    return "x" * size


@operation(namespace="work", type="subscription")
async def numbers() -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1


async def registry_with(**bounds: Any) -> OperationRegistry:
    return await registry_of(wait, echo, large, numbers, **bounds)


@pytest.fixture
async def registry() -> AsyncIterator[OperationRegistry]:
    async with await registry_with(compute=0.5, memory=32 * 1024 * 1024, check=False) as registry:
        yield registry


HOSTILE = TABLES["hostile"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_program_ends_in_an_error_that_names_the_bound(
    registry: OperationRegistry, name: str
) -> None:
    code, bound = HOSTILE[name]
    error = await failure(registry, code)
    assert bound in str(error.to_wire()).replace("'memory', 'value': ", "memory = ")
    assert await run(registry, "1 + 1") == 2


ESCAPES = TABLES["escapes"]


@pytest.mark.parametrize("code", ESCAPES)
async def test_nothing_outside_is_reached(registry: OperationRegistry, code: str) -> None:
    # A function that does not exist is called at the host, which refuses it when it is awaited.
    code, _, last = code.rpartition("\n")
    last = f"await {last}" if last.endswith(")") and "=" not in last and "raise" not in last else last
    assert (await failure(registry, f"{code}\n{last}")).code in ("EXECUTION_ERROR", "SERIALIZATION_ERROR")
    assert await run(registry, "1 + 1") == 2


async def test_exceptions_of_the_host_tell_nothing_of_the_host(registry: OperationRegistry) -> None:
    code = "try:\n    await work.echo()\nexcept BaseException as e:\n    x = [str(e), type(e).__name__]\nx"
    text, kind = await run(registry, code)
    assert kind == "RuntimeError"
    assert json.loads(text)["code"] == "VALIDATION_ERROR"


async def test_the_check_of_types_ends_in_time() -> None:
    async with await registry_with(check_timeout=0.5) as registry:
        code = "\n".join(f"x{n} = [x{n - 1}, x{n - 1}] if {n} else 1" for n in range(1, 600))
        assert "check_timeout = 0.5" in (await failure(registry, code)).message
        assert await run(registry, "1 + 1") == 2


@pytest.mark.parametrize("timeout", ["'x'", "-1", "10 ** 400", "None", "[]"])
async def test_an_odd_timeout_is_an_error_of_the_call(registry: OperationRegistry, timeout: str) -> None:
    for call in (f"work.echo(value=1, timeout={timeout})", f"work.numbers.take(1, timeout={timeout})"):
        (end,) = await asyncio.gather(run(registry, f"await {call}"), return_exceptions=True)
        assert end in (1, [0], []) or (isinstance(end, CallError) and end.details["type"] == "RuntimeError")


async def test_messages_of_exceptions_are_bounded(registry: OperationRegistry) -> None:
    assert len(str((await failure(registry, "raise RuntimeError('x' * 1_000_000)")).to_wire())) < 10_000


async def test_printed_text_cannot_pass_for_another_message(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "operad"):
        await run(registry, "print('a\\x1b[2J\\nERROR b')")
    assert [record.getMessage() for record in caplog.records] == ["operad.code: a\\x1b[2J\n    ERROR b"]


async def test_calls_are_counted() -> None:
    async with await registry_with(max_calls=3) as registry:
        code = "for _ in range(10):\n    await work.echo(value=1)"
        assert "expected at most max_calls = 3 calls, got at least 4" in (await failure(registry, code)).message


async def test_calls_at_once_are_limited_and_wait() -> None:
    most = 0

    async with await registry_with(max_parallel=5) as registry:

        @operation(namespace="work")
        async def count() -> None:
            nonlocal most
            running.add(asyncio.current_task())
            most = max(most, len(running))
            await asyncio.sleep(0.01)
            running.discard(asyncio.current_task())

        registry.register(count)
        code = "import asyncio\nlen(await asyncio.gather(*[work.count() for _ in range(30)]))"
        assert await run(registry, code) == 30
    assert most == 5


async def test_the_text_and_the_operations_in_it_are_limited() -> None:
    async with await registry_with(max_code=1000, max_operations=1) as registry:
        assert "max_code" in (await failure(registry, "#" * 1001)).message
        assert "max_operations" in (await failure(registry, "work.echo, work.wait")).message


async def test_a_program_ends_after_its_timeout_and_its_calls_with_it() -> None:
    async with await registry_with(timeout=0.5) as registry:
        code = "import asyncio\nawait asyncio.gather(*[work.wait() for _ in range(50)])"
        ended = await failure(registry, code)
        assert (ended.code, ended.message) == ("TIMEOUT", "the program took longer than timeout = 0.5 seconds")
        assert not running


async def test_a_program_ends_at_the_deadline_of_its_caller(registry: OperationRegistry) -> None:
    context = OperationContext(deadline=(time.time() + 0.5) * 1000)
    ended = await failure(registry, "await work.wait()", context)
    assert ended.code == "TIMEOUT"
    assert " did not finish " in ended.message, "the option timeout is longer, so it must not be named"
    assert not running


@pytest.mark.parametrize(
    "code", ["import asyncio\nawait asyncio.gather(*[work.wait() for _ in range(50)])", "while True:\n    pass"]
)
async def test_cancelling_a_program_ends_it_and_its_calls(code: str) -> None:
    async with await registry_with(check=False) as registry:
        await run(registry, "1")
        call = asyncio.create_task(run(registry, code))
        if "wait" in code:
            await until(lambda: len(running) == 50)
        else:
            await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert not running
        assert await run(registry, "1 + 1") == 2


async def test_calls_that_were_not_awaited_end_with_the_program() -> None:
    async with await registry_with(check=False) as registry:
        assert await run(registry, "x = work.wait()\nawait work.echo(value=1)") == 1
        assert not running


async def test_a_call_that_fails_ends_the_others_with_the_program(registry: OperationRegistry) -> None:
    await failure(registry, "import asyncio\nawait asyncio.gather(work.wait(), work.echo())")
    assert not running


async def test_a_killed_interpreter_ends_one_program(registry: OperationRegistry) -> None:
    go_on = asyncio.Event()

    @operation(namespace="work")
    async def pause() -> None:
        running.add(asyncio.current_task())
        await go_on.wait()
        running.discard(asyncio.current_task())

    registry.register(pause)
    first = asyncio.create_task(failure(registry, "await work.pause()\n1"))
    await until(lambda: running)
    (child,) = psutil.Process().children()
    second = asyncio.create_task(run(registry, "await work.pause()\n2"))
    await until(lambda: len(running) == 2)
    child.kill()
    go_on.set()
    assert "the interpreter ended" in (await first).message
    assert await second == 2


async def test_more_programs_than_places_wait() -> None:
    async with await registry_with(max_programs=2) as registry:
        results = await asyncio.gather(*[run(registry, f"await work.echo(value={number})") for number in range(8)])
    assert results == list(range(8))


async def test_programs_leave_nothing_behind() -> None:
    def left() -> tuple[int, int, int]:
        gc.collect()
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("operad-code")]
        return len(asyncio.all_tasks()), len(threads), len(psutil.Process().children())

    async with await registry_with(max_programs=4) as registry:
        before = left()
        for _ in range(10):
            code = "import asyncio\nawait asyncio.gather(work.echo(value=1), work.echo(value=2))"
            await asyncio.gather(*[run(registry, code) for _ in range(4)])
        assert left()[0] == before[0]
        assert len(psutil.Process().children()) <= 2, "the type checkers"
    await until(lambda: left() <= before)

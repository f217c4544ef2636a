"""The lifespan of a registry: what handlers share is opened before the calls and closed after them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import operad.sync
from operad import OperationContext, OperationRegistry, SourceError, operation
from operad.usage import Usage


class Shared:
    """What a lifespan opens."""

    def __init__(self) -> None:
        self.is_open = False
        self.log: list[str] = []

    @asynccontextmanager
    async def lifespan(self, registry: OperationRegistry) -> AsyncIterator[Shared]:
        self.is_open = True
        self.log.append("start")
        yield self
        self.log.append("end")
        self.is_open = False


@operation(namespace="n", type="query")
async def is_open(context: OperationContext) -> bool:
    return bool(context.state.is_open)


@operation(namespace="n", type="query")
def is_open_in_thread(context: OperationContext) -> bool:
    return bool(context.state.is_open)


@operation(namespace="n", type="query")
async def nested(context: OperationContext) -> bool:
    return bool((await context.env.n.is_open()).data)


@operation(namespace="n")
async def is_open_stream(context: OperationContext) -> AsyncIterator[bool]:
    yield bool(context.state.is_open)


async def test_handlers_of_every_kind_get_what_the_lifespan_yields() -> None:
    shared = Shared()
    registry = OperationRegistry(lifespan=shared.lifespan)
    for each in (is_open, is_open_in_thread, nested, is_open_stream):
        registry.register(each)
    async with registry:
        assert shared.log == ["start"]
        for each in registry.specs():
            assert (await registry.execute(each.id)).data is True, each.id
        async with registry.subscribe("n.is_open_stream") as items:
            assert [item.data async for item in items] == [True]
        assert (await registry.view(prefix="v").execute("v.n.is_open")).data is True
    assert shared.log == ["start", "end"]


async def test_an_interceptor_that_replaces_the_context_does_not_lose_the_state() -> None:
    registry = OperationRegistry(lifespan=Shared().lifespan)
    registry.register(is_open)

    async def tap(call: Any, proceed: Any) -> Any:
        return await proceed(call)

    registry.use(tap)
    async with registry:
        assert (await registry.execute("n.is_open")).data is True


async def test_the_lifespan_ends_after_the_calls_in_progress() -> None:
    shared, running, proceed = Shared(), asyncio.Event(), asyncio.Event()
    registry = OperationRegistry(lifespan=shared.lifespan)

    @operation(namespace="n")
    async def slow(context: OperationContext) -> bool:
        running.set()
        await proceed.wait()
        shared.log.append("call")
        return bool(context.state.is_open)

    registry.register(slow)
    async with registry:
        call = asyncio.create_task(registry.execute("n.slow"))
        await running.wait()
        asyncio.get_running_loop().call_soon(proceed.set)
    assert (await call).data is True
    assert shared.log == ["start", "call", "end"]


async def test_sources_are_loaded_and_closed_within_the_lifespan(tmp_path: Any) -> None:
    pytest.importorskip("operad_scanner")
    (tmp_path / "f.py").write_text(
        "from operad import operation, OperationContext\n@operation(namespace='f')\n"
        "async def g(context: OperationContext) -> bool:\n    return context.state.is_open\n"
    )
    (tmp_path / "operad.toml").write_text('[sources.f]\ntype = "scanner"\npath = "f.py"\n')
    shared = Shared()
    async with OperationRegistry.from_config(tmp_path, lifespan=shared.lifespan) as registry:
        assert (await registry.execute("f.g")).data is True, "a source without a lifespan has that of the registry"
    assert shared.log == ["start", "end"]


@pytest.mark.parametrize("when", ["start", "shutdown"])
async def test_a_lifespan_that_cannot_start_or_end_is_an_error_on_entering_or_leaving(when: str) -> None:
    entered = []

    @asynccontextmanager
    async def lifespan(registry: OperationRegistry) -> AsyncIterator[None]:
        if when == "shutdown":
            yield
        raise ValueError("no database")

    with pytest.raises(SourceError, match=f"the registry: its lifespan raised ValueError: no database at {when}"):
        async with OperationRegistry(lifespan=lifespan):
            entered.append(True)
    assert entered == [True] * (when == "shutdown")


async def test_a_call_outside_of_the_lifespan_says_how_to_enter_it() -> None:
    registry = OperationRegistry(lifespan=Shared().lifespan)
    registry.register(is_open)
    with pytest.raises(Exception, match="the lifespan of the registry is not running; enter it: `async with reg"):
        await registry.execute("n.is_open")


async def test_a_registry_can_be_entered_again() -> None:
    shared = Shared()
    registry = OperationRegistry(lifespan=shared.lifespan)
    registry.register(is_open)
    for _ in range(2):
        async with registry:
            assert (await registry.execute("n.is_open")).data is True
    assert shared.log == ["start", "end"] * 2


async def test_an_async_generator_function_is_a_lifespan_without_its_decorator() -> None:
    async def lifespan(registry: OperationRegistry) -> AsyncIterator[Shared]:
        shared = Shared()
        async with shared.lifespan(registry):
            yield shared

    registry = OperationRegistry(lifespan=lifespan)  # type: ignore[arg-type]  # what an author may forget
    registry.register(is_open)
    async with registry:
        assert (await registry.execute("n.is_open")).data is True


async def test_calls_that_do_not_end_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, running = Shared(), asyncio.Event()
    registry = OperationRegistry(lifespan=shared.lifespan)

    @operation(namespace="n")
    async def endless() -> None:
        running.set()
        await asyncio.Event().wait()

    registry.register(endless)
    await registry.__aenter__()
    call = asyncio.create_task(registry.execute("n.endless"))
    await running.wait()
    assert registry.lifespan is not None
    with caplog.at_level(logging.WARNING, "operad"):
        await registry.lifespan.aclose(0)
    assert "the lifespan of the registry ends after 0 s; calls in progress: 1" in caplog.text
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await registry.aclose()


def test_the_registry_of_programs_without_an_event_loop_runs_it() -> None:
    shared = Shared()
    with operad.sync.OperationRegistry(lifespan=shared.lifespan) as registry:
        registry.register(is_open)
        assert registry.execute("n.is_open").data is True
    assert shared.log == ["start", "end"]


async def test_the_end_waits_for_streams_in_progress() -> None:
    shared = Shared()
    registry = OperationRegistry(lifespan=shared.lifespan)
    registry.register(is_open_stream)
    await registry.__aenter__()
    stream = registry.subscribe("n.is_open_stream")
    assert (await anext(stream)).data is True
    closing = asyncio.create_task(registry.aclose())
    for _ in range(10):
        await asyncio.sleep(0)
    assert shared.log == ["start"]
    await stream.aclose()
    await closing
    assert shared.log == ["start", "end"]


async def test_the_end_waits_for_a_call_also_if_another_one_has_ended_before() -> None:
    usage = Usage()
    with usage:
        pass
    with usage:
        ending = asyncio.create_task(usage.end(30))
        await asyncio.sleep(0)
        assert not ending.done()
    await ending
    await usage.end(30)
    with usage:
        await usage.end(0)  # no longer than that


async def test_a_lifespan_whose_start_was_cancelled_can_be_started_again() -> None:
    gate = asyncio.Event()

    @asynccontextmanager
    async def lifespan(registry: OperationRegistry) -> AsyncIterator[Shared]:
        await gate.wait()
        async with Shared().lifespan(registry) as shared:
            yield shared

    registry = OperationRegistry(lifespan=lifespan)
    registry.register(is_open)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await registry.__aenter__()
    gate.set()
    async with registry:
        assert (await registry.execute("n.is_open")).data is True


async def test_the_calls_of_a_source_are_also_those_of_its_registry() -> None:
    outer, inner = Usage(), Usage()
    inner.within(outer)
    with inner:
        ending = asyncio.create_task(outer.end(30))
        await asyncio.sleep(0)
        assert not ending.done()
    await ending

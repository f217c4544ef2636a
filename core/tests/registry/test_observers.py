"""Observers see every call, disturb none, and cost nothing where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from operad import CallError, Identity, OperationContext, OperationRegistry, OperationSpec, OperationType
from operad.registry.execution import Execution
from operad.testing import CallLog, make_plugin, plugins_of


def spec(name: str, **fields: Any) -> OperationSpec:
    return OperationSpec(namespace="o", name=name, **fields)


async def one(input: Any, context: Any) -> int:
    return 1


@pytest.fixture
def log() -> CallLog:
    return CallLog()


@pytest.fixture
def registry(log: CallLog) -> OperationRegistry:
    async def outer(input: Any, context: OperationContext) -> Any:
        return (await context.env.o.one({})).data

    async def fail(input: Any, context: Any) -> None:
        raise ValueError("no")

    async def wait(input: Any, context: Any) -> None:
        await asyncio.sleep(60)

    async def count(input: Any, context: Any) -> AsyncIterator[int]:
        for number in range(5):
            yield number

    made = OperationRegistry(plugins_of(log))
    made.register(spec("one", type="query"), one)
    for handler in (outer, fail, wait):
        made.register(spec(handler.__name__), handler)
    made.register(spec("count", type="subscription"), count)
    return made


async def test_a_call_is_seen_at_its_start_and_at_its_end(registry: OperationRegistry, log: CallLog) -> None:
    await registry.execute("o.one", {}, OperationContext("r1", "r0", Identity("ann")))
    ((call, outcome),) = log.finished
    assert log.started == [call]
    assert (call.request_id, call.parent_request_id, call.operation_id) == ("r1", "r0", "o.one")
    assert (call.type, call.identity_id) == (OperationType.QUERY, "ann")
    assert (outcome.error, outcome.items) == (None, 1)
    assert outcome.duration_ms >= 0


async def test_nested_calls_make_a_tree(registry: OperationRegistry, log: CallLog) -> None:
    await registry.execute("o.outer")
    outer, inner = log.started
    assert inner.parent_request_id == outer.request_id
    assert [call.operation_id for call, _ in log.finished] == ["o.one", "o.outer"]


async def test_an_error_and_an_unknown_operation_are_seen(registry: OperationRegistry, log: CallLog) -> None:
    for operation_id in ("o.fail", "o.none"):
        with pytest.raises(CallError):
            await registry.execute(operation_id)
    outcomes = [(call.type, outcome.error and outcome.error.code, outcome.items) for call, outcome in log.finished]
    assert outcomes == [(OperationType.MUTATION, "EXECUTION_ERROR", 0), (None, "OPERATION_NOT_FOUND", 0)]


async def test_a_cancelled_call_is_aborted_to_observers(registry: OperationRegistry, log: CallLog) -> None:
    task = asyncio.create_task(registry.execute("o.wait"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ((_, outcome),) = log.finished
    assert outcome.error is not None
    assert outcome.error.code == "ABORTED"


async def test_a_stream_is_one_call_with_the_number_of_its_items(
    registry: OperationRegistry, log: CallLog
) -> None:
    assert len([item async for item in registry.subscribe("o.count")]) == 5
    async with registry.subscribe("o.count") as subscription:
        await anext(subscription)
        assert len(log.finished) == 1
    assert [(outcome.items, outcome.error) for _, outcome in log.finished] == [(5, None), (1, None)]


async def test_a_subscription_to_a_query_is_one_call(registry: OperationRegistry, log: CallLog) -> None:
    assert [item.data async for item in registry.subscribe("o.one")] == [1]
    assert len(log.started) == len(log.finished) == 1


async def test_an_observer_that_raises_is_logged_and_disturbs_neither_call_nor_observers(
    caplog: pytest.LogCaptureFixture, log: CallLog
) -> None:
    def broken(**_: Any) -> None:
        raise OSError("full")

    plugin = make_plugin(
        "broken",
        operad_call_started=lambda call: broken(),
        operad_call_finished=lambda call, outcome: broken(),
    )
    registry = OperationRegistry(plugins_of(plugin, log))
    registry.register(spec("one"), one)
    assert (await registry.execute("o.one")).data == 1
    assert len(log.finished) == 1
    assert caplog.text.count("OSError: full") == 2


async def test_observers_may_keep_something_between_start_and_end() -> None:
    seen = []

    def started(call: Any) -> None:
        call.state["mine"] = 7

    def finished(call: Any, outcome: Any) -> None:
        seen.append(call.state["mine"])

    registry = OperationRegistry(
        plugins_of(make_plugin("keeper", operad_call_started=started, operad_call_finished=finished))
    )
    registry.register(spec("one"), one)
    await registry.execute("o.one")
    assert seen == [7]


async def test_what_an_observer_passes_on_reaches_the_handler_and_nested_calls_and_nobody_else() -> None:
    seen: list[Any] = []

    def started(call: Any) -> None:
        seen.append((call.operation_id, dict(call.metadata), call.is_stream))
        call.passed_on["trace"] = call.operation_id

    async def outer(input: Any, context: Any) -> Any:
        return (await context.env.o.inner()).data

    async def inner(input: Any, context: Any) -> Any:
        return dict(context.metadata)

    registry = OperationRegistry(plugins_of(make_plugin("tracer", operad_call_started=started)))
    registry.register(spec("outer"), outer)
    registry.register(spec("inner"), inner)
    context = OperationContext(metadata={"mine": 1})
    assert (await registry.execute("o.outer", {}, context)).data == {"mine": 1, "trace": "o.inner"}
    assert dict(context.metadata) == {"mine": 1}
    assert [envelope.data async for envelope in registry.subscribe("o.inner")] == [{"trace": "o.inner"}]
    assert seen == [
        ("o.outer", {"mine": 1}, False),
        ("o.inner", {"mine": 1, "trace": "o.outer"}, False),
        ("o.inner", {}, True),
    ]


async def test_without_observers_no_record_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a record was made")

    registry = OperationRegistry()
    registry.register(spec("one"), one)
    monkeypatch.setattr(Execution, "record", refuse)
    assert (await registry.execute("o.one")).data == 1

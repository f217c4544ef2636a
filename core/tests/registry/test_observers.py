"""Observers see every call, disturb none, and cost nothing where there is none."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from core.tests.kit import data_of, error_of, giving, raising, spec, streaming, until
from operad import (
    CallError,
    CallHandler,
    Identity,
    InProcessTransport,
    OperationContext,
    OperationRegistry,
    OperationType,
    PendingRequestMap,
    from_remote,
    local_envelope,
)
from operad.observers import CallRecord
from operad.plugin import trace_context
from operad.registry.execution import Execution
from operad_testing import CallLog, make_plugin, plugins_of

TABLES = json.loads(Path(__file__).with_name("traces.json").read_text("utf-8"))


one, count = giving(1), streaming(*range(5))
"""Handlers of a call and of a stream."""


async def retrying(input: Any, context: OperationContext) -> int:
    await context.progress(1)
    context.report("retry", context.metadata.get("a"))
    return 1


def registry_of(*plugins: object, **handlers: Any) -> OperationRegistry:
    registry = OperationRegistry(plugins_of(*plugins))
    for name, handler in handlers.items():
        kind = "subscription" if inspect.isasyncgenfunction(handler) else "query"
        registry.register(spec(f"o.{name}", type=kind), handler)
    return registry


@pytest.fixture
def log() -> CallLog:
    return CallLog()


@pytest.fixture
def registry(log: CallLog) -> OperationRegistry:
    return registry_of(log, one=one, fail=raising(ValueError("no")), count=count)


async def test_a_call_is_seen_at_its_start_and_at_its_end(registry: OperationRegistry, log: CallLog) -> None:
    await registry.execute("o.one", {}, OperationContext("r1", "r0", Identity("ann")))
    ((call, outcome),) = log.finished
    assert log.started == [call]
    assert (call.request_id, call.parent_request_id, call.operation_id) == ("r1", "r0", "o.one")
    assert (call.type, call.identity_id) == (OperationType.QUERY, "ann")
    assert (outcome.error, outcome.items) == (None, 1)


async def test_an_error_and_an_unknown_operation_are_seen(registry: OperationRegistry, log: CallLog) -> None:
    for operation_id in ("o.fail", "o.none"):
        with pytest.raises(CallError):
            await registry.execute(operation_id)
    outcomes = [(call.type, outcome.error and outcome.error.code, outcome.items) for call, outcome in log.finished]
    assert outcomes == [(OperationType.QUERY, "EXECUTION_ERROR", 0), (None, "OPERATION_NOT_FOUND", 0)]


async def test_a_cancelled_call_is_aborted_to_observers(log: CallLog) -> None:
    async def wait(input: Any, context: Any) -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(registry_of(log, wait=wait).execute("o.wait"))
    await until(lambda: log.started)
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
    assert await data_of(registry.subscribe("o.one")) == [1]
    assert len(log.started) == len(log.finished) == 1


async def test_an_observer_that_raises_is_logged_and_disturbs_neither_call_nor_observers(
    caplog: pytest.LogCaptureFixture, log: CallLog
) -> None:
    def broken(*_: Any) -> None:
        raise OSError("full")

    plugin = make_plugin(
        "broken",
        operad_call_started=lambda call: broken(),
        operad_call_reported=lambda call, report: broken(),
        operad_call_finished=lambda call, outcome: broken(),
    )
    assert (await registry_of(plugin, log, retrying=retrying).execute("o.retrying")).data == 1
    assert (len(log.started), len(log.reported), len(log.finished)) == (1, 2, 1)
    assert caplog.text.count("OSError: full") == 4


async def test_observers_may_keep_something_between_start_and_end() -> None:
    seen = []

    def started(call: Any) -> None:
        call.state["mine"] = 7

    def finished(call: Any, outcome: Any) -> None:
        seen.append(call.state["mine"])

    keeper = make_plugin("keeper", operad_call_started=started, operad_call_finished=finished)
    await registry_of(keeper, one=one).execute("o.one")
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

    registry = registry_of(make_plugin("tracer", operad_call_started=started), outer=outer, inner=inner)
    context = OperationContext(metadata={"mine": 1})
    assert (await registry.execute("o.outer", {}, context)).data == {"mine": 1, "trace": "o.inner"}
    assert dict(context.metadata) == {"mine": 1}
    assert await data_of(registry.subscribe("o.inner")) == [{"trace": "o.inner"}]
    nested = ("o.inner", {"mine": 1, "trace": "o.outer"}, False)
    assert seen == [("o.outer", {"mine": 1}, False), nested, ("o.inner", {}, True)]


async def test_observers_that_say_that_they_are_idle_are_told_of_no_call_here_until_they_are_not() -> None:
    rows: list[str] = []
    idle = True

    def told(call: Any) -> None:
        rows.append(call.operation_id)

    vars(told)["is_idle"] = lambda: idle
    registry = registry_of(one=one)
    registry.observe(told)
    view = registry.view()
    for idle in (True, False):
        await registry.execute("o.one")
        await view.execute("o.one")
        await data_of(registry.subscribe("o.one"))
        assert rows == ([] if idle else ["o.one"] * 3)


async def test_without_observers_no_record_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a record was made")

    monkeypatch.setattr(Execution, "watch", refuse)
    assert (await registry_of(one=one).execute("o.one")).data == 1


# --- what calls report ------------------------------------------------------------------------------------


async def test_progress_and_log_messages_of_every_call_reach_observers(log: CallLog) -> None:
    async def inner(input: Any, context: OperationContext) -> None:
        await context.progress(1, 3, "one of three")

    async def outer(input: Any, context: OperationContext) -> None:
        await context.env.o.inner()
        await context.log("warning", {"left": 2}, "me")
        context.report("upload", progress=5, unit="By")

    await registry_of(log, inner=inner, outer=outer).execute("o.outer")
    assert [(call.operation_id, each.kind, each.level, each.message) for call, each in log.reported] == [
        ("o.inner", "progress", "info", "one of three"),
        ("o.outer", "log", "warning", '{"left": 2}'),
        ("o.outer", "upload", "info", None),
    ]
    (_, first), (_, second), (_, third) = log.reported
    assert (first.progress, first.total, third.progress, third.unit) == (1, 3, 5, "By")
    assert second.attributes == {"logger": "me"}


async def test_where_nobody_observes_a_report_is_not_even_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operad.context.CallReport", None)
    await registry_of(retrying=retrying).execute("o.retrying")


async def test_a_thread_reports_in_the_event_loop_and_after_the_end_of_its_call_to_nobody(log: CallLog) -> None:
    here = threading.get_ident()
    seen: list[int] = []
    ended, reported = threading.Event(), threading.Event()

    def tells(input: Any, context: OperationContext) -> None:
        context.report("progress", progress=1)
        ended.wait(10)
        context.report("progress", progress=2)
        reported.set()

    registry = registry_of(log, tells=tells)
    registry.observe(reported=lambda call, report: seen.append(threading.get_ident()))
    call = asyncio.ensure_future(registry.execute("o.tells"))
    await until(lambda: seen)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    ended.set()
    await until(reported.is_set)
    await asyncio.sleep(0)
    assert seen == [here]
    assert [report.progress for _, report in log.reported] == [1]


async def test_a_call_behind_an_interceptor_that_changed_its_context_still_reports(log: CallLog) -> None:
    async def other(call: Any, proceed: Any) -> Any:
        return await proceed(call.evolve(metadata={"a": "changed"}))

    registry = registry_of(log, retrying=retrying)
    registry.use(other)
    await registry.execute("o.retrying")
    assert [report.message for _, report in log.reported] == [None, "changed"]


current: ContextVar[str] = ContextVar("current", default="nobody")


async def test_what_an_observer_makes_current_is_so_for_the_steps_of_a_stream_and_not_for_its_reader() -> None:
    closed: list[str] = []

    async def steps(input: Any, context: OperationContext) -> AsyncIterator[str]:
        try:
            for _ in range(3):
                await asyncio.sleep(0)
                yield current.get()
                yield await asyncio.create_task(read())
        finally:
            await asyncio.sleep(0)
            closed.append(current.get())

    async def read() -> str:
        return current.get()

    def started(call: Any) -> None:
        call.state["token"] = current.set(call.operation_id)

    def finished(call: Any, outcome: Any) -> None:
        current.reset(call.state["token"])  # raises in another context

    registry = registry_of(steps=steps)
    registry.observe(started, finished)
    seen = []
    async for envelope in registry.subscribe("o.steps"):
        seen.append((envelope.data, current.get()))
        if len(seen) == 4:
            break
    await until(lambda: closed)
    assert seen == [("o.steps", "nobody")] * 4
    assert closed == ["o.steps"]


async def test_a_step_of_an_observed_stream_can_be_cancelled_and_times_out(log: CallLog) -> None:
    async def waits(input: Any, context: OperationContext) -> AsyncIterator[int]:
        yield 1
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            yield 2
        await asyncio.sleep(60)

    registry = registry_of(log, waits=waits)
    registry.observe(lambda call: current.set("me"))
    async with registry.subscribe("o.waits") as items:
        assert [(await anext(items)).data, (await anext(items)).data] == [1, 2]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(items)
    ((_, outcome),) = log.finished
    assert outcome.error is not None
    assert (outcome.error.code, outcome.items) == ("ABORTED", 2)


# --- call maps --------------------------------------------------------------------------------------------


async def test_calls_of_a_call_map_are_seen_with_their_end_and_what_they_carry() -> None:
    log, bus = CallLog(), InProcessTransport(strict=True)

    async def carried(input: Any, context: OperationContext) -> Any:
        return dict(context.metadata)

    def started(call: Any) -> None:
        call.passed_on["baggage"] = "k=v"

    served = registry_of(worker := CallLog(), carried=carried, count=count)
    plugins = plugins_of(log, make_plugin("passing", operad_call_started=started))
    async with CallHandler(served, bus), PendingRequestMap(bus, plugins=plugins) as calls:
        assert (await calls.call("o.carried", traceparent="t")).data == {"traceparent": "t", "baggage": "k=v"}
        assert await data_of(calls.subscribe("o.count")) == [0, 1, 2, 3, 4]
        with pytest.raises(CallError):
            await calls.call("o.none", identity=Identity("ann"))
    ends = [(call.operation_id, each.items, each.error and each.error.code) for call, each in log.finished]
    assert ends == [("o.carried", 1, None), ("o.count", 5, None), ("o.none", 0, "OPERATION_NOT_FOUND")]
    assert all(call.is_outgoing and call.type is None for call in log.started)
    assert (log.started[0].metadata, log.started[2].identity_id) == ({"traceparent": "t"}, "ann")
    assert [call.request_id for call in log.started[:2]] == [call.request_id for call in worker.started]
    assert not any(call.is_outgoing for call in worker.started)


async def test_a_call_that_is_made_again_is_told_once_and_each_request_has_an_id_of_its_own(log: CallLog) -> None:
    bus, ids = InProcessTransport(), []

    def lose(request: Any) -> None:
        ids.append(request.request_id)

    async with PendingRequestMap(bus, on_request=lose) as server, PendingRequestMap(bus) as calls:
        await server.serve("o.lost")
        stop = calls.observe(log.operad_call_started, log.operad_call_finished)
        calling = asyncio.ensure_future(calls.call("o.lost", retry=True, timeout=10))
        while len(ids) < 2:
            await asyncio.sleep(0.001)
            if ids and len(ids) == 1:
                with suppress(LookupError):
                    await server.emit_error(ids[0], "UNAVAILABLE")
        await server.respond(ids[1], local_envelope(7, "o.lost"))
        assert (await calling).data == 7
        stop()
        assert len(set(ids)) == 2
        assert [call.request_id for call, _ in log.finished] == [ids[0]]
        with pytest.raises(CallError):
            await calls.call("o.none")
    assert len(log.finished) == 1


async def test_the_calls_of_a_remote_source_are_told_once(log: CallLog) -> None:
    bus = InProcessTransport()
    registry = OperationRegistry(plugins := plugins_of(log))
    async with CallHandler(registry_of(one=one), bus), await from_remote(bus, "far", plugins=plugins) as session:
        for each in session.operations:
            registry.register(each)
        await registry.execute("far.o.one")
    assert [call.operation_id for call, _ in log.finished] == ["far.o.one"]


async def test_a_stream_that_waits_for_its_consumer_reports_it(log: CallLog) -> None:
    bus = InProcessTransport()
    async with (
        CallHandler(registry_of(log, count=count), bus),
        PendingRequestMap(bus) as calls,
        calls.subscribe("o.count", credit=1) as items,
    ):
        await anext(items)
        await asyncio.sleep(0.01)
        assert len([item async for item in items]) == 4
    assert {report.kind for _, report in log.reported} == {"stall"}


# --- the context of a trace -------------------------------------------------------------------------------

PARENT = TABLES["trace_contexts"][0]


@pytest.mark.parametrize("parent", TABLES["trace_contexts"])
def test_a_trace_context_is_taken_as_the_recommendation_has_it(parent: str) -> None:
    carrier = {"traceparent": parent, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "else": 1}
    assert trace_context(carrier) == {name: carrier[name] for name in ("traceparent", "tracestate")}


@pytest.mark.parametrize("parent", [*TABLES["no_trace_contexts"], f"cc{PARENT[2:]}-{'x' * 500}"])
def test_a_broken_trace_context_counts_as_none_and_its_state_with_it(parent: Any) -> None:
    assert trace_context({"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}) == {"baggage": "k=v"}


@pytest.mark.parametrize("state", ["", 7, "a=1\r\nx: y", "a=" + "1" * 511, "ä=1"])
def test_a_broken_trace_state_leaves_its_parent(state: Any) -> None:
    assert trace_context({"traceparent": PARENT, "tracestate": state}) == {"traceparent": PARENT}


@pytest.mark.parametrize(
    "baggage",
    ["userId=alice", "k=v;metadata , j = w", "serverNode=DF%2028,isProduction=false", "k=" + "v" * 8_190],
)
def test_baggage_is_taken_with_or_without_a_trace(baggage: str) -> None:
    assert trace_context({"baggage": baggage}) == {"baggage": baggage}


@pytest.mark.parametrize("baggage", ["", 7, "k=v\nx: y", "k=\0", "k=é", "k=" + "v" * 8_191, " k=v"])
def test_baggage_that_no_header_can_hold_or_is_too_long_counts_as_none(baggage: Any) -> None:
    assert trace_context({"baggage": baggage}) == {}


async def test_a_call_that_no_observer_matches_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[str] = []
    made: list[str] = []
    registry = registry_of(one=one, two=one)

    def observer(call: CallRecord) -> None:
        rows.append(call.operation_id)

    vars(observer)["matches"] = lambda operation_id: operation_id == "o.one"
    stop = registry.observe(observer)

    def record_of(request_id: str, parent: Any, operation_id: str, *rest: Any, **more: Any) -> Any:
        made.append(operation_id)
        return CallRecord(request_id, parent, operation_id, *rest, **more)

    monkeypatch.setattr("operad.registry.execution.CallRecord", record_of)
    for id in ("o.one", "o.two"):
        await registry.execute(id)
    assert rows == made == ["o.one"]  # nothing is made for a call that is not observed
    stop()
    registry.observe(observer)
    registry.observe(lambda call: made.append("all"))
    await registry.execute("o.two")
    assert made[1:] == ["o.two", "all"]
    assert rows == ["o.one"]  # also while another observer observes the call


async def test_an_observer_sees_the_input_as_the_caller_gave_it() -> None:
    seen: list[tuple[str, Any]] = []
    registry = OperationRegistry()
    registry.register(spec("o.one", type="query", input_schema={"type": "object", "required": ["id"]}), one)
    registry.observe(lambda call: seen.append((call.operation_id, call.input)))
    await registry.execute("o.one", {"id": 1})
    await error_of(registry.execute("o.one", {"wrong": 1}))
    await error_of(registry.view(prefix="v").execute("v.o.one"))
    await data_of(registry.subscribe("o.one", {"id": 2}))
    assert seen == [("o.one", given) for given in ({"id": 1}, {"wrong": 1}, None, {"id": 2})]


async def test_a_call_is_observed_until_it_ends_with_its_start_duration_and_log() -> None:
    seen: list[Any] = []

    async def kept(input: Any, context: Any) -> Any:
        assert context.is_observed
        await context.log("info", {"a": "é"})
        return context

    plugin = make_plugin(
        "p",
        operad_call_reported=lambda call, report: seen.append(report.message),
        operad_call_finished=lambda call, outcome: seen.append((call.started, outcome.duration_ms)),
    )
    before, start = time.time() * 1000, time.perf_counter()
    registry = registry_of(plugin, kept=kept)
    context = (await registry.execute("o.kept")).data
    watch = context.watch
    assert watch is None
    assert not context.is_observed
    text, (started, duration) = seen
    assert text == '{"a": "é"}'
    assert 0 < duration <= (time.perf_counter() - start) * 1000
    assert before <= started <= time.time() * 1000


async def test_an_interceptor_s_own_context_is_observed_too_and_a_thread_that_runs_on_reports_nothing() -> None:
    told: list[str] = []
    gate, done = threading.Event(), threading.Event()

    def work(input: Any, context: Any) -> None:
        context.report("log", "in time")
        assert gate.wait(30)
        context.report("log", "late")
        done.set()

    async def tap(call: Any, proceed: Any) -> Any:
        return await proceed(call.evolve(context=OperationContext()))

    plugin = make_plugin("p", operad_call_reported=lambda call, report: told.append(report.message))
    async with registry_of(plugin, work=work) as registry:
        registry.use(tap)
        call = asyncio.create_task(registry.execute("o.work"))
        await until(lambda: told)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        gate.set()
        await until(done.is_set)
        await asyncio.sleep(0)
    assert told == ["in time"]


@pytest.mark.parametrize("attribute", ["matches", "is_idle"])
async def test_an_observer_that_cannot_say_what_it_observes_observes_the_call(
    attribute: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def observer(call: CallRecord) -> None:
        seen.append(call.operation_id)

    vars(observer)[attribute] = lambda *asked: 1 / 0
    registry = registry_of(one=one, count=count)
    registry.observe(observer)
    assert (await registry.execute("o.one")).data == 1
    assert await data_of(registry.subscribe("o.count")) == [0, 1, 2, 3, 4]
    assert seen == ["o.one", "o.count"]
    assert "of an observer failed" in caplog.text


async def test_the_long_ids_of_callers_are_not_kept() -> None:
    registry = registry_of(one=one)
    registry.observe(lambda call: None)
    tracemalloc.start()
    try:
        for number in range(20):
            with pytest.raises(CallError):
                await registry.execute(f"o.{number}" + "x" * 100_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000

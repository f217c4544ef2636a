"""Spans and metrics of calls: their parents, what they hold, and what they cost nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from inspect import isasyncgenfunction
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler

import operad
from operad import (
    CallHandler,
    Identity,
    InProcessTransport,
    OperationContext,
    OperationRegistry,
    PendingRequestMap,
)
from operad.plugin import CallError
from operad.testing import PluginConformance
from operad_opentelemetry import Telemetry

TRACE = "0af7651916cd43dd8448eb211c80319c"
REMOTE = f"00-{TRACE}-b7ad6b7169203331-01"


class Watched:
    """A registry, the spans that ended, and what was measured."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.provider = TracerProvider(sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        plugins = operad.load_plugins(only=[])
        plugins.register(Telemetry(self.provider, self.meters), "telemetry")
        self.registry = OperationRegistry(plugins)
        for handler in (one, carried, metadata):
            self.add(handler)

    def add(self, handler: Any) -> None:
        """Register a handler by its name."""
        kind = "subscription" if isasyncgenfunction(handler) else "mutation"
        self.registry.register(operad.OperationSpec(namespace="m", name=handler.__name__, type=kind), handler)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def measured(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def close(self) -> None:
        self.provider.shutdown()
        self.meters.shutdown()


async def one(input: Any, context: OperationContext) -> Any:
    return 1


async def carried(input: Any, context: OperationContext) -> Any:
    return {"metadata": context.metadata.get("baggage"), "current": dict(baggage.get_all())}


async def metadata(input: Any, context: OperationContext) -> Any:
    return dict(context.metadata)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


@pytest.fixture
def watched() -> Any:
    made = Watched()
    yield made
    made.close()


async def test_a_call_is_a_span_with_its_operation_and_its_caller(watched: Watched) -> None:
    watched.registry.register(operad.OperationSpec(namespace="m", name="a/b.c", type="query"), one)
    await watched.registry.execute("m.a/b.c", {}, OperationContext("r1", identity=Identity("me")))
    (span,) = watched.spans.values()
    assert span.name == "m.a/b.c"
    assert dict(span.attributes or {}) == {
        "rpc.system.name": "operad",
        "rpc.method": "m.a/b.c",
        "operad.operation.type": "query",
        "operad.request.id": "r1",
        "enduser.id": "me",
    }
    assert span.kind is trace.SpanKind.INTERNAL
    assert span.parent is None


async def test_nested_calls_and_spans_of_handlers_are_children_of_their_call(watched: Watched) -> None:
    @watched.add
    async def outer(input: Any, context: OperationContext) -> Any:
        with watched.provider.get_tracer("app").start_as_current_span("own"):
            return (await context.env.m.one()).data

    await watched.registry.execute("m.outer")
    inner, own, whole = (watched.spans[name] for name in ("m.one", "own", "m.outer"))
    assert (parent_of(inner), parent_of(own)) == (own.context.span_id, whole.context.span_id)
    assert inner.kind is trace.SpanKind.INTERNAL
    assert not trace.get_current_span().get_span_context().is_valid


async def test_calls_that_run_at_once_do_not_mix_their_parents(watched: Watched) -> None:
    @watched.add
    async def slow(input: Any, context: OperationContext) -> Any:
        await asyncio.sleep(0)
        return (await context.env.m.one()).data

    await asyncio.gather(*(watched.registry.execute("m.slow") for _ in range(10)))
    found = watched.exporter.get_finished_spans()
    parents = [parent_of(span) for span in found if span.name == "m.one"]
    assert len(set(parents)) == 10
    assert set(parents) == {span.context.span_id for span in found if span.name == "m.slow"}


async def test_a_stream_is_one_span_whose_nested_calls_are_its_children_and_its_reader_is_not(
    watched: Watched,
) -> None:
    @watched.add
    async def stream(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        for _ in range(2):
            yield (await context.env.m.one()).data

    async for _ in watched.registry.subscribe("m.stream"):
        assert not trace.get_current_span().get_span_context().is_valid
    span = watched.spans["m.stream"]
    assert (span.attributes or {})["operad.items"] == 2
    children = [one for one in watched.exporter.get_finished_spans() if one.name == "m.one"]
    assert [parent_of(child) for child in children] == [span.context.span_id] * 2
    (items,) = watched.measured()["operad.stream.items"]
    assert items.value == 2


async def test_an_error_is_its_code_and_never_its_message(watched: Watched) -> None:
    @watched.add
    async def fail(input: Any, context: OperationContext) -> Any:
        raise CallError("SOLD_OUT", "password=hunter2")

    with pytest.raises(CallError):
        await watched.registry.execute("m.fail")
    span = watched.spans["m.fail"]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "SOLD_OUT"
    assert "hunter2" not in span.to_json()
    (point,) = watched.measured()["rpc.server.call.duration"]
    assert (point.attributes["error.type"], point.count) == ("SOLD_OUT", 1)


async def test_a_cancelled_call_ends_its_span_and_is_no_failure(watched: Watched) -> None:
    started = asyncio.Event()

    @watched.add
    async def forever(input: Any, context: OperationContext) -> Any:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(watched.registry.execute("m.forever"))
    await started.wait()
    (active,) = watched.measured()["operad.calls.active"]
    assert active.value == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    span = watched.spans["m.forever"]
    assert span.status.status_code is trace.StatusCode.UNSET
    assert (span.attributes or {})["error.type"] == "ABORTED"
    (active,) = watched.measured()["operad.calls.active"]
    assert active.value == 0


async def test_ids_that_callers_make_up_name_no_span_and_no_series(watched: Watched) -> None:
    for number in range(5):
        with pytest.raises(CallError):
            await watched.registry.execute(f"evil.{number}" + "x" * 1_000)
    assert set(watched.spans) == {"operad"}
    (point,) = watched.measured()["rpc.server.call.duration"]
    assert (point.attributes["rpc.method"], point.count) == ("_OTHER", 5)
    assert len(str((watched.spans["operad"].attributes or {})["rpc.method_original"])) == 200


async def test_codes_that_a_handler_makes_up_are_a_bounded_number_of_series(watched: Watched) -> None:
    @watched.add
    async def fail(input: Any, context: OperationContext) -> None:
        raise CallError(input["code"], "it failed")

    for code in (*(f"C{number}" for number in range(300)), "TIMEOUT"):
        with pytest.raises(CallError):
            await watched.registry.execute("m.fail", {"code": code})
    measured = watched.measured()["rpc.server.call.duration"]
    points = {point.attributes["error.type"]: point.count for point in measured}
    assert len(points) <= 101
    assert points["C0"] == points["TIMEOUT"] == 1
    assert sum(points.values()) == 301
    assert points["_OTHER"] > 200


async def test_a_trace_goes_on_in_another_process_and_comes_from_one() -> None:
    here, there = Watched(), Watched()
    bus = InProcessTransport(strict=True)
    async with CallHandler(there.registry, bus), PendingRequestMap(bus) as calls:

        @here.add
        async def remote(input: Any, context: OperationContext) -> Any:
            return (await calls.call("m.one", {}, traceparent=context.metadata["traceparent"])).data

        await here.registry.execute("m.remote", {}, OperationContext(metadata={"traceparent": REMOTE}))
    mine, theirs = here.spans["m.remote"], there.spans["m.one"]
    assert f"{mine.context.trace_id:032x}" == f"{theirs.context.trace_id:032x}" == TRACE
    assert (parent_of(mine), parent_of(theirs)) == (0xB7AD6B7169203331, mine.context.span_id)
    assert mine.kind is trace.SpanKind.SERVER
    here.close()
    there.close()


@pytest.mark.parametrize("given", ["", "no", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", 7, None, "ff" * 40])
async def test_a_trace_context_that_is_none_starts_a_trace_of_its_own(watched: Watched, given: Any) -> None:
    await watched.registry.execute("m.one", {}, OperationContext(metadata={"traceparent": given, "tracestate": 7}))
    assert watched.spans["m.one"].parent is None


async def test_an_application_with_a_span_of_its_own_is_the_parent(watched: Watched) -> None:
    with watched.provider.get_tracer("app").start_as_current_span("request") as request:
        await watched.registry.execute("m.one")
    assert parent_of(watched.spans["m.one"]) == request.get_span_context().span_id


async def test_a_span_within_a_stream_and_what_it_logs_belong_to_the_stream(watched: Watched) -> None:
    @watched.add
    async def stream(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        for _ in range(2):
            with watched.provider.get_tracer("app").start_as_current_span("own"):
                await asyncio.sleep(0)
                yield trace.get_current_span().get_span_context().trace_id

    seen = [item.data async for item in watched.registry.subscribe("m.stream")]
    span = watched.spans["m.stream"]
    assert seen == [span.context.trace_id] * 2
    own = [one for one in watched.exporter.get_finished_spans() if one.name == "own"]
    assert [parent_of(one) for one in own] == [span.context.span_id] * 2


async def test_what_a_call_reports_is_an_event_of_its_span(watched: Watched) -> None:
    @watched.add
    async def tells(input: Any, context: OperationContext) -> None:
        await context.progress(1, 3, "one\x1b[31m of three")
        await context.log("warning", "x" * 5_000, "server")
        context.report("retry", "503", attempt=1, delay=0.5)

    await watched.registry.execute("m.tells")
    first, second, third = watched.spans["m.tells"].events
    assert (first.name, dict(first.attributes or {})) == (
        "operad.progress",
        {"level": "info", "message": "one\\x1b[31m of three", "progress": 1, "total": 3},
    )
    log, retry = second.attributes or {}, third.attributes or {}
    assert (second.name, log["level"], log["logger"]) == ("operad.log", "warning", "server")
    assert len(str(log["message"])) == 1_001
    assert (third.name, retry["attempt"], retry["delay"]) == ("operad.retry", 1, 0.5)


async def test_a_stream_that_waits_for_credit_is_counted(watched: Watched) -> None:
    @watched.add
    async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
        for number in range(3):
            yield number

    bus = InProcessTransport()
    async with (
        CallHandler(watched.registry, bus),
        PendingRequestMap(bus) as calls,
        calls.subscribe("m.count", credit=1) as items,
    ):
        async for _ in items:
            await asyncio.sleep(0.002)
    (stalls,) = watched.measured()["operad.stream.stalls"]
    assert stalls.value >= 1
    assert stalls.attributes["rpc.method"] == "m.count"


async def test_a_call_of_a_call_map_is_the_span_of_a_client_and_the_parent_of_its_handlers() -> None:
    here, there = Watched(), Watched()
    bus = InProcessTransport(strict=True)
    async with CallHandler(there.registry, bus), PendingRequestMap(bus, plugins=here.registry.plugins) as calls:

        @here.add
        async def remote(input: Any, context: OperationContext) -> Any:
            return (await calls.call("m.one", {})).data

        await here.registry.execute("m.remote")
    outer, client, server = here.spans["m.remote"], here.spans["m.one"], there.spans["m.one"]
    assert (parent_of(client), parent_of(server)) == (outer.context.span_id, client.context.span_id)
    assert client.kind is trace.SpanKind.CLIENT
    assert [len(each.measured()["operad.calls.active"]) for each in (here, there)] == [1, 1]
    (point,) = here.measured()["rpc.client.call.duration"]
    assert (point.count, point.attributes["rpc.method"]) == (1, "m.one")
    here.close()
    there.close()


async def carried_through(watched: Watched, current: Any, came: str | None) -> Any:
    """What a call carries that a handler makes, which was called with baggage and makes another context current."""

    @watched.add
    async def outer(input: Any, context: OperationContext) -> Any:
        token = otel_context.attach(current() if current else otel_context.get_current())
        try:
            return (await context.env.m.carried()).data
        finally:
            otel_context.detach(token)

    context = OperationContext(metadata={} if came is None else {"baggage": came, "traceparent": REMOTE})
    return (await watched.registry.execute("m.outer", {}, context)).data


async def test_baggage_comes_with_a_call_is_current_in_its_handler_and_goes_on_as_it_came(
    watched: Watched,
) -> None:
    said = "user=al%20ice;secret=no, shop = 7;p"
    seen = await carried_through(watched, None, said)
    assert seen["metadata"] == said
    assert seen["current"]["user"].startswith("al ice")
    assert not baggage.get_all()


@pytest.mark.parametrize("came", [None, "user=eve,left=1"])
async def test_baggage_that_an_application_makes_current_goes_with_its_calls(
    watched: Watched, came: str | None
) -> None:
    seen = await carried_through(watched, lambda: baggage.set_baggage("user", "alice"), came)
    assert seen["current"] == ({"user": "alice"} if came is None else {"user": "alice", "left": "1"})
    assert seen["metadata"] == ("user=alice" if came is None else "user=alice,left=1")


async def test_baggage_that_a_handler_takes_away_goes_no_further(watched: Watched) -> None:
    seen = await carried_through(watched, baggage.clear, "user=eve")
    assert seen == {"metadata": "", "current": {}}


@pytest.mark.parametrize("said", ["k=v\nx: y", "=", "k", "k=" + "v" * 9_000, "é=1", ",,,", 7])
async def test_baggage_that_is_none_disturbs_nobody_and_fills_no_log(
    watched: Watched, said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    context = OperationContext(metadata={"traceparent": REMOTE, "baggage": said})
    assert (await watched.registry.execute("m.carried", {}, context)).data["current"] == {}
    assert watched.spans["m.carried"].parent is not None
    assert not caplog.records


async def test_the_state_of_a_trace_goes_on_with_it(watched: Watched) -> None:
    state = "rojo=00f067aa0ba902b7,congo=t61"
    context = OperationContext(metadata={"traceparent": REMOTE, "tracestate": state})
    assert (await watched.registry.execute("m.metadata", {}, context)).data["tracestate"] == state


async def test_what_is_not_sampled_is_not_recorded_and_its_trace_goes_on_unsampled() -> None:
    watched = Watched(ALWAYS_OFF)
    seen = (await watched.registry.execute("m.metadata")).data
    assert not int(seen["traceparent"][-2:], 16) & 1
    assert not watched.spans
    (point,) = watched.measured()["rpc.server.call.duration"]
    assert point.count == 1
    watched.close()


async def test_where_nobody_set_opentelemetry_up_a_call_carries_nothing_and_what_it_brought_goes_on() -> None:
    registry = OperationRegistry(operad.load_plugins(only=["operad-opentelemetry"]))
    registry.register(operad.OperationSpec(namespace="m", name="metadata"), metadata)
    assert (await registry.execute("m.metadata")).data == {}
    context = OperationContext(metadata={"traceparent": REMOTE})
    assert (await registry.execute("m.metadata", {}, context)).data == {"traceparent": REMOTE}


class TestPlugin(PluginConformance):
    distribution = "operad-opentelemetry"
    contributes = {"hooks": ["operad_call_started", "operad_call_reported", "operad_call_finished"]}


@pytest.mark.parametrize(
    "set_up",
    [
        "from opentelemetry.sdk.trace import TracerProvider; trace.set_tracer_provider(TracerProvider())",
        "from opentelemetry.sdk.metrics import MeterProvider; metrics.set_meter_provider(MeterProvider())",
    ],
    ids=["spans", "a meter provider alone"],
)
def test_where_nobody_set_opentelemetry_up_call_maps_do_not_even_ask_for_a_span(set_up: str) -> None:
    """What an installed plugin has no use for costs calls nothing; and who sets it up later is seen."""
    program = (
        "from operad import load_plugins\n"
        "observers = load_plugins(only=['opentelemetry']).observers()\n"
        "assert observers and observers.active_for('a.b') is None\n"
        "from opentelemetry import metrics, trace\n"
        "assert observers.active_for('a.b') is None\n"
        f"{set_up}\n"
        "assert observers.active_for('a.b') is not None\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

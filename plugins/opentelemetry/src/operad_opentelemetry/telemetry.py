"""A span and measurements for each call, by the semantic conventions of RPC.

Trace context travels with calls as ``traceparent`` and ``tracestate`` in their metadata (W3C Trace Context):
nested calls inherit them, transports carry them to peers, adapters to HTTP and MCP servers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from operad import OperationType
from operad.plugin import hookimpl

_SCOPE = "operad"
_STATE = "operad_opentelemetry"
_W3C = TraceContextTextMapPropagator()
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds."""


class _Running(NamedTuple):
    span: Span
    token: Any
    traceparent: str | None
    attributes: dict[str, Any]


class Telemetry:
    """Observers of calls that make spans and metrics.

    Installed as a plugin it needs nothing of an application but the SDK, set up as OpenTelemetry says (such as by
    ``opentelemetry-instrument``). Made by hand, it takes other providers: ``plugins.register(Telemetry(…))``.

    Args:
        tracer_provider: default: the process's.
        meter_provider: default: the process's.
    """

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self._is_given = tracer_provider is not None or meter_provider is not None
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            "rpc.server.call.duration", "s", "How long calls took.", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        self._active = meter.create_up_down_counter("operad.calls.active", "{call}", "Calls that run now.")
        self._items = meter.create_counter("operad.stream.items", "{item}", "Items that subscriptions answered.")
        self._local: set[str] = set()
        """Trace context of the calls that run here: what inherits it has its parent in this process."""

    @hookimpl
    def operad_call_started(self, call: Any) -> None:
        """Start a span; its parent is the call in which this one is nested, here or in another process."""
        if not self._is_given and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return  # nobody set up OpenTelemetry: nothing would be recorded
        attributes = _attributes(call)
        parent, is_local = self._parent(call.metadata)
        span = self._tracer.start_span(
            f"{attributes['rpc.service']}/{attributes['rpc.method']}",
            parent,
            SpanKind.INTERNAL if is_local else SpanKind.SERVER,
            {**attributes, **_details(call)},
        )
        inside = trace.set_span_in_context(span, parent)
        _W3C.inject(call.passed_on, inside)
        traceparent = call.passed_on.get("traceparent")
        if traceparent is not None:
            self._local.add(traceparent)
        # A stream's start and end need not be in one task: what it makes current would stay so for its reader.
        token = None if call.is_stream else otel_context.attach(inside)
        self._active.add(1, attributes)
        call.state[_STATE] = _Running(span, token, traceparent, attributes)

    @hookimpl
    def operad_call_finished(self, call: Any, outcome: Any) -> None:
        """End the span, and measure the call."""
        running: _Running | None = call.state.pop(_STATE, None)
        if running is None:
            return
        span, attributes = running.span, running.attributes
        if running.token is not None:
            otel_context.detach(running.token)
        if running.traceparent is not None:
            self._local.discard(running.traceparent)
        self._active.add(-1, attributes)
        if call.type is OperationType.SUBSCRIPTION:
            span.set_attribute("operad.items", outcome.items)
            self._items.add(outcome.items, attributes)
        if outcome.error is not None:
            # The code alone: a message may quote what is in no trace's place.
            attributes = {**attributes, "error.type": outcome.error.code}
            span.set_attribute("error.type", outcome.error.code)
            if outcome.error.code != "ABORTED":  # its caller left
                span.set_status(Status(StatusCode.ERROR, outcome.error.code))
        self._duration.record(outcome.duration_ms / 1000, attributes)
        span.end()

    def _parent(self, metadata: Any) -> tuple[Context, bool]:
        """The context in which a call's span is made, and whether its parent is in this process."""
        current = otel_context.get_current()
        traceparent = metadata.get("traceparent")
        if not isinstance(traceparent, str):
            return current, True
        state = metadata.get("tracestate")
        carrier = {"traceparent": traceparent, **({"tracestate": state} if isinstance(state, str) else {})}
        carried = _W3C.extract(carrier, current)
        here, there = (trace.get_current_span(one).get_span_context() for one in (current, carried))
        if here.is_valid and here.trace_id == there.trace_id:
            return current, True  # a span within the handler is nearer than its call
        return carried, traceparent in self._local


def _attributes(call: Any) -> dict[str, Any]:
    """What spans and metrics are told apart by."""
    service, _, method = call.operation_id.partition(".")
    if call.type is None:  # an id that a caller made up: not for the name of a span, nor the series of a metric
        service, method = "operad", "unknown"
    return {"rpc.system": "operad", "rpc.service": service, "rpc.method": method}


def _details(call: Any) -> dict[str, Any]:
    details = {"operad.operation.id": call.operation_id[:200], "operad.request.id": call.request_id}
    if call.type is not None:
        details["operad.operation.type"] = str(call.type)
    if call.identity_id is not None:
        details["enduser.id"] = call.identity_id
    return details

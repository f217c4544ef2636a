"""A span and metrics for each call, by the semantic conventions of OpenTelemetry for RPC.

The trace context is part of a call's metadata, as ``traceparent`` and ``tracestate`` (W3C Trace Context) and
``baggage`` (W3C Baggage). Nested calls inherit them, transports send them to peers, and adapters send them to HTTP
and MCP servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry import baggage, metrics, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from operad import ErrorCode, OperationType
from operad.plugin import hookimpl, trace_context
from operad.words import printable

_SCOPE = "operad"
_STATE = "operad_opentelemetry"
_W3C = TraceContextTextMapPropagator()
_BAGGAGE = W3CBaggagePropagator()
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30)
"""The boundaries of histograms in seconds: those of the conventions, and some below and above them."""
_UNKNOWN = {"rpc.system.name": "operad", "rpc.method": "_OTHER"}
_LONGEST_ID, _LONGEST_MESSAGE = 200, 1_000
_MOST_KEPT = 10_000
_MOST_CODES = 100
"""The maximum number of error codes in metrics, because peers choose codes. Others are ``_OTHER``."""


class _Running(NamedTuple):
    span: Span
    token: Any
    traceparent: str | None
    attributes: dict[str, str]


class Telemetry:
    """An observer of calls that records spans and metrics with OpenTelemetry.

    The installed plugin needs only the SDK, set up in any way that OpenTelemetry supports, such as
    ``opentelemetry-instrument``. To use other providers, register an observer: ``plugins.register(Telemetry(…))``.

    Args:
        tracer_provider: the tracer provider; default: the one of the process.
        meter_provider: the meter provider; default: the one of the process.
    """

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self._is_set_up = tracer_provider is not None or meter_provider is not None
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._duration, self._outgoing = (
            meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=_BUCKETS)
            for name, what in (
                ("rpc.server.call.duration", "Duration of calls."),
                ("rpc.client.call.duration", "Duration of calls of call maps."),
            )
        )
        self._active = meter.create_up_down_counter("operad.calls.active", "{call}", "Calls in progress.")
        self._items = meter.create_counter("operad.stream.items", "{item}", "Items that subscriptions returned.")
        self._stalls = meter.create_counter(
            "operad.stream.stalls", "{stall}", "Times that a stream waited for credit from its caller."
        )
        self._local: set[str] = set()
        """The ``traceparent`` of each call in progress. A call that inherits it has its parent in this process."""
        self._attributes: dict[str, dict[str, str]] = {}
        self._codes: set[str] = {*ErrorCode}

    def is_idle(self) -> bool:
        """Return True if OpenTelemetry is not set up, so that no call would be recorded."""
        return not self._is_set_up and _nothing_is_recorded()

    @hookimpl
    def operad_call_started(self, call: Any) -> None:
        """Start a span for a call; do nothing if no provider is set up.

        The parent is the current span, unless the call's metadata name a span of another trace.
        """
        if not self._is_set_up:
            if _nothing_is_recorded():
                return
            self._is_set_up = True
        current = otel_context.get_current()
        carried, is_local = self._carried(call.metadata, current) if call.metadata else (current, True)
        kind = SpanKind.CLIENT if call.is_outgoing else SpanKind.INTERNAL if is_local else SpanKind.SERVER
        attributes = self._attributes_of(call)
        name = attributes["rpc.method"] if attributes is not _UNKNOWN else "operad"
        span = self._tracer.start_span(name, carried, kind, {**attributes, **_details(call)})
        _pass_baggage_on(call, carried)
        traceparent = None
        context = span.get_span_context()
        if context.is_valid:
            traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            call.passed_on["traceparent"] = traceparent
            if context.trace_state:
                call.passed_on["tracestate"] = context.trace_state.to_header()
            self._local.add(traceparent)
        if not call.is_outgoing:
            self._active.add(1, attributes)
        token = otel_context.attach(trace.set_span_in_context(span, carried))
        call.state[_STATE] = _Running(span, token, traceparent, attributes)

    @hookimpl
    def operad_call_reported(self, call: Any, report: Any) -> None:
        """Add a report of a call to its span, as an event, and count stalls of streams."""
        running: _Running | None = call.state.get(_STATE)
        if running is None:
            return
        if report.kind == "stall":
            self._stalls.add(1, running.attributes)
        if running.span.is_recording():
            running.span.add_event(f"operad.{printable(report.kind)}", _event(report))

    @hookimpl
    def operad_call_finished(self, call: Any, outcome: Any) -> None:
        """End the span of a call, and record its duration; for a stream, also the number of items."""
        running: _Running | None = call.state.pop(_STATE, None)
        if running is None:
            return
        span, token, traceparent, attributes = running
        otel_context.detach(token)
        if traceparent is not None:
            self._local.discard(traceparent)
        if not call.is_outgoing:
            self._active.add(-1, attributes)
        if call.is_stream or call.type is OperationType.SUBSCRIPTION:
            span.set_attribute("operad.items", outcome.items)
            self._items.add(outcome.items, attributes)
        if outcome.error is not None:
            # Only the code: a message may quote data that must not be in a trace.
            code = outcome.error.code[:_LONGEST_ID]
            attributes = {**attributes, "error.type": self._measured(code)}
            span.set_attribute("error.type", code)
            if code != "ABORTED":  # its caller left
                span.set_status(Status(StatusCode.ERROR, code))
        (self._outgoing if call.is_outgoing else self._duration).record(outcome.duration_ms / 1000, attributes)
        span.end()

    def _carried(self, metadata: Mapping[str, Any], current: Context) -> tuple[Context, bool]:
        """Return the context for the span of a call, and whether the parent of the span is in this process."""
        carrier = trace_context(metadata)
        carried, is_local = current, True
        if "traceparent" in carrier:
            carried = _W3C.extract(carrier, current)
            here, there = (trace.get_current_span(one).get_span_context() for one in (current, carried))
            if here.is_valid and here.trace_id == there.trace_id:
                return current, True  # span and baggage of the handler are closer than those of its call
            is_local = carrier["traceparent"] in self._local
        return _BAGGAGE.extract(carrier, carried) if "baggage" in carrier else carried, is_local

    def _measured(self, code: str) -> str:
        """Return the code of an error for metrics: ``_OTHER`` if there are too many codes."""
        if code not in self._codes and len(self._codes) >= _MOST_CODES:
            return "_OTHER"
        self._codes.add(code)
        return code

    def _attributes_of(self, call: Any) -> dict[str, str]:
        """Return the attributes of an operation for spans and metrics."""
        if call.type is None and not call.is_outgoing:
            return _UNKNOWN  # an id that a caller made up must not name a span or a metric's series
        found = self._attributes.get(call.operation_id)
        if found is None:
            if len(self._attributes) >= _MOST_KEPT:
                self._attributes.clear()
            found = {"rpc.system.name": "operad", "rpc.method": call.operation_id[:_LONGEST_ID]}
            self._attributes[call.operation_id] = found
        return found


def _nothing_is_recorded() -> bool:
    """Return True if the process has set neither a tracer provider nor a meter provider."""
    # The API's own meter providers record nothing, and it exports no class for the one that is there by default.
    return isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) and type(
        metrics.get_meter_provider()
    ).__module__.startswith("opentelemetry.metrics")


def _pass_baggage_on(call: Any, context: Context) -> None:
    """Add the baggage of a context to a call. Unchanged baggage is passed on with its properties."""
    said = call.metadata.get("baggage") if call.metadata else None
    if said is None and not context:
        return  # there is no current context
    entries = baggage.get_all(context)
    if said is None:
        if entries:
            _BAGGAGE.inject(call.passed_on, context)
    elif entries != baggage.get_all(_BAGGAGE.extract(trace_context({"baggage": said}), Context())):
        call.passed_on["baggage"] = ""  # empty if all entries were removed
        _BAGGAGE.inject(call.passed_on, context)


def _details(call: Any) -> dict[str, str]:
    details = {"operad.request.id": call.request_id}
    if call.type is not None:
        details["operad.operation.type"] = str(call.type)
    elif not call.is_outgoing:
        details["rpc.method_original"] = call.operation_id[:_LONGEST_ID]
    if call.identity_id is not None:
        details["enduser.id"] = call.identity_id
    return details


def _event(report: Any) -> dict[str, Any]:
    """Return the attributes of a report. Its message is cut, and has no control characters."""
    found: dict[str, Any] = {"level": report.level}
    if report.message is not None:
        found["message"] = printable(report.message, _LONGEST_MESSAGE)
    for name in ("progress", "total", "unit"):
        if (value := getattr(report, name)) is not None:
            found[name] = value
    return found | dict(report.attributes)

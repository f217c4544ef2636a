"""What observers of calls see (`operad_call_started` and `operad_call_finished`)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import attrs

from operad.errors import CallError
from operad.failures import map_error
from operad.operations import OperationType
from operad.schemas.likeness import Shown

logger = logging.getLogger("operad")

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[!-~]([ -~]{0,510}[!-~])?")


def trace_context(carrier: Mapping[str, Any]) -> dict[str, str]:
    """``traceparent`` and ``tracestate`` of what carries them (W3C Trace Context, 3.2 and 3.3), and nothing else.

    Args:
        carrier: the metadata of a call, or the headers of a request; what is malformed counts as absent.
    """
    parent = carrier.get("traceparent")
    if not isinstance(parent, str) or _TRACEPARENT.fullmatch(parent) is None:
        return {}
    state = carrier.get("tracestate")
    if not isinstance(state, str) or _TRACESTATE.fullmatch(state) is None:
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


@attrs.frozen(eq=False, repr=False)
class CallRecord(Shown):
    """A call, as observers see it."""

    request_id: str
    parent_request_id: str | None
    operation_id: str
    type: OperationType | None
    """``None`` for an operation that was not found."""
    identity_id: str | None
    started: float
    """Epoch ms."""
    is_stream: bool = False
    """Whether it was made by ``subscribe``: then start and end need not come in one task."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """What the call carries, such as the trace context of whoever made it."""
    state: dict[str, Any] = attrs.field(factory=dict)
    """Free for observers: what one keeps between start and finish."""
    passed_on: dict[str, Any] = attrs.field(factory=dict)
    """What an observer adds, at the start, to what the call carries: nested calls and peers get it, too."""
    called_as: str | None = attrs.field(default=None, kw_only=True)
    """The id by which it was called, where that was through a view."""


@attrs.frozen(eq=False, repr=False)
class CallOutcome(Shown):
    """How a call ended."""

    duration_ms: float
    error: CallError | None = None
    """``None`` for success; ``ABORTED`` for a cancelled call."""
    items: int = 1
    """How many envelopes it answered."""


Observer = Callable[..., None]
"""Called with the keywords of its hook: ``call``, and at the end ``outcome``."""


class Carrier(Protocol):
    """What carries metadata: the context of a call."""

    metadata: Mapping[str, Any]


@attrs.frozen(eq=False, repr=False)
class Observers:
    """The observers of an application. One that raises is logged and does not disturb the call."""

    started: tuple[Observer, ...] = ()
    finished: tuple[Observer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.started or self.finished)

    def with_others(self, others: Observers) -> Observers:
        """These and the others."""
        return Observers((*self.started, *others.started), (*self.finished, *others.finished))

    def without(self, others: Observers) -> Observers:
        """These but the others; what is not here is not missed."""
        return Observers(
            tuple(each for each in self.started if each not in others.started),
            tuple(each for each in self.finished if each not in others.finished),
        )

    def watch(self, call: CallRecord, carrier: Carrier | None = None) -> Watch:
        """A context manager around the call: tells of its start and of its end.

        Args:
            call: the call.
            carrier: its context, which gets what observers pass on.
        """
        return Watch(self, call, carrier)

    def call_started(self, call: CallRecord) -> None:
        """Tell that a call begins."""
        for observer in self.started:
            try:
                observer(call=call)
            except Exception:
                logger.exception("observer %r failed at the start of %s", observer, call.operation_id)

    def call_finished(self, call: CallRecord, outcome: CallOutcome) -> None:
        """Tell that a call is over."""
        for observer in self.finished:
            try:
                observer(call=call, outcome=outcome)
            except Exception:
                logger.exception("observer %r failed at the end of %s", observer, call.operation_id)


class Watch:
    """Around one call; ``items`` is how many envelopes it answered so far."""

    __slots__ = ("_call", "_carrier", "_observers", "_started", "items")

    def __init__(self, observers: Observers, call: CallRecord, carrier: Carrier | None) -> None:
        self._observers = observers
        self._call = call
        self._carrier = carrier
        self.items = 0

    def __enter__(self) -> Self:
        self._observers.call_started(self._call)
        if self._carrier is not None and self._call.passed_on:
            self._carrier.metadata = {**self._carrier.metadata, **self._call.passed_on}
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        duration = (time.perf_counter() - self._started) * 1000
        # A consumer that leaves a stream is how subscriptions usually end: no error.
        error = None if exc is None or isinstance(exc, GeneratorExit) else map_error(exc)
        self._observers.call_finished(self._call, CallOutcome(duration, error, self.items))

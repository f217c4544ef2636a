"""Observers of calls, and the protocols that connect a call to its client and worker thread."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextvars import Context, copy_context
from functools import cache, lru_cache
from typing import Any, Protocol, Self, TypeVar

import attrs

from operad.errors import CallError
from operad.failures import map_error
from operad.operations import OperationType
from operad.records import record

logger = logging.getLogger("operad")

_FAILED = "observer %r failed %s of %s"

T = TypeVar("T")

# Later versions than 00 may have more fields; ff is not a version.
_TRACEPARENT = r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,450})?"
_FORMS = {
    "traceparent": _TRACEPARENT,
    "tracestate": r"[!-~]([ -~]{0,510}[!-~])?",
    # Members with a name and "=": without them OpenTelemetry would log a warning for each call of a peer.
    "baggage": r"(?=[\t -~]{2,8192}\Z)[^,=\s][^,=]*=[^,]*(?:,[\t ]*[^,=\s][^,=]*=[^,]*)*",
}
# Compiled at first use: most processes take part in no trace.
_fullmatch = cache(lambda name: re.compile(_FORMS[name]).fullmatch)


def trace_context(carrier: Mapping[str, Any]) -> dict[str, str]:
    """Return ``traceparent``, ``tracestate`` (W3C Trace Context, 3.2 and 3.3) and ``baggage`` (W3C Baggage, 3).

    Missing and malformed values are left out, as are a ``tracestate`` of more than 512 characters or without a
    ``traceparent``, and a ``baggage`` of more than 8,192 characters. All other values are unchanged.

    Args:
        carrier: the metadata of a call, or the headers of a request.
    """
    found = {}
    for name in _FORMS:
        value = carrier.get(name)
        if isinstance(value, str) and _fullmatch(name)(value) is not None:
            found[name] = value
    if "traceparent" not in found:
        found.pop("tracestate", None)
    return found


# Not frozen: each observed call makes one of each, which would take three times as long.
@attrs.define(eq=False)
class CallRecord:
    """A call, as observers see it."""

    request_id: str
    parent_request_id: str | None
    operation_id: str
    type: OperationType | None
    """The type of the operation; ``None`` if the operation was not found."""
    identity_id: str | None
    started: float
    """The start of the call, in epoch ms."""
    is_stream: bool = False
    """Whether the call was made by ``subscribe``; different tasks may then report its start and end."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """Metadata of the call, such as the trace context of its caller."""
    state: dict[str, Any] = attrs.field(factory=dict)
    """Values that an observer keeps from the start of the call to its end."""
    passed_on: dict[str, Any] = attrs.field(factory=dict)
    """Metadata that an observer adds at the start; nested calls and peers receive them, too."""
    called_as: str | None = None
    """The operation's id in the view through which the call was made; ``None`` for a call without a view."""
    is_outgoing: bool = False
    """Whether a call map made the call; it then runs at a peer, and its type is not known here."""
    input: Any = attrs.field(default=None, repr=False)
    """The caller's input before any check; ``None`` if it was left out. Observers must not change it."""


@record(eq=False)
class CallReport:
    """A report of a running call, such as its progress, a log message or a retry."""

    kind: str
    """``progress``, ``log``, ``retry``, ``upload`` or ``download`` (of a large body), ``stall`` (the caller of a
    stream gives no credit), or a plugin's own kind.
    """
    message: str | None = None
    """A short text for people. It may come from a server, so it is untrusted and of any length."""
    level: str = "info"
    """A severity of RFC 5424, 6.2.1."""
    progress: float | None = None
    total: float | None = None
    """The final value of ``progress``; ``None`` if it is not known."""
    unit: str | None = None
    """The unit of ``progress`` and ``total``, such as ``By`` for bytes (UCUM); ``None`` for no unit."""
    attributes: Mapping[str, str | int | float | bool] = attrs.field(factory=dict)
    """Additional values, such as ``attempt`` and ``delay`` (s) of a retry."""


@attrs.define(eq=False)
class CallOutcome:
    """The end of a call, as observers see it."""

    duration_ms: float
    error: CallError | None = None
    """The error of the call, ``ABORTED`` for a cancelled one; ``None`` for success."""
    items: int = 1
    """The number of envelopes that the call returned."""


Observer = Callable[..., None]
"""Called with the keyword arguments of its hook: ``call``, and ``report`` or ``outcome`` if the hook has it."""


MaybeObserver = Observer | None


class Carrier(Protocol):
    """An object that carries metadata and sends reports to a watch: the context of a call."""

    metadata: Mapping[str, Any]
    watch: Watch | None


@attrs.frozen(eq=False, repr=False)
class Observers:
    """The observers of an application. The exception of an observer is logged and does not affect the call."""

    started: tuple[Observer, ...] = ()
    finished: tuple[Observer, ...] = ()
    reported: tuple[Observer, ...] = ()

    _matching: Callable[[str], Observers] = attrs.field(init=False)
    _idle: frozenset[Callable[[], bool] | None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Each call asks for the observers of its operation: 1,000 operations need not be matched again.
        object.__setattr__(self, "_matching", lru_cache(1_000)(self._of_operation))
        idle = {getattr(one, "is_idle", None) for observers in self._each for one in observers}
        object.__setattr__(self, "_idle", frozenset(one and _safely(one, False) for one in idle))

    def __bool__(self) -> bool:
        return any(self._each)

    def active_for(self, operation_id: str, is_known: bool = True) -> Observers | None:
        """Return the observers of an operation; ``None`` if it has none, or if all of them are idle.

        An observer may have the attributes ``matches``, a function of the id, and ``is_idle``, a function. If one
        of them fails, the call is observed. Nothing is kept of unknown operations, whose ids callers choose.
        """
        found = self._matching(operation_id) if is_known else self._of_operation(operation_id)
        for is_idle in found._idle:
            if is_idle is None or not is_idle():
                return found
        return None

    def _of_operation(self, operation_id: str) -> Observers:
        def observes(observer: Observer) -> bool:
            matches = getattr(observer, "matches", None)
            return matches is None or _safely(matches, True)(operation_id)

        return Observers(*(tuple(filter(observes, observers)) for observers in self._each))

    @classmethod
    def of(cls, *each: MaybeObserver) -> Observers:
        """Return the observers of starts, ends and reports, in this order; one that is ``None`` is left out."""
        return cls(*(() if one is None else (one,) for one in each))

    def with_others(self, others: Observers) -> Observers:
        """Return new `Observers` with these observers and the others."""
        return Observers(*(mine + theirs for mine, theirs in zip(self._each, others._each, strict=True)))

    def without(self, others: Observers) -> Observers:
        """Return new `Observers` with these observers, except the others."""
        pairs = zip(self._each, others._each, strict=True)
        return Observers(*(tuple(one for one in mine if one not in theirs) for mine, theirs in pairs))

    @property
    def _each(self) -> tuple[tuple[Observer, ...], ...]:
        return self.started, self.finished, self.reported


def _safely(function: Callable[..., bool], otherwise: bool) -> Callable[..., bool]:
    """Return a function that logs an exception of ``function`` and returns ``otherwise``."""

    def call(*given: str) -> bool:
        try:
            return bool(function(*given))
        except Exception:
            logger.exception("%r of an observer failed", function)
            return otherwise

    return call


class Watch:
    """A context manager that reports the start and end of a call. Inside, count its envelopes in ``items``.

    Args:
        observers: the observers to notify.
        call: the call.
        carrier: the context of the call, which receives the metadata that observers pass on.
    """

    __slots__ = ("_call", "_carrier", "_is_over", "_observers", "_started", "items")

    def __init__(self, observers: Observers, call: CallRecord, carrier: Carrier) -> None:
        self._observers = observers
        self._call = call
        self._carrier = carrier
        self._is_over = False
        self.items = 0

    def __enter__(self) -> Self:
        call, carrier = self._call, self._carrier
        for observer in self._observers.started:
            try:
                observer(call=call)
            except Exception:
                logger.exception(_FAILED, observer, "at the start", call.operation_id)
        if call.passed_on:
            carrier.metadata = {**carrier.metadata, **call.passed_on}
        if self._observers.reported:
            carrier.watch = self
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: object, exc: BaseException | None, where: object) -> None:
        duration = (time.perf_counter() - self._started) * 1000
        self._is_over = True
        self._carrier.watch = None  # break the reference cycle
        # Subscriptions usually end because the consumer leaves: not an error.
        error = None if exc is None or isinstance(exc, GeneratorExit) else map_error(exc)
        call, outcome = self._call, CallOutcome(duration, error, self.items)
        for observer in self._observers.finished:
            try:
                observer(call=call, outcome=outcome)
            except Exception:
                logger.exception(_FAILED, observer, "at the end", call.operation_id)

    def report(self, report: CallReport) -> None:
        """Pass a report to the observers, unless the call has ended (its thread may still run)."""
        if not self._is_over:
            for observer in self._observers.reported:
                try:
                    observer(call=self._call, report=report)
                except Exception:
                    logger.exception(_FAILED, observer, "at a report", self._call.operation_id)

    @property
    def inside(self) -> Callable[[Awaitable[T]], Awaitable[T]]:
        """Return a function that runs steps of a stream's handler with the variables that observers have set."""
        return lambda step: step


class StreamWatch(Watch):
    """A watch of a stream. Context variables that observers set are for its handler, not for its reader."""

    __slots__ = ("_apart",)

    def __enter__(self) -> Self:
        self._apart = copy_context()
        return self._apart.run(super().__enter__)

    def __exit__(self, kind: object, exc: BaseException | None, where: object) -> None:
        self._apart.run(super().__exit__, kind, exc, where)

    @property
    def inside(self) -> Callable[[Awaitable[T]], Awaitable[T]]:
        """See `Watch.inside`."""
        apart = self._apart
        return super().inside if apart == copy_context() else lambda step: _Inside(apart, step)


class _Inside(Awaitable[T]):
    """An awaitable whose every step runs with the variables of a context."""

    __slots__ = ("_apart", "_awaitable")

    def __init__(self, apart: Context, awaitable: Awaitable[T]) -> None:
        self._apart = apart
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, T]:
        run, steps = self._apart.run, self._awaitable.__await__()
        try:
            waited_for = run(next, steps)
            while True:
                try:
                    answer = yield waited_for
                except BaseException as error:  # noqa: BLE001  # a cancellation above all: it is the handler's
                    waited_for = run(steps.throw, error)
                else:
                    waited_for = run(steps.send, answer)
        except StopIteration as end:
            answered: T = end.value
            return answered


class CallListener(Protocol):
    """A receiver of a call's progress and log messages, provided by the server that received the call."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Receive the progress of the call; for the arguments see `OperationContext.progress`."""

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        """Receive a log message; ``level`` is a severity of RFC 5424, 6.2.1, such as ``info``."""


class Worker(Protocol):
    """The thread in which a plain ``def`` handler runs, as the context of the call uses it."""

    @property
    def cancelled(self) -> bool:
        """Whether the call has ended."""

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop and return its result. Raises `CallError` if the call has ended."""

    def soon(self, callback: Callable[[T], None], argument: T) -> None:
        """Call a function in the event loop, unless the loop is closed."""

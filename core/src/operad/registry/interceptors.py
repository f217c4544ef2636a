"""Interceptors: functions around the calls of some operations, which may change or reject calls or return results.

From the outside in: observers, access check, input validation, interceptors, handler, result pipeline.
Interceptors run in the call's own task, under its deadline, and also for nested calls.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

import attrs

from operad.access import Identity
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ConfigError, ErrorCode, PluginError
from operad.operations import Operation, OperationSpec, is_kind
from operad.records import record
from operad.registry.entry import Entry
from operad.subscriptions import close
from operad.words import in_words

Envelope = ResponseEnvelope[Any]
T = TypeVar("T")
Step = Callable[[Any, T, "Entry"], T]


_Checked = tuple[Identity | None, bool, float | None]
"""The identity, trust and deadline of the checked call, kept because a context can be changed in place."""


def _as_made(call: InterceptedCall) -> _Checked:
    return call.context.identity, call.context.trusted, call.context.deadline


def copied(input: Any) -> Any:
    """Return a shallow copy of a dict, so that an interceptor may set its fields; any other input unchanged."""
    return input.copy() if input.__class__ is dict else input


@attrs.frozen(eq=False)
class InterceptedCall:
    """A call on its way to the handler. Its attributes cannot be set; `evolve` makes a changed copy.

    Args:
        spec: the operation that is called.
        input: a shallow copy of the caller's input. An interceptor may set its fields, and the input is checked
            again before the handler runs. Objects in the fields are the caller's and must not be changed.
        context: the caller and the deadline. Access and input have been checked for it.
    """

    spec: OperationSpec
    input: Any
    context: OperationContext
    _checked: _Checked = attrs.field(
        alias="_checked", repr=False, default=attrs.Factory(_as_made, takes_self=True)
    )

    def evolve(self, **changes: Any) -> InterceptedCall:
        """Return a copy with another ``input`` or ``context``, or with other fields of the context.

        A new input or identity is checked when the interceptor passes the copy to ``proceed``.

        Raises:
            ValueError: ``trusted`` is given, because no interceptor may skip the access check.
        """
        input, context = changes.pop("input", self.input), changes.pop("context", self.context)
        if "trusted" in changes:
            raise ValueError("trusted: an interceptor must not make a call trusted; leave it out")
        if changes:
            context = attrs.evolve(context, **changes)
        if context.watch is None:  # the call is still observed
            context.watch = self.context.watch
        return InterceptedCall(self.spec, input, context, self._checked)

    @property
    def limit(self) -> float | None:
        """The deadline in epoch ms that an interceptor set instead of the call's; ``None`` if it is unchanged."""
        deadline = self.context.deadline
        return None if deadline is self._checked[2] else deadline

    def checked(self, changed: InterceptedCall, entry: Entry) -> InterceptedCall:
        """Return the call that an interceptor passed on; check access and input if identity or input changed.

        Raises:
            CallError: a check fails.
            RuntimeError: the interceptor changed ``spec`` or ``context.trusted``.
            TypeError: ``changed`` is not an `InterceptedCall`.
        """
        if not isinstance(changed, InterceptedCall):
            raise TypeError(f'"{self.spec.id}": proceed takes call or call.evolve(), got {type(changed).__name__}')
        context, (identity, trusted, deadline) = changed.context, self._checked
        if changed.spec is not self.spec or context.trusted is not trusted:
            raise RuntimeError(f'an interceptor of "{self.spec.id}" changed spec or trusted; use call.evolve(…)')
        if changed.input is self.input and context.identity is identity:
            return changed
        input = entry.admit(changed.input if entry.adapt is None else entry.adapt(changed.input), context)
        return InterceptedCall(self.spec, input, context, (context.identity, trusted, deadline))


Proceed = Callable[[InterceptedCall], Awaitable[Envelope]]
"""Calls the next interceptor or, from the last one, the handler. Raises `CallError` and no other exception."""
CallInterceptor = Callable[[InterceptedCall, Proceed], Awaitable[Envelope]]
"""``async def tap(call, proceed): return await proceed(call)``; returns an envelope."""
StreamProceed = Callable[[InterceptedCall], AsyncIterator[Envelope]]
StreamInterceptor = Callable[[InterceptedCall, StreamProceed], AsyncGenerator[Envelope, None]]
"""``async def tap(call, proceed)`` with ``async for envelope in proceed(call): yield envelope``."""


ChangeOperation = Callable[[Operation[..., Any]], Operation[..., Any] | None]
"""Takes an operation, and returns the one to register instead, with the same id; ``None`` to leave it out."""


def _kind(is_of: Callable[[Any], bool], what: str) -> Callable[[Any, Any, Any], None]:
    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and not is_kind(value, is_of):
            raise TypeError(f"{attribute.name}: expected {what}, got {value!r:.80}")

    return check


_is_call = _kind(inspect.iscoroutinefunction, "an async def")
_is_stream = _kind(inspect.isasyncgenfunction, "an async def with yield")


def patterns_of(match: str | Iterable[str]) -> tuple[str, ...]:
    """Return patterns as a tuple; a string is one pattern."""
    return (match,) if isinstance(match, str) else tuple(match)


@record(eq=False)
class Interceptor:
    """An interceptor with the operations that it applies to; plugins return them from ``operad_interceptors``.

    Args:
        call: runs around `execute`, also of a subscription; if ``None``, these calls are not intercepted.
        subscribe: runs around `subscribe`; if ``None``, subscriptions are not intercepted.
        match: one shell pattern of the operations' ids, or several; by default all operations.
        order: the place among other interceptors; one with a lower number runs further outside.
        change: called with each `Operation` when it is registered; returns the operation to register in its
            place, with the same id, or ``None`` to leave it out. By default operations are not changed.
    """

    call: CallInterceptor | None = attrs.field(default=None, validator=_is_call)
    subscribe: StreamInterceptor | None = attrs.field(default=None, validator=_is_stream)
    match: tuple[str, ...] = attrs.field(default=("*",), converter=patterns_of)
    order: int = 0
    change: ChangeOperation | None = None

    def matches(self, operation_id: str) -> bool:
        """Return True if a pattern in ``match`` fits the id of the operation."""
        return any(fnmatchcase(operation_id, pattern) for pattern in self.match)


def contributed(hooks: Iterable[Callable[..., Any]], registry: Any) -> list[Interceptor]:
    """Return the interceptors of all implementations of ``operad_interceptors``.

    Raises:
        PluginError: an implementation raises, or returns an object that is not an `Interceptor`. No registry is
            made then, because a call that the plugin would have rejected must not run.
        ConfigError: a plugin cannot use its table of the configuration.
    """
    found: list[Interceptor] = []
    for hook in hooks:
        name = getattr(hook, "__qualname__", "a plugin")
        try:
            items = list(hook(registry=registry) or ())
        except ConfigError:
            raise
        except Exception as error:
            raise PluginError(f"{name} raised {in_words(error)}; fix the plugin or disable it") from error
        for item in items:
            if not isinstance(item, Interceptor):
                raise PluginError(f"{name} must return a list of Interceptor, got one with {type(item).__name__}")
        found += items
    return found


class Interceptors:
    """The interceptors of one registry, sorted by ``order``; of equal order, those of plugins come first.

    Args:
        contributed: the interceptors of plugins.
        changed: called after an interceptor was added or removed.
    """

    def __init__(self, contributed: Iterable[Interceptor], changed: Callable[[], None]) -> None:
        self._all = sorted(contributed, key=attrgetter("order"))
        self._changed = changed

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, interceptor: Interceptor) -> Callable[[], None]:
        """Add an interceptor, and return a function that removes it; that function is idempotent."""
        self._all = sorted([*self._all, interceptor], key=attrgetter("order"))  # stable: equals stay as added
        self._changed()

        def remove() -> None:
            self._all = [other for other in self._all if other is not interceptor]
            self._changed()

        return remove

    def changed(self, entry: Entry) -> Entry | None:
        """Return the entry as interceptors change it on registration; ``None`` if an interceptor leaves it out."""
        changes = [each.change for each in self._all if each.change is not None and each.matches(entry.spec.id)]
        if not changes:
            return entry
        operation = entry.operation or Operation(entry.spec, entry.handler, entry.blocking)
        for change in changes:
            if (shown := change(operation)) is None:
                return None
            operation = shown
        made = Entry(operation.spec, operation.handler, operation.blocking, entry.owner, entry.pipeline, operation)
        made.original = entry
        return made

    def around_call(self, entry: Entry, handle: Proceed) -> Proceed | None:
        """Return ``handle`` with the interceptors of calls around it; ``None`` if no interceptor matches."""
        return self._around(entry, handle, attrgetter("call"), _call_step)

    def around_stream(self, entry: Entry, handle: StreamProceed) -> StreamProceed | None:
        """Return ``handle`` with the interceptors of subscriptions around it; ``None`` if none matches."""
        return self._around(entry, handle, attrgetter("subscribe"), _stream_step)

    def _around(self, entry: Entry, handle: T, of: Callable[[Interceptor], Any], step: Step[T]) -> T | None:
        chain = handle
        for interceptor in reversed(self._all):
            if interceptor.matches(entry.spec.id) and (intercept := of(interceptor)) is not None:
                chain = step(intercept, chain, entry)
        return None if chain is handle else chain


def _call_step(intercept: CallInterceptor, inner: Proceed, entry: Entry) -> Proceed:
    once = not entry.spec.is_repeatable

    async def step(call: InterceptedCall) -> Envelope:
        went = over = False

        async def proceed(changed: InterceptedCall) -> Envelope:
            nonlocal went
            if over:
                raise _late(entry)
            if went and once:
                raise _twice(entry)
            went = True
            return await inner(call.checked(changed, entry))

        try:
            return envelope_of(await intercept(call, proceed), entry)
        finally:
            over = True

    return step


def _stream_step(intercept: StreamInterceptor, inner: StreamProceed, entry: Entry) -> StreamProceed:
    async def step(call: InterceptedCall) -> AsyncGenerator[Envelope, None]:
        opened: list[AsyncIterator[Envelope]] = []
        over = False

        def proceed(changed: InterceptedCall) -> AsyncIterator[Envelope]:
            if over:
                raise _late(entry)
            if opened:
                raise _twice(entry)
            opened.append(inner(call.checked(changed, entry)))
            return opened[0]

        items = intercept(call, proceed)
        try:
            async for item in items:
                yield envelope_of(item, entry)
        finally:  # a generator that is closed early does not close what it iterates over
            over = True
            try:
                await close(items)
            finally:  # also if the interceptor fails while it closes
                for stream in opened:
                    await close(stream)

    return step


def envelope_of(result: Any, entry: Entry) -> Envelope:
    """Return ``result`` of an interceptor. Raises `CallError` ``EXECUTION_ERROR`` if it is not an envelope."""
    if isinstance(result, ResponseEnvelope):
        return result
    message = f'an interceptor of "{entry.spec.id}" must return a ResponseEnvelope, got {type(result).__name__}'
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})


def _twice(entry: Entry) -> RuntimeError:
    called = f'an interceptor called proceed for "{entry.spec.id}" twice'
    return RuntimeError(f"{called}: only queries and idempotent mutations may run again")


def _late(entry: Entry) -> RuntimeError:
    return RuntimeError(f'an interceptor called proceed for "{entry.spec.id}" after the call had ended')

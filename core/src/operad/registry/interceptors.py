"""Interceptors: what stands around every call of some operations, and may change, answer or refuse it.

From the outside in: observers, access check, input validation, interceptors, handler, result pipeline. They run in
the call's own task, under its deadline; nested calls pass through them, too.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ConfigError, ErrorCode, PluginError
from operad.operations import OperationSpec, is_kind
from operad.records import record
from operad.subscriptions import close
from operad.words import in_words

if TYPE_CHECKING:
    from operad.registry.entry import Entry

Envelope = ResponseEnvelope[Any]


class InterceptedCall:
    """A call on its way to the handler. It is replaced (`evolve`), not changed.

    Args:
        spec: what is called.
        input: what it is called with.
        context: who calls, until when. Access and input have been checked for it as it is now.
    """

    # Written out: each intercepted call makes one, and a frozen class of attrs takes three times as long.
    __slots__ = ("_context", "_deadline", "_identity", "_input", "_spec", "_trusted")

    def __init__(self, spec: OperationSpec, input: Any, context: OperationContext) -> None:
        self._spec, self._input, self._context = spec, input, context
        # As they were when they were checked: a context can be changed in place.
        self._identity, self._trusted, self._deadline = context.identity, context.trusted, context.deadline

    @property
    def spec(self) -> OperationSpec:
        """What is called."""
        return self._spec

    @property
    def input(self) -> Any:
        """What it is called with."""
        return self._input

    @property
    def context(self) -> OperationContext:
        """Who calls, until when."""
        return self._context

    def __repr__(self) -> str:
        return f"InterceptedCall(spec={self._spec!r}, input={self._input!r}, context={self._context!r})"

    def evolve(self, **changes: Any) -> InterceptedCall:
        """A copy with another ``input``, or ``context``, or fields of it: ``identity, deadline, metadata, …``.

        Another input or identity is checked again when the copy is passed on.

        Raises:
            ValueError: ``trusted`` is among them: no interceptor opens what is guarded.
        """
        input, context = changes.pop("input", self._input), changes.pop("context", self._context)
        if "trusted" in changes:
            raise ValueError("an interceptor cannot make a call trusted")
        if changes:
            context = attrs.evolve(context, **changes)
        if context.watch is None:  # the call is still observed
            context.watch = self._context.watch
        made = InterceptedCall(self._spec, input, context)
        made._identity, made._trusted, made._deadline = self._identity, self._trusted, self._deadline
        return made

    @property
    def limit(self) -> float | None:
        """The deadline that an interceptor set beyond the call's own; ``None`` where it set none."""
        deadline = self._context.deadline
        return None if deadline is self._deadline else deadline

    def checked(self, changed: InterceptedCall, entry: Entry) -> InterceptedCall:
        """``changed``, which an interceptor made of this call, after access and input were checked again.

        Raises:
            CallError: they do not hold.
            RuntimeError: the spec is another one, or the trust.
            TypeError: it is no call.
        """
        identity, trusted = self._identity, self._trusted
        try:
            context = changed._context
        except AttributeError:
            raise TypeError(
                f"proceed takes the call, or what call.evolve(…) made of it, got {type(changed).__name__}"
            ) from None
        if changed._spec is not self._spec or context.trusted is not trusted:
            raise RuntimeError(
                "an interceptor changes neither which operation is called nor whether it is trusted"
            )
        if changed._input is self._input and context.identity is identity:
            return changed
        input = changed._input if entry.adapt is None else entry.adapt(changed._input)
        entry.admit(input, context)
        made = InterceptedCall(self._spec, input, context)
        made._deadline = self._deadline
        return made


Proceed = Callable[[InterceptedCall], Awaitable[Envelope]]
"""Goes on with the call: the next interceptor, in the end the handler. Raises `CallError`, and nothing else."""
CallInterceptor = Callable[[InterceptedCall, Proceed], Awaitable[Envelope]]
"""``async def tap(call, proceed): return await proceed(call)``; answers an envelope."""
StreamProceed = Callable[[InterceptedCall], AsyncIterator[Envelope]]
StreamInterceptor = Callable[[InterceptedCall, StreamProceed], AsyncGenerator[Envelope, None]]
"""``async def tap(call, proceed)`` with ``async for envelope in proceed(call): yield envelope``."""


class ResultStore(Protocol):
    """Where the first results of idempotency keys are kept: bytes by name, for a time. Shared by all servers."""

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Put ``value`` under a free name and return ``None``; return the value of a taken name. Atomic."""

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Replace the value of a name."""

    async def drop(self, name: str) -> None:
        """Free a name."""


def _coroutine(owner: Any, _: Any, value: Any) -> None:
    if value is not None and not is_kind(value, inspect.iscoroutinefunction):
        raise TypeError(f"an interceptor of calls is an async def, got {value!r}")


def _generator(owner: Any, _: Any, value: Any) -> None:
    if value is not None and not is_kind(value, inspect.isasyncgenfunction):
        raise TypeError(f"an interceptor of streams is an async def with yield, got {value!r}")


def patterns_of(match: str | Iterable[str]) -> tuple[str, ...]:
    """One shell pattern, or several."""
    return (match,) if isinstance(match, str) else tuple(match)


@record(eq=False)
class Interceptor:
    """What a plugin contributes by ``operad_interceptors``, or an application by ``registry.use``.

    Args:
        call: stands around single calls, `execute` of a subscription included; ``None``: none.
        subscribe: stands around subscriptions; without it they pass this interceptor by.
        match: shell patterns of the operations' ids.
        order: the lower, the further outside.
    """

    call: CallInterceptor | None = attrs.field(default=None, validator=_coroutine)
    subscribe: StreamInterceptor | None = attrs.field(default=None, validator=_generator)
    match: tuple[str, ...] = attrs.field(default=("*",), converter=patterns_of)
    order: int = 0

    def matches(self, operation_id: str) -> bool:
        """Whether calls of the operation pass through it."""
        return any(fnmatchcase(operation_id, pattern) for pattern in self.match)


def contributed(hooks: Iterable[Callable[..., Any]], registry: Any) -> list[Interceptor]:
    """Return the interceptors of all implementations of ``operad_interceptors``.

    Raises:
        PluginError: one of them fails. A call that it would have rejected must not run, so no registry is made.
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
                raise PluginError(f"{name} has to return Interceptors, got {type(item).__name__}")
        found += items
    return found


class Interceptors:
    """Those of one registry: by ``order``, plugins before the application, then as they came.

    Args:
        contributed: those of plugins.
        changed: called when there are others than before.
    """

    def __init__(self, contributed: Iterable[Interceptor], changed: Callable[[], None]) -> None:
        self._number = itertools.count().__next__
        self._changed = changed
        self._all: list[tuple[tuple[int, int], Interceptor]] = []
        for interceptor in contributed:
            self._put(interceptor)

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, interceptor: Interceptor) -> Callable[[], None]:
        """Add one of the application; what is answered removes it, and does so once."""
        entry = self._put(interceptor)

        def remove() -> None:
            if entry in self._all:
                self._all.remove(entry)
                self._changed()

        self._changed()
        return remove

    def _put(self, interceptor: Interceptor) -> tuple[tuple[int, int], Interceptor]:
        entry = ((interceptor.order, self._number()), interceptor)
        self._all.append(entry)
        self._all.sort(key=lambda item: item[0])
        return entry

    def around_call(self, entry: Entry, handle: Proceed) -> Proceed | None:
        """``handle`` with the interceptors of the operation around it; ``None`` where there are none."""
        steps = [found.call for found in self._of(entry) if found.call is not None]
        chain = handle
        for intercept in reversed(steps):
            chain = _call_step(intercept, chain, entry)
        return chain if steps else None

    def around_stream(self, entry: Entry, handle: StreamProceed) -> StreamProceed | None:
        """The same for subscriptions."""
        steps = [found.subscribe for found in self._of(entry) if found.subscribe is not None]
        chain = handle
        for intercept in reversed(steps):
            chain = _stream_step(intercept, chain, entry)
        return chain if steps else None

    def _of(self, entry: Entry) -> list[Interceptor]:
        return [found for _, found in self._all if found.matches(entry.spec.id)]


def _call_step(intercept: CallInterceptor, inner: Proceed, entry: Entry) -> Proceed:
    once = not entry.spec.is_repeatable

    async def step(call: InterceptedCall) -> Envelope:
        went = False

        def proceed(changed: InterceptedCall) -> Awaitable[Envelope]:
            nonlocal went
            if went and once:
                raise _twice(entry)
            went = True
            return inner(call.checked(changed, entry))

        return envelope_of(await intercept(call, proceed), entry)

    return step


def _stream_step(intercept: StreamInterceptor, inner: StreamProceed, entry: Entry) -> StreamProceed:
    async def step(call: InterceptedCall) -> AsyncGenerator[Envelope, None]:
        opened: list[AsyncIterator[Envelope]] = []

        def proceed(changed: InterceptedCall) -> AsyncIterator[Envelope]:
            if opened:
                raise _twice(entry)
            opened.append(inner(call.checked(changed, entry)))
            return opened[0]

        items = intercept(call, proceed)
        try:
            async for item in items:
                yield envelope_of(item, entry)
        finally:  # a generator that is left does not close what it iterates over
            try:
                await close(items)
            finally:  # also where the interceptor fails on its way out
                for stream in opened:
                    await close(stream)

    return step


def envelope_of(result: Any, entry: Entry) -> Envelope:
    """What an interceptor answered, if it is an envelope."""
    if isinstance(result, ResponseEnvelope):
        return result
    message = f'an interceptor of "{entry.spec.id}" answered {type(result).__name__}, not a ResponseEnvelope'
    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})


def _twice(entry: Entry) -> RuntimeError:
    return RuntimeError(
        f'an interceptor went on with "{entry.spec.id}" twice: only queries and idempotent mutations may run again'
    )

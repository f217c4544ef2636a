"""Entries: the operations of a registry, each of them prepared at its first call."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import attrs

from operad.access import check_access
from operad.errors import CallError, ErrorCode
from operad.operations import Handler, Operation, OperationSpec, OperationType, Pages, is_kind
from operad.subscriptions import close

if TYPE_CHECKING:
    from operad.context import OperationContext
    from operad.envelopes import ResponseEnvelope
    from operad.registry.pipeline import ResultPipeline
    from operad.registry.workers import Workers
    from operad.usage import Lifespan


@attrs.define(eq=False, repr=False)
class Entry:
    """A spec, its handler and their owner. `prepare` sets the fields after `original`; `invoke` is set last."""

    spec: OperationSpec
    handler: Handler | None
    """The handler of the operation; ``None`` until one is registered."""
    blocking: bool | None
    """Whether a plain ``def`` runs in a worker thread (``True``, ``None``) or in the event loop (``False``)."""
    owner: str | None
    """The source or hook that provided the operation; ``None`` if `OperationRegistry.register` added it."""
    pipeline: ResultPipeline
    """The pipeline that makes envelopes of the handler's results."""
    operation: Operation[..., Any] | None = None
    """The `Operation` with the handler; ``None`` if spec and handler were registered separately."""
    original: Entry | None = None
    """The entry as it was registered; ``None`` if no interceptor changed it."""
    invoke: Callable[[Any, OperationContext], Awaitable[Any]] | None = None
    lifespan: Lifespan | None = attrs.field(init=False)
    adapt: Callable[[Any], Any] | None = attrs.field(init=False)
    stream: Handler | None = attrs.field(init=False)
    validator: Callable[[Any], bool] | None = attrs.field(init=False)
    finish: Callable[[Any], ResponseEnvelope[Any]] = attrs.field(init=False)
    guarded: bool = attrs.field(init=False)
    is_open: bool = attrs.field(init=False)
    scopes: tuple[str, ...] | None = attrs.field(init=False)
    """The required scopes, if nothing else is required; else ``None``."""
    streams: bool = attrs.field(init=False)
    call_chain: Callable[[Any], Awaitable[ResponseEnvelope[Any]]] | None = attrs.field(init=False)
    stream_chain: Callable[[Any], AsyncIterator[ResponseEnvelope[Any]]] | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.spec = self.pipeline.within(self.spec)

    @property
    def label(self) -> str:
        """The owner of the operation, for messages."""
        return self.owner or described(self.handler)

    @property
    def pages(self) -> Pages | None:
        """The pagination of the operation; ``None`` if its source does not define one."""
        return None if self.operation is None else self.operation.pages

    def prepare(self, handler: Handler, workers: Workers) -> None:
        """Set the fields that each call uses: compiled schemas, and how the handler runs."""
        spec, operation = self.spec, self.operation
        self.lifespan = None if self.pipeline.usage is None else self.pipeline.usage.lifespan
        self.adapt = None if operation is None else operation.adapt
        self.stream = None if operation is None else operation.stream
        access = spec.access_control
        self.is_open = access.is_open
        alone = not (access.required_scopes_any or access.resource_type is not None)
        self.scopes = access.required_scopes if alone else None
        self.validator = None if spec.input_schema.is_unknown else spec.input_schema.validator
        self.guarded = not (self.validator is None and self.adapt is None and self.is_open)
        self.finish = self.pipeline.finisher(spec)
        streams = self._is_streaming(handler)
        self.streams = self.stream is not None or streams
        self.call_chain = self.stream_chain = None
        invoke = self._invoker(handler, streams, workers)
        self.invoke = invoke if self.lifespan is None else _with_state(invoke, self.lifespan)  # it marks the entry

    def admit(self, input: Any, call: OperationContext) -> Any:
        """Check access, then the input, and return the input. If `guarded` is False, there is nothing to check.

        If the input is not valid, Python values without a JSON type, such as dates and dataclasses, are converted,
        and the input is checked again. Raises `CallError` ``ACCESS_DENIED`` or ``VALIDATION_ERROR``.
        """
        if not (self.is_open or call.trusted):
            identity, scopes = call.identity, self.scopes
            if scopes is None or identity is None or not identity.scopes.issuperset(scopes):
                check_access(self.spec.access_control, identity, input)
        if self.validator is not None and not self.validator(input):
            input = self._as_json(input)
            if not self.validator(input):
                raise _invalid_input(self.spec, input)
        return input

    def _as_json(self, input: Any) -> Any:
        from operad.functions.kinds import Types  # imports msgspec: only for an input that is not valid

        signature = None if self.operation is None else self.operation.signature
        try:
            return (Types() if signature is None else signature.conversions.types).to_json(input)
        except Exception:  # noqa: BLE001  # any object may come here; validation reports the fault
            return input

    def items(self, input: Any, call: OperationContext, workers: Workers) -> AsyncIterator[Any]:
        """Return the items of a handler that is a generator function or returns an asynchronous iterator."""
        handler = self.stream or self.handler
        assert handler is not None
        if self.lifespan is not None:
            call.state = self.lifespan.state
        if is_kind(handler, inspect.isasyncgenfunction):
            items: AsyncIterator[Any] = handler(input, call)
            return items
        return self._adapted(handler, input, call, workers)

    def _is_streaming(self, handler: Handler) -> bool:
        return (
            self.spec.type is OperationType.SUBSCRIPTION
            or is_kind(handler, inspect.isasyncgenfunction)
            or is_kind(handler, inspect.isgeneratorfunction)
        )

    def _invoker(
        self, handler: Handler, streams: bool, workers: Workers
    ) -> Callable[[Any, OperationContext], Awaitable[Any]]:
        """Return the function that runs the handler: input and context to an awaitable result."""
        if streams:

            async def first(input: Any, call: OperationContext) -> Any:
                items = self.items(input, call, workers)
                try:
                    return await anext(items)
                except StopAsyncIteration:
                    message = f'the subscription "{self.spec.id}" ended without an item'
                    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from None
                finally:
                    await close(items)

            return first
        if is_kind(handler, inspect.iscoroutinefunction):
            return handler
        if self.blocking is False:

            async def direct(input: Any, call: OperationContext) -> Any:
                result = handler(input, call)
                return await result if inspect.isawaitable(result) else result

            return direct

        async def threaded(input: Any, call: OperationContext) -> Any:
            result = await workers.run(call, handler, input, call)
            return await result if inspect.isawaitable(result) else result

        return threaded

    async def _adapted(
        self, handler: Handler, input: Any, call: OperationContext, workers: Workers
    ) -> AsyncGenerator[Any, None]:
        """Yield the items of a plain generator or of a returned iterator."""
        threaded = self.blocking is not False and not is_kind(handler, inspect.iscoroutinefunction)
        result = await workers.run(call, handler, input, call) if threaded else handler(input, call)
        if inspect.isawaitable(result):
            result = await result
        if inspect.isgenerator(result):
            items = workers.items(call, result) if threaded else _in_loop(result)
        elif hasattr(result, "__aiter__"):
            items = aiter(result)
        else:
            yield result
            return
        try:
            async for item in items:
                yield item
        finally:
            await close(items)


def _with_state(invoke: Callable[..., Awaitable[Any]], lifespan: Lifespan) -> Callable[..., Awaitable[Any]]:
    async def with_state(input: Any, call: OperationContext) -> Any:
        call.state = lifespan.state
        return await invoke(input, call)

    return with_state


async def _in_loop(generator: Any) -> AsyncGenerator[Any, None]:
    try:
        for item in generator:
            yield item
    finally:
        generator.close()


def described(handler: Handler | None) -> str:
    """Return the owner of an application's handler for messages, such as ``the application (shop.add)``."""
    name = getattr(handler, "__qualname__", None)
    return f"the application ({getattr(handler, '__module__', '?')}.{name})" if name else "the application"


def _invalid_input(spec: OperationSpec, input: Any) -> CallError:
    errors = spec.input_schema.errors(input)
    listed = [{"path": e.path, "message": e.message, "keyword": e.keyword} for e in errors]
    reason = "; ".join(error.message for error in errors[:3]) or "it does not match the input schema"
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
    return CallError(
        ErrorCode.VALIDATION_ERROR, f'invalid input for "{spec.id}": {reason}{more}', {"errors": listed}
    )


def no_operation(value: Any) -> str:
    """Return the message for a value that is not an operation, with how to register it."""
    wrap = f"wrap it: operation({getattr(value, '__name__', 'f')})" if callable(value) else "see operad.operation"
    return f"register takes an operation, or a spec and a handler, got {type(value).__name__}; {wrap}"

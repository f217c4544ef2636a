"""Typed calls: call an operation with the arguments of its function, and get a value of the function's type."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

import attrs

from operad.context import Callables, OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.functions.clients import Client
from operad.operations import Operation, OperationSpec, Pages
from operad.subscriptions import Subscription
from operad.words import text_of

if TYPE_CHECKING:
    from operad.functions.signatures import TypedSignature

P = ParamSpec("P")
T = TypeVar("T")
Id = str | Operation[..., Any]


class TypedCalls(Callables):
    """The base of registries, views and bound calls: typed calls, clients and pagination."""

    plugins: Any
    """The plugins of the registry; their envelope kinds determine which envelopes are those of failed calls."""

    def pages(self, operation_id: str) -> Pages | None:
        """Return the pagination of an operation; ``None`` for results of one page. Subclasses implement this."""
        raise NotImplementedError

    def data_of(self, envelope: ResponseEnvelope[Any], operation_id: str) -> Any:
        """Return the data of an envelope.

        Raises:
            CallError: ``EXECUTION_ERROR`` if the envelope is that of a failed call, such as a failed call of an
                MCP tool; ``details["data"]`` has its data.
        """
        if self.plugins.envelope_kinds.is_error(envelope):
            message = f'"{operation_id}" failed: {text_of(envelope.data)}'
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "data": envelope.data})
        return envelope.data

    def client(self, namespace: str) -> Any:
        """Return the operations of a namespace as methods that return data: ``await client.getPetById(petId=1)``.

        The result is a `Client`, also for a namespace without operations. ``operad stubs`` writes the types of its
        methods for type checkers. For calls with a context use ``registry.bound(context=…).client(namespace)``.
        """
        return Client(self, namespace)

    async def paginate(
        self,
        operation_id: str,
        input: Mapping[str, Any] | None = None,
        context: OperationContext | None = None,
        *,
        items: bool = False,
        max_pages: int = 1_000,
        timeout: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the envelopes of all pages of a listing or, with ``items``, the items of all pages.

        Each page is one `execute`, limited by ``timeout`` in seconds. An operation without pagination has one
        page. After ``max_pages`` the generator ends without an error. Raises `CallError` if a call fails or a page
        cannot be read.
        """
        pages, current = self.pages(operation_id), dict(input or {})
        for _ in range(max_pages):
            envelope = await self.execute(operation_id, dict(current), context, timeout=timeout)
            if items:
                found = envelope.data if pages is None else pages.items(envelope)
                for item in found if isinstance(found, list) else [found]:
                    yield item
            else:
                yield envelope
            following = None if pages is None else pages.following(current, envelope)
            if following is None or following == current:  # a server that repeats a page would never end
                return
            current = dict(following)

    def bound(
        self,
        *,
        context: OperationContext | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> BoundCalls:
        """Return an object with the same methods, which uses this context and timeout (s) for each call.

        For example: ``registry.bound(timeout=5).call(add, a=1, b=2)``. Use an ``idempotency_key`` for one call and
        its repetitions only.
        """
        return BoundCalls(self, with_key(context, idempotency_key), timeout)

    @overload
    async def call(
        self, operation: Operation[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def call(
        self,
        operation: Operation[P, AsyncIterator[T]] | Operation[P, Iterator[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...

    @overload
    async def call(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def call(self, operation: Operation[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call an operation with the arguments of its function, and return a value of the function's type.

        The call is checked and intercepted like every call of the operation. For a subscription the result is the
        first item. If the function takes a context, that argument becomes the context of the call.

        Raises:
            CallError: the call failed; ``EXECUTION_ERROR`` if its result does not fit the function's return type.
            TypeError: the operation was not made from a function, or the arguments do not fit it.
        """
        signature = _signature(operation)
        input, context = signature.input(args, kwargs)
        envelope = await self.execute(operation, input, context)
        return _answer(operation, envelope, self.data_of(envelope, operation.id))

    @overload
    def stream(
        self,
        operation: Operation[P, AsyncIterator[T]] | Operation[P, Iterator[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> TypedStream[T]: ...

    @overload
    def stream(
        self, operation: Operation[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> TypedStream[T]: ...

    @overload
    def stream(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TypedStream[T]: ...

    def stream(self, operation: Operation[..., Any], /, *args: Any, **kwargs: Any) -> TypedStream[Any]:
        """Subscribe to an operation with the arguments of its function; the items are of the function's type.

        Raises the same `TypeError` as `call`. Iterating raises `CallError` if the call fails.
        """
        input, context = _signature(operation).input(args, kwargs)
        return TypedStream(self, operation, self.subscribe(operation, input, context))


def with_key(context: OperationContext | None, key: str | None) -> OperationContext | None:
    """Return a copy of ``context``, or a new context, with ``key``; if ``key`` is ``None``, ``context`` itself."""
    if key is None:
        return context
    return OperationContext(idempotency_key=key) if context is None else attrs.evolve(context, idempotency_key=key)


class BoundCalls(TypedCalls):
    """The calls of a registry with one context and timeout (s), which limits each item of a stream."""

    def __init__(
        self, target: TypedCalls, context: OperationContext | None = None, timeout: float | None = None
    ) -> None:
        self._target = target
        self.plugins = target.plugins
        self._context = context
        self._timeout = timeout

    def pages(self, operation_id: str) -> Pages | None:
        return self._target.pages(operation_id)

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        return self._target.get_spec(operation_id)

    def specs(self) -> Sequence[OperationSpec]:
        return self._target.specs()

    async def execute(
        self,
        operation_id: Id,
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation; ``context`` and ``timeout`` take precedence over the bound ones."""
        timeout = self._timeout if timeout is None else timeout
        return await self._target.execute(operation_id, input, context or self._context, timeout=timeout)

    def subscribe(
        self,
        operation_id: Id,
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe to an operation; ``context`` and ``timeout`` take precedence over the bound ones."""
        timeout = self._timeout if timeout is None else timeout
        return self._target.subscribe(operation_id, input, context or self._context, timeout=timeout)


class TypedStream(AsyncIterator[T], Generic[T]):
    """A subscription with items of the type that the function yields; used like a `Subscription`."""

    def __init__(self, calls: TypedCalls, operation: Operation[..., Any], envelopes: Subscription) -> None:
        self._envelopes = Subscription(_typed(calls, operation, envelopes))

    def __aiter__(self) -> AsyncIterator[T]:  # noqa: PYI034  # the iterator of one loop, as a subscription's
        items: AsyncIterator[Any] = aiter(self._envelopes)
        return items

    async def __anext__(self) -> T:
        item: Any = await anext(self._envelopes)
        return item  # type: ignore[no-any-return]  # of the type that the operation's signature structures

    async def aclose(self) -> None:
        """Close this stream and the subscription behind it; idempotent."""
        await self._envelopes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _typed(
    calls: TypedCalls, operation: Operation[..., Any], envelopes: Subscription
) -> AsyncGenerator[Any, None]:
    async with envelopes:
        async for envelope in envelopes:
            yield _answer(operation, envelope, calls.data_of(envelope, operation.id))


def _answer(operation: Operation[..., Any], envelope: ResponseEnvelope[Any], data: Any) -> Any:
    signature = _signature(operation)
    value = signature.result(data, operation.id)
    return ResponseEnvelope(value, envelope.meta) if signature.in_envelope else value


def _signature(operation: Operation[..., Any] | Any) -> TypedSignature:
    if not isinstance(operation, Operation):
        got = type(operation).__name__
        raise TypeError(f"expected an operation made from a function, got {got}; for an id use execute(id, input)")
    if operation.signature is None:
        raise TypeError(f'operation "{operation.id}" was not made from a function; use execute(id, input)')
    signature: TypedSignature = operation.signature
    return signature

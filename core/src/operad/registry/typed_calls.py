"""Typed calls: an operation made from a function is called with the function's arguments, and answers its type."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import attrs

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.operations import Operation, OperationSpec, Pages, Signature
from operad.registry.clients import Client
from operad.registry.paging import items_of, pages_of
from operad.subscriptions import Subscription

P = ParamSpec("P")
T = TypeVar("T")


class TypedCalls:
    """What a registry, and whatever stands in for one, offers for operations that are functions."""

    async def execute(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation by its id."""
        raise NotImplementedError  # of whoever mixes this in

    def subscribe(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe to an operation by its id."""
        raise NotImplementedError  # of whoever mixes this in

    def pages(self, operation_id: str) -> Pages | None:
        """How to go on in a listing, if its source knows; for `paginate`."""
        raise NotImplementedError  # of whoever mixes this in

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """The spec of an operation, or ``None``."""
        raise NotImplementedError  # of whoever mixes this in

    def specs(self) -> Sequence[OperationSpec]:
        """All specs, sorted by id."""
        raise NotImplementedError  # of whoever mixes this in

    def client(self, namespace: str) -> Any:
        """The operations of a namespace as methods that answer data: ``await client.getPetById(petId=1)``.

        It is a `Client`; what its methods take and answer, ``operad stubs`` writes down for type checkers. With a
        context: ``registry.bound(context=…).client(namespace)``.
        """
        return Client(self, namespace)

    def paginate(
        self,
        operation_id: str,
        input: Mapping[str, Any] | None = None,
        context: OperationContext | None = None,
        *,
        items: bool = False,
        max_pages: int = 1_000,
        timeout: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """All pages of a listing, one `execute` each: their envelopes, or, with ``items``, what stands on them.

        Its source knows how to go on; what has no pages is one page. ``timeout`` is that of each page, in seconds.
        """

        def execute(page: dict[str, Any]) -> Awaitable[ResponseEnvelope[Any]]:
            return self.execute(operation_id, page, context, timeout=timeout)

        return (items_of if items else pages_of)(execute, self.pages(operation_id), input, max_pages)

    def bound(
        self,
        *,
        context: OperationContext | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> BoundCalls:
        """The same calls with a context and a timeout: ``await registry.bound(timeout=5).call(add, a=1, b=2)``.

        With an ``idempotency_key`` it is for calls that mean one: a first one, and its repetitions.
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
        """Call an operation with the arguments of its function; what it answers is of the function's type.

        The call goes the way of every call, by the operation's id: checked, intercepted, wherever it runs. Of a
        subscription it is the first item. If the function takes a context, that argument is the call's.

        Raises:
            CallError: as `execute` does; ``EXECUTION_ERROR`` for a result that is not of the type.
            TypeError: the operation is made from no function, or the arguments are not its own.
        """
        signature = _signature(operation)
        input, context = signature.input(args, kwargs)
        envelope = await self.execute(operation, input, context)
        return _answer(operation, envelope)

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
        """Subscribe to an operation with the arguments of its function; its items are of the function's type."""
        input, context = _signature(operation).input(args, kwargs)
        return TypedStream(operation, self.subscribe(operation, input, context))


def with_key(context: OperationContext | None, key: str | None) -> OperationContext | None:
    """The context of a call with an idempotency key."""
    if key is None:
        return context
    return OperationContext(idempotency_key=key) if context is None else attrs.evolve(context, idempotency_key=key)


class BoundCalls(TypedCalls):
    """The calls of a registry, all with one context and timeout (seconds; of streams: for each item)."""

    __slots__ = ("_context", "_target", "_timeout")

    def __init__(
        self, target: TypedCalls, context: OperationContext | None = None, timeout: float | None = None
    ) -> None:
        self._target = target
        self._context = context
        self._timeout = timeout

    def pages(self, operation_id: str) -> Pages | None:
        """As the registry's."""
        return self._target.pages(operation_id)

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """As the registry's."""
        return self._target.get_spec(operation_id)

    def specs(self) -> Sequence[OperationSpec]:
        """As the registry's."""
        return self._target.specs()

    async def execute(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> ResponseEnvelope[Any]:
        """As the registry's; what is given here wins."""
        return await self._target.execute(
            operation_id, input, context or self._context, timeout=self._timeout if timeout is None else timeout
        )

    def subscribe(
        self,
        operation_id: str | Operation[..., Any],
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """As the registry's; what is given here wins."""
        return self._target.subscribe(
            operation_id, input, context or self._context, timeout=self._timeout if timeout is None else timeout
        )


class TypedStream(AsyncIterator[T], Generic[T]):
    """A subscription whose items are values of the function's type; closed as a `Subscription` is."""

    def __init__(self, operation: Operation[..., Any], envelopes: Subscription) -> None:
        self._envelopes = Subscription(_typed(operation, envelopes))

    def __aiter__(self) -> AsyncIterator[T]:  # noqa: PYI034  # the iterator of one loop, as a subscription's
        items: AsyncIterator[Any] = aiter(self._envelopes)
        return items

    async def __anext__(self) -> T:
        item: Any = await anext(self._envelopes)
        return item  # type: ignore[no-any-return]  # of the type that the operation's signature structures

    async def aclose(self) -> None:
        """Close it, and what feeds it. Idempotent."""
        await self._envelopes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _typed(operation: Operation[..., Any], envelopes: Subscription) -> AsyncGenerator[Any, None]:
    async with envelopes:
        async for envelope in envelopes:
            yield _answer(operation, envelope)


def _answer(operation: Operation[..., Any], envelope: ResponseEnvelope[Any]) -> Any:
    signature = _signature(operation)
    value = signature.result(envelope.data, operation.id)
    return ResponseEnvelope(value, envelope.meta) if signature.in_envelope else value


def _signature(operation: Operation[..., Any] | Any) -> Signature:
    if not isinstance(operation, Operation):
        raise TypeError(f"call takes an operation made from a function, got {type(operation).__name__}")
    if operation.signature is None:
        raise TypeError(f'operation "{operation.id}" is made from no function; use execute(id, input)')
    return operation.signature

"""Blocking calls: those of a registry, those with a bound context, and those of a namespace."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from operad.context import OperationContext
from operad.functions.typed_calls import TypedCalls
from operad.operations import Operation
from operad.sync.portal import Portal
from operad.sync.streams import Subscription

P = ParamSpec("P")
T = TypeVar("T")


def waiting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a blocking method that runs the coroutine function ``method`` in the background loop."""

    @functools.wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: T = self._portal().run(getattr(self.asynchronous, method.__name__)(*args, **kwargs))
        return made

    return wait


def in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a blocking method that calls the plain ``method`` in the thread of the background loop."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: T = self._portal().call(getattr(self.asynchronous, method.__name__), *args, **kwargs)
        return made

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Subscription[T]]:
    """Return a method that returns a blocking iterator over the items of the asynchronous ``method``."""

    @functools.wraps(method)
    def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Subscription[T]:
        here = self._portal()
        return Subscription(here, here.call(getattr(self.asynchronous, method.__name__), *args, **kwargs))

    return iterate


class WaitingCalls:
    """The calls of a registry for programs without an event loop."""

    asynchronous: TypedCalls
    """The registry, view or bound calls behind this object."""

    def _portal(self) -> Portal:
        raise NotImplementedError  # implemented by each subclass

    execute = waiting(TypedCalls.execute)
    subscribe = iterating(TypedCalls.subscribe)
    paginate = iterating(TypedCalls.paginate)

    @overload
    def call(self, operation: Operation[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def call(
        self,
        operation: Operation[P, AsyncIterator[T]] | Operation[P, Iterator[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...

    @overload
    def call(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def call(self, operation: Operation[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call an operation with the arguments of its function, and return a value of the function's type.

        For errors see `operad.OperationRegistry.call`.
        """
        return self._portal().run(self.asynchronous.call(operation, *args, **kwargs))

    @overload
    def stream(
        self,
        operation: Operation[P, AsyncIterator[T]] | Operation[P, Iterator[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Subscription[T]: ...

    @overload
    def stream(self, operation: Operation[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Subscription[T]: ...

    def stream(self, operation: Operation[..., Any], /, *args: Any, **kwargs: Any) -> Subscription[Any]:
        """Return a blocking iterator over the items of an operation; see `operad.OperationRegistry.stream`."""
        here = self._portal()
        return Subscription(here, here.call(self.asynchronous.stream, operation, *args, **kwargs))

    def client(self, namespace: str) -> Client:
        """Return the operations of a namespace as methods that return data: ``client.getPetById(petId=1)``."""
        return Client(self._portal, self.asynchronous.client(namespace))

    def bound(
        self,
        *,
        context: OperationContext | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> BoundCalls:
        """Return an object with the same methods, which uses this context and timeout (s) for each call.

        For example: ``registry.bound(timeout=5).call(add, 1, 2)``.
        """
        bound = self.asynchronous.bound(context=context, timeout=timeout, idempotency_key=idempotency_key)
        return BoundCalls(self._portal, bound)


class BoundCalls(WaitingCalls):
    """The blocking calls of a registry with one context and timeout; ``registry.bound(…)`` returns them."""

    def __init__(self, portal: Callable[[], Portal], asynchronous: TypedCalls) -> None:
        self._find, self.asynchronous = portal, asynchronous

    def _portal(self) -> Portal:
        return self._find()


class Client:
    """The operations of one namespace as blocking methods; see `operad.OperationRegistry.client`.

    The method of a subscription returns an iterator of data.
    """

    __slots__ = ("_client", "_portal")

    def __init__(self, portal: Callable[[], Portal], client: Any) -> None:
        self._portal, self._client = portal, client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._waiting(self._portal().call(getattr, self._client, name))

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._waiting(self._portal().call(lambda: self._client[name]))

    def __dir__(self) -> Sequence[str]:
        return self._portal().call(dir, self._client)

    def __repr__(self) -> str:
        return repr(self._client)

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wait(*args: Any, **kwargs: Any) -> Any:
            async def call() -> Any:
                answer = method(*args, **kwargs)
                return await answer if inspect.iscoroutine(answer) else answer

            here = self._portal()
            answer = here.run(call())
            return Subscription(here, answer) if inspect.isasyncgen(answer) else answer

        return wait

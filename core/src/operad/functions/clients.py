"""Clients: a namespace of a registry as an object with one method per operation; methods return data."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

from operad.context import Callables
from operad.envelopes import ResponseEnvelope
from operad.names import attributes_of, input_of, operation_name
from operad.operations import OperationType


class Calls(Callables, Protocol):
    """The part of a registry that a client uses."""

    def data_of(self, envelope: ResponseEnvelope[Any], operation_id: str) -> Any:
        """Return the data of an envelope. Raises `CallError` if it is the envelope of a failed call."""


class Client:
    """The operations of one namespace: ``await client.getPetById(petId=1)`` returns data, not an envelope.

    Characters that Python does not allow in a name become ``_``: ``client.pulls_create`` and
    ``client["pulls/create"]`` are the same operation. A method takes the operation's input, as keywords or as one
    object, and ``timeout`` in seconds. The method of a subscription returns an asynchronous generator of data.
    """

    __slots__ = ("_calls", "_namespace")

    def __init__(self, calls: Calls, namespace: str) -> None:
        self._calls = calls
        self._namespace = namespace

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[operation_name(self._calls, self._namespace, name)]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        calls, operation_id = self._calls, f"{self._namespace}.{name}"
        spec = calls.get_spec(operation_id)
        is_stream = spec is not None and spec.type is OperationType.SUBSCRIPTION

        def method(input: Any = None, /, *, timeout: float | None = None, **fields: Any) -> Any:
            answer = _items if is_stream else _data
            return answer(calls, operation_id, input_of(calls, operation_id, input, fields), timeout)

        method.__name__ = method.__qualname__ = name
        method.__doc__ = None if spec is None else spec.description or spec.title
        return method

    def __dir__(self) -> Sequence[str]:
        return list(attributes_of(self._calls, self._namespace))

    def __repr__(self) -> str:
        return f"<client of {self._namespace}>"


async def _data(calls: Calls, operation_id: str, input: Any, timeout: float | None) -> Any:
    return calls.data_of(await calls.execute(operation_id, input, timeout=timeout), operation_id)


async def _items(calls: Calls, operation_id: str, input: Any, timeout: float | None) -> AsyncGenerator[Any, None]:
    async with calls.subscribe(operation_id, input, timeout=timeout) as envelopes:
        async for envelope in envelopes:
            yield calls.data_of(envelope, operation_id)

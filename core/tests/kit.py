"""Operations, registries and handlers that several files of tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from operad import CallError, Operation, OperationRegistry, OperationSpec
from operad_testing import plugins_of


async def echo(input: Any, context: Any) -> Any:
    return input


def giving(result: Any) -> Callable[..., Any]:
    """Return a handler with this result."""

    async def give(input: Any, context: Any) -> Any:
        return result

    return give


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a handler that raises the error."""

    async def fail(input: Any, context: Any) -> Any:
        raise error

    return fail


def streaming(*items: Any) -> Callable[..., Any]:
    """Return a handler that yields the items; it raises one that is an error."""

    async def stream(input: Any, context: Any) -> Any:
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item

    return stream


def spec(id: str = "op", **fields: Any) -> OperationSpec:
    """Return the spec of an operation, whose namespace is ``t`` unless its id has one."""
    namespace, dot, name = id.partition(".")
    return OperationSpec(namespace=namespace if dot else "t", name=name if dot else id, **fields)


def op(id: str = "op", handler: Any = echo, **fields: Any) -> Operation[..., Any]:
    return Operation(spec(id, **fields), handler)


def registry_of(*operations: Any, plugins: Any = (), max_threads: int = 32, **handlers: Any) -> OperationRegistry:
    """Return a registry with plugins, operations, specs without handlers, and handlers by their names."""
    registry = OperationRegistry(plugins_of(*plugins), max_threads=max_threads)
    for each in operations:
        (registry.register_spec if isinstance(each, OperationSpec) else registry.register)(each)
    for name, handler in handlers.items():
        registry.register(op(name, handler))
    return registry


def ids(registry: Any) -> list[str]:
    return [spec.id for spec in registry.specs()]


async def data_of(items: Any) -> list[Any]:
    """Return the data of the envelopes of a stream."""
    return [envelope.data async for envelope in items]


async def error_of(call: Awaitable[Any], says: str | None = None) -> CallError:
    """Return the error that a call ends with."""
    with pytest.raises(CallError, match=says) as caught:
        await call
    return caught.value


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)

"""A program whose types both mypy and pyright have to see as it says; a line with `# wrong` has to be an error."""

# pyright: strict

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, assert_type

import attrs

from operad import (
    Conversions,
    Operation,
    OperationContext,
    OperationRegistry,
    ResponseEnvelope,
    local_envelope,
    operation,
    unwrap,
)
from operad.plugin import Configuration, InterceptedCall, Interceptor, check_options
from operad.sync import OperationRegistry as WaitingRegistry
from operad.sync import Subscription
from operad.testing import run


@attrs.frozen
class Point:
    x: int


@operation(namespace="t", type="query")
async def add(a: int, b: int = 10) -> int:
    return a + b


@operation(namespace="t")
async def points(count: int) -> AsyncIterator[Point]:
    for number in range(count):
        yield Point(number)


@operation(namespace="t")
def numbers(count: int) -> Iterator[float]:
    yield from (float(number) for number in range(count))


@operation(namespace="t")
def plain(point: Point) -> list[Point]:
    return [point]


@operation(namespace="t")
async def wrapped(context: OperationContext) -> ResponseEnvelope[Point]:
    return local_envelope(Point(1), "t.wrapped")


async def calls(registry: OperationRegistry, context: OperationContext) -> None:
    assert_type(await registry.call(add, 1, b=2), int)
    assert_type(await registry.call(plain, Point(1)), list[Point])
    assert_type(await registry.call(points, 3), Point)
    assert_type(await registry.call(wrapped, context), ResponseEnvelope[Point])
    assert_type(await registry.bound(context=context, timeout=1.0).call(add, a=1), int)
    async for point in registry.stream(points, count=3):
        assert_type(point, Point)
    async for number in registry.bound().stream(numbers, 3):
        assert_type(number, float)
    async with registry.stream(points, 1) as stream:
        assert_type(await anext(stream), Point)
    await registry.execute(add, {"a": 1})
    await registry.call(add, "one")  # wrong
    await registry.call(add)  # wrong
    await registry.call(add, 1, c=2)  # wrong
    registry.stream(points, "three")  # wrong


async def tap(
    call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]
) -> ResponseEnvelope[Any]:
    return await proceed(call)


def interceptors(registry: OperationRegistry) -> None:
    remove = registry.use(tap, match="t.*")
    remove()
    Interceptor(tap, order=1)
    registry.use(match=3)  # wrong


async def operations() -> None:
    assert_type(await add(1, b=2), int)
    assert_type(plain(Point(1)), list[Point])
    wider: Operation[[int], list[Point]] | Operation[..., Any] = plain
    registry_takes_both: list[Operation[..., Any]] = [add, points, plain]
    print(wider, registry_takes_both)
    narrower: Operation[[str], Coroutine[Any, Any, int]] = add  # wrong
    print(narrower)


def envelopes(envelope: ResponseEnvelope[Point]) -> None:
    assert_type(envelope.data, Point)
    assert_type(unwrap(envelope), Point)
    assert_type(local_envelope(Point(1), "t.point"), ResponseEnvelope[Point])
    assert_type(ResponseEnvelope("x", None), ResponseEnvelope[str])
    wider: ResponseEnvelope[object] = envelope
    print(wider)
    other: ResponseEnvelope[int] = envelope  # wrong
    print(other)


def waiting(registry: WaitingRegistry, context: OperationContext) -> None:
    assert_type(registry.call(add, 1, b=2), int)
    assert_type(registry.call(plain, Point(1)), list[Point])
    assert_type(registry.call(points, 3), Point)
    assert_type(registry.call(wrapped, context), ResponseEnvelope[Point])
    assert_type(registry.bound(timeout=1.0).call(add, a=1), int)
    assert_type(registry.stream(points, count=3), Subscription[Point])
    assert_type(next(registry.stream(numbers, count=3)), float)
    assert_type(list(registry.stream(points, count=3)), list[Point])
    assert_type(registry.subscribe("t.points"), Subscription[ResponseEnvelope[Any]])
    assert_type(registry.download("t.file"), Subscription[bytes])
    registry.call(add, "one")  # wrong
    registry.stream(points, "three")  # wrong


def settings(registry: OperationRegistry, configuration: Configuration, options: Mapping[str, Any]) -> None:
    assert_type(registry.configured("point", Point), Point)
    assert_type(configuration.table("point", Point), Point)
    assert_type(check_options(options, Point, where="a test"), Point)
    configuration.table("point", Point(1))  # wrong


def conversions(known: Conversions) -> None:
    known.register(Point, schema={"type": "integer"}, structure=Point, unstructure=lambda point: point.x)
    known.register(Point, schema={}, structure=str, unstructure=lambda point: point.x)  # wrong


def tests() -> None:
    assert_type(run(add(1)), int)

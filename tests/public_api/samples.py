"""A program whose types both mypy and pyright have to see as it says; a line with `# wrong` has to be an error."""

# pyright: strict

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, assert_type

import attrs

from operad import OperationContext, OperationRegistry, ResponseEnvelope, local_envelope, operation
from operad.plugin import InterceptedCall, Interceptor


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

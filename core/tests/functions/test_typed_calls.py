"""Typed calls: the function's own arguments go in, its own type comes out, by the way of every call."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import attrs
import pytest

from core.tests.functions.parts import Colour
from core.tests.kit import data_of, error_of, giving, op, registry_of
from operad import (
    AccessControl,
    CallError,
    Identity,
    OperationContext,
    OperationRegistry,
    RegistrationError,
    ResponseEnvelope,
    local_envelope,
    operation,
)


@attrs.frozen
class Point:
    x: int
    y: int = 0


@operation(namespace="t", type="query")
async def add(a: int, b: int = 10) -> int:
    return a + b


@operation(namespace="t")
async def move(point: Point, by: list[Point], at: datetime.datetime, *, colour: Colour = Colour.RED) -> Point:
    assert isinstance(point, Point)
    assert isinstance(at, datetime.datetime)
    assert colour is Colour.RED
    return Point(point.x + sum(other.x for other in by), at.year)


@operation(namespace="t")
def plain(id: uuid.UUID) -> uuid.UUID:
    return id


@operation(namespace="t")
async def points(count: int) -> AsyncIterator[Point]:
    for number in range(count):
        yield Point(number)


@operation(namespace="t")
def numbers(count: int) -> Iterator[float]:
    yield from (float(number) for number in range(count))


@operation(namespace="t")
async def who(context: OperationContext, prefix: str = "") -> str | None:
    return None if context.identity is None else prefix + context.identity.id


@operation(namespace="t")
async def wrapped(a: int) -> ResponseEnvelope[Point]:
    return local_envelope(Point(a), "t.wrapped")


@operation(namespace="t", access_control=AccessControl(required_scopes=["admin"]))
async def guarded() -> int:
    return 1


@operation(namespace="t")
async def rest(first: int, **more: int) -> int:
    return first + sum(more.values())


@operation(namespace="t")
async def raw(input: Any, context: OperationContext) -> Any:
    return input


@pytest.fixture
def registry() -> OperationRegistry:
    return registry_of(add, move, plain, points, numbers, who, wrapped, guarded, rest, raw)


async def test_arguments_by_name_and_by_position_and_defaults(registry: OperationRegistry) -> None:
    assert await registry.call(add, 1, 2) == 3
    assert await registry.call(add, 1, b=2) == 3
    assert await registry.call(add, a=1) == 11
    assert await registry.call(rest, 1, two=2, three=3) == 6


def test_a_schema_of_which_a_part_would_be_ignored_is_refused() -> None:
    with pytest.raises(RegistrationError, match='"local.raw": output_schema: '):
        operation(output_schema={"type": "strin"})(raw.function)
    assert rest.spec.input_schema.raw["additionalProperties"] == {"type": "integer"}

    def anything(**more: Any) -> None: ...

    assert operation(anything).spec.input_schema.raw["additionalProperties"] is True


async def test_values_of_the_functions_types_go_in_and_come_out(registry: OperationRegistry) -> None:
    at = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
    assert await registry.call(move, Point(1), by=[Point(2), Point(3)], at=at) == Point(6, 2030)
    id = uuid.uuid4()
    assert await registry.call(plain, id) == id


async def test_streams_yield_values_of_the_type_and_close(registry: OperationRegistry) -> None:
    assert [point async for point in registry.stream(points, 3)] == [Point(0), Point(1), Point(2)]
    assert [number async for number in registry.stream(numbers, count=2)] == [0.0, 1.0]
    assert [number async for number in registry.stream(add, 1, 2)] == [3]
    assert await registry.call(points, 3) == Point(0)
    async with registry.stream(points, 3) as stream:
        assert await anext(stream) == Point(0)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    async for _ in (left := registry.stream(points, 3)):
        break
    await left.aclose()


async def test_a_context_comes_with_the_arguments_or_is_bound(registry: OperationRegistry) -> None:
    ann = OperationContext(identity=Identity("ann", ["admin"]))
    assert await registry.call(who, ann) == "ann"
    assert await registry.call(who, context=ann, prefix="-") == "-ann"
    bound = registry.bound(context=ann, timeout=5)
    assert await bound.call(guarded) == 1
    assert await bound.call(who, OperationContext(identity=Identity("bob"))) == "bob"
    assert [name async for name in bound.stream(who, ann)] == ["ann"]
    assert (await bound.execute("t.guarded")).data == 1
    with pytest.raises(CallError, match="^ACCESS_DENIED"):
        await registry.call(guarded)


async def test_a_bound_timeout_ends_calls() -> None:
    @operation(namespace="t")
    async def slow() -> None:
        await asyncio.sleep(30)

    with pytest.raises(CallError, match="^TIMEOUT"):
        await registry_of(slow).bound(timeout=0.02).call(slow)


async def test_a_function_of_envelopes_answers_them_with_values_inside(registry: OperationRegistry) -> None:
    envelope = await registry.call(wrapped, 7)
    assert envelope.data == Point(7)
    assert envelope.meta.operation_id == "t.wrapped"


async def test_a_raw_handler_takes_its_input_as_it_is(registry: OperationRegistry) -> None:
    assert await registry.call(raw, {"a": [1]}, OperationContext()) == {"a": [1]}
    assert await registry.call(raw, input=[1], context=OperationContext()) == [1]


async def test_what_is_no_argument_is_pythons_own_error(registry: OperationRegistry) -> None:
    for args, kwargs, complaint in [
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
        ((), {"a": 1, "c": 2}, "^VALIDATION_ERROR"),
        ((), {}, "^VALIDATION_ERROR"),
    ]:
        with pytest.raises((TypeError, CallError), match=complaint):
            await registry.call(add, *args, **kwargs)


async def test_a_result_that_is_not_of_the_type_is_an_error_of_the_call(registry: OperationRegistry) -> None:
    registry.register(op("move", giving({"x": "one"})), replace=True)
    call = registry.call(move, Point(1), [], datetime.datetime.now(datetime.UTC))
    error = await error_of(call, 'the result of "t.move" does not fit the return type of its function')
    assert error.code == "EXECUTION_ERROR"


async def test_what_is_made_from_no_function_cannot_be_called_so(registry: OperationRegistry) -> None:
    with pytest.raises(TypeError, match="was not made from a function; use execute"):
        await registry.call(op("bare"))
    with pytest.raises(TypeError, match="got function"):
        await registry.call(lambda: 1)  # type: ignore[call-overload]  # the mistake is the subject


async def test_an_operation_stands_for_its_id_in_execute_and_subscribe(registry: OperationRegistry) -> None:
    assert (await registry.execute(add, {"a": 1, "b": 1})).data == 2
    assert await data_of(registry.subscribe(numbers, {"count": 2})) == [0, 1]


async def test_a_method_is_called_without_its_self() -> None:
    class Counter:
        total = 0

        @operation(namespace="t")
        async def up(self, by: int = 1) -> int:
            self.total += by
            return self.total

    counter = Counter()
    registry = registry_of(counter.up)
    assert await registry.call(counter.up, 2) == 2
    assert await registry.call(counter.up, by=3) == 5


class Shop:
    @operation(namespace="shop", name="books/find")
    async def find(self) -> int:
        return 1


def test_a_method_of_a_class_without_an_object_is_refused_by_its_name_in_python() -> None:
    with pytest.raises(RegistrationError, match=r"without an object; use registry.register\(Shop\(…\)\.find\)"):
        OperationRegistry().register(Shop.find)

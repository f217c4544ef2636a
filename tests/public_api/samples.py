"""A program whose types both mypy and pyright have to see as it says; a line with `# wrong` has to be an error."""

# pyright: strict

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    ParamSpec,
    TypedDict,
    TypeVar,
    assert_type,
)

import annotated_types
import attrs
import msgspec
import pydantic

from operad import (
    Conversions,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    ResponseEnvelope,
    load_plugins,
    local_envelope,
    operation,
    unwrap,
)
from operad.config import Configuration
from operad.plugin import (
    InterceptedCall,
    Interceptor,
    Source,
    SourceContext,
    SourceSession,
    check_options,
    hookimpl,
)
from operad.sync import OperationRegistry as WaitingRegistry
from operad.sync import Subscription
from operad_testing import Example, SourceCapabilities, SourceConformance, run

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


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
    assert_type(await registry.call(add, 1, b=2), int)  # proves OperationRegistry.call
    assert_type(await registry.call(plain, Point(1)), list[Point])
    assert_type(await registry.call(points, 3), Point)
    assert_type(await registry.call(wrapped, context), ResponseEnvelope[Point])
    assert_type(await registry.bound(context=context, timeout=1.0).call(add, a=1), int)
    async for point in registry.stream(points, count=3):
        assert_type(point, Point)
    async for number in registry.bound().stream(numbers, 3):
        assert_type(number, float)
    async with registry.stream(points, 1) as stream:
        assert_type(await anext(stream), Point)  # proves OperationRegistry.stream
    await registry.execute(add, {"a": 1})
    await registry.call(add, "one")  # wrong
    await registry.call(add)  # wrong
    await registry.call(add, 1, c=2)  # wrong
    registry.stream(points, "three")  # wrong


@operation
async def bare(a: int, b: str = "x") -> list[int]:
    return [a]


async def registries(registry: OperationRegistry) -> None:
    assert_type(await bare(a=1, b="y"), list[int])
    await bare("one")  # wrong
    await bare(1, 2)  # wrong
    assert_type(await registry.execute("t.add", {"a": 1}), ResponseEnvelope[Any])
    async for envelope in registry.subscribe("t.points"):
        assert_type(envelope, ResponseEnvelope[Any])
    async with OperationRegistry(load_plugins()) as opened:
        assert_type(opened, OperationRegistry)
    assert_type(await registry.load("scanner", path="x"), list[OperationSpec])


async def fly(input: dict[str, Any], context: OperationContext) -> str:
    return "landed"


async def load(config: Point, context: SourceContext) -> SourceSession:
    return SourceSession([Operation(OperationSpec(namespace="a", name="b"), fly)])


@hookimpl
def operad_sources() -> list[Source]:
    return [Source("pigeon", load, Point, "Pigeons.")]


class TestPigeons(SourceConformance):
    source = "pigeon"
    capabilities = SourceCapabilities(calls=True)
    example = Example("fly", {"to": "Rome"})


def sources() -> None:
    assert_type(operad_sources(), list[Source])


async def tap(
    call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]
) -> ResponseEnvelope[Any]:
    return await proceed(call)


def interceptors(registry: OperationRegistry) -> None:
    remove = registry.use(tap, match="t.*")
    remove()
    Interceptor(tap, order=1)
    registry.use(match=3)  # wrong


def whole(x: int) -> Point:
    return Point(x)


async def operations(typed: Operation[[int], Coroutine[Any, Any, int]]) -> None:
    assert_type(await add(1, b=2), int)
    assert_type(plain(Point(1)), list[Point])  # proves operation
    wider: Operation[[int], list[Point]] | Operation[..., Any] = plain
    registry_takes_both: list[Operation[..., Any]] = [add, points, plain]
    print(wider, registry_takes_both)
    assert_type(Operation(add.spec, None, None, whole)(1), Point)  # proves Operation.__init__
    assert_type(await typed(1), int)  # proves Operation, Operation.__call__
    narrower: Operation[[str], Coroutine[Any, Any, int]] = add  # wrong
    print(narrower)


def envelopes(envelope: ResponseEnvelope[Point]) -> None:
    assert_type(envelope.data, Point)  # proves ResponseEnvelope
    assert_type(unwrap(envelope), Point)  # proves unwrap
    assert_type(local_envelope(Point(1), "t.point"), ResponseEnvelope[Point])  # proves local_envelope
    assert_type(ResponseEnvelope("x", None), ResponseEnvelope[str])  # proves ResponseEnvelope.__init__
    wider: ResponseEnvelope[object] = envelope
    print(wider)
    other: ResponseEnvelope[int] = envelope  # wrong
    print(other)


def waiting(registry: WaitingRegistry, context: OperationContext) -> None:
    assert_type(registry.call(add, 1, b=2), int)  # proves sync.OperationRegistry.call
    assert_type(registry.call(plain, Point(1)), list[Point])
    assert_type(registry.call(points, 3), Point)
    assert_type(registry.call(wrapped, context), ResponseEnvelope[Point])
    assert_type(registry.bound(timeout=1.0).call(add, a=1), int)
    assert_type(registry.stream(points, count=3), Subscription[Point])  # proves sync.OperationRegistry.stream
    assert_type(iter(registry.stream(points, count=3)), Iterator[Point])  # proves sync.Subscription
    assert_type(next(registry.stream(numbers, count=3)), float)  # proves sync.Subscription.__next__
    assert_type(list(registry.stream(points, count=3)), list[Point])  # proves sync.Subscription.__iter__
    assert_type(registry.subscribe("t.points"), Subscription[ResponseEnvelope[Any]])
    assert_type(registry.download("t.file"), Subscription[bytes])
    registry.call(add, "one")  # wrong
    registry.stream(points, "three")  # wrong


def settings(registry: OperationRegistry, configuration: Configuration, options: Mapping[str, Any]) -> None:
    assert_type(registry.configured("point", Point), Point)  # proves OperationRegistry.configured
    assert_type(configuration.table("point", Point), Point)
    assert_type(check_options(options, Point, where="a test"), Point)  # proves plugin.check_options
    configuration.table("point", Point(1))  # wrong


def conversions(known: Conversions) -> None:
    known.register(Point, schema={"type": "integer"}, structure=Point, unstructure=lambda point: point.x)
    known.register(Point, schema={}, structure=str, unstructure=str.upper)  # proves Conversions.register # wrong


def tests() -> None:
    assert_type(run(add(1)), int)  # proves testing.run


# --- every kind of hint ---------------------------------------------------------------------------


@dataclasses.dataclass
class Order:
    lines: list["Order"] = dataclasses.field(default_factory=list["Order"])


class Struct(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    size: int = pydantic.Field(1, ge=1)


class Table(TypedDict):
    name: str
    size: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = ""


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


UserId = NewType("UserId", int)
Size = Annotated[int, annotated_types.Ge(1), "how large"]


@operation(namespace="h")
def classes(a: Order, b: Struct, c: Model, d: Table, e: Pair, f: Color, g: Box[int]) -> Box[str]:
    return Box(a.__class__.__name__)


@operation(namespace="h")
def scalars(
    a: UserId,
    b: Size,
    c: Literal["x", 1],
    d: datetime.datetime,
    e: uuid.UUID,
    f: Decimal,
    g: bytes,
    h: Path,
    i: float | None = None,
    *,
    j: Annotated[int, pydantic.Field(le=9)] = 3,
) -> Literal["x", 1]:
    return c


@operation(namespace="h")
def containers(
    a: list[Order], b: dict[int, str], c: tuple[int, str], d: tuple[int, ...], e: set[int], f: Sequence[Pair]
) -> Mapping[str, list[int]]:
    return {}


@operation(namespace="h")
def variables(a: T, b: int | Order | None = None) -> list[T]:
    return [a]


@operation(namespace="h")
async def results(a: int) -> Table | None:
    return None


def logged(function: Callable[P, R]) -> Callable[P, R]:
    return function


class Shop:
    @operation(namespace="h")
    def total(self, count: int) -> int:
        return count

    @logged
    def plain(self, count: int) -> int:
        return count


async def hints(registry: OperationRegistry, a: Order, d: datetime.datetime) -> None:
    pair, box, model = Pair(1), Box(1), Model(size=1)
    table: Table = {"name": "x"}
    made = await registry.call(classes, a, Struct("x"), model, table, pair, Color.RED, box)
    assert_type(made, Box[str])
    await registry.call(classes, a, Struct("x"), model, {"nome": "x"}, pair, Color.RED, box)  # wrong
    one = await registry.call(scalars, UserId(1), 2, "x", d, uuid.uuid4(), Decimal(1), b"", Path(), j=1)
    assert_type(one, Literal["x", 1])
    await registry.call(scalars, UserId(1), 2, "y", d, uuid.uuid4(), Decimal(1), b"", Path())  # wrong
    held = await registry.call(containers, [a], {1: "x"}, (1, "x"), (1, 2), {1}, [pair])
    assert_type(held, Mapping[str, list[int]])
    await registry.call(containers, [a], {"1": "x"}, (1, "x"), (1, 2), {1}, [pair])  # wrong
    assert_type(await registry.call(results, 1), Table | None)
    assert_type(await registry.call(operation(namespace="h")(Shop().plain), 1), int)
    assert_type(Shop().total, Operation[..., int])  # proves Operation.__get__
    registry.register(operation(namespace="h", name="partial")(functools.partial(Shop().plain, 1)))
    registry.register(3)  # wrong

"""Python values as inputs: JSON is made of them when a validation meets one."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import Any

import attrs
import pydantic
import pytest

from operad import (
    CallError,
    Conversions,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    ResponseEnvelope,
    operation,
)
from operad.plugin import EnvelopeKind
from operad_testing import make_plugin, plugins_of


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    at: datetime.date


@attrs.frozen
class Line:
    start: Point


class Model(pydantic.BaseModel):
    n: int
    when: datetime.datetime


class Money:
    def __init__(self, text: str) -> None:
        self.text = text


DAY = datetime.date(2026, 1, 2)
MOMENT = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
ID = uuid.UUID(int=7)

conversions = Conversions()
conversions.register(Money, schema={"type": "string"}, structure=Money, unstructure=lambda money: money.text)


@operation(namespace="t", conversions=conversions)
async def show(
    day: datetime.date,
    moment: datetime.datetime,
    id: uuid.UUID,
    price: decimal.Decimal,
    raw: bytes,
    colour: Colour,
    line: Line,
    model: Model,
    money: Money,
    tags: set[str],
) -> list[str]:
    given = (day, moment, id, price, raw, colour, line, model, money.text, tags)
    assert given == (*list(VALUES.values())[:-2], "5 EUR", {"a"})
    return [type(value).__name__ for value in given]


VALUES: dict[str, Any] = {
    "day": DAY,
    "moment": MOMENT,
    "id": ID,
    "price": decimal.Decimal("1.50"),
    "raw": b"\x00\xff",
    "colour": Colour.RED,
    "line": Line(Point(1, DAY)),
    "model": Model(n=1, when=MOMENT),
    "money": Money("5 EUR"),
    "tags": {"a"},
}


@operation(namespace="t")
async def outer(context: OperationContext) -> Any:
    return (await context.env.t.show(VALUES)).data


async def test_execute_clients_and_env_take_the_values_that_a_function_takes() -> None:
    async with OperationRegistry() as registry:
        registry.register(show)
        registry.register(outer)
        names = (await registry.execute("t.show", VALUES)).data
        assert names[:3] == ["date", "datetime", "UUID"]
        assert await registry.client("t").show(**VALUES) == names
        assert await registry.client("t").outer() == names


async def test_an_operation_of_a_schema_gets_json() -> None:
    seen: list[Any] = []

    async def handler(input: Any, context: OperationContext) -> None:
        seen.append(input)

    schema = {"properties": {"day": {"type": "string"}, "points": {"type": "array", "items": {"type": "object"}}}}
    async with OperationRegistry() as registry:
        registry.register(OperationSpec(namespace="t", name="op", input_schema=schema), handler)
        await registry.execute("t.op", {"day": DAY, "points": [Point(1, DAY)]})
        assert seen == [{"day": "2026-01-02", "points": [{"x": 1, "at": "2026-01-02"}]}]


async def test_a_json_input_reaches_the_handler_as_the_same_object() -> None:
    seen: list[Any] = []

    async def handler(input: Any, context: OperationContext) -> None:
        seen.append(input)

    given = {"day": "2026-01-02"}
    async with OperationRegistry() as registry:
        schema = {"properties": {"day": {"type": "string"}}}
        registry.register(OperationSpec(namespace="t", name="op", input_schema=schema), handler)
        await registry.execute("t.op", given)
    assert seen[0] is given


@pytest.mark.parametrize("value", [object(), MOMENT, {1: object()}])
async def test_a_value_without_a_fitting_form_is_a_validation_error(value: Any) -> None:
    async with OperationRegistry() as registry:
        schema = {"properties": {"n": {"type": "integer"}}}
        registry.register(OperationSpec(namespace="t", name="op", input_schema=schema), lambda _, context: 1)
        with pytest.raises(CallError, match="VALIDATION_ERROR"):
            await registry.execute("t.op", {"n": value})


@attrs.frozen
class ToolMeta:
    source = "tool"
    failed: bool = False


async def test_clients_and_typed_calls_raise_for_an_envelope_of_a_failed_call_and_execute_returns_it() -> None:
    kind = EnvelopeKind("tool", ToolMeta, lambda meta: meta.failed)

    @operation(namespace="t")
    async def tool(fails: bool) -> ResponseEnvelope[str]:
        return ResponseEnvelope("it broke" if fails else "fine", ToolMeta(fails))

    plugins = plugins_of(make_plugin("tool", operad_envelope_kinds=[kind]))
    async with OperationRegistry(plugins) as registry:
        registry.register(tool)
        assert (await registry.execute("t.tool", {"fails": True})).data == "it broke"
        for calls in (registry, registry.bound(timeout=5), registry.view()):
            assert await calls.client("t").tool(fails=False) == "fine"
            with pytest.raises(CallError, match='EXECUTION_ERROR: "t.tool" failed: it broke') as caught:
                await calls.client("t").tool(fails=True)
            assert caught.value.details["data"] == "it broke"
            with pytest.raises(CallError, match="it broke"):
                await calls.call(tool, fails=True)


async def test_a_context_may_be_optional_so_that_typed_calls_can_leave_it_out() -> None:
    @operation(namespace="t")
    async def who(*, context: OperationContext | None = None) -> bool:
        return context is not None and context.registry is not None

    async with OperationRegistry() as registry:
        registry.register(who)
        assert list(who.spec.input_schema.bundled()["properties"]) == []
        assert await registry.call(who) is True


def test_an_unknown_keyword_of_the_decorator_is_named_with_the_nearest() -> None:
    for name, meant in (("errors", "error_schemas"), ("access", "access_control"), ("nmespace", "namespace")):
        wrong: dict[str, Any] = {name: None}
        with pytest.raises(TypeError, match=f'unknown keyword "{name}"; did you mean "{meant}"'):
            operation(**wrong)

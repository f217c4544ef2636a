"""Typed functions as operations: schemas from hints, input structured, results as JSON values."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import inspect
import pydoc
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Literal, Optional, TypedDict, get_type_hints

import attrs
import pytest

from core.tests.functions.parts import Colour, assert_structured, call, made_of, refused
from core.tests.kit import data_of, op, registry_of
from operad import OperationContext, OperationType, RegistrationError, ResponseEnvelope, local_envelope, operation


@attrs.define
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Circle:
    centre: Point
    radius: float


@dataclasses.dataclass
class Square:
    corner: Point
    side: float


class Movie(TypedDict):
    title: str
    year: int


# --- schemas -----------------------------------------------------------------------------------------


async def test_a_typed_function_is_a_complete_operation() -> None:
    @operation
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        More words.
        """
        return a + b

    assert (add.id, add.spec.type) == ("local.add", OperationType.MUTATION)
    assert add.spec.description == "Add two numbers.\n\nMore words."
    assert add.spec.input_schema.raw == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert add.spec.output_schema.raw == {"type": "integer"}
    assert await call(add, {"a": 1}) == 3
    assert await add(1, b=1) == 2


async def test_fields_of_the_spec_can_be_given() -> None:
    @operation(namespace="shop", name="orders/list", type="query", tags=["a"], title="T", deprecated=True)
    async def orders() -> list[int]:
        return [1]

    assert orders.id == "shop.orders/list"
    assert (orders.spec.type, orders.spec.tags, orders.spec.title) == (OperationType.QUERY, ("a",), "T")
    assert orders.spec.deprecated
    assert await call(orders) == [1]


def test_explicit_schemas_win() -> None:
    @operation(input_schema={"type": "object"}, output_schema=False, description="mine")
    async def odd(a: object) -> set[complex]:
        """Not this."""
        raise NotImplementedError

    assert odd.spec.input_schema.raw == {"type": "object"}
    assert odd.spec.output_schema.raw is False
    assert odd.spec.description == "mine"


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 1, 1),
        (float, 1, 1.0),
        (str, "a", "a"),
        (bool, True, True),
        (Colour, "red", Colour.RED),
        (Literal["a", 1], 1, 1),
        (datetime.datetime, "2024-05-06T07:08:09Z", datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)),
        (datetime.date, "2024-05-06", datetime.date(2024, 5, 6)),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (bytes, "AAE=", b"\x00\x01"),
        (Point, {"x": 1}, Point(1)),
        (Circle, {"centre": {"x": 1}, "radius": 2}, Circle(Point(1), 2.0)),
        (Movie, {"title": "M", "year": 1931}, {"title": "M", "year": 1931}),
        (list[Point], [{"x": 1}], [Point(1)]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 2], {1, 2}),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (Optional[int], None, None),  # noqa: UP045  # the old spelling is what is tested
        (int | str, "a", "a"),
        (Point | None, None, None),
        (Circle | Square, {"corner": {"x": 1}, "side": 3}, Square(Point(1), 3.0)),
        (Circle | Square | None, None, None),
        (list[Circle | Square], [{"centre": {"x": 1}, "radius": 1}], [Circle(Point(1), 1.0)]),
        (dict[str, Circle | Square], {"a": {"corner": {"x": 1}, "side": 3}}, {"a": Square(Point(1), 3.0)}),
        (tuple[int, Circle | Square], [1, {"corner": {"x": 1}, "side": 3}], (1, Square(Point(1), 3.0))),
        (tuple[Circle | Square, ...], [{"corner": {"x": 1}, "side": 3}], (Square(Point(1), 3.0),)),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
    ids=str,
)
async def test_a_valid_value_is_structured_and_comes_back_as_json(hint: Any, value: Any, expected: Any) -> None:
    await assert_structured(hint, value, expected)


@dataclasses.dataclass
class Cat:
    name: str


@dataclasses.dataclass
class Lion(Cat):
    mane: bool


async def test_of_two_classes_that_fit_the_one_that_knows_more_keys_is_taken() -> None:
    @operation
    async def kind(animal: Cat | Lion) -> str:
        return type(animal).__name__

    assert await call(kind, {"animal": {"name": "Leo", "mane": True}}) == "Lion"
    assert await call(kind, {"animal": {"name": "Tom"}}) == "Cat"


async def test_a_value_that_fits_no_member_is_refused_with_its_path() -> None:
    error = await refused(made_of(list[Circle | Square])[0], {"a": [{"corner": 1}]})
    assert error.details is not None
    assert error.details["errors"][0]["path"].startswith("$.a[0]")


async def test_further_keywords_are_further_properties() -> None:
    @operation
    async def f(a: int, **more: Point) -> Any:
        return [a, more]

    assert f.spec.input_schema.raw["additionalProperties"]
    assert await call(f, {"a": 1, "b": {"x": 2}}) == [1, {"b": {"x": 2, "y": 0}}]
    await refused(f, {"a": 1, "b": {"x": "2"}})


# --- what is refused ---------------------------------------------------------------------------------


async def unreadable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # the mistake under test


async def complex_parameter(a: int, b: complex) -> None: ...


async def complex_result() -> complex: ...  # type: ignore[empty-body]  # never called


async def variadic(*values: int) -> None: ...


async def positional(a: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (complex_parameter, r'(?s)"local\.complex_parameter", parameter "b".*input_schema'),
        (complex_result, r'"local\.complex_result", result'),
        (variadic, r"expected one that can be passed by name, got \*values.*; take a list"),
        (positional, 'expected one that can be passed by name, got .*; remove the "/" after it'),
        (unreadable, "type hints cannot be read.*Nowhere.*not under TYPE_CHECKING"),
    ],
)
def test_a_function_that_makes_no_schema_is_refused(function: Any, said: str) -> None:
    with pytest.raises(RegistrationError, match=said):
        operation(function)


@pytest.mark.parametrize("when", ["yesterday", "2024-13-99"])
async def test_a_value_that_cannot_be_made_is_named_with_its_operation_its_path_and_what_came(when: str) -> None:
    error = await refused(made_of(datetime.date)[0], {"a": when})
    assert error.message.startswith('invalid input for "local.f": ')
    assert error.message.endswith(f", got '{when}' at $.a")
    assert error.details is not None
    assert error.details["errors"][0]["path"] == "$.a"


async def test_a_result_that_is_no_json_is_an_error() -> None:
    @operation
    async def f() -> Any:
        return object()

    await refused(f, None, "expected a JSON value, got object")


# --- kinds of functions ------------------------------------------------------------------------------


async def test_the_context_is_handed_in_where_it_is_asked_for() -> None:
    @operation
    async def by_name(a: int, context) -> str | None:  # type: ignore[no-untyped-def]  # the untyped form
        return str(context.request_id)

    @operation
    async def by_type(ctx: OperationContext, a: int) -> str | None:
        return ctx.request_id

    for made in (by_name, by_type):
        assert list(made.spec.input_schema.raw["properties"]) == ["a"]
        assert await call(made, {"a": 1})


async def test_a_handler_in_its_own_form_is_taken_as_it_is() -> None:
    @operation(input_schema={"type": "object"})
    async def f(input: dict[str, Any], context: OperationContext) -> dict[str, Any]:
        return input

    assert f.handler is f.function
    assert await call(f, {"x": 1}) == {"x": 1}


def plain(n: int) -> Iterator[int]:
    return iter(range(n))


def generator(n: int) -> Iterator[int]:
    yield from range(n)


async def async_generator(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


def asynchronous(n: int) -> AsyncIterator[int]:
    return async_generator(n)


async def awaited(n: int) -> AsyncIterator[int]:
    return async_generator(n)


@pytest.mark.parametrize(
    ("function", "options"),
    [(plain, {}), (generator, {}), (async_generator, {}), (asynchronous, {}), (awaited, {"type": "subscription"})],
)
async def test_a_function_that_yields_or_returns_an_iterator_is_a_subscription_of_its_items(
    function: Any, options: dict[str, Any]
) -> None:
    made = operation(**options)(function)
    assert made.spec.type is OperationType.SUBSCRIPTION
    assert made.spec.output_schema.raw == {"type": "integer"}
    async with registry_of(made) as registry:
        assert await data_of(registry.subscribe(made.id, {"n": 3})) == [0, 1, 2]


async def test_a_subscription_that_returns_no_iterator_is_an_error() -> None:
    @operation(type="subscription")
    async def wrong() -> AsyncIterator[int]:
        return 3  # type: ignore[return-value]  # the mistake under test

    await refused(wrong, None, "async iterator, got int")


async def test_an_envelope_may_be_returned_and_its_data_are_typed() -> None:
    @operation
    async def f() -> ResponseEnvelope[int]:
        return local_envelope(1, "x.y")

    assert f.spec.output_schema.raw == {"type": "integer"}
    assert await call(f) == 1


def test_an_operation_without_function_cannot_be_called_as_one() -> None:
    with pytest.raises(TypeError, match="through a registry"):
        op("a.b", None)()


def test_a_refusal_without_words_still_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(hint: object) -> None:
        raise NotImplementedError  # as the library does for some types, with no message

    monkeypatch.setattr("msgspec.json.schema", refuse)
    with pytest.raises(RegistrationError, match=r"result: .*NotImplementedError"):

        @operation
        async def odd(a: int) -> None:
            """Never made."""


async def test_an_operation_and_its_copies_look_like_its_function() -> None:
    @operation(namespace="a")
    async def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert weakref.ref(add)() is add
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
    assert inspect.iscoroutinefunction(add)
    assert get_type_hints(add) == {"a": int, "b": int, "return": int}
    assert "Add." in pydoc.render_doc(add)
    for twin in (add, copy.copy(add), copy.deepcopy(add)):
        assert (twin.id, twin.__name__, twin.__doc__) == ("a.add", "add", "Add.")
        assert vars(twin)["__wrapped__"] is add.function
        assert inspect.signature(twin) == inspect.signature(add)
        assert await twin(1) == 3
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            twin.blocking = True  # type: ignore[misc]  # frozen

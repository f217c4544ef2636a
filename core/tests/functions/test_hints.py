"""Type hints as people write them: with bounds and words of other libraries, in classes, in methods and partials."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import annotated_types
import attrs
import fastapi
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.functions.parts import Mixed, assert_structured, call, made_of, refused
from operad import Conversions, OperationRegistry, RegistrationError, operation

UserId = NewType("UserId", int)


def day(value: str | datetime.date) -> datetime.date:
    return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)


@attrs.define
class Converted:
    when: datetime.date = attrs.field(converter=day)
    size: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    _secret: str = ""


@attrs.define
class Pond:
    depth: float = attrs.field(validator=attrs.validators.instance_of(float))
    dug: datetime.date


@dataclasses.dataclass
class Tree:
    name: Annotated[str, annotated_types.MinLen(1)]
    children: list[Tree] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Options(TypedDict, total=False):
    deep: bool


def property_of(made: Any, name: str = "a") -> Any:
    return made.spec.input_schema.raw["properties"][name]


# --- annotations of others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "keywords"),
    [
        (annotated_types.Ge(1), {"minimum": 1}),
        (annotated_types.Gt(1), {"exclusiveMinimum": 1}),
        (annotated_types.Le(9), {"maximum": 9}),
        (annotated_types.Lt(9), {"exclusiveMaximum": 9}),
        (annotated_types.Interval(ge=1, lt=9), {"minimum": 1, "exclusiveMaximum": 9}),
        (annotated_types.MultipleOf(3), {"multipleOf": 3}),
        (pydantic.Field(ge=1, description="how many"), {"minimum": 1, "description": "how many"}),
        (pydantic.Field(title="T", examples=[3]), {"title": "T", "examples": [3]}),
        (msgspec.Meta(ge=1, description="d"), {"minimum": 1, "description": "d"}),
        ("how many", {"description": "how many"}),
        (SimpleNamespace(documentation="how many"), {"description": "how many"}),  # as PEP 727 has it
        (object(), {}),
        (SimpleNamespace(words="for another library"), {}),
    ],
)
def test_bounds_and_words_of_other_libraries_are_keywords_of_the_schema(
    extra: Any, keywords: dict[str, Any]
) -> None:
    made, _ = made_of(Annotated[int, extra])
    assert property_of(made) == {"type": "integer", **keywords}


Natural = Annotated[int, annotated_types.Ge(1)]


@pytest.mark.parametrize(
    ("hint", "bad"),
    [
        (Natural, 0),
        (list[Natural], [1, 0]),
        (dict[str, Natural], {"x": 0}),
        (Natural | None, 0),
        (tuple[Natural, str], [0, "a"]),
        (Annotated[str, annotated_types.Len(2, 3)], "a"),
        (Annotated[list[int], annotated_types.MinLen(1)], []),
        (Annotated[str, pydantic.Field(pattern="^a")], "b"),
        (Tree, {"name": ""}),
        (Tree, {"name": "a", "children": [{"name": ""}]}),
        (dict[int, str], {"x": "a"}),
        (Tree, {"name": "a", "nmae": "b"}),
        (Tree, {"name": "a", "children": [{"n": 1}]}),
    ],
    ids=str,
)
async def test_a_bound_and_the_keys_that_were_declared_are_checked_at_every_depth(hint: Any, bad: Any) -> None:
    made, seen = made_of(hint)
    await refused(made, {"a": bad})
    assert not seen


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Annotated[int, annotated_types.Predicate(bool)], "has no form in JSON Schema, so it would never be checked"),
        (Annotated[int, pydantic.Field(alias="b")], "expected no alias, got 'b'; give the parameter that name"),
        (Annotated[datetime.date, annotated_types.Ge(datetime.date(2024, 1, 1))], "expected a number as the bound ge"),
        (Annotated[str, pydantic.Field(ge=1)], "minimum does not apply to a JSON string, so it would never be checked"),
        (Annotated[Decimal, pydantic.Field(gt=0)], "exclusiveMinimum does not apply to a JSON string"),
        (Annotated[int, annotated_types.MinLen(1)], "minLength does not apply to a JSON integer"),
        (Annotated[Tree, annotated_types.Gt(1)], "exclusiveMinimum does not apply to a JSON object"),
        (list[Annotated[int | None, pydantic.Field(pattern="a")]], "pattern does not apply to a JSON integer or null"),
        (Annotated[int, pydantic.Field(default=7)], "expected no default inside Annotated; write Annotated"),
        (Annotated[list[int], fastapi.Query(default_factory=list)], "expected no default inside Annotated"),
        (dataclasses.make_dataclass("Wrong", [("count", int, pydantic.Field(3, gt=0))]),
         r"field Wrong.count: FieldInfo\(.* would become the default value; write Annotated"),
    ],
    ids=str,
)  # fmt: skip
def test_a_check_that_json_schema_cannot_say_is_refused(hint: Any, said: str) -> None:
    with pytest.raises(RegistrationError, match=said):
        made_of(hint)


@pytest.mark.parametrize(
    ("hint", "bounds"),
    [
        (str, {"minLength": 2}),
        (str | None, {"minLength": 2}),
        (list[int], {"minItems": 2}),
        (dict[str, int], {"minProperties": 2}),
        (Tree, {"minProperties": 2}),
        (str | list[str], {"minLength": 2, "minItems": 2}),
        (Any, {"minLength": 2, "minItems": 2, "minProperties": 2}),
    ],
    ids=str,
)
def test_a_length_is_the_keyword_of_the_type_that_it_bounds(hint: Any, bounds: dict[str, Any]) -> None:
    made, _ = made_of(Annotated[hint, annotated_types.MinLen(2)])
    assert {name: value for name, value in property_of(made).items() if name.startswith("min")} == bounds


class InjectedToolArg:
    """As LangChain has it."""


class InjectedState(InjectedToolArg): ...


@pytest.mark.parametrize(
    "extra",
    [fastapi.Depends(dict), fastapi.Security(dict), InjectedToolArg, InjectedState()],
    ids=lambda extra: type(extra).__name__,
)
def test_a_parameter_that_others_hand_in_is_no_input(extra: Any) -> None:
    """A database session, a user: as an input it would be in every caller's hands."""
    with pytest.raises(RegistrationError, match=r'"local.f", parameter "a": \w+ marks an injected parameter'):
        made_of(Annotated[Any, extra])

    def f(a: Any = extra) -> None: ...

    with pytest.raises(RegistrationError, match="marks an injected parameter"):
        operation(f)


async def test_a_parameter_that_was_bound_before_is_no_input() -> None:
    def f(a: int, session: Annotated[Any, fastapi.Depends(dict)]) -> Any:
        return [a, session]

    made = operation(functools.partial(f, session="mine"), name="f")
    assert list(made.spec.input_schema.raw["properties"]) == ["a"]
    assert await call(made, {"a": 1}) == [1, "mine"]


@attrs.define
class Positive:
    count: int = attrs.field(validator=attrs.validators.gt(0))


@attrs.define
class Basket:
    item: Positive


class Start(pydantic.BaseModel):
    n: int


class Line(pydantic.BaseModel):
    start: Start


@pydantic.dataclasses.dataclass
class Order:
    """What pydantic makes of a dataclass."""

    count: int = pydantic.Field(gt=0)
    name: str = pydantic.Field("x", min_length=1, alias="title")


@pytest.mark.parametrize(
    ("hint", "value", "back", "bad", "said"),
    [
        (Order, {"count": 1, "title": "y"}, {"count": 1, "title": "y"}, {"count": 0}, "expected a number > 0, got 0"),
        (list[Order], [{"count": 2}], [{"count": 2, "title": "x"}], [{}], "expected the property 'count'"),
        (pydantic.HttpUrl, "http://a.example/x", "http://a.example/x", "nope", "Input should be a valid URL"),
        (pydantic.AwareDatetime, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "timezone"),
        (pydantic.SecretStr, "geheim", "**********", 5, "expected string, got int"),
        (Line, {"start": {"n": 1}}, {"start": {"n": 1}}, {"start": {}}, "expected the property 'n'"),
        (list[Start], [{"n": 2}], [{"n": 2}], [{"n": "x"}], "expected integer, got str"),
    ],
    ids=str,
)  # fmt: skip
async def test_types_of_pydantic_answer_for_themselves(
    hint: Any, value: Any, back: Any, bad: Any, said: str
) -> None:
    made, _ = made_of(hint)
    for schema in (made.spec.input_schema.raw, made.spec.output_schema.raw):
        assert all("$defs" not in definition for definition in schema.get("$defs", {}).values())
    assert await call(made, {"a": value}) == back
    await refused(made, {"a": bad}, f"(?s){said}")


@pytest.mark.parametrize(
    ("hint", "bad", "said"),
    [
        (Positive, {"count": 0}, "'count' must be > 0: 0 at $.a"),
        (Basket, {"item": {"count": 0}}, "'count' must be > 0: 0 at $.a.item"),
    ],
    ids=str,
)
async def test_what_a_class_refuses_is_told_with_its_own_words_and_its_place(
    hint: Any, bad: Any, said: str
) -> None:
    error = await refused(made_of(hint)[0], {"a": bad}, '^VALIDATION_ERROR: invalid input for "local.f": ')
    assert error.message.endswith(said)


# --- defaults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "default", "said"),
    [
        (int, pydantic.Field(3, ge=1), r"would become the default value; write Annotated\[<type>, FieldInfo"),
        (int, dataclasses.field(default=3), r"would become the default value; write Annotated\[<type>, Field"),
        (int, "three", "the default does not fit the hint: expected integer, got str"),
        (Annotated[int, annotated_types.Ge(5)], 3, "the default does not fit the hint"),
    ],
)
def test_a_default_that_does_not_fit_its_hint_is_refused(hint: Any, default: Any, said: str) -> None:
    def f(a: Any = default) -> None: ...

    f.__annotations__ = {"a": hint}
    with pytest.raises(RegistrationError, match=f'(?s)"local.f", parameter "a".*{said}'):
        operation(f)


async def test_a_default_of_three_dots_is_none() -> None:
    """As FastAPI spells that a parameter is required."""

    def f(a: int = ...) -> Any:  # type: ignore[assignment]  # as many write it
        return a

    await refused(operation(f), {}, "expected the property 'a', got none")
    assert await call(operation(f), {"a": 3}) == 3


async def test_a_default_of_none_admits_null() -> None:
    def f(a: int = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013  # as many write it
        return a

    assert await call(operation(f)) is None
    assert await call(operation(f), {"a": None}) is None


# --- values ------------------------------------------------------------------------------------------


def test_the_values_of_an_enum_are_in_the_order_of_its_members() -> None:
    genre = enum.Enum("Genre", {"NOVEL": "novel", "ESSAY": "essay"})
    made, _ = made_of(genre)
    for schema in (made.spec.input_schema, made.spec.output_schema):
        assert schema.bundled()["$defs"]["Genre"]["enum"] == ["novel", "essay"]


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 5.0, 5),
        (list[int], [1.0, 2], [1, 2]),
        (list[int], [1.0], [1]),
        (dict[str, int], {"a": 1.0}, {"a": 1}),
        (dict[str, Path | float], {"a": 1.5, "b": "c"}, {"a": 1.5, "b": Path("c")}),
        (Sequence[Path], ["a"], [Path("a")]),
        (Collection[Path], ["a"], [Path("a")]),
        (dict[str, int] | Pond, {"depth": 1, "dug": "2024-05-06"}, Pond(1.0, datetime.date(2024, 5, 6))),
        (dict[str, Any] | Pond, {"depth": 1, "dug": "2024-05-06"}, Pond(1.0, datetime.date(2024, 5, 6))),
        (dict[str, Any] | Pond, {"depth": 1}, {"depth": 1}),
        (Pond, {"depth": 1, "dug": "2024-05-06"}, Pond(1.0, datetime.date(2024, 5, 6))),
        (list[Pond], [{"depth": 1, "dug": "2024-05-06"}], [Pond(1.0, datetime.date(2024, 5, 6))]),
        (Tree, {"name": "a"}, Tree("a")),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (dict[int, str], {"1": "x"}, {1: "x"}),
        (dict[int, Path], {"1": "x"}, {1: Path("x")}),
        (dict[Path, Mapping[Mixed, Path]], {"x": {"two": "y"}}, {Path("x"): {Mixed.TWO: Path("y")}}),
        (Path, "a/b", Path("a/b")),
        (list[Path], ["a"], [Path("a")]),
        (object, {"x": 1}, {"x": 1}),
        (UserId, 3, 3),
        (Decimal, "1.50", Decimal("1.50")),
        (Mixed, "two", Mixed.TWO),
        (Mixed, 1, Mixed.ONE),
        (Pair, [1, "b"], Pair(1, "b")),
        (Options, {"deep": True}, {"deep": True}),
        (Converted, {"when": "2024-05-06", "secret": "s"}, Converted("2024-05-06", 1, "s")),
        (Converted | Tree, {"name": "a"}, Tree("a")),
        (
            datetime.datetime | None,
            "2024-05-06T07:08:09Z",
            datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
        ),
        (datetime.timedelta, "PT5S", datetime.timedelta(seconds=5)),
        (Annotated[str, "words"] | int, "a", "a"),
    ],
    ids=str,
)
async def test_a_valid_value_arrives_as_the_hint_says(hint: Any, value: Any, expected: Any) -> None:
    await assert_structured(hint, value, expected)


async def test_converters_and_validators_of_attrs_run() -> None:
    made, seen = made_of(Converted)
    assert property_of(made) == {"$ref": "#/$defs/Converted"}
    fields = made.spec.input_schema.raw["$defs"]["Converted"]["properties"]
    assert fields["when"] == {"anyOf": [{"type": "string"}, {"type": "string", "format": "date"}]}
    assert "secret" in fields
    await refused(made, {"a": {"when": "2024-05-06", "size": 0}})
    await refused(made, {"a": {"when": "no date"}}, r"VALIDATION_ERROR.*\$\.a")
    assert not seen


def test_times_say_their_format() -> None:
    for hint, name in [(datetime.datetime, "date-time"), (datetime.time, "time"), (datetime.date, "date")]:
        made, _ = made_of(hint)
        assert property_of(made)["format"] == name


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    @classmethod
    def parse(cls, text: str) -> Money:
        return cls(round(float(text) * 100))

    def __str__(self) -> str:
        return f"{self.cents / 100:.2f}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]  # values to compare, no keys


async def test_an_application_registers_types_of_its_own() -> None:
    with pytest.raises(RegistrationError, match=r"register the type \(Conversions.register\)"):
        made_of(Money)
    conversions = Conversions()
    conversions.register(
        Money, schema={"type": "string", "pattern": r"^\d+\.\d\d$"}, structure=Money.parse, unstructure=str
    )
    money = Money(150)
    for hint, value, expected in [
        (Money, "1.50", money),
        (list[Money], ["1.50"], [money]),
        (Money | None, "1.50", money),
    ]:
        made, seen = made_of(hint, conversions=conversions)
        assert await call(made, {"a": value}) == value
        assert seen == [expected]
        await refused(made, {"a": "a lot"})


# --- kinds of functions ------------------------------------------------------------------------------


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @operation(namespace="shop", type="query")
    async def price(self, article: str) -> str:
        """What it costs."""
        return f"{article} at {self.name}"

    @operation(namespace="shop")
    @classmethod
    def named(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    @operation(namespace="shop")
    @staticmethod
    def sum(a: int, b: int) -> int:
        return a + b


async def test_the_method_of_an_object_is_an_operation() -> None:
    shop = Shop("Ada's")
    assert await call(shop.price, {"article": "a book"}) == "a book at Ada's"
    assert list(shop.price.spec.input_schema.raw["properties"]) == ["article"]
    assert await shop.price("a pen") == "a pen at Ada's"  # type: ignore[call-arg, arg-type]  # bound: not for types
    assert await call(Shop.named, {"name": "x"}) == "Shop x"
    assert await call(Shop.sum, {"a": 1, "b": 2}) == 3


def test_a_method_of_no_object_is_refused_with_the_mend() -> None:
    with pytest.raises(RegistrationError, match=r"registry.register\(Shop\(…\).price\)"):
        OperationRegistry().register(Shop.price)


async def test_partials_and_objects_are_functions() -> None:
    async def scale(value: int, by: int) -> int:
        """Scale it."""
        return value * by

    class Adder:
        async def __call__(self, a: int) -> int:
            """Add one."""
            return a + 1

    tripled = operation(namespace="m")(functools.partial(scale, by=3))
    assert (tripled.id, tripled.spec.description) == ("m.scale", "Scale it.")
    assert await call(tripled, {"value": 2}) == 6
    assert list(tripled.spec.input_schema.raw["properties"]) == ["value"]
    # What was bound is in nobody else's hands.
    await refused(tripled, {"value": 2, "by": 4}, "expected no undeclared property, got 'by'")
    added = operation(namespace="m", name="inc")(Adder())
    assert added.spec.description == "Add one."
    assert await call(added, {"a": 1}) == 2
    with pytest.raises(RegistrationError, match="an object of type Adder has no name; pass name"):
        operation(Adder())
    with pytest.raises(RegistrationError, match="expected a function, got int 3"):
        operation(namespace="m")(3)  # type: ignore[call-overload]  # what is tested


def test_a_plain_function_is_refused_with_the_way_to_wrap_it() -> None:
    def f() -> None: ...

    with pytest.raises(TypeError, match=r"got function; wrap it: operation\(f\)"):
        OperationRegistry().register(f)  # type: ignore[call-overload]  # what is tested


# --- schema and structuring agree --------------------------------------------------------------------


LEAF_HINTS = st.sampled_from([int, str, bool, float, datetime.date, Path, Tree, Converted, Pair, Mixed, Natural])
HINTS = st.recursive(
    LEAF_HINTS,
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),  # type: ignore[valid-type]  # made at run time
        inner.map(lambda hint: dict[str, hint]),  # type: ignore[valid-type]  # a hint made at run time
        inner.map(lambda hint: hint | None),
    ),
    max_leaves=3,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3)
    | st.sampled_from([1.0, 2.5, "", "two", "2024-05-06", {"name": "a"}, {"when": "2024-05-06"}, [1, "b"]]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["name", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)  # fmt: skip


@given(HINTS, VALUES)
def test_what_the_schema_admits_is_structured_and_comes_back(hint: Any, value: Any) -> None:
    made, _ = made_of(hint)
    if not made.spec.input_schema.is_valid({"a": value}):
        return
    conversions = Conversions()
    structure = conversions.structurer(hint) or (lambda same: same)
    try:
        structured = structure(value)
    except ValueError:  # "two" is a string and no date: formats only annotate
        assert "date" in str(hint) or "Converted" in str(hint)
        return
    back = conversions.unstructurer(hint)(structured)
    assert made.spec.output_schema.is_valid(back)
    assert structure(back) == structured


def test_a_string_becomes_the_first_type_of_a_union_that_can_be_made_of_it() -> None:
    structure = Conversions().structurer(UUID | datetime.date)
    assert structure is not None
    assert structure("2026-01-31") == datetime.date(2026, 1, 31)
    assert structure(str(UUID(int=1))) == UUID(int=1)
    with pytest.raises(ValueError, match="expected a value of type UUID or date, got str"):
        structure("oak")


def test_a_value_of_no_type_of_a_union_is_an_error_that_names_the_types() -> None:
    structure = Conversions().structurer(Pond | Tree | list[int])
    assert structure is not None
    with pytest.raises(ValueError, match=r"expected a value of type Pond or Tree or list\[int\], got str"):
        structure("oak")


def test_a_schema_of_ones_own_with_a_part_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(RegistrationError, match='(?s)"local.f": input_schema: .*objekt'):

        @operation(input_schema={"type": "objekt"})
        async def f(a: int) -> None: ...


async def test_a_function_of_the_input_alone_gets_it_as_it_is() -> None:
    @operation
    async def echo(input):  # type: ignore[no-untyped-def]  # what is tested
        return input

    @operation
    def plain(input: dict[str, Any]) -> Any:
        return sorted(input)

    assert await call(echo, {"a": 1, "b": [2]}) == {"a": 1, "b": [2]}
    assert await call(plain, {"b": 1, "a": 1}) == ["a", "b"]


class Circle(msgspec.Struct, tag="circle"):
    radius: int


class Square(msgspec.Struct, tag="square"):
    side: Annotated[int, msgspec.Meta(ge=1)]


@attrs.define
class Drawing:
    shape: Circle
    name: str = attrs.field(default="x", validator=attrs.validators.min_len(1))


async def test_structs_of_msgspec_are_taken_alone_in_unions_and_in_other_classes() -> None:
    def area(shape: Circle | Square) -> str:
        return type(shape).__name__

    def draw(drawing: Drawing) -> Circle:
        return drawing.shape

    circle = {"type": "circle", "radius": 2}
    assert await call(operation(area), {"shape": {"type": "square", "side": 2}}) == "Square"
    assert await call(operation(area), {"shape": circle}) == "Circle"
    await refused(operation(area), {"shape": {"type": "square", "side": 0}})
    assert await call(operation(draw), {"drawing": {"shape": circle}}) == circle


T = TypeVar("T")
Whole = TypeVar("Whole", bound=int)
Either = TypeVar("Either", int, str)


async def test_a_type_variable_is_its_bound_its_constraints_or_anything() -> None:
    def same(a: T, b: Whole, c: Either) -> list[Any]:
        return [a, b, c]

    assert await call(operation(same), {"a": [None], "b": 5.0, "c": "x"}) == [[None], 5, "x"]
    for wrong in ({"a": 1, "b": "x", "c": 1}, {"a": 1, "b": 1, "c": None}):
        await refused(operation(same), wrong, "invalid input")


class Till:
    price = 3

    def total(self, count: int) -> int:
        return self.price * count

    @staticmethod
    def twice(count: int) -> int:
        return 2 * count


async def test_static_methods_of_a_class_and_wrapped_methods_of_an_object_are_functions() -> None:
    bound = Till().total

    @functools.wraps(bound)
    def logged(*args: Any, **named: Any) -> int:
        return bound(*args, **named)

    assert await call(operation(Till.twice), {"count": 4}) == 8
    assert await call(operation(logged), {"count": 4}) == 12
    with pytest.raises(RegistrationError, match="is a method"):
        await call(operation(Till.total))

"""The JSON Schema of each type hint, and the values that it converts."""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from core.tests.functions.parts import Colour, Mixed, assert_structured, call, made_of
from core.tests.kit import registry_of
from operad import CallError, Conversions, RegistrationError, operation
from operad.functions.kinds import Types

SCHEMAS = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))["schemas"]


class Titled(TypedDict):
    title: str


class Film(Titled, total=False):
    """A film."""

    year: int


class Ticket(TypedDict):
    film: str
    row: NotRequired[int]
    seat: NotRequired[Annotated[int, "from the left"]]


class Draft(Ticket, total=False):
    author: Required[str]
    note: str


@dataclasses.dataclass
class Item:
    size: int = 3
    words: list[str] = dataclasses.field(default_factory=list)
    made: int = dataclasses.field(default=0, init=False)


@attrs.frozen
class Box:
    """A box.

    With items.
    """

    item: Item
    name: str = "é"
    price: Decimal = Decimal("1.5")
    odd: Any = attrs.field(default=object())
    made: int = attrs.field(default=0, init=False)


class Model(pydantic.BaseModel):
    children: list[Model] = []


class Flat(pydantic.BaseModel):
    size: int = 1


@pytest.mark.parametrize(
    ("hint", "schema", "definitions"),
    [
        (list, {"type": "array"}, ""),
        (dict, {"type": "object"}, ""),
        (set, {"type": "array"}, ""),
        (object, {}, ""),
        (dict[int, str], SCHEMAS["a dictionary of integers"], ""),
        (dict[Any, str], {"type": "object", "additionalProperties": {"type": "string"}}, ""),
        (Mapping[Literal["a"], int], SCHEMAS["a mapping of a literal"], ""),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, ""),
        (tuple[int, str], SCHEMAS["a pair"], ""),
        (Colour, {"$ref": "#/$defs/Colour"}, "Colour"),
        (Mixed, {"enum": [1, "two"]}, ""),
        (Item, {"$ref": "#/$defs/Item"}, "Item"),
        (list[Box], {"type": "array", "items": {"$ref": "#/$defs/Box"}}, "Item Box"),
        (Film, {"$ref": "#/$defs/Film"}, "Film"),
        (pydantic.HttpUrl, SCHEMAS["a URL"], ""),
        (Flat, {"$ref": "#/$defs/Flat"}, "Flat"),
        (Annotated[int, pydantic.Field(json_schema_extra={"x-unit": "m"})], {"type": "integer", "x-unit": "m"}, ""),
    ],
    ids=str,
)  # fmt: skip
def test_a_hint_has_this_schema(hint: Any, schema: dict[str, Any], definitions: str) -> None:
    raw = made_of(hint)[0].spec.input_schema.raw
    assert raw["properties"]["a"] == schema
    assert raw.get("$defs", {}) == {name: SCHEMAS[name] for name in definitions.split()}


def test_a_recursive_model_is_a_definition_of_itself() -> None:
    raw = made_of(Model)[0].spec.input_schema.raw
    assert raw["properties"]["a"] == {"$ref": "#/$defs/Model"}
    assert raw["$defs"]["Model"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Model"}


def test_two_classes_of_one_name_have_two_definitions_also_if_one_contains_the_other() -> None:
    inner = dataclasses.make_dataclass("Node", [("a", int)])
    outer = dataclasses.make_dataclass("Node", [("inner", inner), ("again", inner)])
    outer.__doc__ = inner.__doc__ = None
    definitions = made_of(outer)[0].spec.input_schema.raw["$defs"]
    assert len(definitions) == 2
    (other,) = definitions.keys() - {"Node"}
    assert definitions["Node"]["properties"] == {key: {"$ref": f"#/$defs/{other}"} for key in ("inner", "again")}
    assert other.endswith(".Node")
    assert definitions[other]["properties"] == {"a": {"type": "integer"}}


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (list[Iterator[int]], "is a stream, which is supported only as the whole result of a function"),
        (list[AsyncIterator], "is a stream, which is supported only"),
        (pydantic.Field(gt=1), r"write Annotated\[<type>, FieldInfo\(…\)\]"),
        (dict[str, Conversions], r"has no JSON Schema \(.*\); register the type \(Conversions.register\)"),
        (attrs.make_class("Bad", {"a": attrs.field(type="Missing")}), "the type hints of Bad cannot be read"),
    ],
    ids=str,
)
def test_a_hint_without_a_schema_is_an_error_that_says_what_to_write(hint: Any, words: str) -> None:
    with pytest.raises(RegistrationError, match=rf'"local.f", result: .*{words}'):
        made_of(hint)


class Struct(msgspec.Struct):
    size: int


@attrs.frozen
class Guarded:
    when: datetime.date
    size: int = attrs.field(validator=attrs.validators.ge(1))


def parsed(value: str | int) -> int:
    return int(value)


@attrs.frozen
class Parsed:
    size: int = attrs.field(converter=parsed)


@attrs.frozen
class Renamed:
    when: datetime.date
    _size: int = attrs.field(alias="length")


@dataclasses.dataclass
class Later:
    when: datetime.date
    given: dataclasses.InitVar[int] = 0
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, given: int) -> None:
        self.total = given


DAY = datetime.date(2024, 5, 6)
ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (uuid.UUID | datetime.date, str(ID), ID),
        (dict[int, datetime.date], {"1": "2024-05-06"}, {1: DAY}),
        (list[Item | Struct], [{"size": 5}], [Item(5)]),
        (Guarded, {"when": "2024-05-06", "size": 2}, Guarded(DAY, 2)),
        (Parsed, {"size": "5"}, Parsed(5)),
        (Renamed, {"when": "2024-05-06", "length": 2}, Renamed(DAY, 2)),
        (tuple[Guarded, ...], [{"when": "2024-05-06", "size": 2}], (Guarded(DAY, 2),)),
        (Guarded | None, {"when": "2024-05-06", "size": 2}, Guarded(DAY, 2)),
        (list[Struct | Guarded], [{"size": 2}], [Struct(2)]),
        (Mixed | None, 1, Mixed.ONE),
        (int | float, 5.5, 5.5),
        (list[Item], [{"size": 5.0}], [Item(5)]),
        (dict[int, int], {"1": 5.0}, {1: 5}),
    ],
    ids=str,
)
async def test_a_value_is_converted_as_its_hint_says(hint: Any, value: Any, expected: Any) -> None:
    await assert_structured(hint, value, expected, conversions=Conversions())


class Aliased(pydantic.BaseModel):
    size: int = pydantic.Field(alias="Size")


def test_keys_of_json_are_strings_and_aliases() -> None:
    types = Types()
    assert types.to_json({1: {2: DAY}}) == {"1": {"2": "2024-05-06"}}
    assert types.to_json([Aliased(Size=3)]) == [{"Size": 3}]
    with pytest.raises(TypeError, match="expected a JSON value, got object"):
        types.to_json(object())


def test_classes_that_do_more_than_set_their_fields_are_not_left_to_msgspec() -> None:
    def made(body: Any = None, **field: Any) -> Any:
        return attrs.make_class("A", {"a": attrs.field(type=int, **field)}, class_body=body, frozen=True)

    more = [made(validator=attrs.validators.ge(1)), made(converter=int), made(alias="b"), Later, Item]
    more.append(made({"__attrs_pre_init__": lambda self: None}))
    types = Types()
    assert not any(types.is_whole(each) for each in (*more, Item | Struct, uuid.UUID | DAY.__class__))
    assert all(types.is_whole(each) for each in (made(), Struct | None, Colour))


async def test_what_a_class_checks_or_computes_itself_is_left_to_the_class() -> None:
    made, seen = made_of(Later, conversions=Conversions())
    assert await call(made, {"a": {"when": "2024-05-06"}}) == {"when": "2024-05-06"}
    assert seen == [Later(DAY)]


async def test_a_registered_type_is_used_also_by_conversions_that_have_converted_before() -> None:
    conversions = Conversions()

    for unit in ("j", "k"):
        conversions.register(
            complex,
            schema={"type": "string"},
            structure=lambda text, unit=unit: complex(text.replace(unit, "j")),
            unstructure=lambda value, unit=unit: str(value).replace("j", unit),
        )
        made, seen = made_of(list[complex] | dict[str, Guarded], conversions=conversions)
        assert await call(made, {"a": [f"1{unit}"]}) == [f"1{unit}"]
        assert seen == [[1j]]


async def test_arguments_of_a_typed_call_become_the_input() -> None:
    @operation(namespace="t")
    async def f(when: datetime.date, size: int = 1, *, note: str = "", **rest: datetime.date) -> dict[str, Any]:
        return {"when": when, "size": size, "note": note, "rest": rest}

    registry, day = registry_of(f), "2024-05-06"
    assert await registry.call(f, DAY, 2) == {"when": day, "size": 2, "note": "", "rest": {}}
    assert await registry.call(f, when=DAY, note="n") == {"when": day, "size": 1, "note": "n", "rest": {}}
    assert (await registry.call(f, DAY, other=DAY))["rest"] == {"other": day}
    for args, named, words in (
        ((DAY, 2, "n"), {}, "too many positional arguments"),
        ((), {}, "VALIDATION_ERROR"),
        ((DAY,), {"when": DAY}, "multiple values for argument 'when'"),
    ):
        with pytest.raises((TypeError, CallError), match=words):
            await registry.call(f, *args, **named)
    assert f.spec.input_schema.raw["additionalProperties"] == {"type": "string", "format": "date"}


@pytest.mark.parametrize(
    ("hint", "required"), [(Ticket, {"film"}), (Draft, {"film", "author"}), (Film, {"title"})]
)
async def test_keys_of_a_typed_dict_are_required_as_their_annotations_state(hint: Any, required: set[str]) -> None:
    """Also if the annotations are strings, as in this module: Python itself takes them for required then."""
    made, got = made_of(hint)
    assert set(made.spec.input_schema.raw["$defs"][hint.__name__]["required"]) == required
    given = dict.fromkeys(required, "x")
    await call(made, {"a": given})
    assert got == [given]


@pytest.mark.parametrize(("default", "is_shown"), [(10**30, True), (10**5_000, False)], ids=["long", "too long"])
def test_an_integer_is_a_default_of_the_schema_unless_python_refuses_to_write_it(
    default: int, is_shown: bool
) -> None:
    async def f(a: int = default) -> int: ...  # type: ignore[empty-body]  # never called

    assert operation(f).spec.input_schema.raw["properties"]["a"] == {
        "type": "integer", **({"default": default} if is_shown else {}),
    }  # fmt: skip

"""Each keyword's error to the letter, what is fulfilled at its bound, and what a value of JSON is."""

import math
from typing import Any

import pytest

from operad_schema import from_schema
from operad_schema.characters import complement
from operad_schema.limits import Limits
from operad_schema.values import (
    MAX_BITS,
    count_parts,
    equal,
    frozen,
    is_deeper,
    is_multiple,
    is_number,
    is_type,
    short,
)
from schema.tests.tables import tables

TABLES = tables("each_keyword")

INT, STR = {"type": "integer"}, {"type": "string"}

ERRORS: list[tuple[Any, Any, list[str]]] = [
    *TABLES["errors"],
    (
        {"properties": {"max_prize": INT}, "additionalProperties": False},
        {5: 1, "max_price": 1},
        ["expected no undeclared property, got 5, 'max_price' at $"],
    ),
]


@pytest.mark.parametrize(("schema", "value", "messages"), ERRORS)
def test_the_errors_of_a_value_are_these_and_no_others(schema: Any, value: Any, messages: list[str]) -> None:
    assert [error.message for error in from_schema(schema).errors(value)] == messages
    assert from_schema(schema).is_valid(value) is (not messages)
    defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    assert from_schema({"allOf": [True, schema, True], "$defs": defs}).is_valid(value) is (not messages)


NEVER = {"const": "never"}
FULFILLED: list[tuple[Any, Any]] = TABLES["fulfilled"]


@pytest.mark.parametrize(("schema", "value"), FULFILLED)
def test_what_is_fulfilled_is_no_error_beside_what_is_not(schema: Any, value: Any) -> None:
    assert from_schema(schema).is_valid(value) is True
    assert from_schema({**schema, **NEVER}).is_valid(value) is False
    assert [error.keyword for error in from_schema({**schema, **NEVER}).errors(value)] == ["const"]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_as_many_errors_are_collected_as_are_allowed(most: int) -> None:
    errors = from_schema({"items": INT}, limits=Limits(max_schema_errors=most)).errors(["x"] * 5)
    assert [error.path for error in errors] == [f"$[{index}]" for index in range(most)]


def test_the_search_for_errors_ends_after_so_many_steps() -> None:
    schema = {"items": INT}
    value = [1, 2, "x", "y"]
    assert len(from_schema(schema, limits=Limits(max_error_steps=5)).errors(value)) == 2
    (error,) = from_schema(schema, limits=Limits(max_error_steps=2)).errors(value)
    expected = "a value that matches the schema"
    assert error.message == f"expected {expected}, got list at $"
    assert (error.path, error.keyword, error.expected, error.got) == ("$", "", expected, "list")


# --- values -----------------------------------------------------------------------------------------------

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


@pytest.mark.parametrize(
    ("value", "names"),
    [*TABLES["each_value_has_these_types"], (math.inf, "number"), ((), "array"), (object(), "")],
)
def test_each_value_has_these_types(value: Any, names: str) -> None:
    assert [name for name in TYPES if is_type(value, name)] == names.split()


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [*TABLES["json_equality_and_its_stand_in_agree"], ([1, [True]], (1.0, [True]), True)],
)
def test_json_equality_and_its_stand_in_agree(left: Any, right: Any, same: bool) -> None:
    assert equal(left, right) is same
    assert (frozen(left) == frozen(right)) is same
    assert not same or hash(frozen(left)) == hash(frozen(right))


@pytest.mark.parametrize(
    ("value", "levels"),
    [(1, 0), ([], 1), ({}, 1), ((), 1), ([1], 1), ([[]], 2), ([1, {"a": ()}], 3), ({"a": [1]}, 2)],
)
def test_how_deep_a_value_is(value: Any, levels: int) -> None:
    assert not is_deeper(value, levels)
    if levels:
        assert is_deeper(value, levels - 1)


def test_the_parts_of_a_value_are_counted_up_to_a_bound() -> None:
    value = {"a": [1, 2, (3,)], "b": None}
    assert [count_parts(value, most) for most in (0, 1, 6, 7, 8)] == [0, 1, 6, 7, 7]


def test_a_number_is_one_that_json_can_hold() -> None:
    assert [is_number(one) for one in (0, 1.5, -1, True, "1", None, math.inf, math.nan)] == [True] * 3 + [
        False
    ] * 5
    assert is_number(2 ** (MAX_BITS - 1))
    assert not is_number(2**MAX_BITS)


@pytest.mark.parametrize(
    ("value", "factor", "is_one"),
    [(4, 2, True), (5, 2, False), (19.01, 0.01, True), (0.3, 0.1, True), (0.35, 0.1, False), (4.0, 2, True),
     (5, 2.5, True), (math.inf, 2, False), (math.nan, 0.1, False), (1e308, 0.5, True)],
)  # fmt: skip
def test_multiples_are_those_of_the_decimals_as_written(value: Any, factor: Any, is_one: bool) -> None:
    assert is_multiple(value, factor) is is_one


def test_a_repr_is_cut_at_its_width() -> None:
    assert short("abc", 5) == "'abc'"
    assert short("abcd", 5) == "'abc…"

    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    assert short(Odd(), 5) == "<Odd>"
    assert short(Odd(), 4) == "<Od…"


def test_a_set_of_characters_and_its_complement_share_no_character() -> None:
    ranges = ((0x30, 0x39), (0x41, 0x5A))
    assert complement(complement(ranges)) == ranges
    assert complement(ranges) == ((0, 0x2F), (0x3A, 0x40), (0x5B, 0x10FFFF))
    assert complement(()) == ((0, 0x10FFFF),)
    assert complement(((0, 0x10FFFF),)) == ()


@pytest.mark.parametrize("value", [0, -1, 0.5, 1.5, True, False, "5", None, math.nan])
def test_a_bound_is_a_whole_number_of_at_least_one(value: Any) -> None:
    with pytest.raises(ValueError, match="max_fill: expected a whole number of at least 1"):
        Limits(max_fill=value)


def test_a_bound_of_one_and_none_at_all_are_allowed() -> None:
    assert Limits(max_fill=1).max_fill == 1
    assert Limits(max_fill=math.inf).max_fill == math.inf  # type: ignore[arg-type]  # the one float that is allowed
    trusting = Limits(max_schema_depth=3).trusting()
    assert trusting.max_schema_nodes == trusting.max_schema_bytes == trusting.max_schema_enum == math.inf
    assert (trusting.max_schema_in_place, trusting.max_schema_depth) == (math.inf, 3)

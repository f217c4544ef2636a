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

INT, STR = {"type": "integer"}, {"type": "string"}

ERRORS: list[tuple[Any, Any, list[str]]] = [
    ({"minimum": 2}, 1, ["expected a number >= 2, got 1 at $"]),
    ({"minimum": 2}, 2, []),
    ({"maximum": 2}, 3, ["expected a number <= 2, got 3 at $"]),
    ({"maximum": 2}, 2, []),
    ({"exclusiveMinimum": 2}, 2, ["expected a number > 2, got 2 at $"]),
    ({"exclusiveMaximum": 2}, 2, ["expected a number < 2, got 2 at $"]),
    ({"multipleOf": 2}, 3, ["expected a multiple of 2, got 3 at $"]),
    ({"minLength": 1}, "", ["expected at least 1 character, got 0 at $"]),
    ({"minLength": 2}, "a", ["expected at least 2 characters, got 1 at $"]),
    ({"maxLength": 1}, "ab", ["expected at most 1 character, got 2 at $"]),
    ({"maxLength": 2}, "abc", ["expected at most 2 characters, got 3 at $"]),
    ({"minItems": 1}, [], ["expected at least 1 item, got 0 at $"]),
    ({"minItems": 2}, [1], ["expected at least 2 items, got 1 at $"]),
    ({"maxItems": 1}, [1, 2], ["expected at most 1 item, got 2 at $"]),
    ({"maxItems": 0}, [1], ["expected at most 0 items, got 1 at $"]),
    ({"minProperties": 1}, {}, ["expected at least 1 property, got 0 at $"]),
    ({"minProperties": 2}, {"a": 1}, ["expected at least 2 properties, got 1 at $"]),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, ["expected at most 1 property, got 2 at $"]),
    ({"uniqueItems": True}, [1, 1], ["expected unique items, got the same item twice at $"]),
    (
        {"type": "object", "required": ["a", "b"]},
        {},
        ["expected the property 'a', got none at $", "expected the property 'b', got none at $"],
    ),
    (
        {"dependentRequired": {"a": ["b"], "c": ["d"]}},
        {"a": 1, "c": 1, "d": 1},
        ["expected the properties that others depend on, got some missing at $"],
    ),
    ({"type": ["string", "null"]}, 5, ["expected string or null, got int at $"]),
    (STR, None, ["expected string, got null at $"]),
    (
        {"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]},
        "x",
        ["expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, got 'x' at $"],
    ),
    (
        {"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]},
        "x",
        ["expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, got 'x' at $"],
    ),
    ({"enum": ["a"]}, 1, ["expected 'a', got 1 at $"]),
    ({"const": {"a": 1}}, 2, ["expected {'a': 1}, got 2 at $"]),
    ({"pattern": "^a$"}, "b", ["expected a string that matches '^a$', got 'b' at $"]),
    ({"not": INT}, 5, ["expected a value outside the excluded schema, got 5 at $"]),
    ({"properties": {"a": False}}, {"a": 1}, ["expected nothing here, got 1 at $.a"]),
    ({"if": INT, "then": {"minimum": 3}, "else": {"minLength": 2}}, 2, ["expected a number >= 3, got 2 at $"]),
    (
        {"if": INT, "then": {"minimum": 3}, "else": {"minLength": 2}},
        "a",
        ["expected at least 2 characters, got 1 at $"],
    ),
    ({"if": INT, "else": {"minLength": 2}}, "a", ["expected at least 2 characters, got 1 at $"]),
    ({"allOf": [INT, {"minimum": 3}]}, "x", ["expected integer, got str at $"]),
    ({"allOf": [INT, {"minimum": 3}]}, 2, ["expected a number >= 3, got 2 at $"]),
    ({"anyOf": [INT, STR]}, None, ["expected integer or string, got null at $"]),
    ({"anyOf": [INT, {"type": ["string", "null"]}]}, [], ["expected integer or string or null, got list at $"]),
    ({"oneOf": [INT, {"minimum": 3}]}, 5, ["expected exactly one of 2 alternatives, got a match of several at $"]),
    (
        {"oneOf": [INT, {"minimum": 3}]},
        2.5,
        ["expected one of 2 alternatives, got 2.5 at $ (closest: expected a number >= 3, got 2.5 at $)"],
    ),
    (
        {
            "anyOf": [
                {"properties": {"k": {"const": "a"}, "v": INT}},
                {"properties": {"k": {"const": "b"}, "v": STR}},
            ]
        },
        {"k": "b", "v": 1},
        ["expected one of 2 alternatives, got {'k': 'b', 'v': 1} at $ (closest: expected 'a', got 'b' at $.k)"],
    ),
    (
        {"anyOf": [False, False]},
        1,
        ["expected one of 2 alternatives, got 1 at $ (closest: expected nothing here, got 1 at $)"],
    ),
    (
        {"additionalProperties": False},
        {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1},
        ["expected no undeclared property, got 'a', 'b', 'c', 'd', 'e' at $"],
    ),
    (
        {"properties": {"max_prize": INT, "min_prize": INT, "a": INT}, "additionalProperties": False},
        {"max_price": 1, "min_prize": 2, "mim_prize": 3},
        ["expected no undeclared property, got 'max_price', 'mim_prize' at $; did you mean 'max_prize'?"],
    ),
    (
        {"properties": {"max_prize": INT}, "additionalProperties": False},
        {5: 1, "max_price": 1},
        ["expected no undeclared property, got 5, 'max_price' at $"],
    ),
    (
        {"properties": {"a" * 100: INT}, "additionalProperties": False},
        {"a" * 99: 1},
        ["expected no undeclared property, got '" + "a" * 78 + "… at $"],
    ),
    (
        {"properties": {"a": INT}, "patternProperties": {"^x": INT}, "additionalProperties": STR},
        {"a": "s", "x1": "s", "y": 1, "z": "s"},
        [
            "expected integer, got str at $.a",
            "expected integer, got str at $.x1",
            "expected string, got int at $.y",
        ],
    ),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1, "c": 2}, ["expected at most 1 character, got 2 at $"]),
    (
        {"dependentSchemas": {"a": {"required": ["b"]}, "c": {"required": ["d"]}}},
        {"a": 1},
        ["expected the property 'b', got none at $"],
    ),
    ({"items": INT}, ["a", 1, "b"], ["expected integer, got str at $[0]", "expected integer, got str at $[2]"]),
    (
        {"prefixItems": [INT, STR]},
        ["a", 1, None],
        ["expected integer, got str at $[0]", "expected string, got int at $[1]"],
    ),
    ({"prefixItems": [INT], "items": False}, [1, 2], ["expected at most 1 items, got 2 at $"]),
    (
        {"prefixItems": [INT], "items": STR},
        ["x", 2],
        ["expected integer, got str at $[0]", "expected string, got int at $[1]"],
    ),
    ({"items": False}, [1], ["expected at most 0 items, got 1 at $"]),
    ({"contains": INT}, ["a"], ["expected an array with a matching item, got none at $"]),
    (
        {"contains": INT, "minContains": 2},
        [1],
        ["expected an array with at least 2 matching items, got fewer at $"],
    ),
    ({"contains": INT, "minContains": 2}, [], ["expected an array with a matching item, got none at $"]),
    (
        {"contains": INT, "maxContains": 1},
        [1, 2],
        ["expected an array with at most 1 matching items, got more at $"],
    ),
    (
        {"contains": INT, "minContains": 0, "maxContains": 0},
        [1],
        ["expected an array with at most 0 matching items, got more at $"],
    ),
    (
        {"properties": {"a": INT}, "unevaluatedProperties": False},
        {"a": 1, "b": 2},
        ["expected no undeclared property, got 'b' at $"],
    ),
    (
        {"properties": {"a": INT}, "unevaluatedProperties": STR},
        {"a": 1, "b": 2},
        ["expected string, got int at $.b"],
    ),
    ({"prefixItems": [INT], "unevaluatedItems": False}, [1, 2], ["expected no further items, got some at $"]),
    ({"prefixItems": [INT], "unevaluatedItems": STR}, [1, 2], ["expected string, got int at $[1]"]),
    (
        {"anyOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}], "unevaluatedProperties": False},
        {"a": 1, "c": 2},
        ["expected no undeclared property, got 'c' at $"],
    ),
    (
        {"$defs": {"n": {"properties": {"v": INT}}}, "$ref": "#/$defs/n"},
        {"v": "x"},
        ["expected integer, got str at $.v"],
    ),
    (
        {"properties": {"a b": INT, "c": {"items": {"properties": {"d": INT}}}}},
        {"a b": "x", "c": [1, {"d": "x"}]},
        ['expected integer, got str at $["a b"]', "expected integer, got str at $.c[1].d"],
    ),
    ({"properties": {'a"\\': INT}}, {'a"\\': "x"}, ['expected integer, got str at $["a\\"\\\\"]']),
    (STR, True, ["expected string, got bool at $"]),
    (INT, 1.5, ["expected integer, got float at $"]),
]


@pytest.mark.parametrize(("schema", "value", "messages"), ERRORS)
def test_the_errors_of_a_value_are_these_and_no_others(schema: Any, value: Any, messages: list[str]) -> None:
    assert [error.message for error in from_schema(schema).errors(value)] == messages
    assert from_schema(schema).is_valid(value) is (not messages)
    defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    assert from_schema({"allOf": [True, schema, True], "$defs": defs}).is_valid(value) is (not messages)


NEVER = {"const": "never"}
FULFILLED: list[tuple[Any, Any]] = [
    ({"minimum": 2}, 2),
    ({"maximum": 2}, 2),
    ({"exclusiveMinimum": 2}, 3),
    ({"exclusiveMaximum": 2}, 1),
    ({"multipleOf": 2}, 4),
    ({"minLength": 2}, "ab"),
    ({"maxLength": 2}, "ab"),
    ({"minItems": 2}, [1, 2]),
    ({"maxItems": 2}, [1, 2]),
    ({"uniqueItems": True}, [1, 2]),
    ({"minProperties": 1}, {"a": 1}),
    ({"maxProperties": 1}, {"a": 1}),
    ({"minimum": 2}, "x"),
    ({"minLength": 5}, 1),
    ({"minItems": 5}, "x"),
    ({"minProperties": 5}, [1]),
    ({"required": ["a"]}, {"a": 1}),
    ({"required": ["a"]}, []),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}),
    ({"dependentRequired": {"a": ["a", "b"]}}, {"a": 1, "b": 1}),
    ({"dependentRequired": {"a": ["b"]}}, {"c": 1}),
    ({"dependentRequired": {"a": ["b"]}}, [1]),
    ({"pattern": "^a"}, "ab"),
    ({"pattern": "^a"}, 5),
    ({"type": ["integer", "string"]}, 5),
    ({"enum": [1, 5]}, 5),
    ({"not": STR}, 5),
    ({"if": INT, "then": {"minimum": 5}, "else": False}, 5),
    ({"if": STR, "then": False, "else": {"minimum": 5}}, 5),
    ({"allOf": [INT, {"minimum": 5}]}, 5),
    ({"anyOf": [STR, INT]}, 5),
    ({"anyOf": [INT, INT]}, 5),
    ({"oneOf": [STR, INT]}, 5),
    ({"properties": {"a": INT}}, {"a": 5, "b": "x"}),
    ({"properties": {"a": False}}, [5]),
    ({"propertyNames": {"maxLength": 1}}, {"a": 5}),
    ({"propertyNames": False}, ["a"]),
    ({"patternProperties": {"^a": INT}}, {"ab": 5, "b": "x"}),
    ({"patternProperties": {"^a": False}}, ["a"]),
    ({"properties": {"a": {}}, "patternProperties": {"^b": {}}, "additionalProperties": False}, {"a": 5, "b": 5}),
    ({"additionalProperties": False}, {}),
    ({"additionalProperties": False}, [5]),
    ({"items": INT}, [5, 5]),
    ({"items": False}, {"a": 5}),
    ({"items": False}, []),
    ({"prefixItems": [INT], "items": False}, [5]),
    ({"prefixItems": [INT, STR]}, [5]),
    ({"contains": INT}, [5, "x"]),
    ({"contains": INT}, {"a": "x"}),
    ({"contains": INT, "minContains": 2, "maxContains": 2}, [5, 6]),
    ({"contains": INT, "minContains": 0}, ["x"]),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 5}),
    ({"unevaluatedProperties": False}, [5]),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [5]),
    ({"unevaluatedItems": False}, {"a": 5}),
    ({"properties": {"a": {}}, "additionalProperties": {}, "unevaluatedProperties": False}, {"a": 5, "b": 5}),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 5}),
    ({"dependentSchemas": {"a": False}}, ["a"]),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 5}),
]


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
    assert error.message == "expected a value of the schema at $"
    assert (error.path, error.keyword, error.expected, error.got) == ("$", "", "a value of the schema", "list")


def test_a_union_tells_of_the_branch_that_came_closest_by_content_and_then_by_depth() -> None:
    tagged = [
        {"properties": {"k": {"const": "a"}, "v": {"properties": {"w": INT}}}},
        {"properties": {"k": {"const": "b"}, "v": {"minProperties": 2}}},
    ]
    (error,) = from_schema({"anyOf": tagged}).errors({"k": "b", "v": {}})
    assert error.message.endswith("(closest: expected at least 2 properties, got 0 at $.v)")
    deep = [
        {"properties": {"a": {"minProperties": 3}}},
        {"properties": {"a": {"properties": {"b": {"minimum": 5}}}}},
    ]
    (error,) = from_schema({"anyOf": deep}).errors({"a": {"b": 1}})
    assert error.message.endswith("(closest: expected a number >= 5, got 1 at $.a.b)")


# --- values -----------------------------------------------------------------------------------------------

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, "null"),
        (True, "boolean"),
        (0, "integer number"),
        (1.0, "integer number"),
        (1.5, "number"),
        (math.inf, "number"),
        ("", "string"),
        ([], "array"),
        ((), "array"),
        ({}, "object"),
        (object(), ""),
    ],
)
def test_each_value_has_these_types(value: Any, names: str) -> None:
    assert [name for name in TYPES if is_type(value, name)] == names.split()


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (1, True, False),
        (False, False, True),
        (True, False, False),
        ([1, [True]], (1.0, [True]), True),
        ([1], [True], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([], {}, False),
        ({}, [], False),
        ("a", "a", True),
        (None, 0, False),
    ],
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


@pytest.mark.parametrize("value", [0, -1, 0.5, True, False, "5", None, math.nan])
def test_a_bound_is_a_whole_number_of_at_least_one(value: Any) -> None:
    with pytest.raises(ValueError, match="max_fill: expected a whole number of at least 1"):
        Limits(max_fill=value)


def test_a_bound_of_one_and_none_at_all_are_allowed() -> None:
    assert Limits(max_fill=1).max_fill == 1
    assert Limits(max_fill=math.inf).max_fill == math.inf  # type: ignore[arg-type]  # the one float that is allowed
    trusting = Limits(max_schema_depth=3).trusting()
    assert trusting.max_schema_nodes == trusting.max_schema_bytes == trusting.max_schema_enum == math.inf
    assert (trusting.max_schema_in_place, trusting.max_schema_depth) == (math.inf, 3)

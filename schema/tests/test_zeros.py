"""What is filled in: defaults where they are declared, zero values where something is required."""

from typing import Any

import pytest

from operad_schema import Limits, from_schema
from schema.tests.tables import tables

TABLES = tables("zeros")


def filled(schema: Any, **more: Any) -> Any:
    """What a required property of this schema becomes where it is missing; `...` for nothing."""
    outer = from_schema({"type": "object", "properties": {"x": schema}, "required": ["x"], **more})
    made = outer.cast({}, complete=True)
    assert outer.cast(made, complete=True) == made
    return made.get("x", ...)


ZEROS = [*TABLES["zeros"], ({}, ...), (True, ...), (False, ...), ({"enum": []}, ...)]


@pytest.mark.parametrize(("schema", "expected"), ZEROS)
def test_a_missing_required_property_is_filled_in(schema: Any, expected: Any) -> None:
    made = filled(schema, **{"$defs": {"n": {"type": "integer", "default": 9}}})
    assert (made, type(made)) == (expected, type(expected))


def test_what_is_too_large_is_not_filled_in() -> None:
    wide = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(9)}}
    schema = {**wide, "required": [f"p{i}" for i in range(9)]}
    outer = {"type": "object", "properties": {"x": schema, "y": {"type": "integer"}}, "required": ["x", "y"]}
    assert from_schema(outer, limits=Limits(max_fill=9)).cast({}, complete=True) == {"y": 0}
    assert len(from_schema(outer, limits=Limits(max_fill=10)).cast({}, complete=True)["x"]) == 9
    default = {"properties": {"x": {"default": list(range(9))}, "y": {"default": 1}}}
    assert from_schema(default, limits=Limits(max_fill=9)).cast({}, complete=True) == {"y": 1}
    assert len(from_schema(default, limits=Limits(max_fill=10)).cast({}, complete=True)["x"]) == 9
    deep = from_schema(
        {"type": "object", "properties": {"x": outer}, "required": ["x"]}, limits=Limits(max_fill=11)
    )
    assert deep.cast({}, complete=True) == {}, "two objects and ten numbers"


def test_a_fill_is_no_other_ones_container() -> None:
    schema = from_schema({"items": {"properties": {"a": {"default": {"deep": []}}}}})
    first, second = schema.cast([{}, {}])
    first["a"]["deep"].append(1)
    assert second == {"a": {"deep": []}}
    assert schema.cast([{}]) == [{"a": {"deep": []}}]


LIMITS: list[tuple[dict[str, int], dict[str, Any], str]] = [
    ({"max_schema_nodes": 5}, {"properties": {f"p{i}": {"type": "integer"} for i in range(5)}}, "at most 5 subschemas (max_schema_nodes)"),
    ({"max_schema_bytes": 50}, {"enum": ["x" * 60]}, "at most 50 bytes (max_schema_bytes)"),
    ({"max_schema_depth": 2}, {"items": {"items": {"items": {"type": "integer"}}}}, "max_schema_depth)"),
    ({"max_schema_depth": 2}, {"enum": [[[[1]]]]}, "max_schema_depth)"),
    ({"max_schema_enum": 2}, {"enum": [1, 2, 3]}, "expected at most 2 members (max_schema_enum), got 3"),
    ({"max_schema_in_place": 2}, {"allOf": [{"$ref": "#/$defs/a"}] * 3, "$defs": {"a": {}}}, "max_schema_in_place)"),
    ({"max_pattern_length": 3}, {"pattern": "abcd"}, "at most 3 characters (max_pattern_length)"),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "schema", "warning"), LIMITS)
def test_a_bound_of_a_schema_is_settable_and_named(limits: dict[str, int], schema: Any, warning: str) -> None:
    bounded = from_schema(schema, limits=Limits(**limits))
    assert any(warning in text for text in bounded.warnings), bounded.warnings
    assert from_schema(schema).warnings == ()
    [[name, value]] = limits.items()
    if name.startswith("max_schema") and name != "max_schema_depth":
        assert from_schema(schema, limits=Limits(**limits), trusted=True).warnings == ()
        assert from_schema(schema, trusted=True).limited(Limits(**{name: value})).warnings != ()


def test_bounds_of_values_are_settable() -> None:
    tree = {"items": {"$ref": "#"}}
    assert from_schema(tree).is_valid([[[[]]]])
    shallow = from_schema(tree, limits=Limits(max_data_depth=2))
    assert not shallow.is_valid([[[[]]]])
    assert "at most 2 levels" in shallow.errors([[[[]]]])[0].message
    assert (
        len(from_schema({"items": {"type": "integer"}}, limits=Limits(max_schema_errors=3)).errors(["x"] * 9)) == 3
    )
    looks = from_schema({"pattern": "(?=a)"}, limits=Limits(max_pattern_string=2)).running_unchecked()
    assert (looks.is_valid("xa"), looks.is_valid("xaa")) == (True, False)
    few = from_schema({"items": {"type": "integer"}}, limits=Limits(max_error_steps=5)).errors(["x"] * 19)
    assert len(few) == 4, "the schema itself is one step"

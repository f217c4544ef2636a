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


def test_a_fill_is_no_other_ones_container() -> None:
    schema = from_schema({"items": {"properties": {"a": {"default": {"deep": []}}}}})
    first, second = schema.cast([{}, {}])
    first["a"]["deep"].append(1)
    assert second == {"a": {"deep": []}}
    assert schema.cast([{}]) == [{"a": {"deep": []}}]


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

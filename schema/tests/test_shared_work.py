"""What schemas of one document share: what is read once, told once, and stays apart where it has to."""

from typing import Any

import pytest

from operad_schema import Limits, from_schema
from operad_schema.bundling import SharedDefinitions
from schema.tests.tables import tables

TABLES = tables("shared_work")

INTEGER = {"type": "integer"}


def part(document: dict[str, Any], name: str, **options: Any) -> Any:
    return from_schema(document["$defs"][name], document=document, pointer=f"/$defs/{name}", **options)


def test_what_was_read_before_a_bound_was_met_is_not_read_again() -> None:
    wide = {"properties": {f"p{i}": INTEGER for i in range(30)}}
    both = {"properties": {"b": {"$ref": "#/$defs/B"}, "c": {"$ref": "#/$defs/C"}}}
    document = {"$defs": {"A": both, "B": {"properties": {"x": {"type": "any"}, "y": INTEGER}}, "C": wide}}
    within = Limits(max_schema_nodes=20)
    whole, beside = part(document, "A", limits=within), part(document, "B", limits=within)
    assert "at most 20 subschemas (max_schema_nodes)" in whole.warnings[0]
    assert whole.is_valid({"b": {"y": "x"}})
    assert len(beside.warnings) == 1
    assert not beside.is_valid({"y": "x"})
    assert part(document, "B", limits=Limits(max_schema_nodes=3)).warnings[0].startswith("#/$defs/B/properties/x")


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"minProperties": 0, "properties": {"x": leaf}}
    return leaf


def inside(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = {"x": value}
    return value


def test_schemas_that_are_alike_and_nested_deeply_stay_apart() -> None:
    leaves = [INTEGER, {"type": "string"}, {"type": "null"}]
    names = "abc"
    parts = {name: nested(9, leaf) for name, leaf in zip(names, leaves, strict=True)}
    schema = from_schema({"minProperties": 0, "properties": parts})
    for name, good in zip(names, [1, "x", None], strict=True):
        for value in (1, "x", None):
            assert schema.is_valid({name: inside(9, value)}) is (value == good)


def test_a_place_that_does_not_exist_is_shared_as_a_schema_that_says_nothing() -> None:
    shared = SharedDefinitions()
    nowhere = from_schema({"type": "string"}, document={"$defs": {}}, pointer="/$defs/none")
    assert nowhere.bundled(shared) is nowhere.bundled() is True
    assert shared.definitions == {}


AGAIN = {"$ref": "#"}
OBJECT = {"type": "object"}


@pytest.mark.parametrize("schema", TABLES["a_schema_that_meets_each_level_twice_does_not_double_the_work_of_each"])
def test_a_schema_that_meets_each_level_twice_does_not_double_the_work_of_each(schema: dict[str, Any]) -> None:
    compiled, value = from_schema({**OBJECT, **schema}), inside(60, {})
    assert compiled.is_valid(value)
    assert compiled.cast(value) == value
    assert compiled.errors(inside(60, 5))


def test_plain_trees_are_checked_and_cast_level_by_level() -> None:
    """Each part of them meets one schema: nothing is counted and nothing has to be remembered."""
    tree = {
        **OBJECT,
        "properties": {"x": {"anyOf": [AGAIN, {"type": "null"}]}, "kids": {"type": "array", "items": AGAIN}},
        "additionalProperties": {"type": ["integer", "string"]},
    }
    compiled = from_schema(tree, limits=Limits(max_check_steps=1))
    value = inside(60, {"kids": [{"a": 1}, {"x": None}], "b": "c"})
    assert compiled.is_valid(value)
    assert compiled.cast(value) == value
    [error] = compiled.errors(inside(2, {"kids": [{"x": 5}]}))
    assert "got int at $.x.x.kids[0].x" in error.message
    assert not compiled.is_valid(inside(250, {})), "beyond max_data_depth"

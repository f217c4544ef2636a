"""Where references lead: pointers, ids, anchors, dynamic and recursive references, in every draft."""

from typing import Any

import pytest

from operad_schema import from_schema
from schema.tests.tables import tables

TABLES = tables("references")

INTEGER = {"type": "integer"}
STRING = {"type": "string"}


def answers(schema: Any, value: Any, **options: Any) -> bool:
    """Whether a value is valid; the same from the list of errors, the bundle, and every engine."""
    compiled = from_schema(schema, **options)
    valid = compiled.is_valid(value)
    assert (not compiled.errors(value)) is valid
    assert from_schema(compiled.bundled()).is_valid(value) is valid
    beside = [{"minProperties": 0}, {"minContains": 0, "contains": {}, "maxContains": 99}]
    if isinstance(schema, dict) and "$ref" not in schema:
        for more in beside:
            assert from_schema({**schema, **more}, **options).is_valid(value) is valid
    return valid


POINTERS = TABLES["pointers"]


@pytest.mark.parametrize(("ref", "rest"), POINTERS, ids=[ref for ref, _ in POINTERS])
def test_a_pointer_leads_to_its_place(ref: str, rest: dict[str, Any]) -> None:
    schema = {"properties": {"x": {"$ref": ref}}, **rest}
    assert from_schema(schema).warnings == ()
    assert answers(schema, {"x": 1})
    assert not answers(schema, {"x": "1"})


NOWHERE = [
    "#/$defs/none", "#/$defs/a/1", "#/$defs/list/x", "#/$defs/list/9", "#/$defs/list/-1", "#/$defs/list/01x",
    "#none", "other.json", "other.json#/a", "http://[bad", "#/$defs/text/a", "urn:x:y",
]  # fmt: skip


@pytest.mark.parametrize("ref", NOWHERE)
def test_a_reference_that_leads_nowhere_is_unknown_and_said(ref: str) -> None:
    rest = {"$defs": {"a": INTEGER, "list": [INTEGER], "text": "x"}}
    schema = from_schema({"properties": {"x": {"$ref": ref, "type": "string"}, "y": INTEGER}, **rest})
    assert schema.is_valid({"x": 1})
    assert not schema.is_valid({"y": "1"}), "the rest is read"
    assert schema.warnings
    assert schema.warnings[0].startswith("#/")


IDS = TABLES["ids"]


@pytest.mark.parametrize(("dialect", "schema"), IDS)
def test_an_id_or_an_anchor_is_found_in_its_resource(dialect: Any, schema: dict[str, Any]) -> None:
    assert from_schema(schema, dialect=dialect).warnings == ()
    assert answers(schema, {"x": 1}, dialect=dialect)
    assert not answers(schema, {"x": "1"}, dialect=dialect)

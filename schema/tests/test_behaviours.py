"""Behaviours that a schema and a few values show, by name: what is valid, what a cast makes, what is reported.

A row has a schema with options of `from_schema`, its `valid` and `invalid` values, and pairs of a value and what
becomes of it. A schema that means the same `everywhere` does so in a bundle and beside other keywords, too.
"""

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from operad_schema import Schema, from_schema
from operad_schema.limits import Limits
from operad_schema.references import follow, parse_pointer
from schema.tests.tables import tables

RESULTS: dict[str, Callable[[Schema, Any], Any]] = {
    "cast": lambda schema, value: schema.cast(value),
    "complete": lambda schema, value: schema.cast(value, complete=True),
    "normal": lambda schema, value: schema.normalizer(value),
    "trace": lambda schema, value: schema.tracer()(value),
    "trace complete": lambda schema, value: schema.tracer("complete")(value),
    "trace keep": lambda schema, value: schema.tracer("keep")(value),
    "errors": lambda schema, value: [error.message for error in schema.errors(value)],
    "paths": lambda schema, value: [error.path for error in schema.errors(value)],
    "keywords": lambda schema, value: [error.keyword for error in schema.errors(value)],
    "mismatches": lambda schema, value: [error.message for error in schema.mismatches(value)],
    "unfilled": lambda schema, value: [
        (error.path, error.keyword, error.message) for error in schema.mismatches(value, "complete")
    ],
    "changes": lambda schema, value: [*map(attrs.astuple, schema.cast_report(value, complete=True)[1])],
}
DOCUMENTS: dict[str, Any] = {}
"""Schemas of equal documents are of one document, since they share what they read."""
BESIDE = ({}, {"minProperties": 0}, {"minContains": 0, "contains": {}, "maxContains": 99})


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{name}-{n}")
        for name, rows in tables("behaviours").items()
        for n, row in enumerate(rows)
    ],
)
def test_behaviour(row: dict[str, Any]) -> None:
    options = {key: row[key] for key in ("dialect", "pointer", "formats") if key in row}
    if "document" in row:
        options["document"] = DOCUMENTS.setdefault(as_text(row["document"]), row["document"])
    node = row["schema"] if "schema" in row else follow(options["document"], parse_pointer(row["pointer"]))
    schema = from_schema(node, limits=Limits(**row.get("limits", {})), **options)
    same = [schema]
    if row.get("everywhere"):
        same += [from_schema(schema.bundled())]
        same += [from_schema({**node, **more}, **options) for more in BESIDE if "$ref" not in node]
    for made in same:
        for kind in ("valid", "invalid", "valid"):  # again, since a call leaves nothing to the next one
            is_valid, values = kind == "valid", row.get(kind, [])
            assert [value for value in values if made.is_valid(value) is not is_valid] == []
            assert [value for value in values if bool(made.errors(value)) is is_valid] == []
    for kind in row.keys() & RESULTS.keys():
        for value, result in row[kind]:
            assert as_text(RESULTS[kind](schema, value)) == as_text(result), (kind, value)
    for value, result in row.get("cast", []):
        assert as_text(schema.cast(result)) == as_text(result) or "limits" in row, "casting twice is casting once"
        assert schema.is_valid(result) or not schema.is_valid(value), "what is valid stays valid"
    for part in row.get("warnings", []):
        assert any(part in warning for warning in schema.warnings)
    assert len(schema.warnings) == row.get("told", len(schema.warnings))
    assert list(schema.unchecked) == row.get("unchecked", list(schema.unchecked))
    assert schema.is_unknown is row.get("unknown", schema.is_unknown)
    assert schema.bundled() == row.get("bundled", schema.bundled())


def as_text(value: Any) -> str:
    """Return a value as text that tells 1 from 1.0 and from True."""
    return json.dumps(value, sort_keys=True)

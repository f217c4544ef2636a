"""The rules of `cast`, each by examples of its own; the project's worked cases too, where they are present."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from operad_schema import from_schema
from schema.tests.tables import tables

WORKED = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")) / "cast_cases.jsonl"
SCHEMA_URIS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


INT, STR, BOOL, NUM = ({"type": name} for name in ("integer", "string", "boolean", "number"))

CASES: dict[str, list[Any]] = tables("cast_rules")
CASES["arrays are cast by position, then by items"].append(
    ({"type": "array", "prefixItems": [INT, STR], "minItems": 2}, (7,), [7, ""])
)
CASES["scalars convert without loss"].append((STR, float("inf"), float("inf")))


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [pytest.param(*row, id=f"{rule}-{n}") for rule, rows in CASES.items() for n, row in enumerate(rows)],
)
def test_rule(schema: Any, value: Any, expected: Any) -> None:
    result = from_schema(schema).cast(value, complete=True)
    assert json.dumps(result, sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_what_is_under_no_schema_is_shared_and_a_default_is_not() -> None:
    inner = {"deep": [1]}
    schema = from_schema(obj(a={}, d={"default": {"x": []}}))
    first, second = schema.cast({"a": inner}), schema.cast({"a": inner})
    assert first["a"] is inner
    first["d"]["x"].append(1)
    assert second["d"] == {"x": []}
    assert schema.cast({})["d"] == {"x": []}


def worked() -> list[Any]:
    return [json.loads(line) for line in WORKED.read_text("utf-8").splitlines()] if WORKED.exists() else []


@pytest.mark.skipif(not WORKED.exists(), reason="OPERAD_DOCUMENTS names no folder of worked cases")
def test_the_worked_cases_hold() -> None:
    failed = []
    for case in worked():
        schema = from_schema({"$schema": SCHEMA_URIS.get(case["draft"], case["draft"]), **case["schema"]})
        for complete in (True,) if case.get("mode") == "complete" else (False, True):
            result = schema.cast(case["value"], complete=complete)
            if json.dumps(result, sort_keys=True) != json.dumps(case["expected_cast"], sort_keys=True):
                failed.append((case, complete, result))
            elif schema.is_valid(result) != case["expected_valid_after"]:
                failed.append((case, complete, schema.errors(result)))
    assert failed == []

"""The rules of `cast`, each by examples of its own; the project's worked cases too, where they are present."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from operad_schema import Change, from_schema

WORKED = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")) / "cast_cases.jsonl"
SCHEMA_URIS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


INT, STR, BOOL, NUM = ({"type": name} for name in ("integer", "string", "boolean", "number"))

CASES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("cast_rules.json").read_text("utf-8"))
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


def test_nullable_is_a_type_in_openapi_30_and_nowhere_else() -> None:
    schema = obj(["a"], a={"type": "integer", "nullable": True})
    assert from_schema(schema, dialect="openapi-3.0").cast({}, complete=True) == {"a": None}
    assert from_schema(schema).cast({}, complete=True) == {"a": 0}


def test_a_discriminator_decides_before_anything_else() -> None:
    document = {
        "components": {"schemas": {"Cat": obj(kind=STR, n=INT), "Dog": obj(kind=STR, n=STR)}},
        "pet": {
            "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {"rex": "#/components/schemas/Dog", "tom": "Cat"},
            },
        },
    }
    pet = from_schema(document["pet"], document=document, pointer="/pet", dialect="openapi-3.0")
    assert pet.cast({"kind": "rex", "n": 5}) == {"kind": "rex", "n": "5"}
    assert pet.cast({"kind": "tom", "n": "5"}) == {"kind": "tom", "n": 5}
    assert pet.cast({"kind": "Dog", "n": 5}) == {"kind": "Dog", "n": "5"}


def test_a_report_says_what_was_dropped_filled_and_converted() -> None:
    schema = from_schema(obj(["c"], a=INT, b={"items": BOOL}, c=STR))
    assert schema.cast_report({"a": "1", "b": ["true", 1], "z": 0}, complete=True) == (
        {"a": 1, "b": [True, True], "c": ""},
        [
            Change("$.z", "dropped", 0, None),
            Change("$.c", "filled", None, ""),
            Change("$.a", "converted", "1", 1),
            Change("$.b[0]", "converted", "true", True),
            Change("$.b[1]", "converted", 1, True),
        ],
    )


def test_the_normalizer_tells_an_invented_zero_from_a_default() -> None:
    schema = from_schema(obj(["a", "b"], a={**INT, "default": 1}, b={"items": obj(["x"], x=INT), "type": "array"}))
    assert schema.tracer("complete")({"b": [{"x": 1}]})[:2] == ({"b": [{"x": 1}], "a": 1}, True)
    result, clean = schema.tracer("complete")({"b": [{"x": 1}, {}]})[:2]
    assert (result, clean) == ({"a": 1, "b": [{"x": 1}, {"x": 0}]}, False)
    (mismatch,) = schema.mismatches({"b": [{"x": 1}, {}]}, "complete")
    assert (mismatch.path, mismatch.keyword) == ("$.b[1].x", "required")
    assert mismatch.message == "expected the property 'x', got none at $.b[1]: 0 was filled in"


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


def test_the_minimum_that_draft_4_excludes_is_still_the_start_of_a_zero_value() -> None:
    node = {"type": "integer", "minimum": 1, "exclusiveMinimum": True}
    schema = from_schema({"type": "object", "properties": {"p": node}, "required": ["p"]}, dialect="openapi-3.0")
    assert schema.cast({}, complete=True) == {"p": 1}
    assert not schema.is_valid({"p": 1})


def test_a_report_names_the_items_that_a_closed_array_lost_and_those_that_it_gained() -> None:
    pair = from_schema({"prefixItems": [{"type": "integer"}, {"default": 7}], "items": False, "minItems": 2})
    made, changes = pair.cast_report([1, 2, 3, 4])
    assert made == [1, 2]
    assert [(one.path, one.action, one.before) for one in changes] == [
        ("$[2]", "dropped", 3),
        ("$[3]", "dropped", 4),
    ]
    made, changes = pair.cast_report(["1"])
    assert made == [1, 7]
    assert [(one.path, one.action, one.after) for one in changes] == [
        ("$[1]", "filled", 7),
        ("$[0]", "converted", 1),
    ]


def test_what_no_type_allows_is_not_converted() -> None:
    for types in (["string", "integer"], ["integer", "string"]):
        assert from_schema({"allOf": [{"type": one} for one in types]}).cast("3") == "3"
    for types in (["number", "integer"], ["integer", "number"]):
        assert repr(from_schema({"allOf": [{"type": one} for one in types]}).cast("3")) == "3"


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/definitions/d", "required": ["n"], "properties": {"n": INT}}, {}),
        ({"$ref": "#/definitions/d", "properties": {"n": {**INT, "default": 1}}}, {}),
        ({"items": {"$ref": "#/definitions/text", "type": "integer"}}, [True]),
        ({"properties": {"a": {"$ref": "#/definitions/text", "type": "integer"}}}, {"a": True}),
        ({"$ref": "#/definitions/some", "properties": {"b": INT}}, {"a": [0]}),
        ({"$ref": "#/definitions/some", "allOf": [{"properties": {"b": INT}}]}, {"a": [0]}),
    ],
)
def test_what_is_beside_a_reference_and_hidden_by_it_makes_nothing_valid_invalid(
    schema: Any, value: Any, complete: bool
) -> None:
    definitions = {"d": {"maxProperties": 0}, "text": {"not": INT}, "some": {"minProperties": 1}}
    made = from_schema({"$schema": DRAFT_7, "allOf": [schema], "definitions": definitions})
    assert made.is_valid(value)
    assert repr(made.cast(value, complete=complete)) == repr(value)


def test_what_is_beside_a_reference_that_hides_it_is_cast_by_where_that_is_valid() -> None:
    schema = {
        "$schema": DRAFT_7,
        "$ref": "#/definitions/d",
        "properties": {"n": INT},
        "definitions": {"d": obj(a=STR)},
    }
    assert from_schema(schema).cast({"a": 1, "n": "2", "x": 3}) == {"a": "1", "n": 2}


def test_a_default_that_another_member_of_a_conjunction_forbids_is_not_filled_in() -> None:
    texts = {"properties": {"b": {}}, "additionalProperties": {"type": "string", "maxLength": 1}}
    schema = from_schema({"allOf": [{"properties": {"a": {"default": "long"}, "c": {"default": 1}}}, texts]})
    assert schema.cast({}) == {"c": "1"}
    patterned = from_schema(
        {"allOf": [{"properties": {"a": {"default": 1}}}, {**texts, "patternProperties": {"a": {}}}]}
    )
    assert patterned.cast({}) == {"a": 1}


@pytest.mark.parametrize("more", [{}, {"type": "object"}])
def test_a_cast_makes_up_no_missing_value_and_the_warning_names_it(more: Any) -> None:
    schema = from_schema({**obj(["a", "b"], a=STR, b={**INT, "default": 3}, c=obj(["d"], d=STR)), **more})
    assert schema.cast({"c": {}}) == {"b": 3, "c": {}}
    assert schema.normalizer({"c": {}}) == ({"b": 3, "c": {}}, False)
    assert [error.message for error in schema.mismatches({"c": {}})] == [
        "expected the property 'd', got none at $.c",
        "expected the property 'a', got none at $",
    ]
    assert schema.cast({"c": {}}, complete=True) == {"a": "", "b": 3, "c": {"d": ""}}
    assert from_schema({"prefixItems": [INT, {"default": 1}], "minItems": 2}).cast([]) == []
    assert from_schema({"prefixItems": [{"default": 1}, INT], "minItems": 2}).cast([]) == [1]

"""Schemas for export that share their definitions."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from operad_schema import bundling, from_schema
from operad_schema.bundling import SharedDefinitions

DOCUMENT: dict[str, Any] = {
    "components": {
        "schemas": {
            "Pet": {"type": "object", "properties": {"owner": {"$ref": "#/components/schemas/Owner"}}},
            "Owner": {"type": "object", "properties": {"pets": {"items": {"$ref": "#/components/schemas/Pet"}}}},
            "Tree": {"type": "object", "properties": {"left": {"$ref": "#/components/schemas/Tree"}}},
        }
    }
}


def of_document(name: str, document: Any = DOCUMENT) -> Any:
    return from_schema({"$ref": f"#/components/schemas/{name}"}, document=document)


def test_a_definition_that_many_schemas_reach_is_there_once() -> None:
    shared = SharedDefinitions("#/components/schemas/")
    assert of_document("Pet").bundled(shared) == {"$ref": "#/components/schemas/Pet"}
    assert from_schema({"items": {"$ref": "#/components/schemas/Owner"}}, document=DOCUMENT).bundled(shared) == {
        "items": {"$ref": "#/components/schemas/Owner"}
    }
    assert shared.definitions == {name: DOCUMENT["components"]["schemas"][name] for name in ("Pet", "Owner")}


def test_what_two_documents_say_alike_is_one_definition_and_what_they_say_otherwise_are_two() -> None:
    same = {"components": {"schemas": dict(DOCUMENT["components"]["schemas"])}}
    other = {"components": {"schemas": {"Pet": {"type": "string"}}}}
    shared = SharedDefinitions()
    roots = [of_document("Pet", document).bundled(shared) for document in (DOCUMENT, same, other)]
    assert roots == [{"$ref": "#/$defs/Pet"}, {"$ref": "#/$defs/Pet"}, {"$ref": "#/$defs/Pet2"}]
    assert shared.definitions["Pet2"] == {"type": "string"}
    assert len(shared.definitions) == 3


def test_a_definition_differs_where_only_what_it_refers_to_does() -> None:
    other = {"components": {"schemas": {**DOCUMENT["components"]["schemas"], "Owner": {"type": "null"}}}}
    shared = SharedDefinitions()
    assert of_document("Pet").bundled(shared) != of_document("Pet", other).bundled(shared)


def test_a_schema_that_refers_to_itself_becomes_a_definition() -> None:
    shared = SharedDefinitions()
    root = from_schema({"type": "object", "properties": {"next": {"$ref": "#"}}}).bundled(shared)
    assert root == {"$ref": "#/$defs/root"}
    assert shared.definitions == {"root": {"type": "object", "properties": {"next": {"$ref": "#/$defs/root"}}}}


def test_a_reference_to_nothing_says_nothing() -> None:
    shared = SharedDefinitions()
    bundled = from_schema({"$ref": "#/components/schemas/Missing"}, document=DOCUMENT).bundled(shared)
    assert from_schema(
        {**bundled, "$defs": shared.definitions} if isinstance(bundled, dict) else bundled
    ).is_valid(1)


def test_a_schema_is_larger_than_a_number_of_values_with_what_it_refers_to() -> None:
    document = {"$defs": {"A": {"enum": list(range(50))}, "B": {"$ref": "#/$defs/B"}}}
    for name, larger in (("A", True), ("B", False), ("C", False)):
        schema = from_schema({"allOf": [{"$ref": f"#/$defs/{name}"}, {"$ref": "nowhere"}]}, document=document)
        assert schema.is_larger(40) is larger
    assert not from_schema({"enum": list(range(50))}).is_larger(53)
    assert from_schema({"enum": list(range(50))}).is_larger(51)


def test_the_order_of_keys_does_not_make_two_definitions_of_one() -> None:
    pet = DOCUMENT["components"]["schemas"]["Pet"]
    turned = {"components": {"schemas": {**DOCUMENT["components"]["schemas"], "Pet": dict(reversed(pet.items()))}}}
    shared = SharedDefinitions()
    assert of_document("Pet").bundled(shared) == of_document("Pet", turned).bundled(shared)


def _deep(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels):
        made = {"items": made}
    return made


def _holding_itself() -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    made["examples"] = [made]
    return made


def _unfolding() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(60):
        made = {"properties": {"a": made, "b": made}}
    return made


HOSTILE: dict[str, Any] = {
    "names": {"properties": {"\udc80": {"const": "\ud800"}}, "required": ["\udc80"], "x-\ud800": ["\ud800"]},
    "tags": {
        "discriminator": {"propertyName": "a\ud800", "mapping": {"b\ud801": "#/$defs/A"}},
        "oneOf": [{"$ref": "#/$defs/A"}],
        "$defs": {"A": {"type": "object", "properties": {"a\ud800": {"const": "b\ud801"}}}},
    },
    "reference": {"$ref": "http://nowhere.example/\ud800"},
    "digits": {"maximum": 10**4400, "examples": [10**4400]},
    "object": {"default": object(), "examples": [object()], "title": object()},
    "nan": {"minimum": math.nan, "examples": [math.inf]},
    "keys": {"properties": {1: {}}},
    "deep": _deep(900),
    "example": {"examples": [_deep(900)]},
    "circle": _holding_itself(),
    "unfolding": _unfolding(),
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=list(HOSTILE))
def test_what_is_told_of_a_hostile_schema_is_json_that_utf8_can_hold(schema: Any) -> None:
    made = from_schema(schema)
    shared = SharedDefinitions()
    for told in (made.published(), made.bundled(), made.bundled(shared), shared.definitions):
        text = json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
        assert json.loads(text) == told


def test_what_can_be_sent_is_published_as_it_was_given() -> None:
    given = {"title": "Ä", "maximum": 2**64, "default": 0.5, "x-own": [None, True, {"deep": _deep(150)}]}
    assert from_schema(given).published() is given


def test_how_many_values_what_is_sent_may_be_made_of() -> None:
    assert [bundling.is_sendable([0] * count) for count in (199_999, 200_000)] == [True, False]


@pytest.mark.parametrize("pattern", ["^a", "^a(?=b)"])
def test_a_bundle_keeps_patterns_that_are_checked_here_and_others(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    bundled = from_schema({"$ref": "#/a/b"}, document={"a": {"b": schema}}).bundled()
    assert list(bundled["$defs"].values()) == [schema]

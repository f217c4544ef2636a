"""Where references lead: pointers, ids, anchors, dynamic and recursive references, in every draft."""

import json
from pathlib import Path
from typing import Any

import pytest

from operad_schema import Limits, from_schema

TABLES = json.loads(Path(__file__).with_name("references.json").read_text("utf-8"))

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


def test_an_id_inside_a_value_or_beside_a_draft_7_reference_is_none() -> None:
    schema = {
        "properties": {"x": {"$ref": "urn:one"}, "y": {"enum": [{"$id": "urn:one", "type": "string"}]}},
        "$defs": {"i": {"$id": "urn:one", "type": "integer"}},
    }
    assert answers(schema, {"x": 1})
    beside = {
        "properties": {"x": {"$ref": "#/definitions/i", "$id": "http://other/"}},
        "definitions": {"i": INTEGER},
    }
    assert answers(beside, {"x": 1}, dialect="draft7")
    assert not answers(beside, {"x": "1"}, dialect="draft7")


def test_the_first_of_two_same_ids_or_anchors_counts() -> None:
    for key, ref in (("$anchor", "#a"), ("$id", "urn:a")):
        name = ref.lstrip("#")
        schema = {
            "properties": {"x": {"$ref": ref}},
            "$defs": {"i": {key: name, **STRING}, "j": {key: name, **STRING}},
        }
        assert answers(schema, {"x": "1"})
        assert not answers(schema, {"x": 1})


def test_a_sibling_of_a_reference_counts_from_2019_on() -> None:
    schema = {"properties": {"x": {"$ref": "#/definitions/i", "minimum": 3}}, "definitions": {"i": INTEGER}}
    for dialect, counts in (("draft4", False), ("draft6", False), ("draft7", False), ("2019-09", True)):
        assert answers(schema, {"x": 1}, dialect=dialect) is not counts
        assert answers(schema, {"x": 3}, dialect=dialect)


def test_siblings_of_a_hidden_reference_count_in_the_cast() -> None:
    schema = {"properties": {"x": {"$ref": "#/definitions/i", "default": 5}}, "definitions": {"i": INTEGER}}
    assert from_schema(schema, dialect="draft7").cast({}) == {"x": 5}
    inner = {"$ref": "#/definitions/o", "properties": {"b": STRING}}
    schema = {"properties": {"x": inner}, "definitions": {"o": {"properties": {"a": INTEGER}}}}
    compiled = from_schema(schema, dialect="draft7")
    assert compiled.cast({"x": {"a": "1", "b": 2, "c": 3}}) == {"x": {"a": 1, "b": "2"}}
    assert compiled.is_valid({"x": {"b": 2}})


TREE: dict[str, Any] = {
    "$id": "http://x/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
STRICT: dict[str, Any] = {
    "$id": "http://x/strict",
    "$dynamicAnchor": "node",
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {"tree": TREE},
}


def test_a_dynamic_reference_means_the_outermost_anchor() -> None:
    value = {"children": [{"daat": 1}]}
    assert answers(TREE, value)
    compiled = from_schema(STRICT)
    assert not compiled.is_valid(value)
    assert compiled.is_valid({"children": [{"data": 1, "children": []}]})
    assert [error.path for error in compiled.errors(value)] == ["$.children[0]"]


def test_a_dynamic_reference_without_a_dynamic_anchor_is_an_ordinary_one() -> None:
    schema = {
        "$id": "http://x/r",
        "properties": {"x": {"$dynamicRef": "#a"}},
        "$defs": {"i": {"$anchor": "a", **INTEGER}},
    }
    assert answers(schema, {"x": 1})
    assert not answers(schema, {"x": "1"})
    pointer = {"properties": {"x": {"$dynamicRef": "#/$defs/i"}}, "$defs": {"i": INTEGER}}
    assert not answers(pointer, {"x": "1"})


def test_a_dynamic_scope_is_entered_through_resources_only() -> None:
    lists = {
        "$id": "list",
        "type": "array",
        "items": {"$dynamicRef": "#item"},
        "$defs": {"any": {"$dynamicAnchor": "item"}},
    }
    schema = {
        "$id": "http://x/root",
        "properties": {
            "numbers": {"$id": "numbers", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", **INTEGER}}},
            "texts": {"$id": "texts", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", **STRING}}},
            "all": {"$ref": "list"},
        },
        "$defs": {"list": lists},
    }
    assert answers(schema, {"numbers": [1], "texts": ["a"], "all": [1, "a"]})
    assert not answers(schema, {"numbers": ["a"]})
    assert not answers(schema, {"texts": [1]})
    made = from_schema(schema).cast({"numbers": ["1"], "texts": [1], "all": ["1"]})
    assert made == {"numbers": [1], "texts": ["1"], "all": ["1"]}


def test_dynamic_references_count_from_2020_and_recursive_ones_in_2019() -> None:
    schema = {"properties": {"x": {"$dynamicRef": "#/$defs/i"}}, "$defs": {"i": INTEGER}}
    assert from_schema(schema, dialect="2019-09").is_valid({"x": "1"})
    tree = {
        "$id": "http://x/tree",
        "$recursiveAnchor": True,
        "properties": {"children": {"items": {"$recursiveRef": "#"}}},
    }
    strict = {
        "$id": "http://x/strict",
        "$recursiveAnchor": True,
        "$ref": "tree",
        "unevaluatedProperties": False,
        "$defs": {"tree": tree},
    }
    value = {"children": [{"x": 1}]}
    assert from_schema(tree, dialect="2019-09").is_valid(value)
    assert not from_schema(strict, dialect="2019-09").is_valid(value)
    assert from_schema(strict, dialect="2020-12").is_valid({"x": 1}) is False, "its own properties still count"
    loose = {**tree, "$recursiveAnchor": False}
    fixed = {**strict, "$defs": {"tree": loose}}
    assert from_schema(fixed, dialect="2019-09").is_valid(value), "without an anchor it is an ordinary reference"
    assert from_schema({"properties": {"x": {"$recursiveRef": "other"}}}, dialect="2019-09").is_valid({"x": 1})


def test_a_schema_reads_references_of_the_document_that_it_is_part_of() -> None:
    document = {
        "components": {"schemas": {"A": {"properties": {"b": {"$ref": "#/components/schemas/B"}}}, "B": INTEGER}}
    }
    part = from_schema(document["components"]["schemas"]["A"], document=document, pointer="/components/schemas/A")
    beside = from_schema({"items": {"$ref": "#/components/schemas/A"}}, document=document)
    assert part.is_valid({"b": 1})
    assert not part.is_valid({"b": "1"})
    assert beside.cast([{"b": "1"}]) == [{"b": 1}]
    assert beside.bundled() == {
        "items": {"$ref": "#/$defs/A"},
        "$defs": {"A": {"properties": {"b": {"$ref": "#/$defs/B"}}}, "B": {"type": "integer"}},
    }
    nowhere = from_schema({}, document=document, pointer="/components/schemas/C")
    assert nowhere.is_unknown
    assert "the document has nothing at '/components/schemas/C'" in nowhere.warnings[0]


def test_anchors_of_components_are_found() -> None:
    schemas = {
        "A": {"$ref": "#b"},
        "B": {"$anchor": "b", **INTEGER},
        "C": {"$ref": "urn:d"},
        "D": {"$id": "urn:d", **STRING},
    }
    document = {"components": {"schemas": schemas}}
    for name, good, bad in (("A", 1, "x"), ("C", "x", 1)):
        schema = from_schema(schemas[name], document=document, pointer=f"/components/schemas/{name}")
        assert schema.is_valid(good)
        assert not schema.is_valid(bad)


def test_the_dialect_is_the_schemas_own_or_the_documents_or_the_callers() -> None:
    exclusive = {"maximum": 5, "exclusiveMaximum": True}
    assert not from_schema(exclusive, dialect="draft4").is_valid(5)
    assert from_schema(exclusive).is_valid(5)
    for uri in ("http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft-04/schema"):
        assert not from_schema({"$schema": uri, **exclusive}, dialect="2020-12").is_valid(5)
        document = {"$schema": uri, "a": exclusive}
        assert not from_schema(exclusive, document=document, pointer="/a").is_valid(5)
    assert from_schema({"$schema": "http://other/", **exclusive}).is_valid(5)
    assert from_schema({"$schema": 5, **exclusive}, dialect="draft4").is_valid(5) is False
    assert from_schema(INTEGER, document={"a": INTEGER}, pointer="#/a").is_valid(1)


LOOPS: list[dict[str, Any]] = [
    {"$ref": "#"},
    {"anyOf": [{"$ref": "#"}, INTEGER]},
    {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}},
    {"dependentSchemas": {"a": {"$ref": "#"}}},
    {"if": {"$ref": "#"}, "then": False},
]


@pytest.mark.parametrize("schema", LOOPS)
def test_a_loop_in_place_is_cut_where_it_closes_and_said(schema: dict[str, Any]) -> None:
    compiled = from_schema(schema)
    for value in (1, "x", {"a": 1}, [1]):
        compiled.is_valid(value)
        assert compiled.cast(value) == value
    assert any("refers to itself for the same value" in warning for warning in compiled.warnings)


@pytest.mark.parametrize("unknown", [{"$ref": "http://x/y"}, {"$ref": "#"}, None])
def test_what_is_unknown_refuses_nothing(unknown: Any) -> None:
    for schema in ({"not": unknown}, {"oneOf": [unknown, INTEGER]}, {"oneOf": [INTEGER, unknown, True]}):
        compiled = from_schema(schema)
        assert compiled.is_valid(1)
        assert compiled.is_valid("x")
        assert compiled.warnings


def test_what_stands_beside_a_loop_still_counts() -> None:
    schema = from_schema({"allOf": [{"$ref": "#"}, {"type": "object"}], "required": ["a"]})
    assert schema.is_valid({"a": 1})
    assert not schema.is_valid({})
    assert not schema.is_valid([])
    kept = from_schema(
        {"dependentSchemas": {"a": {"$ref": "#"}, "b": {"required": ["c"]}}, "oneOf": [{"$ref": "#"}]}
    )
    assert not kept.is_valid({"b": 1})


def family(**cat: Any) -> dict[str, Any]:
    """A base that lists its kinds, each of which is all of the base: in place that has no end."""
    base = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "id": {"type": "integer"}},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    }
    kinds = {"Cat": {"lives": {"type": "integer"}}, "Dog": {"bark": {"type": "boolean"}}}
    own = {name: {"type": "object", "properties": properties} for name, properties in kinds.items()}
    return {"Base": base} | {
        name: {"allOf": [{"$ref": "#/$defs/Base"}, part], **cat} for name, part in own.items()
    }


@pytest.mark.parametrize("name", ["Base", "Cat", "Dog"])
@pytest.mark.parametrize("dialect", ["2020-12", "openapi-3.0"])
def test_a_cast_drops_nothing_of_which_a_reference_in_a_circle_may_know(name: str, dialect: Any) -> None:
    document = {"$defs": family()}
    schema = from_schema(document["$defs"][name], document=document, pointer=f"/$defs/{name}", dialect=dialect)
    value = {"kind": "cat", "id": 7, "lives": 9, "bark": True}
    assert schema.cast(value) == value
    assert "refers to itself for the same value" in schema.warnings[0]
    own, made = {"Base": ("id", 7), "Cat": ("lives", 9), "Dog": ("bark", True)}[name]
    assert schema.cast(value | {own: str(made)}) == value, "what is known is converted"


@pytest.mark.parametrize("union", ["allOf", "anyOf", "oneOf"])
def test_a_cast_drops_nothing_of_which_a_part_that_is_unknown_may_know(union: str) -> None:
    known = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for part in ({"$ref": "#/$defs/nowhere"}, {"$ref": "https://example.com/other.json"}, 5):
        assert from_schema({union: [part], **known}).cast({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert from_schema({"allOf": [True, known]}).cast({"a": 1, "b": 2}) == {"a": 1}, "true says nothing"
    beside = from_schema({"anyOf": [{"$ref": "#/$defs/nowhere"}, known]})
    assert beside.cast({"b": 2}) == {"b": 2}, "of the one that is unknown"
    assert beside.cast({"a": 1, "b": 2}) == {"a": 1}, "more like the one that is known"


def test_no_more_schemas_are_looked_through_for_anchors_than_the_bound() -> None:
    defs = {name: {"$anchor": name, "type": "integer"} for name in "abc"}
    anywhere = {"properties": {name: {"$ref": f"#{name}"} for name in "abc"}, "$defs": defs}
    for most, lost in ((7, 0), (6, 1), (4, 3)):  # the root, three properties, three definitions
        schema = from_schema(anywhere, limits=Limits(max_schema_indexed=most))
        assert len(schema.warnings) == lost
        assert sum(schema.is_valid({name: "x"}) for name in "abc") == lost
    document = {"components": {"schemas": {**defs, "all": anywhere["properties"]}}}
    for most, lost in ((5, 0), (3, 1)):  # the document, and each of its schemas
        found = [
            from_schema({"$ref": f"#{name}"}, document=document, limits=Limits(max_schema_indexed=most))
            for name in "abc"
        ]
        assert sum(one.is_valid("x") for one in found) == lost

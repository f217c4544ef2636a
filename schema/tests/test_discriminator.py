"""OpenAPI's `discriminator`: it decides in validation as in the cast, and an unknown tag is an error of its own."""

from typing import Any

import pytest

from operad_schema import Schema, from_schema

CAT = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["kind"],
}
DOG = {"type": "object", "properties": {"kind": {"type": "string"}, "n": {"type": "string"}}, "required": ["kind"]}


def tagged(
    *names: str, tag: str = "type", union: str = "oneOf", dialect: Any = "openapi-3.1", defs: Any, **more: Any
) -> Schema:
    """A union of these definitions, told apart by a tag."""
    given = {"propertyName": tag, **more.pop("discriminator", {})}
    branches = [{"$ref": f"#/$defs/{name}"} for name in names]
    return from_schema({union: branches, "discriminator": given, "$defs": defs, **more}, dialect=dialect)


def pets(union: str = "oneOf", dialect: Any = "openapi-3.1", defs: Any = None, **more: Any) -> Schema:
    defs = {"Cat": CAT, "Dog": DOG, **(defs or {})}
    return tagged("Cat", "Dog", tag="kind", union=union, dialect=dialect, defs=defs, **more)


@pytest.mark.parametrize("union", ["oneOf", "anyOf"])
@pytest.mark.parametrize("dialect", ["openapi-3.0", "openapi-3.1"])
def test_the_tag_says_which_branch_is_checked(union: str, dialect: str) -> None:
    schema = pets(union, dialect)
    assert schema.is_valid({"kind": "Cat", "n": 1})
    assert not schema.is_valid({"kind": "Cat", "n": "x"})
    assert schema.is_valid({"kind": "Dog", "n": "x"})
    assert not schema.is_valid({"kind": "Dog", "n": 1})
    assert schema.is_valid({"kind": "Cat"}), "of both by their content, of one by its tag"
    [error] = schema.errors({"kind": "Dog", "n": 1})
    assert error.message == "expected string, got int at $.n"


def test_an_unknown_tag_is_an_error_that_names_the_known_ones() -> None:
    schema = pets(discriminator={"mapping": {"rex": "#/$defs/Dog"}})
    for tag, got in (("Bird", "'Bird'"), (5, "5"), (None, "None")):
        assert not schema.is_valid({"kind": tag, "n": 1})
        [error] = schema.errors({"kind": tag, "n": 1})
        assert error.message == f"expected one of 'Cat', 'Dog', 'rex', got {got} at $.kind"
        assert error.keyword == "discriminator"


def test_without_its_tag_a_value_is_checked_by_the_union() -> None:
    schema = pets()
    assert not schema.is_valid({"n": 1})
    assert schema.errors({"n": 1})[0].keyword == "oneOf"
    assert not schema.is_valid(5)


def test_other_dialects_know_no_discriminator_in_validation() -> None:
    assert not pets(dialect="2020-12").is_valid({"kind": "Cat"}), "valid by both branches, so not by one of them"
    assert pets("anyOf", "2020-12").is_valid({"kind": "Bird"})


def test_the_tags_that_branches_declare_themselves_count() -> None:
    defs = {
        name: {"type": "object", "properties": {"type": {"enum": [tag]}, "n": {"type": kind}}}
        for name, tag, kind in (("ACircle", "circle", "integer"), ("ASquare", "square", "string"))
    }
    schema = tagged("ACircle", "ASquare", defs=defs, dialect="openapi-3.0")
    assert schema.is_valid({"type": "square", "n": "x"})
    assert not schema.is_valid({"type": "circle", "n": "x"})
    assert "'circle', 'square'" in schema.errors({"type": "line"})[0].message


def test_a_tag_of_several_branches_leaves_it_to_their_content() -> None:
    message = {"properties": {"type": {"const": "message"}}, "required": ["type"]}
    defs = {"In": {"allOf": [message, {"required": ["text"]}]}, "Out": {"allOf": [message, {"required": ["id"]}]}}
    schema = tagged("In", "Out", union="anyOf", defs=defs)
    assert schema.is_valid({"type": "message", "id": 1})
    assert schema.is_valid({"type": "message", "text": 1})
    assert not schema.is_valid({"type": "message"})
    assert not schema.is_valid({"type": "other", "id": 1})


def test_a_branch_whose_tags_cannot_be_seen_leaves_others_possible() -> None:
    defs = {"Cat": CAT, "Any": {"anyOf": [{"type": "object"}, {"type": "array"}]}}
    schema = tagged("Cat", "Any", tag="kind", defs=defs)
    assert not schema.is_valid({"kind": "Bird", "n": 1}), "valid by both"
    assert schema.is_valid({"kind": "Bird", "n": "x"})


def test_a_union_of_unions_knows_the_tags_of_all() -> None:
    defs = {name: {"properties": {"type": {"const": name}}, "required": ["type"]} for name in ("a", "b", "c")}
    schema = tagged("AB", "c", defs={**defs, "AB": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}})
    assert all(schema.is_valid({"type": tag}) for tag in "abc")
    assert "one of 'AB', 'a', 'b', 'c'" in schema.errors({"type": "d"})[0].message


def test_a_discriminator_decides_beside_keywords_that_other_engines_check() -> None:
    for more in ({"minProperties": 1}, {"unevaluatedProperties": True, "contains": True, "minContains": 2}):
        schema = pets(**more)
        assert schema.is_valid({"kind": "Cat"})
        assert not schema.is_valid({"kind": "Bird"})
        assert schema.errors({"kind": "Bird"})[0].path == "$.kind"


def test_cast_and_validation_choose_the_same_branch() -> None:
    schema = pets()
    assert schema.normalizer({"kind": "Dog", "n": 5}) == ({"kind": "Dog", "n": "5"}, True)
    assert schema.normalizer({"kind": "Cat", "n": "5"}) == ({"kind": "Cat", "n": 5}, True)
    made, clean = schema.normalizer({"kind": "Bird", "n": 5})
    assert made["n"] == 5
    assert not clean


@pytest.mark.parametrize("dialect", ["openapi-3.1", "2020-12"])
def test_a_cast_that_would_lose_the_tag_leaves_a_valid_value_as_it_is(dialect: Any) -> None:
    """Without its tag the value would be of both branches, which `oneOf` refuses."""
    branches = {"Cat": {"properties": {"n": {"type": "integer"}}}, "Dog": {"properties": {"n": {"minimum": 5}}}}
    schema = pets("oneOf", dialect, branches)
    value = {"kind": "Cat", "n": 1 if dialect == "2020-12" else 7}
    assert schema.is_valid(value)
    assert schema.is_valid(schema.cast(value))
    assert schema.cast(value)["n"] == value["n"]


def test_what_is_undeclared_is_stripped_of_the_branch_of_the_tag() -> None:
    schema = pets()
    assert schema.cast({"kind": "Dog", "n": 1, "more": 2}) == {"kind": "Dog", "n": "1"}
    assert schema.cast([{"kind": "Cat"}]) == [{"kind": "Cat"}]


def test_one_of_several_branches_stays_one_when_its_cast_would_be_of_two() -> None:
    named, aged = ({"properties": {name: {"type": "string"}}, "required": [name]} for name in ("name", "age"))
    either = from_schema({"oneOf": [named, {**aged, "properties": {**aged["properties"], "name": {}}}]})
    assert either.cast({"name": "x", "other": 1}) == {"name": "x"}
    closed = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    both = from_schema({"oneOf": [closed, {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}]})
    value = {"a": 1, "c": 2}
    assert both.is_valid(value), "of the second branch, since the first is closed"
    assert both.cast(value) == value, "{'a': 1} would be of both"

"""What holds for every schema and every value: strategies for schemas with references, unions and conjunctions."""

import copy
import json
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
import referencing
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from operad_schema import from_schema

NAMES = ["a", "b", "c", "t", "a-b", "", "Größe"]
REFS = ["#", "#/$defs/A", "#/$defs/B", "#/$defs/a"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.0, 1.0, 2.5, -0.5, 1e22, 1e300]),
    st.sampled_from(["", "x", "1", "2.0", "1e2", "true", "False", "null", "A", "B", "007", "-0"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
patterns = st.sampled_from(["^a", "b$", "^[a-z]+$", "^(a+)+$"])


def _keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    needed = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    return {
        "type": st.one_of(types, st.lists(types, min_size=1, max_size=3, unique=True)),
        "properties": named,
        "required": needed,
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        "items": inner,
        "prefixItems": several,
        "minItems": st.integers(0, 4),
        "maxItems": st.integers(0, 4),
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "default": values,
        "minimum": st.integers(-2, 5),
        "maxLength": st.integers(0, 3),
        "pattern": patterns,
        "uniqueItems": st.booleans(),
        "minProperties": st.integers(0, 3),
        "contains": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "dependentSchemas": named,
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), needed, max_size=2),
        "propertyNames": inner,
        "discriminator": st.sampled_from(NAMES).map(
            lambda name: {"propertyName": name, "mapping": {"x": REFS[1]}}
        ),
    }


def _few(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """At most four keywords, so that a value has a chance to be valid."""
    keywords = _keywords(inner)
    chosen = st.lists(st.sampled_from([*keywords, "type", "properties", "anyOf"]), max_size=4, unique=True)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


leaves = st.sampled_from([True, False, *({"$ref": ref} for ref in REFS), {"type": "string"}, {"type": "integer"}])
inner = _few(leaves)
bodies = st.one_of(leaves, inner, _few(st.one_of(leaves, inner)))


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    root = draw(_few(bodies))
    root["$defs"] = {"A": draw(bodies), "B": draw(_few(bodies)), "a": draw(bodies)}
    return root


many = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
LOOP = {"$ref": "#", "$defs": {"A": {"$ref": "#"}, "B": {}, "a": True}}


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1 from 1.0 and from True."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


@many
@given(schemas(), values)
@example(LOOP, {"a": 1})
def test_a_cast_changes_neither_value_nor_schema_and_never_raises(schema: dict[str, Any], value: Any) -> None:
    before = copy.deepcopy((schema, value))
    compiled = from_schema(schema)
    compiled.cast(value)
    compiled.is_valid(value)
    compiled.errors(value)
    compiled.cast_report(value)
    compiled.mismatches(value)
    assert same(before, (schema, value))


@many
@given(schemas(), values)
def test_a_cast_is_idempotent(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    once = compiled.cast(value)
    assert same(compiled.cast(once), once), (once, compiled.cast(once))


@many
@given(schemas(), values)
def test_a_cast_is_the_same_every_time_and_for_every_equal_schema(schema: dict[str, Any], value: Any) -> None:
    first = from_schema(schema).cast(value)
    other = {**copy.deepcopy(schema), "title": "another text, another compilation"}
    assert same(from_schema(other).cast(value), first)


@many
@given(schemas(), values)
def test_null_is_kept_and_what_is_kept_keeps_its_kind(schema: dict[str, Any], value: Any) -> None:
    result = from_schema(schema).cast(value)
    assert isinstance(result, dict) == isinstance(value, dict)
    assert isinstance(result, list) == isinstance(value, list)
    assert (result is None) == (value is None)


@many
@given(schemas(), values)
def test_errors_are_empty_exactly_for_valid_values(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    assert compiled.is_valid(value) == (not compiled.errors(value))


@many
@given(schemas(), values)
def test_the_normalizer_is_the_cast_and_the_check(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    result, clean = compiled.normalizer(value)
    assert same(result, compiled.cast(value))
    assert clean == (not compiled.mismatches(value))


def oracles(schema: dict[str, Any], value: Any) -> set[bool]:
    """What others say: jsonschema and jsonschema-rs, neither of which is right about every schema."""
    return {
        jsonschema.Draft202012Validator(schema, registry=referencing.Registry()).is_valid(value),
        jsonschema_rs.Draft202012Validator(schema, validate_formats=False).is_valid(value),
    }


@settings(many, max_examples=60)
@given(schemas(), values)
def test_other_validators_say_the_same(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    assume(not compiled.warnings)  # a part is left out, or two schemas refer to each other in place
    assert compiled.is_valid(value) in oracles(schema, value)


@settings(many, max_examples=60)
@given(schemas(), values)
def test_a_cast_leaves_what_is_valid_valid(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    assume(compiled.is_valid(value))
    result = compiled.cast(value)
    assert compiled.is_valid(result), (result, compiled.errors(result))


@settings(many, max_examples=50)
@given(schemas(), values)
def test_a_bundle_says_and_does_what_the_schema_does(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    assume(not compiled.warnings)
    bundled = from_schema(compiled.bundled())
    assert bundled.is_valid(value) == compiled.is_valid(value)
    assert same(bundled.cast(value), compiled.cast(value))


@many
@given(schemas(), values)
def test_a_cast_that_keeps_has_all_that_came(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    made, _, dropped, invented = compiled.tracer("keep")(value)
    assert not dropped
    assert not invented
    assert {change.action for change in compiled.changes(value, made)} <= {"converted", "filled"}
    assert same(compiled.tracer("keep")(made)[0], made)


@many
@given(schemas(), values)
def test_a_cast_knows_whether_it_dropped_anything(schema: dict[str, Any], value: Any) -> None:
    compiled = from_schema(schema)
    made, _, dropped, _ = compiled.tracer()(value)
    found = any(change.action == "dropped" for change in compiled.changes(value, made))
    assert dropped >= found


@pytest.mark.long
@pytest.mark.parametrize("test", [name for name in dir() if name.startswith("test_")])
def test_the_same_holds_of_thousands_more(test: str) -> None:
    inner = globals()[test].hypothesis.inner_test
    settings(many, max_examples=4_000)(given(schemas(), values)(inner))()

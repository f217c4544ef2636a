"""OpenAPI's `discriminator` of a base: a cast follows the kind that a tag names, and validation does not look at it."""

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operad_schema import Schema, from_schema
from operad_schema.limits import Limits

PET: dict[str, Any] = {
    "type": "object",
    "required": ["kind"],
    "properties": {"kind": {"type": "string"}, "name": {"type": "string"}},
    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat", "dog": "Dog"}},
}
CAT = {
    "allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"lives": {"type": "integer"}}}],
    "required": ["lives"],
}
DOG = {
    "allOf": [{"$ref": "#/components/schemas/Pet"}],
    "properties": {"friends": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}},
}
LION = {"allOf": [{"$ref": "#/components/schemas/Cat"}, {"properties": {"mane": {"type": "boolean"}}}]}
STONE = {"properties": {"kg": {"type": "number"}}}


def pets(*, of: str = "Pet", dialect: Any = "openapi-3.1", limits: Limits | None = None, **more: Any) -> Schema:
    schemas = {"Pet": PET, "Cat": CAT, "Dog": DOG, "Lion": LION, "Stone": STONE, **more}
    document = {"openapi": "3.1.0", "components": {"schemas": schemas}}
    node = {"$ref": f"#/components/schemas/{of}"}
    return from_schema(node, document=document, dialect=dialect, **({"limits": limits} if limits else {}))


def pet(**more: Any) -> dict[str, Any]:
    return {**PET, **more}


def test_kinds_that_contain_one_another_end() -> None:
    cat = {
        "allOf": [
            {"$ref": "#/components/schemas/Pet"},
            {"required": ["mate"], "properties": {"mate": {"$ref": "#/components/schemas/Pet"}}},
        ]
    }
    schema = pets(Pet=pet(properties={"kind": {"enum": ["cat"]}}), Cat=cat)
    made = schema.cast({"kind": "cat"})
    assert made["kind"] == "cat"
    assert schema.cast(made) == made
    deep: dict[str, Any] = {"kind": "cat"}
    for _ in range(5_000):
        deep = {"kind": "cat", "mate": deep}
    assert schema.cast(deep) is deep, "beyond max_data_depth"


def test_a_kind_beyond_a_limit_is_none() -> None:
    crowd = {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {f"p{i}": {} for i in range(200)}}]}
    schema = pets(limits=Limits(max_schema_nodes=100), Cat=crowd)
    assert schema.cast({"kind": "cat", "p1": 1, "x": 1}) == {"kind": "cat", "p1": 1, "x": 1}
    assert schema.cast({"kind": "dog", "x": 1}) == {"kind": "dog"}


def many(count: int) -> dict[str, Any]:
    """So many kinds, each with a property of its own."""
    return {
        f"Kind{i}": {
            "allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {f"p{i}": {"type": "integer"}}}]
        }
        for i in range(count)
    }


def test_kinds_are_read_when_a_tag_names_them() -> None:
    schema = pets(**many(8_000))
    assert schema.cast({"kind": "Kind7999", "p7999": "1", "p1": "1"}) == {"kind": "Kind7999", "p7999": 1}
    assert schema.warnings == ()


def test_threads_may_meet_kinds_at_the_same_time() -> None:
    schema = pets(**many(50))
    start, wrong = threading.Barrier(8), []

    def run() -> None:
        start.wait()
        made = [schema.cast({"kind": f"Kind{i}", f"p{i}": "1", "x": 1}) for i in range(50)]
        wrong.extend(one for i, one in enumerate(made) if one != {"kind": f"Kind{i}", f"p{i}": 1})

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_bundle_without_the_kinds_still_drops_nothing_of_theirs() -> None:
    bundled = pets().bundled()
    assert isinstance(bundled, dict)
    read = from_schema(bundled)
    value = {"kind": "cat", "lives": 9}
    assert read.cast(value) == value
    assert read.is_valid(value)


def test_values_make_no_more_casts_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bases beside each other have as many kinds of values as there are combinations."""
    monkeypatch.setattr("operad_schema.kinds.MOST", 3)
    many = {
        f"K{i}": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"n": {"type": "integer"}}}]}
        for i in range(9)
    }
    schema = pets(**many)
    for i in range(9):
        value = {"kind": f"K{i}", "n": "5", "x": 1}
        assert schema.cast(value) == ({"kind": f"K{i}", "n": 5} if i < 3 else value), "beyond it nothing is known"
    assert schema.cast({"kind": "K0", "n": "5", "x": 1}) == {"kind": "K0", "n": 5}, "those that are there stay"


def test_a_stranger_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding out what a schema includes is a walk through all that it reaches."""
    looked: list[Any] = []
    monkeypatch.setattr("operad_schema.kinds.derives", lambda body, location: looked.append(location))
    schema = pets()
    for _ in range(3):
        assert schema.cast({"kind": "Stone", "kg": 1}) == {"kind": "Stone", "kg": 1}
    assert len(looked) == 1


NAMES = ("A", "B", "C", "D")
refs = st.sampled_from(NAMES).map(lambda name: {"$ref": f"#/components/schemas/{name}"})
leaves = st.sampled_from(
    [
        {},
        {"type": "integer"},
        {"type": "string", "default": "B"},
        {"const": "C"},
        {"enum": ["A", "x"]},
        {"type": "boolean"},
    ]
)
parts = st.fixed_dictionaries(
    {
        "properties": st.dictionaries(
            st.sampled_from("klmn"), leaves | refs | refs.map(lambda ref: {"items": ref}), max_size=4
        )
    },
    optional={
        "type": st.just("object"),
        "required": st.lists(st.sampled_from("klmn"), max_size=2, unique=True),
        "discriminator": st.fixed_dictionaries(
            {"propertyName": st.sampled_from("kl")},
            optional={
                "mapping": st.dictionaries(
                    st.sampled_from(["x", "1", "true"]), st.sampled_from((*NAMES, "none")), max_size=3
                ),
                "defaultMapping": st.sampled_from(NAMES),
            },
        ),
        "additionalProperties": st.booleans(),
        "maxProperties": st.integers(1, 3),
    },
)
bodies = st.one_of(
    parts,
    st.builds(lambda ref, part: {"allOf": [ref, part]}, refs, parts),
    st.builds(lambda one, two: {"anyOf": [one, two]}, refs, parts),
)
scalars = st.sampled_from(["A", "B", "C", "D", "x", "1", 1, 5.0, True, None])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("klmno"), inner, max_size=5),
    max_leaves=12,
)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(dict.fromkeys(NAMES, bodies)),
    st.dictionaries(st.sampled_from("klmno"), values, max_size=5),
)
def test_whatever_the_kinds_are_casts_keep_their_rules(schemas: dict[str, Any], value: Any) -> None:
    document = {"components": {"schemas": schemas}}
    schema = from_schema({"$ref": "#/components/schemas/A"}, document=document, dialect="openapi-3.1")
    made = schema.cast(value)
    assert schema.cast(made) == made
    assert schema.is_valid(made) or not schema.is_valid(value)
    kept = schema.tracer("keep")(value)[0]
    assert value.keys() <= kept.keys()

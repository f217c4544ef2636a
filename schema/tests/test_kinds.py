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


@pytest.mark.parametrize("dialect", ["openapi-3.0", "openapi-3.1", "2020-12"])
def test_a_value_of_a_base_is_cast_by_the_kind_that_its_tag_is_mapped_to(dialect: Any) -> None:
    schema = pets(dialect=dialect)
    assert schema.cast({"kind": "cat", "lives": "9", "x": 1}) == {"kind": "cat", "lives": 9}
    friends = [{"kind": "cat", "lives": "9"}, {"kind": "dog", "friends": [], "mane": True}]
    assert schema.cast({"kind": "dog", "friends": friends, "lives": 1}) == {
        "kind": "dog",
        "friends": [{"kind": "cat", "lives": 9}, {"kind": "dog", "friends": []}],
    }


def test_the_name_of_a_schema_that_includes_the_base_is_a_tag_too() -> None:
    schema = pets()
    lion = {"kind": "Lion", "lives": 9, "mane": "true", "x": 1}
    assert schema.cast(lion) == {"kind": "Lion", "lives": 9, "mane": True}
    assert schema.cast({"kind": "Cat", "lives": "9", "x": 1}) == {"kind": "Cat", "lives": 9}
    unmapped = pets(Pet=pet(discriminator={"propertyName": "kind"}))
    assert unmapped.cast(lion) == {"kind": "Lion", "lives": 9, "mane": True}
    assert unmapped.cast({"kind": "Pet", "x": 1}) == {"kind": "Pet"}, "the base itself"


@pytest.mark.parametrize("tag", ["bird", "Stone", "", "../Cat", None, 5, ["cat"]])
def test_a_tag_that_names_no_kind_leaves_what_is_undeclared(tag: Any) -> None:
    value = {"kind": tag, "kg": "5", "lives": "9"}
    assert pets().cast(value, complete=True) == {**value, "kind": "5"} if tag == 5 else value
    assert pets().cast({"lives": "9"}, complete=True) == {"kind": "", "lives": "9"}
    closed = pets(Pet=pet(additionalProperties=False))
    assert closed.cast({"kind": "bird", "kg": 5}, complete=True) == {"kind": "bird"}, (
        "the base says that there is nothing else"
    )


def test_any_other_tag_is_that_of_the_default_mapping() -> None:
    given = {**PET["discriminator"], "defaultMapping": "Cat"}
    schema = pets(Pet=pet(discriminator=given, required=[]))
    assert schema.cast({"kind": "bird", "lives": "9", "x": 1}) == {"kind": "bird", "lives": 9}
    assert schema.cast({"lives": "9", "x": 1}) == {"lives": 9}


@pytest.mark.parametrize(
    "target",
    ["#/components/schemas/None", "https://else.where/Cat", "", "#/components", 5, {"a": 1}, "%zz", "http://["],
)
def test_a_mapping_that_leads_nowhere_names_no_kind(target: Any) -> None:
    schema = pets(Pet=pet(discriminator={"propertyName": "kind", "mapping": {"x": target, "cat": "Cat"}}))
    assert schema.cast({"kind": "x", "lives": "9"}) == {"kind": "x", "lives": "9"}
    assert schema.cast({"kind": "cat", "lives": "9"}) == {"kind": "cat", "lives": 9}


def test_a_discriminator_that_is_none_says_nothing() -> None:
    for no in ("kind", {}, {"propertyName": 5}, None, []):
        assert pets(Pet=pet(discriminator=no)).cast({"kind": "Cat", "x": 1}) == {"kind": "Cat"}


def test_validation_does_not_look_at_kinds() -> None:
    """As the specification has it: no word of JSON Schema links a base to its kinds."""
    schema = pets()
    assert schema.is_valid({"kind": "cat"})
    assert schema.is_valid({"kind": "cat", "lives": "many"})
    assert schema.is_valid({"kind": "bird"})
    assert not schema.is_valid({})


def test_what_a_kind_requires_is_filled_in_and_said() -> None:
    assert pets().tracer("complete")({"kind": "cat"})[:2] == ({"kind": "cat", "lives": 0}, False)
    assert [error.path for error in pets().mismatches({"kind": "cat"}, "complete")] == ["$.lives"]


def test_to_keep_is_to_convert_by_the_kind_and_to_drop_and_invent_nothing() -> None:
    keep = pets().tracer("keep")
    assert keep({"kind": "cat", "lives": "9", "x": 1})[0] == {"kind": "cat", "lives": 9, "x": 1}
    assert keep({"kind": "cat", "x": 1})[0] == {"kind": "cat", "x": 1}


def test_a_kind_has_kinds_of_its_own() -> None:
    cat = {**CAT, "discriminator": {"propertyName": "race", "mapping": {"big": "Lion"}}}
    schema = pets(Cat=cat)
    value = {"kind": "cat", "race": "big", "lives": "9", "mane": "true"}
    assert schema.cast(value) == {"kind": "cat", "race": "big", "lives": 9, "mane": True}
    assert schema.cast({"kind": "cat", "race": "small", "lives": "9"}) == {
        "kind": "cat",
        "race": "small",
        "lives": 9,
    }
    again = pets(Cat={**CAT, "discriminator": PET["discriminator"]})
    assert again.cast({"kind": "cat", "lives": "9", "x": 1}) == {"kind": "cat", "lives": 9}


def test_a_schema_of_a_kind_takes_the_kinds_below_it() -> None:
    schema = pets(of="Cat")
    assert schema.cast({"kind": "Lion", "lives": 9, "mane": "true", "x": 1}) == {
        "kind": "Lion",
        "lives": 9,
        "mane": True,
    }
    assert schema.cast({"kind": "cat", "lives": 9, "x": 1}) == {"kind": "cat", "lives": 9}


def test_branches_that_include_their_base_are_still_chosen_by_the_union() -> None:
    union = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": PET["discriminator"],
    }
    for schema in (
        pets(of="Any", Any=union),
        pets(Cat={**CAT, "anyOf": [{"$ref": "#/components/schemas/Lion"}, {}]}),
    ):
        assert schema.cast({"kind": "cat", "lives": "9", "x": 1})["lives"] == 9
        assert schema.cast({"kind": "dog", "friends": [{"kind": "dog", "x": 1}]}) == {
            "kind": "dog",
            "friends": [{"kind": "dog"}],
        }


def test_casting_twice_is_casting_once_where_the_tag_itself_is_filled_in_or_converted() -> None:
    filled = pets(Pet=pet(properties={"kind": {"type": "string", "default": "cat"}}))
    assert filled.cast({"x": 1}, complete=True) == {"kind": "cat", "lives": 0}
    numbered = pets(Pet=pet(discriminator={"propertyName": "kind", "mapping": {"1": "Cat"}}))
    assert numbered.cast({"kind": 1, "lives": "9", "x": 1}, complete=True) == {"kind": "1", "lives": 9}
    for schema, value in ((filled, {"x": 1}), (numbered, {"kind": 1, "lives": "9"})):
        assert schema.cast(schema.cast(value, complete=True), complete=True) == schema.cast(value, complete=True)


def test_kinds_that_make_a_value_one_anothers_leave_it_as_it_came() -> None:
    one, two = ({"properties": {"kind": {"const": const}, "n": {"type": "integer"}}} for const in ("2", "1"))
    base = {
        "properties": {"kind": {}},
        "discriminator": {"propertyName": "kind", "mapping": {"1": "One", "2": "Two"}},
    }
    schema = pets(of="Base", Base=base, One=one, Two=two)
    assert schema.cast({"kind": "1", "n": "5"}) == {"kind": "1", "n": 5}, "a string that is no member stays"
    other = {"properties": {"kind": {"const": 1}, "n": {"type": "integer"}}}
    back = {"properties": {"kind": {"const": "1"}}}
    base["discriminator"] = {"propertyName": "kind", "mapping": {"1": "One"}, "defaultMapping": "Two"}
    value = {"kind": "1", "n": "5"}
    assert pets(of="Base", Base=base, One=other, Two=back).cast(value) == value


def test_a_valid_value_stays_valid() -> None:
    schema = pets(Pet=pet(maxProperties=2))
    value = {"kind": "cat", "name": "Tom"}
    assert schema.is_valid(value)
    assert schema.cast(value) == value, "with its lives it would be too large"


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


def test_a_tag_names_a_kind_only_where_the_schema_of_that_name_includes_the_base() -> None:
    base = {"$ref": "#/components/schemas/Base"}
    schemas: dict[str, Any] = {
        "Base": {
            "type": "object",
            "properties": {"k": {"type": "string"}},
            "discriminator": {"propertyName": "k", "mapping": {"x": "Mapped"}},
        },
        "Mapped": {"allOf": [base]},
        "Kind": {"allOf": [{"properties": {"n": {"type": "integer"}}}, base, {"allOf": [base]}, True]},
        "Far": {"allOf": [{"$ref": "#/components/schemas/Kind"}]},
        "Stone": {"allOf": [{"properties": {"n": {"type": "integer"}}}, True]},
        "Everything": True,
    }
    document = {"components": {"schemas": schemas}}
    made = from_schema(
        schemas["Base"], document=document, pointer="/components/schemas/Base", dialect="openapi-3.1"
    )
    for tag, cast in (("Kind", 5), ("Far", 5), ("Stone", "5"), ("Everything", "5"), ("None", "5")):
        assert made.cast({"k": tag, "n": "5"}) == {"k": tag, "n": cast}


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

"""jsonschema-rs in the interpreter's place: the same answers, nothing fetched, and the interpreter for the rest."""

import decimal
import enum
import math
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operad.schemas import from_schema
from operad.schemas import rust as engine
from operad.schemas import schema as schema_module
from operad.schemas.checking import Checks
from operad.schemas.compiled import Store
from operad.schemas.rust import StandIns

INTERPRETED = {"type": "object", "allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}


@pytest.fixture
def rust(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jsonschema_rs", reason="the extra operad[rust] is not installed")
    monkeypatch.setattr(schema_module, "_cache", type(schema_module._cache)())


def answers(schema: Any, value: Any) -> tuple[bool, bool | None]:
    """The interpreter's answer, and that of jsonschema-rs where the schema is fit for it."""
    closure = Store(schema, "2020-12").closure(())
    checks, body = Checks(closure.bodies, set()), closure.bodies[closure.root]

    def interpret(value: Any) -> bool:
        return checks.interpret(value, body)

    check = StandIns(closure.bodies).check(body, interpret)
    return interpret(value), None if check is None else check(value)


@pytest.mark.usefixtures("rust")
def test_what_is_interpreted_goes_to_jsonschema_rs_and_its_errors_do_not_change() -> None:
    schema = from_schema(INTERPRETED)
    assert schema.engine == "rust: unevaluatedProperties"
    assert schema.is_valid({"a": 1})
    assert [error.message for error in schema.errors({"b": 1})] == [
        "expected no undeclared property, got one at $"
    ]


def test_without_jsonschema_rs_it_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_module, "_cache", type(schema_module._cache)())
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    engine._library.cache_clear()
    try:
        schema = from_schema(INTERPRETED)
        assert schema.engine == "interpreted: unevaluatedProperties"
        assert schema.is_valid({"a": 1})
        assert not schema.is_valid({"b": 1})
    finally:
        engine._library.cache_clear()


@pytest.mark.usefixtures("rust")
@pytest.mark.parametrize(
    ("title", "schema"),
    [
        ("a pattern", {"allOf": [{"properties": {"a": {"pattern": "^a$"}}}], "unevaluatedProperties": False}),
        (
            "a pattern of names",
            {"allOf": [True], "patternProperties": {"^a$": {}}, "unevaluatedProperties": False},
        ),
        ("recursion", {"allOf": [{"properties": {"a": {"$ref": "#"}}}], "unevaluatedProperties": False}),
    ],
)
def test_what_the_two_read_differently_stays_interpreted(title: str, schema: Any) -> None:
    assert from_schema(schema).engine.startswith("interpreted: "), title


@pytest.mark.usefixtures("rust")
def test_a_long_chain_of_references_is_not_followed_on_its_stack() -> None:
    links = {f"n{i}": {"properties": {"a": {"$ref": f"#/$defs/n{i + 1}"}}, "minProperties": 1} for i in range(300)}
    schema = {"$ref": "#/$defs/n0", "unevaluatedProperties": False, "$defs": links | {"n300": {}}}
    assert from_schema(schema).engine.startswith("interpreted: ")


class _Colour(enum.Enum):
    RED = "red"


@pytest.mark.usefixtures("rust")
@pytest.mark.parametrize(
    "value", [decimal.Decimal(1), _Colour.RED, math.nan, math.inf, object(), {1: 2}, {"a": {3}}, "\ud800", b"x"]
)
@pytest.mark.parametrize("name", ["null", "string", "number", "object"])
def test_what_is_no_json_gets_the_interpreters_answer(name: str, value: Any) -> None:
    schema = {"type": name, "minProperties": 0}
    expected, answered = answers(schema, value)
    assert answered is expected


@pytest.mark.usefixtures("rust")
def test_nothing_is_fetched_and_names_inside_values_are_none() -> None:
    value = {"$ref": "http://127.0.0.1:9/x", "$id": "http://127.0.0.1:9/y"}
    assert answers({"enum": [value, 1], "minProperties": 1}, value) == (True, True)
    assert StandIns({}).check({"$ref": "http://127.0.0.1:9/"}, bool) is None


keywords: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
    "minContains": st.integers(0, 3),
    "maxContains": st.integers(0, 3),
    "minimum": st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    "exclusiveMaximum": st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    "multipleOf": st.sampled_from([0.01, 0.1, 0.5, 1, 1.5, 2, 3, 7, 1e-8, 1e10, 2**60, 2**70]),
    "uniqueItems": st.booleans(),
    "minLength": st.integers(0, 3),
    "maxProperties": st.integers(0, 2),
    "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
    "dependentRequired": st.dictionaries(st.sampled_from("ab"), st.just(["c"]), max_size=2),
}
numbers = st.one_of(
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-10_000, 10_000).map(lambda cents: cents / 100),
    st.sampled_from([0.0, -0.0, 1.0, 2.0**53, 2**53 + 1, 1e22, 1e300, 5e-324]),
)
values = st.recursive(
    st.one_of(numbers, st.none(), st.booleans(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    single = dict.fromkeys(("items", "contains", "unevaluatedItems", "unevaluatedProperties", "not", "if", "then",
                            "else", "propertyNames", "additionalProperties"), inner)  # fmt: skip
    lists = dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), st.lists(inner, min_size=1, max_size=3))
    named = dict.fromkeys(("properties", "dependentSchemas"), st.dictionaries(st.sampled_from("abc"), inner))
    known = keywords | {"enum": st.lists(values, min_size=1, max_size=3), "const": values} | single | lists | named
    chosen = st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: known[key] for key in keys}))


generated = _schemas(
    st.one_of(
        st.booleans(), st.just({"$ref": "#/$defs/A"}), _schemas(st.one_of(st.booleans(), _schemas(st.just({}))))
    )
)


@pytest.mark.usefixtures("rust")
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(generated, _schemas(st.booleans()), st.lists(values, max_size=6))
def test_it_says_what_the_interpreter_says(schema: Any, definition: Any, some: list[Any]) -> None:
    schema = {**schema, "$defs": {"A": definition}}
    for value in some:
        expected, answered = answers(schema, value)
        assert answered in (expected, None), (schema, value)

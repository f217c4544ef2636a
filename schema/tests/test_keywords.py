"""What each keyword means, in every draft and every engine, and what is ignored, with a warning that says why."""

from typing import Any

import pytest

from operad_schema import from_schema
from schema.tests.tables import tables

TABLES = tables("keywords")

INTEGER = {"type": "integer"}

Case = tuple[Any, list[Any], list[Any]]
CASES: list[Case] = [*TABLES["cases"],
 ({"type": "array"}, [[], (1,)], [{}, "x"])]  # fmt: skip
BESIDE: list[dict[str, Any]] = [{}, {"minProperties": 0}, {"contains": {}, "minContains": 0, "maxContains": 99}]


@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_a_keyword_means_the_same_in_every_engine(schema: Any, good: list[Any], bad: list[Any]) -> None:
    forms = [schema]
    if isinstance(schema, dict):
        mixes = [
            more
            for more in BESIDE
            if more.keys().isdisjoint({*schema, *(["minContains"] if "unevaluatedItems" in schema else [])})
        ]
        forms = [{**schema, **more} for more in mixes if not ("contains" in more and "unevaluatedItems" in schema)]
        forms += [{"allOf": [schema], **{key: schema[key] for key in ("$defs",) if key in schema}}]
    for form in forms or [schema]:
        compiled = from_schema(form)
        assert compiled.warnings == ()
        for value, valid in [*((one, True) for one in good), *((one, False) for one in bad)]:
            if (
                "contains" in (form if isinstance(form, dict) else {})
                and "contains" not in schema
                and isinstance(value, list | tuple)
            ):
                continue
            assert compiled.is_valid(value) is valid, (form, value)
            assert bool(compiled.errors(value)) is not valid, (form, value)


DRAFTS: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = TABLES["drafts"]


@pytest.mark.parametrize(("dialect", "schema", "good", "bad"), DRAFTS)
def test_a_keyword_means_what_its_draft_says(dialect: Any, schema: Any, good: list[Any], bad: list[Any]) -> None:
    compiled = from_schema(schema, dialect=dialect)
    assert compiled.warnings == ()
    for made in (compiled, from_schema(compiled.bundled())):
        assert [made.is_valid(value) for value in good] == [True] * len(good)
        assert [made.is_valid(value) for value in bad] == [False] * len(bad)


REFUSED: list[tuple[dict[str, Any], str]] = [
    *TABLES["refused"],
    ({"enum": [{1}]}, "enum: expected a JSON value, got set: it is ignored"),
    ({"const": object}, "const: expected a JSON value, got type: it is ignored"),
    ({"default": float("nan")}, "default: expected a JSON value, got float: it is ignored"),
    ({"enum": [{1: 2}]}, "enum: expected a JSON value, got dict: it is ignored"),
    ({"maximum": float("inf")}, "maximum: expected a number"),
    ({"minContains": float("nan")}, "minContains: expected a whole number"),
    ({"properties": {1: {}}}, "properties: expected an object of schemas"),
    ({"patternProperties": {1: {}}}, "patternProperties: expected an object of schemas"),
]


@pytest.mark.parametrize(("schema", "warning"), REFUSED)
def test_nonsense_is_ignored_where_it_stands_and_said(schema: dict[str, Any], warning: str) -> None:
    compiled = from_schema({**schema, "maxProperties": 1})
    assert any(warning in text for text in compiled.warnings), compiled.warnings
    assert compiled.is_valid({"a": "x"})
    assert not compiled.is_valid({"a": "x", "b": 1}) or "$ref" in schema


def test_at_most_twenty_warnings_are_kept_of_one_schema() -> None:
    assert len(from_schema({"properties": {f"p{i}": {"type": "any"} for i in range(50)}}).warnings) == 20


MESSAGES: list[tuple[Any, Any, str]] = TABLES["messages"]


@pytest.mark.parametrize(("schema", "value", "message"), MESSAGES)
def test_an_error_says_what_was_expected_what_came_and_where(schema: Any, value: Any, message: str) -> None:
    [error] = from_schema(schema).errors(value)
    assert message in error.message
    assert error.message.startswith(f"expected {error.expected}, got {error.got} at {error.path}")

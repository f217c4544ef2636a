"""Answers that have been wrong once, or that other validators get wrong."""

from typing import Any

import pytest

from operad_schema import from_schema
from operad_schema.translating import translate
from schema.tests.tables import tables

TABLES = tables("right_answers")


@pytest.mark.parametrize(
    ("factor", "value", "expected"),
    [*TABLES["a_multiple_is_one_in_exact_arithmetic"], (2, float("inf"), False)],
)
@pytest.mark.parametrize("beside", [{}, {"minProperties": 0}, {"minContains": 2, "contains": {}}])
def test_a_multiple_is_one_in_exact_arithmetic(
    factor: Any, value: Any, expected: bool, beside: dict[str, Any]
) -> None:
    schema = from_schema({"multipleOf": factor, **beside})
    assert schema.is_valid(value) is expected
    assert bool(schema.errors(value)) is not expected


@pytest.mark.parametrize(("schema", "expected"), TABLES["a_zero_value_is_one_of_a_cast_that_is_cast_again"])
def test_a_zero_value_is_one_of_a_cast_that_is_cast_again(schema: Any, expected: Any) -> None:
    outer = from_schema({"type": "object", "required": ["a"], "properties": {"a": schema}})
    once = outer.cast({}, complete=True)
    assert once == {"a": expected}
    assert outer.cast(once, complete=True) == once


@pytest.mark.parametrize(("schema", "value"), TABLES["a_valid_value_stays_valid_once_cast"])
def test_a_valid_value_stays_valid_once_cast(schema: Any, value: Any) -> None:
    compiled = from_schema(schema)
    assert compiled.is_valid(value)
    assert compiled.is_valid(compiled.cast(value))
    assert compiled.normalizer(value)[1] is True


def test_a_bundle_casts_as_the_schema_does() -> None:
    schema = from_schema(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "allOf": [{"const": 2, "$ref": "#/definitions/D0"}],
            "definitions": {"D0": {}},
        }
    )
    bundled = from_schema(schema.bundled())
    for value in (2.0, 3, "2", None):
        assert repr(bundled.cast(value)) == repr(schema.cast(value))
        assert bundled.is_valid(value) is schema.is_valid(value) is True


META = [
    "http://json-schema.org/draft-03/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


@pytest.mark.parametrize("uri", META)
def test_the_meta_schemas_are_known_without_being_fetched(uri: str) -> None:
    schema = from_schema({"properties": {"a": {"$ref": uri}}})
    assert not any("has no target in this document" in warning for warning in schema.warnings)
    assert schema.is_valid({"a": {"type": "object", "properties": {"x": {"minLength": 1}}}})
    for wrong in ({"properties": 5}, {"properties": {"x": {"minLength": "1"}}}):
        assert not schema.is_valid({"a": wrong})
        assert not from_schema(schema.bundled()).is_valid({"a": wrong})


@pytest.mark.parametrize(("pattern", "matches", "others"), TABLES["classes_are_those_of_ecma_262"])
def test_classes_are_those_of_ecma_262(pattern: str, matches: list[str], others: list[str]) -> None:
    made = translate(pattern)
    assert [made.matches(text) for text in matches] == [True] * len(matches)
    assert [made.matches(text) for text in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("escape", "inside"),
    [
        (r"\d", "0123456789"),
        (r"\w", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"),
        (r"\p{AHex}", "0123456789ABCDEFabcdef"),
        (r"\p{ASCII_Hex_Digit}", "0123456789ABCDEFabcdef"),
        (r"\p{ASCII}", "".join(map(chr, range(128)))),
        (r"\s", "\t\n\v\f\r \xa0"),
    ],
)
def test_a_class_has_its_characters_and_no_other(escape: str, inside: str) -> None:
    latin = [chr(code) for code in range(0x100)]
    made = translate(f"^{escape}$")
    assert [char for char in latin if made.matches(char)] == sorted(inside)
    for other in (f"[^{escape}]", f"\\{escape[1].upper()}{escape[2:]}"):
        negated = translate(f"^{other}$")
        assert [char for char in latin if not negated.matches(char)] == sorted(inside)


def test_white_space_is_what_ecma_262_lists() -> None:
    single = (0x20, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF)
    listed = sorted({*range(0x09, 0x0E), *range(0x2000, 0x200B), *single})
    made, property_ = translate(r"^\s$"), translate(r"^\p{White_Space}$")
    assert [code for code in range(0x10000) if made.matches(chr(code))] == listed
    unicode = [code for code in range(0x10000) if property_.matches(chr(code))]
    assert unicode == sorted({*listed, 0x85} - {0xFEFF})


def test_general_categories_are_those_of_unicode() -> None:
    import unicodedata

    bounds = [(0, 0x3000), (0xD000, 0xD800), (0xE000, 0xE100), (0x1F000, 0x1F700), (0xE0000, 0xE0200)]
    codes = [code for low, high in bounds for code in range(low, high)]
    for name in ("L", "Lu", "Mn", "Nd", "N", "P", "Sc", "Zs", "Cc", "Cf", "Letter", "Decimal_Number"):
        short = {"Letter": "L", "Decimal_Number": "Nd"}.get(name, name)
        made = translate(f"^\\p{{{name}}}$")
        expected = [code for code in codes if unicodedata.category(chr(code)).startswith(short)]
        assert [code for code in codes if made.matches(chr(code))] == expected, name
    cased = translate(r"^\p{LC}$")
    assert [cased.matches(char) for char in "aAǅʰª"] == [True, True, True, False, False]
    for unknown in ("Script=Latin", "Cn", "Latin", "l", ""):
        assert from_schema({"pattern": f"\\p{{{unknown}}}"}).warnings


@pytest.mark.parametrize(
    ("schema", "value", "expected"), TABLES["further_items_are_what_the_schemas_together_say"]
)
def test_further_items_are_what_the_schemas_together_say(schema: Any, value: Any, expected: Any) -> None:
    assert from_schema(schema).cast(value) == expected


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "array"}, {"type": ["object", "array"]}])
def test_the_containers_that_a_cast_walks_are_new(schema: Any) -> None:
    for value in ({"a": [1]}, [{"a": 1}]):
        made = from_schema(schema).cast(value)
        assert made == value
        if type(value).__name__.replace("dict", "object").replace("list", "array") in schema["type"]:
            assert made is not value

"""The `format` keyword: an annotation, unless the caller asks for its check."""

import json
import os
import subprocess
import sys
import tarfile
from typing import Any

import pytest

from operad_schema import from_schema
from operad_schema.bundling import SharedDefinitions
from operad_schema.formats import CHECKED

GOOD_AND_BAD: dict[str, tuple[list[Any], list[Any]]] = {
    "date": (["2024-02-29", "2026-12-31"], ["2023-02-29", "1900-02-29", "2026-13-01", "2026-1-1", ""]),
    "date-time": (["2024-02-29T12:00:00Z", "2026-01-01t00:00:00.5+01:30"], ["2026-01-01T00:00:00", "2026-01-01"]),
    "time": (
        ["12:00:00Z", "23:59:60Z", "15:59:60-08:00", "05:29:60+05:30"],
        ["12:00:00", "24:00:00Z", "12:59:60Z"],
    ),
    "duration": (["P1D", "PT1H3S", "PT0.5S", "P2W"], ["P1.5D", "PT.5S", "P", "PT", "P1DT", "1D", "P1Y2D"]),
    "email": (
        ["a@b.example", '"a b"@c.example', "a@[127.0.0.1]", "a@[IPv6:::1]"],
        ["a", "a@", "a b@c.example", ".a@b.example", '"\ud800"@b.example'],
    ),
    "hostname": (
        ["a.example", "localhost", "xn--4ca.example"],
        ["-a", "a_b", "a" * 64, "a..b", "ab--cd.example", "xn--x.example"],
    ),
    "ipv4": (["127.0.0.1"], ["256.1.1.1", "01.2.3.4", "1.2.3"]),
    "ipv6": (["::", "::1", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"], ["1::2::3", "fe80::1%eth0", "12345::", ":"]),
    "uri": (["http://a.example/b?c#d", "urn:x:y", "http://[::1]:80/"], ["//a", "a b", "http://a/%zz", "é:x"]),
    "uri-reference": (["", "/a", "//a", "#f", "a:b"], ["1:a", "a#b#c", "[", "\\"]),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380", ""]),
    "json-pointer": (["", "/a~0"], ["a", "/~2"]),
    "idn-email": (["실례@실례.example"], ["실례", "@실례.example"]),
    "idn-hostname": (["실례.example"], ["〮실례.example", "a b"]),
    "iri": (["http://ƒøø.example/é"], ["é", "http://a b"]),
    "iri-reference": (["/é", ""], ["\\é", "#é b"]),
    "uri-template": (["/a/{b}{?c*}", "/é/%20"], ["/a/{b", "/a}", "a b", "%zz", "a\x0f", "<a>"]),
    "relative-json-pointer": (["0", "1/a~0", "2#"], ["/a", "-1", "01"]),
    "byte": (["aGk=", "", "aGk"], ["a=b", "?"]),
    "int8": ([127, -128, 1.0], [128, -129]),
    "int32": ([2**31 - 1], [2**31]),
    "int64": ([-(2**63)], [2**63]),
    "uint8": ([0, 255], [-1, 256]),
    "uint16": ([65_535], [65_536]),
    "uint32": ([2**32 - 1], [2**32]),
    "uint64": ([2**64 - 1], [2**64]),
    "int16": ([32_767], [32_768]),
}


def test_every_format_that_is_checked_is_tested_here() -> None:
    assert set(GOOD_AND_BAD) == CHECKED


@pytest.mark.parametrize("name", sorted(GOOD_AND_BAD))
def test_a_format_accepts_what_its_standard_says(name: str) -> None:
    schema = from_schema({"format": name}, formats=True)
    good, bad = GOOD_AND_BAD[name]
    assert [value for value in good if not schema.is_valid(value)] == []
    assert [value for value in bad if schema.is_valid(value)] == []
    assert [error.keyword for value in bad for error in schema.errors(value)] == ["format"] * len(bad)
    # Half of a surrogate pair is not a character, and a line feed at the end belongs to the text.
    if isinstance(good[0], str):
        assert not schema.is_valid("\ud800") or name == "json-pointer"
        assert not schema.is_valid(max(good) + "\n") or name in ("byte", "json-pointer")
    # A value of another type has no format.
    assert schema.is_valid(None)
    assert schema.is_valid([])
    assert schema.is_valid(True)


def official_cases() -> Any:
    place = os.environ.get("OPERAD_JSON_SCHEMA_SUITE", "")
    if not place.endswith(".tar.gz"):
        pytest.skip("OPERAD_JSON_SCHEMA_SUITE does not name jsonschema's source distribution")
    with tarfile.open(place) as archive:
        for member in archive:
            parts = member.name.split("/")
            if parts[-3:-1] == ["optional", "format"] and parts[3] != "draft3" and parts[-1].endswith(".json"):
                content = archive.extractfile(member)
                assert content is not None
                for group in json.load(content):
                    for case in group["tests"]:
                        yield group["schema"], case


def test_the_official_suite_of_formats_finds_nothing_wrong() -> None:
    wrong, count = [], 0
    for node, case in official_cases():
        if node.get("format") not in CHECKED:
            continue
        count += 1
        if from_schema(node, formats=True).is_valid(case["data"]) != case["valid"]:
            wrong.append((node["format"], case["description"]))
    assert wrong == []
    assert count > 1_500


def test_a_format_is_an_annotation_unless_the_caller_asks() -> None:
    node = {"type": "string", "format": "date"}
    assert from_schema(node).is_valid("yesterday")
    assert not from_schema(node, formats=True).is_valid("yesterday")
    assert from_schema(node).is_valid("yesterday")  # the two are not one in the cache
    assert from_schema({"format": "colour"}, formats=True).is_unknown
    assert from_schema({"format": ["date"]}, formats=True).is_valid("x")
    assert from_schema({"format": "regex"}, formats=True).is_valid("(")  # never compiled


def test_schemas_of_one_document_differ_in_whether_formats_are_checked() -> None:
    document = {"$defs": {"day": {"type": "string", "format": "date"}}}
    plain, strict = (
        from_schema(document["$defs"]["day"], document=document, pointer="/$defs/day", formats=formats)
        for formats in (False, True)
    )
    assert plain.is_valid("x")
    assert not strict.is_valid("x")


def test_an_export_keeps_formats_as_they_were_written() -> None:
    node = {"type": "object", "properties": {"a": {"format": "date"}, "b": {"format": "colour"}}}
    schema = from_schema(node, formats=True)
    assert schema.bundled() == node
    assert schema.bundled(SharedDefinitions()) == node


def test_an_error_names_the_format_the_value_and_the_path() -> None:
    schema = from_schema({"properties": {"at": {"type": "string", "format": "date"}}}, formats=True)
    [error] = schema.errors({"at": "yesterday"})
    assert error.message == "expected a date (RFC 3339) such as 2026-01-31, got 'yesterday' at $.at"
    [error] = from_schema({"format": "uint8"}, formats=True).errors(256)
    assert error.message == "expected a uint8, 0 to 255, got 256 at $"


def test_a_cast_does_not_touch_a_text_of_another_format() -> None:
    schema = from_schema({"properties": {"at": {"type": "string", "format": "date"}}}, formats=True)
    assert schema.normalizer({"at": 5, "b": 1}) == ({"at": "5"}, False)


def test_beside_a_reference_of_an_old_draft_and_in_a_nullable_schema_formats_mean_what_they_should() -> None:
    old = {"$ref": "#/definitions/any", "format": "date", "definitions": {"any": {"type": "string"}}}
    assert from_schema(old, dialect="draft7", formats=True).is_valid("x")
    for node in ({"format": "date", "nullable": True}, {"type": "string", "format": "date", "nullable": True}):
        schema = from_schema(node, dialect="openapi-3.0", formats=True)
        assert schema.is_valid(None)
        assert not schema.is_valid("x")


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "properties": {
                "id": {"format": "uuid"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "additionalProperties": {"format": "date"},
            "patternProperties": {"^n_": {"format": "int32"}},
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        (TREE, {"below": [{"below": [{"id": "x"}]}]}, "$.below[0].below[0].id"),
        (TREE, {"other": "x", "n_1": 5, "n_2": 2**40}, "$.other"),
        (TREE, {"n_1": 5, "n_2": 2**40}, "$.n_2"),
        ({"prefixItems": [{}, {"format": "date"}], "items": {"format": "time"}}, [1, "x"], "$[1]"),
        ({"prefixItems": [{}], "items": {"format": "time"}}, ["x", "12:00:00Z", "x"], "$[2]"),
        ({"allOf": [{"type": "string"}, {"format": "date"}]}, "x", "$"),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, "x", "$"),
        ({"oneOf": [{"type": "string", "format": "date"}, {"type": "integer"}]}, "x", "$"),
        ({"if": {"type": "string"}, "then": {"format": "date"}, "else": {"format": "int32"}}, 2**31, "$"),
        ({"not": {"type": "string", "format": "date"}}, "2026-01-31", "$"),
        ({"type": "object", "propertyNames": {"format": "date"}}, {"x": 1}, "$"),
    ],
)
def test_a_format_is_checked_wherever_the_schema_has_it(schema: Any, value: Any, path: str) -> None:
    assert from_schema(schema, formats=True).errors(value)[0].path == path


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "maxLength": 1}]}, "x"),
        ({"if": {"type": "string"}, "then": {"format": "date"}}, 2**31),
        ({"properties": {"a": {"format": "date"}}}, "x"),
        ({"$ref": "#/$defs/nowhere", "$defs": {"other": {"format": "date"}}}, "x"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/a", "format": "colour"}, "b": {"format": "date"}},
            },
            "x",
        ),
    ],
)
def test_a_value_that_another_alternative_accepts_needs_no_format(schema: Any, value: Any) -> None:
    assert from_schema(schema, formats=True).errors(value) == []


@pytest.mark.parametrize("name", sorted(name for name in CHECKED if isinstance(GOOD_AND_BAD[name][0][0], str)))
def test_the_check_of_a_long_hostile_text_takes_time_linear_in_its_length(name: str) -> None:
    schema = from_schema({"format": name}, formats=True)
    for piece in ("a", "1", " ", "/", "a.", "a:", "%20", "=", "a@", "::", "P1", "~0", "-", "{a,", "}", "{"):
        schema.is_valid(piece * 20_000 + "\0")  # quadratic work would take minutes


def test_a_missing_library_is_named_when_its_format_is_first_used() -> None:
    code = """
import sys
sys.modules["fqdn"] = None
from operad_schema import from_schema
assert "operad_schema.formats" not in sys.modules
assert from_schema({"format": "hostname"}).is_valid("-")
assert "operad_schema.formats" not in sys.modules
assert from_schema({"format": "uuid"}, formats=True).is_valid(5)
try:
    from_schema({"format": "hostname"}, formats=True).is_valid("a")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the format 'hostname' needs fqdn" in done.stdout
    assert "pip install 'operad-schema[formats]'" in done.stdout

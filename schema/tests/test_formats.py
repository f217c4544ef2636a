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
from schema.tests.tables import tables

TABLES = tables("formats")

GOOD_AND_BAD: dict[str, tuple[list[Any], list[Any]]] = TABLES["good_and_bad"]


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


def test_an_export_keeps_formats_as_they_were_written() -> None:
    node = {"type": "object", "properties": {"a": {"format": "date"}, "b": {"format": "colour"}}}
    schema = from_schema(node, formats=True)
    assert schema.bundled() == node
    assert schema.bundled(SharedDefinitions()) == node


@pytest.mark.parametrize(("schema", "value", "path"), TABLES["a_format_is_checked_wherever_the_schema_has_it"])
def test_a_format_is_checked_wherever_the_schema_has_it(schema: Any, value: Any, path: str) -> None:
    assert from_schema(schema, formats=True).errors(value)[0].path == path


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

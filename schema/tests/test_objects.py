"""`Schema`: errors for people, dialects, shared documents, bundles, caches, threads, pickles."""

import copy
import datetime
import gc
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest

from operad_schema import SchemaError, from_schema
from schema.tests.tables import tables

TABLES = tables("objects")

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "components": {
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": "integer", "description": "the id"},
                    "friend": {"$ref": "#/components/schemas/Pet"},
                    "a/b": {"$ref": "#/components/schemas/a~1b"},
                },
            },
            "a/b": {"type": "string", "nullable": True},
        }
    },
}


def pet() -> Any:
    node = DOCUMENT["components"]["schemas"]["Pet"]
    return from_schema(node, dialect="openapi-3.0", document=DOCUMENT, pointer="/components/schemas/Pet")


@pytest.mark.parametrize(
    ("schema", "value", "message"), TABLES["an_error_says_what_was_expected_what_came_and_where"]
)
def test_an_error_says_what_was_expected_what_came_and_where(schema: Any, value: Any, message: str) -> None:
    assert [error.message for error in from_schema(schema).errors(value)] == [message]


def test_an_error_carries_its_parts() -> None:
    assert from_schema({"type": "integer"}).errors("x") == [
        SchemaError("$", "expected integer, got str at $", "type", "integer", "str")
    ]


@pytest.mark.parametrize(("schema", "dialect", "valid", "invalid"), TABLES["a_schema_is_read_in_its_dialect"])
def test_a_schema_is_read_in_its_dialect(schema: Any, dialect: Any, valid: list[Any], invalid: list[Any]) -> None:
    compiled = from_schema(schema, dialect=dialect)
    assert [compiled.is_valid(value) for value in valid] == [True] * len(valid)
    assert [compiled.is_valid(value) for value in invalid] == [False] * len(invalid)


def test_a_schema_is_a_pointer_into_a_document_that_is_never_copied_or_changed() -> None:
    before = copy.deepcopy(DOCUMENT)
    schema = pet()
    assert schema.raw is DOCUMENT["components"]["schemas"]["Pet"]
    assert schema.cast({"id": "1", "friend": {"id": 2.0, "x": 1}, "a/b": 5}) == {
        "id": 1,
        "friend": {"id": 2},
        "a/b": "5",
    }
    assert schema.is_valid({"id": 1, "a/b": None})
    assert schema.errors({"id": 1, "friend": {}})[0].path == "$.friend"
    assert before == DOCUMENT


def test_thousands_of_schemas_of_a_document_cost_little_until_they_are_used() -> None:
    names = {
        f"S{i}": {"type": "object", "properties": {"n": {"$ref": f"#/components/schemas/S{i + 1}"}}}
        for i in range(3000)
    }
    document = {"components": {"schemas": {**names, "S3000": {"type": "integer"}}}}
    gc.collect()
    schemas = [
        from_schema(node, document=document, pointer=f"/components/schemas/{name}") for name, node in names.items()
    ]
    assert (
        sum(map(sys.getsizeof, [part for one in schemas for part in (one, one.origin, one.origin.pointer)]))
        / len(schemas)
        < 300
    )


def test_one_document_is_not_taken_for_another_at_the_same_place() -> None:
    for kind, good, bad in (("integer", 1, "x"), ("string", "x", 1)):
        document = {"s": {"$ref": "#/t"}, "t": {"type": kind}}
        schema = from_schema(document["s"], document=document, pointer="/s")
        assert (schema.is_valid(good), schema.is_valid(bad)) == (True, False)
        del document, schema


def test_a_bundle_holds_all_that_it_refers_to_with_its_texts() -> None:
    bundle = pet().bundled()
    assert bundle["$ref"] == "#/$defs/Pet"
    assert bundle["$defs"]["Pet"]["properties"]["id"] == {"type": "integer", "description": "the id"}
    assert bundle["$defs"]["a/b"] == {"type": ["string", "null"]}
    again = from_schema(bundle)
    for value in ({"id": 1, "a/b": None}, {"id": "x"}, {"id": 1, "friend": {"id": 1, "a/b": 5}}):
        assert again.is_valid(value) == pet().is_valid(value)
    assert from_schema(True).bundled() is True
    assert from_schema({"type": "integer", "title": "N"}).bundled() == {"type": "integer", "title": "N"}


def test_a_schema_survives_copy_and_pickle() -> None:
    schema = from_schema({"type": "integer"})
    assert copy.copy(schema) is copy.deepcopy([schema])[0] is schema
    read = pickle.loads(pickle.dumps(schema))
    assert (read.raw, read.errors("x")) == (schema.raw, schema.errors("x"))


@pytest.mark.parametrize("wrong", ["x", None])
def test_what_is_no_schema_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        from_schema(wrong)


def test_threads_may_use_a_new_schema_at_the_same_time() -> None:
    for round_ in range(20):
        schema = from_schema(
            {
                "properties": {
                    f"p{i}": {"anyOf": [{"type": "integer"}, {"type": "null"}]} for i in range(round_ + 1)
                }
            }
        )
        start, results = threading.Barrier(8), []

        def use(schema: Any = schema, start: Any = start, results: Any = results) -> None:
            start.wait()
            results.append((schema.cast({"p0": "1"}), schema.is_valid({"p0": "1"})))

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [({"p0": 1}, False)] * 8


def test_the_module_imports_no_validator() -> None:
    code = "import sys, operad_schema as s; s.from_schema({'type': 'object'}).is_valid({}); print([m for m in ('jsonschema', 'fastjsonschema', 'referencing') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_an_example_that_is_no_json_is_left_out_of_a_bundle() -> None:
    schema = from_schema({"type": "string", "title": "T", "example": datetime.date(2020, 1, 2), "examples": ["a"]})
    assert schema.bundled() == {"type": "string", "title": "T", "examples": ["a"]}

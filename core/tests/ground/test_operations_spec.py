"""Specs: what they accept, and their JSON form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from core.tests.kit import spec
from operad import AccessControl, ErrorDefinition, OperationSpec, OperationType, RegistrationError, from_schema
from operad.operations import OPERATION_SPEC_SCHEMA

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

FULL = OperationSpec(**TABLES["a_full_spec"])


def test_the_json_form_is_right_and_complete() -> None:
    wire = json.loads(json.dumps(FULL.to_wire()))
    jsonschema.Draft202012Validator(OPERATION_SPEC_SCHEMA).validate(wire)
    again = OperationSpec.from_wire(wire)
    assert again.to_wire() == FULL.to_wire()
    fields = "id type version title description access_control tags deprecated idempotent metadata"
    for field in fields.split():
        assert getattr(again, field) == getattr(FULL, field)
    assert again.input_schema.errors({"id": "x"})
    assert again.output_schema.errors("x")
    assert again.error_schemas[0].schema.errors("x")
    assert [definition.code for definition in again.error_schemas] == ["GONE", "BUSY"]
    assert again.error_schemas[0].http_status == 410


def test_a_listing_leaves_schemas_and_metadata_out() -> None:
    assert not {"inputSchema", "outputSchema", "errorSchemas", "metadata"} & FULL.to_wire(schemas=False).keys()


def test_the_least_json_form() -> None:
    made = OperationSpec.from_wire({"namespace": "a", "name": "b"})
    assert (made.id, made.type, made.access_control) == ("a.b", OperationType.MUTATION, AccessControl())
    assert made.input_schema.is_unknown
    assert (made.deprecated, made.idempotent, made.unchecked_patterns) == (False, False, False)


def test_fields_can_be_overridden_on_the_way_in() -> None:
    assert OperationSpec.from_wire({"namespace": "a", "name": "b"}, namespace="far").id == "far.b"


@pytest.mark.parametrize("wire", TABLES["what_is_no_spec_is_refused"], ids=str)
def test_what_is_no_spec_is_refused(wire: Any) -> None:
    with pytest.raises(RegistrationError):
        OperationSpec.from_wire(wire)


def test_schemas_are_taken_in_every_form() -> None:
    schema = from_schema({"type": "integer"})
    assert spec(input_schema=schema).input_schema is schema
    assert spec(input_schema=False).input_schema.errors(1)
    assert spec().input_schema.is_unknown


def test_a_string_is_no_list_of_tags() -> None:
    with pytest.raises(TypeError, match=r'write \["x"\]'):
        spec(tags="x")


def test_metadata_of_one_spec_is_not_that_of_all() -> None:
    assert spec().metadata is not spec().metadata


def test_error_schemas_are_definitions_and_need_a_code() -> None:
    assert spec(error_schemas=[ErrorDefinition("BUSY")]).error_schemas == (ErrorDefinition("BUSY"),)
    with pytest.raises(RegistrationError, match="error_schemas: expected {code"):
        spec(error_schemas=[{"schema": {}}])


def test_the_repr_of_a_spec_says_what_is_special_about_it() -> None:
    assert repr(spec()) == "OperationSpec(id='t.op', type='mutation')"
    said = repr(spec(type="query", tags=["t"], idempotent=True))
    assert said == "OperationSpec(id='t.op', type='query', tags=('t',), idempotent=True)"


def test_words_that_no_utf8_can_hold_are_escaped_so_that_a_listing_can_be_sent() -> None:
    """JSON can hold half a surrogate pair: one spec of somebody else's must not fail the page that it stands on."""
    errors = [{"code": "E", "description": "e\ud800"}]
    made = spec(title="t\udc80", description="d\ud800", tags=["g\ud800"], error_schemas=errors)
    assert json.dumps(made.to_wire(), ensure_ascii=False).encode()
    assert (made.title, made.description) == ("t\\udc80", "d\\ud800")

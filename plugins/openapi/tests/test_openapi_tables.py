"""Requests, schemas and pages of single operations, by tables."""

from fnmatch import fnmatchcase

import pytest

from operad import CallError
from operad_openapi import http_envelope
from plugins.openapi.tests.data import NOWHERE, TABLES
from plugins.openapi.tests.handlers import echo
from plugins.openapi.tests.making import made, parameter


def cases(name):
    return pytest.mark.parametrize("case", TABLES[name].values(), ids=TABLES[name])


@cases("requests")
async def test_a_request_is_what_the_document_and_the_input_make_it(call, api, case):
    paths, options, input, expected, *more = case
    data = (await call(echo, api(paths, **dict(*more)), input, **options)).data
    sent = {**data["headers"], **{name: data[name] for name in ("path", "query", "body")}}
    assert {name: value for name, value in expected.items() if not fnmatchcase(sent.get(name, "-"), value)} == {}


@pytest.mark.parametrize(("paths", "options", "input", "message"), TABLES["inputs that cannot be sent"])
async def test_an_input_that_cannot_be_sent_is_an_error_that_says_why(api, paths, options, input, message):
    (operation,) = made(api(paths), **options)
    with pytest.raises(CallError, match=message) as caught:
        await operation.handler(input, None)
    assert caught.value.code == "VALIDATION_ERROR"


@cases("input schemas")
def test_the_schema_of_an_input_is_that_of_its_parts(api, case):
    operation, expected = case
    schemas = {"A": {"type": "string"}, "Id": {"type": "integer", "readOnly": True}}
    (found,) = made(api({"post /x": operation}, components={"schemas": schemas}))
    properties = found.spec.input_schema.raw["properties"]
    assert properties == (expected or properties)


@cases("output schemas")
def test_the_schema_of_an_output_is_that_of_the_responses(api, case):
    route, operation, expected = case
    (found,) = made(api({route: operation}))
    assert found.spec.output_schema.raw == expected


@cases("documents")
def test_a_document_becomes_operations_and_diagnostics(api, case):
    paths, options, names, reasons, *more = case
    found = made({**api({}, **dict(*more)), "paths": paths}, **options)
    assert [one.spec.name for one in found if one.spec.input_schema.raw] == names
    assert [str(one) for one in found.diagnostics if not any(fnmatchcase(str(one), r) for r in reasons)] == []
    assert len(found.diagnostics) == len(reasons)


@pytest.mark.parametrize(
    ("version", "case"),
    [(version, case) for name, version in (("links to a page", "3.1.0"), ("links to a page in 2.0", "2.0"))
     for case in TABLES[name].values()],
)  # fmt: skip
def test_the_query_of_a_link_becomes_an_input_by_the_schemas_of_its_parameters(api, version, case):
    parameters, input, query, expected = case
    (operation,) = made(api({"get /x": {"parameters": parameters}}, version=version))
    before = "&".join(f"{name}={value}" for name, value in input.items())
    headers = {"Link": f'<https://elsewhere.test/y?{query}>; rel="next"'}
    envelope = http_envelope([], headers=headers, url=f"{NOWHERE}/x?{before}")
    found = operation.pages.following(input, envelope)
    assert (found, {name: type(value) for name, value in found.items()}) == (
        expected, {name: type(value) for name, value in expected.items()},
    )  # fmt: skip


@cases("next inputs")
def test_a_rule_makes_the_next_input(api, case):
    rule, input, data, expected = case
    integers = [parameter(name, schema={"type": "integer"}) for name in "il"]
    body = {"requestBody": {"content": {"application/json": {}}}}
    node = {"operationId": "x", "parameters": [*integers, parameter("t")], **body}
    (operation,) = made(api({"post /x": node}), pagination={"x": rule})
    found = operation.pages.following(input, http_envelope(data, url=f"{NOWHERE}/x?i=1"))
    assert (found, type(found and found.get("t"))) == (expected, type(expected and expected.get("t")))

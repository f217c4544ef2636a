"""Operations that another operad serves: what the marks of its document state, and how its errors come back."""

import json

import pytest
from aiohttp import web

from operad import CallError
from plugins.openapi.tests.data import DOCUMENTS, TABLES, TEXT
from plugins.openapi.tests.making import answers, api, body, fields, made

CASES = TABLES["served by another operad"]
ERRORS = [{"code": "SOLD_OUT", "httpStatus": 409, "description": "none left", "schema": fields(left=TEXT)}]
EVENTS = answers(DOCUMENTS["events of another operad"], "text/event-stream")
SPLIT = [{"code": "UNAVAILABLE"}, *ERRORS]


def served(mark, version=1, **operation):
    node = {"x-operad": mark, **operation}
    return api({"post /operations/s.t": node, "get /operations/s.t": node}, **{"x-operad": {"version": version}})


@pytest.mark.parametrize(("mark", "expected"), CASES["marks"])
def test_type_idempotence_and_errors_are_those_of_the_mark(mark, expected):
    (found,) = made(served({"id": "s.t", **mark}))
    spec = found.spec
    errors = [[error.code, error.http_status, error.description] for error in spec.error_schemas]
    assert spec.metadata["method"] == "POST"
    assert [spec.name, str(spec.type), spec.idempotent, errors] == ["s.t", *expected]


@pytest.mark.parametrize("mark", CASES["no marks"])
def test_an_operation_without_a_mark_is_another_way_to_call_one_that_has_it(mark):
    assert made(served(mark)) == []


@pytest.mark.parametrize("version", [2, None])
def test_marks_of_another_version_are_ignored(version):
    names = [one.spec.name for one in made(served({"id": "s.t"}, version))]
    assert names == ["post_operations_s.t", "get_operations_s.t"]


@pytest.mark.parametrize("document", [{}, {"x-operad": 1}])
def test_a_document_without_a_version_of_marks_has_none(document):
    found = made(api({"post /x": {"operationId": "x", "x-operad": {"id": "s.t"}}}, **document))
    assert [one.spec.name for one in found] == ["x"]


@pytest.mark.parametrize(("operation", "accepted", "rejected"), CASES["inputs"])
def test_the_input_is_the_json_body(operation, accepted, rejected):
    schema = made(served({"id": "s.t"}, **operation))[0].spec.input_schema
    assert [value for value in (*accepted, *rejected) if schema.is_valid(value)] == accepted


@pytest.mark.parametrize(("kind", "media", "schema", "accepted", "rejected"), CASES["outputs"])
def test_the_output_is_the_response_or_one_item(kind, media, schema, accepted, rejected):
    found = made(served({"id": "s.t", "type": kind}, responses=answers(schema, media)))[0].spec.output_schema
    assert [value for value in (*accepted, *rejected) if found.is_valid(value)] == accepted


def test_an_error_has_the_schema_of_its_details():
    (error,) = made(served({"id": "s.t", "errors": ERRORS}))[0].spec.error_schemas
    assert [error.schema.is_valid(details) for details in ({"left": "0"}, {"left": 0})] == [True, False]


@pytest.mark.parametrize("value", [{"a": 1, "body": None}, [1, "é"], None, {"b": {"c": 1}}])
async def test_the_whole_input_is_sent_as_json_in_a_post(serve, operations, value):
    async def echo(request):
        return web.json_response([request.method, request.path, request.content_type, await request.json()])

    operation = operations(served({"id": "s.t"}, **body(fields(b={}))), await serve(echo))["s.t"]
    assert operation.adapt(value) is value
    assert (await operation.handler(value, None)).data == ["POST", "/operations/s.t", "application/json", value]
    assert operation.spec.input_schema.errors(5)[0].message == "expected object, got int at $"


@pytest.mark.parametrize(("problem", "expected"), CASES["problems"])
async def test_declared_errors_come_back_and_others_are_failures(serve, operations, problem, expected):
    kind = "application/problem+json"
    base = await serve(lambda request: web.json_response(problem, status=409, content_type=kind))
    found = operations(served({"id": "s.t", "errors": SPLIT}), base, retries=0)
    with pytest.raises(CallError) as caught:
        await found["s.t"].handler({}, None)
    error = caught.value
    assert [error.code, error.message.replace(base, "")] == expected[:2]
    assert [error.details][: len(expected) - 2] == expected[2:]


@pytest.mark.parametrize(("events", "items", "expected"), CASES["streams"])
async def test_a_stream_ends_by_an_event(serve, operations, requests, events, items, expected):
    text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in events)
    base = await serve(lambda request: web.Response(text=text, content_type="text/event-stream"))
    mark = {"id": "s.t", "type": "subscription", "errors": ERRORS}
    stream = operations(served(mark, responses=EVENTS), base)["s.t"].handler({}, None)
    got = []
    try:
        async for envelope in stream:
            got.append(envelope.data)  # noqa: PERF401  # what came before the error counts
        ended = None
    except CallError as error:
        ended = [error.code, error.message, error.details]
    assert (got, ended and ended[: len(expected or ())]) == (items, expected)
    assert (requests[0].method, requests[0].headers["Accept"]) == ("POST", "text/event-stream")

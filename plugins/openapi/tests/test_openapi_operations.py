"""What operations a document becomes: names, types, inputs, outputs, errors, servers, filters."""

import copy
import datetime
import json
import os
from decimal import Decimal
from pathlib import Path

import pytest
from aiohttp import web

from operad import CallError, OperationRegistry, load_plugins
from operad.errors import ConfigError, SourceError
from operad_openapi import from_openapi_file, from_openapi_url
from operad_openapi._request.text import SerializationError
from operad_schema import Limits
from plugins.openapi.tests.data import DOCUMENTS, FORM, GET, JSON, NOWHERE, TABLES, TEXT, configured
from plugins.openapi.tests.handlers import echo, replying, result_of
from plugins.openapi.tests.making import answers, body, config, fields, made, parameter, path_parameter, read

SPECS = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")) / "specs"


def inputs(operations, api, operation, route="post /x", **document):
    found = operations(api({route: {"operationId": "x", **operation}}, **document))
    return found["x"].spec.input_schema.raw


# --- names and types ---------------------------------------------------------------------------------


def test_names_come_from_the_operation_id_or_the_path(operations, api):
    paths = {
        "get /a/{x}/things.json": {},
        "post /a/{x}/things.json": {"operationId": "pulls/create"},
        "put /": {"operationId": "with  space\n"},
        "delete /": {"operationId": ""},
    }
    assert list(operations(api(paths))) == ["get_a_x_things.json", "pulls/create", "with_space", "delete"]


def test_clashing_names_get_a_number_whatever_their_case(operations, api):
    ids = {"get /a": "dup", "get /b": "dup", "put /b": "Dup"}
    found = operations(api({route: {"operationId": name} for route, name in ids.items()}))
    assert list(found) == ["dup", "dup_2", "Dup_3"]
    assert found["Dup_3"].spec.metadata == {"operationId": "Dup", "method": "PUT", "path": "/b"}


def test_get_is_a_query_and_everything_else_a_mutation(operations, api):
    methods = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
    found = operations(api({f"{method} /x": {"operationId": method} for method in methods}, version="3.2.0"))
    assert [name for name, operation in found.items() if operation.spec.type == "query"] == ["get"]
    assert len(found) == 9


def test_mutations_whose_method_http_calls_idempotent_are_declared_so(operations, api):
    """They may run again where the process that had the request is lost."""
    methods = ("get", "put", "post", "delete", "head", "patch")
    found = operations(api({f"{method} /x": {"operationId": method} for method in methods}))
    assert [name for name, operation in found.items() if operation.spec.idempotent] == ["put", "delete", "head"]


def test_the_configuration_can_say_another_type(operations, api):
    found = operations(api({"post /search": {"operationId": "search"}}), operation_types={"search": "query"})
    assert found["search"].spec.type == "query"


async def test_additional_operations_of_3_2(api, call):
    document = api({}, version="3.2.0")
    document["paths"]["/x"] = {"additionalOperations": {"COPY": {"operationId": "copy"}, "b ad": {}}}
    assert (await call(lambda request: web.json_response(request.method), document)).data == "COPY"


def test_words_tags_and_deprecation_are_kept(operations, api):
    node = {"summary": "S", "description": "D", "tags": ["a", "b"], "deprecated": True}
    spec = operations(api({"get /x": node}))["get_x"].spec
    assert (spec.title, spec.description, spec.tags, spec.deprecated) == ("S", "D", ("a", "b"), True)


@pytest.mark.parametrize(
    ("node", "expected"),
    [({"summary": 5, "description": 6, "tags": [5, "a"], "deprecated": "yes"}, (None, "5", ("a",), False)),
     ({"summary": "", "description": "", "tags": 5}, (None, "", (), False)),
     ({"summary": "S", "tags": ["a"]}, ("S", "S", ("a",), False))],
)  # fmt: skip
def test_words_that_are_no_text_are_left_out(api, node, expected):
    spec = made(api({"get /x": node}))[0].spec
    assert (spec.title, spec.description, spec.tags, spec.deprecated) == expected


@pytest.mark.parametrize("members", ["anyOf", "oneOf", "allOf"])
def test_a_decimal_is_text_if_an_alternative_of_alternatives_is(api, members):
    schema, text = {"type": "string"}, []
    for _ in range(6):
        (operation,) = made(api({"post /x": {"operationId": "x", **body({"items": schema})}}))
        text.append(operation.adapt({"body": [Decimal("1.50")]})["body"][0])
        schema = {members: [{"type": "number"}, schema]}
    assert text == ["1.50"] * 5 + [1.5]
    endless = {members: [{"$ref": "#/components/schemas/R"}, {"type": "number"}]}
    (operation,) = made(api({"post /x": body(endless)}, components={"schemas": {"R": endless}}))
    assert operation.adapt({"body": [Decimal("1.50")]}) == {"body": [1.5]}


# --- inputs ------------------------------------------------------------------------------------------


def test_parameters_and_body_fields_are_one_object(operations, api):
    schema = fields("b", b={"type": "integer"})
    operation = {"parameters": [path_parameter("a"), parameter("q", "query", description="why")], **body(schema)}
    expected = fields("b", "a", b={"type": "integer"}, a=TEXT, q={**TEXT, "description": "why"})
    assert inputs(operations, api, operation, "post /x/{a}") == {**expected, "additionalProperties": False}


async def test_the_body_keeps_its_name_where_names_collide(serve, operations, api):
    schema = fields(id={"type": "integer"}, id__path=TEXT)
    operation = {"operationId": "x", "parameters": [path_parameter("id"), parameter("q", "query")], **body(schema)}
    found = operations(api({"put /x/{id}": operation}), await serve(echo))
    assert set(found["x"].spec.input_schema.raw["properties"]) == {"id", "id__path", "id__path_", "q"}
    data = (await found["x"].handler({"id": 1, "id__path": "b", "id__path_": "p", "q": "v"}, None)).data
    assert (data["path"], data["query"], json.loads(data["body"])) == ("/x/p", "q=v", {"id": 1, "id__path": "b"})


async def test_parameters_of_one_name_in_several_places(call):
    parameters = [path_parameter("id"), parameter("id", "query"), parameter("id", "header")]
    values = {"id__path": "p", "id__query": "q", "id__header": "h"}
    data = (await call(echo, {"get /x/{id}": {"parameters": parameters}}, values)).data
    assert (data["path"], data["query"], data["headers"]["id"]) == ("/x/p", "id=q", "h")


OBJECT = fields(a=TEXT)


@pytest.mark.parametrize("schema", TABLES["bodies that are one key"])
def test_a_body_that_is_no_plain_object_is_one_key(operations, api, schema):
    found = inputs(operations, api, {"parameters": [parameter("q", "query")], **body(schema)})
    assert set(found["properties"]) == {"body", "q"}
    assert found["required"] == ["body"]


def test_a_parameter_called_body_moves_the_body(operations, api):
    parameters = [parameter("body", "query"), parameter("requestBody", "query")]
    found = inputs(operations, api, {"parameters": parameters, **body({"type": "array"})})
    assert set(found["properties"]) == {"body", "requestBody", "_body"}


def test_an_optional_body_with_required_fields_is_one_key(operations, api):
    found = inputs(operations, api, body({**OBJECT, "required": ["a"]}, required=False))
    assert set(found["properties"]) == {"body"}
    assert "required" not in found


def test_all_of_objects_is_merged(operations, api):
    schema = {"allOf": [{"$ref": "#/components/schemas/A"}, fields("b", b={"type": "integer"})]}
    found = inputs(operations, api, body(schema), components={"schemas": {"A": OBJECT}})
    assert set(found["properties"]) == {"a", "b"}
    assert found["required"] == ["b"]


def test_read_only_is_no_input_and_write_only_no_output(operations, api):
    reference = {"$ref": "#/components/schemas/RW"}
    operation = {"operationId": "x", **body(reference), "responses": answers(reference)}
    document = api({"post /x": operation}, components={"schemas": DOCUMENTS["read and write only"]})
    before = json.dumps(document)
    spec = operations(document)["x"].spec
    assert spec.input_schema.raw["required"] == ["secret", "name"]
    assert set(spec.input_schema.raw["properties"]) == {"secret", "name", "deep"}
    assert spec.input_schema.is_valid({"secret": "s", "name": "n", "deep": {"x": 1}})
    assert not spec.input_schema.is_valid({"secret": "s", "name": "n", "deep": {}})
    assert spec.output_schema.is_valid({"id": 1, "name": "n", "deep": {"id": 1}})
    assert not spec.output_schema.is_valid({"name": "n"})
    assert json.dumps(document) == before


def test_read_only_through_all_of(operations, api):
    base = fields(id={"readOnly": True, "type": "integer"})
    members = [{"$ref": "#/components/schemas/B"}, {"properties": {"name": TEXT}}]
    schema = {"required": ["id", "name"], "allOf": members}
    found = inputs(operations, api, body(schema), components={"schemas": {"B": base}})
    assert (set(found["properties"]), found["required"]) == ({"name"}, ["name"])


def test_headers_that_are_no_inputs(operations, api):
    names = ("Accept", "content-type", "AUTHORIZATION", "Host", "Content-Length", "Transfer-Encoding", "X-Fine")
    found = inputs(operations, api, {"parameters": [parameter(name, "header") for name in names]})
    assert set(found["properties"]) == {"X-Fine"}


@pytest.mark.parametrize(("security", "expected"), [([{"key": []}], {"X-Fine"}), ([], {"X-Key", "X-Fine"})])
def test_an_api_key_of_the_security_is_no_input(operations, api, security, expected):
    schemes = {"key": {"type": "apiKey", "in": "header", "name": "x-key"}}
    operation = {"parameters": [parameter("X-Key", "header"), parameter("X-Fine", "header")], "security": security}
    found = inputs(operations, api, operation, components={"securitySchemes": schemes})
    assert set(found["properties"]) == expected


def test_an_operation_overrides_the_parameters_of_its_path(operations, api):
    operation = {"operationId": "x", "parameters": [path_parameter("id", {"type": "integer"})]}
    document = api({"get /x/{id}": operation})
    document["paths"]["/x/{id}"]["parameters"] = [path_parameter("id"), parameter("shared", "query")]
    found = operations(document)["x"].spec.input_schema.raw
    assert found["properties"] == {"id": {"type": "integer"}, "shared": {"type": "string"}}


def test_an_undeclared_placeholder_is_a_string_and_a_warning(api):
    found = made(api({"get /x/{ghost}": {}}))
    assert found[0].spec.input_schema.raw["required"] == ["ghost"]
    assert "ghost" in str(found.diagnostics[0])


def test_a_path_parameter_without_a_placeholder_is_told(api):
    """As in ``/items/:id``, which is how frameworks write it, and OpenAPI does not."""
    found = made(api({"get /x/:id": {"parameters": [path_parameter("id")]}}))
    assert "id" not in found[0].spec.input_schema.raw["properties"]
    assert 'no placeholder "{id}"' in str(found.diagnostics[0])


def test_a_method_in_upper_case_is_told(api):
    found = made(api({"GET /x": {}, "post /x": {}}))
    assert [operation.spec.name for operation in found] == ["post_x"]
    assert 'expected a method in lower case, got "GET"' in str(found.diagnostics[0])


def test_a_long_text_of_the_document_is_cut_in_a_diagnostic(api):
    (found,) = made(api({"get /x": {"parameters": [{"$ref": "#/" + "x" * 9_000}]}})).diagnostics
    assert found.reason.endswith(f'"{"x" * 200}" is missing')


def test_swagger_2_body_and_form(operations):
    found = operations(DOCUMENTS["forms of swagger"])
    nullable = {"type": "string", "x-nullable": True, "nullable": True}
    assert found["whole"].spec.input_schema.raw["properties"] == {"n": nullable}
    schema = found["form"].spec.input_schema.raw
    assert schema["required"] == ["f"]
    assert schema["properties"]["n"] == {"type": "integer", "description": "why"}
    assert "base64" in json.dumps(schema["properties"]["f"])


# --- outputs and errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(("responses", "expected"), TABLES["outputs"])
def test_output_schema(operations, api, responses, expected):
    declared = {status: {"description": "", "content": content} for status, content in responses.items()}
    found = operations(api({"get /x": {"operationId": "x", "responses": declared}}))
    assert found["x"].spec.output_schema.raw == expected


def test_errors_are_declared_with_their_status(operations):
    missing, broken, rest = operations(DOCUMENTS["errors"])["get_x"].spec.error_schemas
    assert (missing.code, missing.http_status, missing.description) == ("EXECUTION_ERROR", 404, "HTTP 404: no")
    assert missing.schema.raw["properties"] == {"statusCode": {"const": 404}, "body": {"type": "object"}}
    assert broken.http_status is None
    assert (rest.http_status, rest.description) == (None, "HTTP default: else")
    assert rest.schema.raw["properties"] == {"statusCode": {"type": "integer"}}


def test_responses_of_the_same_reference_and_status_share_an_error(operations):
    document = copy.deepcopy(DOCUMENTS["errors"])
    again = document["paths"]["/x"]["get"]["responses"]
    document["paths"]["/y"] = {"get": {"responses": {"404": again["404"], "403": again["404"]}}}
    found = operations(document)
    first, (same, other) = found["get_x"].spec.error_schemas[0], found["get_y"].spec.error_schemas
    assert (same is first, other is first, other.http_status) == (True, False, 403)


def test_what_is_no_input_is_left_as_it_is(api):
    (operation,) = found = made(api({"post /x": UPLOAD}))
    for value in (5, None, {"file": ("a",)}, {"file": tuple("abcde")}, {"file": 5}):
        assert operation.adapt(value) == value
    assert operation.adapt({"file": ("a", b"b", None, {"X": "1"})})["file"] == {
        "filename": "a", "content": b"b", "headers": {"X": "1"},
    }  # fmt: skip
    thing = object()
    assert operation.adapt({"file": thing}) == {"file": thing}
    assert repr(found) == "<OpenAPIOperations 'api': 1>"


async def test_an_operation_that_has_no_plan_says_so_when_it_is_called(api):
    (operation,) = made(api({"get /x": {"parameters": [parameter("q")]}}), query={"q": float("nan")})
    given = {"q": datetime.date(2026, 1, 2)}
    assert operation.adapt(given) is given
    with pytest.raises(CallError, match=r"EXECUTION_ERROR: #/paths/~1x/get: expected a finite number, got nan"):
        await operation.handler({}, None)


@pytest.mark.parametrize(("validate", "accepted"), [("error", False), ("warn", True), ("off", True)])
def test_an_input_that_does_not_match_is_rejected_told_or_sent(api, caplog, validate, accepted):
    (operation,) = made(api({"get /x": {"parameters": [parameter("q")]}}), validate_inputs=validate)
    for schema in (operation.spec.input_schema, operation.spec.input_schema.limited(Limits())):
        caplog.clear()
        assert [schema.validator(value) for value in ({"q": 5}, {"q": "x"})] == [accepted, True]
        assert caplog.text.count("GET /x: the input does not match its schema: ") == (validate == "warn")


# --- bodies on the wire ------------------------------------------------------------------------------


@pytest.fixture
async def sent(serve, operations, api):
    """What a server gets for an operation and an input: content type and body."""

    async def send(operation, values, version="3.1.0", **config):
        document = api({"post /x": {"operationId": "x", **operation}}, version=version)
        data = (await operations(document, await serve(echo), **config)["x"].handler(values, None)).data
        return {**data, "type": data["headers"].get("Content-Type")}

    return send


async def test_json_keeps_its_own_content_type(sent):
    operation = body({"type": "array"}, media="application/merge-patch+json")
    found = await sent(operation, {"body": [1, "é", 2**70, None]})
    assert found["type"] == "application/merge-patch+json"
    assert found["body"].encode("latin-1") == '[1,"é",1180591620717411303424,null]'.encode()


async def test_the_easiest_media_type_is_chosen_unless_one_is_preferred(sent):
    content = {media: {"schema": {"type": "object"}} for media in ("application/xml", "multipart/form-data", JSON)}
    operation = {"requestBody": {"content": content, "required": True}}
    assert (await sent(operation, {"body": {}}))["type"] == JSON
    found = await sent(operation, {"body": {"a": 1}}, media_types=["multipart/form-data"])
    assert found["type"].startswith("multipart/form-data; boundary=")


async def test_an_absent_optional_body_has_no_content_type(sent):
    found = await sent(body(OBJECT, required=False), {})
    assert (found["type"], found["body"]) in ((None, ""), ("application/octet-stream", ""))


async def test_a_required_object_without_fields_is_sent_empty(sent):
    assert (await sent(body(OBJECT), {}))["body"] == "{}"


async def test_an_absent_required_body_is_refused(sent):
    with pytest.raises(CallError, match="VALIDATION_ERROR"):
        await sent(body({"type": "array"}), {})


async def test_urlencoded_fields(sent):
    media, (encoding, values, expected) = "application/x-www-form-urlencoded", TABLES["urlencoded fields"]
    found = await sent(body(fields(**{name: {} for name in "altopdrs"}), media=media, encoding=encoding), values)
    assert (found["type"], found["body"]) == (media, expected)


FILE = {"type": "string", "format": "binary"}
UPLOAD = body(fields(file=FILE), media=FORM)


def parts(found):
    boundary = found["type"].partition("boundary=")[2]
    pieces = found["body"].split(f"--{boundary}")
    assert pieces[0] == ""
    assert pieces[-1] == "--\r\n"
    return [piece.removeprefix("\r\n").removesuffix("\r\n").split("\r\n\r\n", 1) for piece in pieces[1:-1]]


async def test_multipart_parts_have_the_types_of_their_fields(sent):
    schema, encoding, values, expected = TABLES["multipart fields"]
    values = {**values, "files": [b"one", *values["files"]]}
    assert parts(await sent(body(schema, media=FORM, encoding=encoding), values)) == expected


@pytest.mark.parametrize(
    "value",
    ["no base64!", {"base64": "aa", "text": "b"}, {}, {"text": 1}, 5, {"text": "a", "contentType": "a\r\nX: 1"},
     {"text": "a", "headers": {"X-Not-Declared": "1"}}],
)  # fmt: skip
async def test_what_is_no_file_is_refused(sent, value):
    with pytest.raises(CallError, match="VALIDATION_ERROR"):
        await sent(UPLOAD, {"file": value})


@pytest.mark.parametrize(("declared", "filename", "kind"), TABLES["types of files"])
async def test_a_file_has_the_type_that_is_declared_or_fits_its_name(sent, declared, filename, kind):
    file = {"base64": "AA==", **({} if filename is None else {"filename": filename})}
    schema = body(fields(f=FILE), media=FORM, encoding={"f": {"contentType": declared}})
    ((head, _),) = parts(await sent(schema, {"f": file}))
    assert head.endswith(f"Content-Type: {kind}")


@pytest.mark.parametrize(("schema", "fits"), [({}, True), ({"schema": TEXT}, False)])
def test_a_body_of_2_0_without_a_schema_is_anything(api, schema, fits):
    (operation,) = made(api({"post /x": {"parameters": [{"name": "b", "in": "body", **schema}]}}, version="2.0"))
    assert operation.spec.input_schema.is_valid({"body": 5}) is fits


async def test_a_part_is_what_its_encoding_says(api):
    encoding = {"picture": {"contentType": "image/png"}, "note": {"contentType": "application/xml"}}
    schema = fields(picture={}, note={"type": "object"})
    async with made(api({"post /x": body(schema, media=FORM, encoding=encoding)})) as found:
        plan = found.built["post_x"].plan
        sent = plan.request({"picture": {"base64": "aGk=", "filename": "p.png"}}).body.data
        assert b'filename="p.png"\r\nContent-Type: image/png\r\n\r\nhi\r\n' in sent
        with pytest.raises(SerializationError, match="expected text for the type application/xml"):
            plan.request({"note": {"a": 1}})


def test_the_schema_of_a_file_has_only_properties_that_it_declares(api):
    (found,) = made(api({"post /x": UPLOAD}))
    file = found.spec.to_wire()["inputSchema"]["properties"]["file"]
    assert {"base64", "text", "path", "filename", "contentType"} <= file["properties"].keys()
    assert not file.keys() & {"not", "anyOf", "oneOf", "required"}


async def test_files_of_the_machine_are_sent_from_the_upload_folder_only(sent, tmp_path):
    root = tmp_path / "up"
    root.mkdir()
    (root / "a.txt").write_bytes(b"x" * 600_000)
    (tmp_path / "secret").write_text("s")
    (root / "link").symlink_to(tmp_path / "secret")
    found = await sent(UPLOAD, {"file": {"path": "a.txt"}}, upload_root=str(root))
    [[head, content]] = parts(found)
    assert 'filename="a.txt"' in head
    assert len(content) == 600_000
    assert int(found["headers"]["Content-Length"]) == len(found["body"])
    for path in ("../secret", str(tmp_path / "secret"), "link", "missing", "."):
        with pytest.raises(CallError, match="path:"):
            await sent(UPLOAD, {"file": {"path": path}}, upload_root=str(root))
    with pytest.raises(CallError, match="upload_root"):
        await sent(UPLOAD, {"file": {"path": "a.txt"}})


async def test_octets_text_and_streams(sent, tmp_path):
    octets = body(FILE, media="application/octet-stream")
    for value in (b"\x00\xff", {"base64": "AP8="}):
        assert (await sent(octets, {"body": value}))["body"] == "\x00\xff"
    (tmp_path / "f").write_bytes(b"file")
    with (tmp_path / "f").open("rb") as file:
        assert (await sent(octets, {"body": file}))["body"] == "file"

    async def chunks():
        yield b"a"
        yield b"b"

    for content in (tmp_path / "f", {"content": tmp_path / "f"}):
        assert (await sent(octets, {"body": content}))["body"] == "file"
    with (tmp_path / "f").open("rb") as file:
        assert 'filename="f"' in (await sent(UPLOAD, {"file": {"stream": file}}))["body"]
    assert (await sent(body(TEXT, media="text/plain"), {"body": b"\xff"}))["body"] == "\xff"
    found = await sent(octets, {"body": {"stream": chunks()}})
    assert (found["type"], found["body"]) == ("application/octet-stream", "ab")
    found = await sent(body(TEXT, media="text/plain; charset=utf-8"), {"body": "é"})
    assert (found["type"], found["body"].encode("latin-1").decode()) == ("text/plain; charset=utf-8", "é")


async def test_swagger_2_form_fields(sent):
    tags = {"name": "t", "in": "formData", "type": "array", "items": TEXT}
    more = {"name": "m", "in": "formData", "type": "array", "items": {}, "collectionFormat": "multi"}
    found = await sent({"parameters": [tags, more]}, {"t": ["a", "b"], "m": [1, 2]}, version="2.0")
    assert found["body"] == "t=a,b&m=1&m=2"


# --- servers -----------------------------------------------------------------------------------------


async def url_of(operations, document, base_url=None, name="get_x", **config):
    operation = operations(document, base_url, retries=0, timeout=5, **config)[name]
    return operation.handler.__self__.plan.server


async def test_servers_of_operation_path_and_root(operations, api):
    document = api({"get /x": {}, "put /x": {"servers": [{"url": "https://op.test/"}]}, "get /y": {}})
    variables = {"r": {"default": "eu"}, "v": {"default": "v1", "enum": ["v1", "v2"]}}
    document["servers"] = [{"url": "https://{r}.root.test/{v}", "variables": variables}]
    document["paths"]["/x"]["servers"] = [{"url": "https://path.test/p"}]
    assert await url_of(operations, document) == "https://path.test/p"
    assert await url_of(operations, document, name="put_x") == "https://op.test"
    assert await url_of(operations, document, name="get_y") == "https://eu.root.test/v1"
    given = {"r": "us", "v": "v2"}
    assert await url_of(operations, document, name="get_y", server_variables=given) == "https://us.root.test/v2"
    base = "http://127.0.0.1:1/b/"
    assert await url_of(operations, document, base, name="get_y") == "http://127.0.0.1:1/b"
    assert await url_of(operations, document, base) == "https://path.test/p"


async def test_a_server_without_a_scheme_takes_that_of_the_base_or_https(operations, api):
    document = api({"get /x": {"servers": [{"url": "//op.test/v1"}]}})
    assert await url_of(operations, document) == "https://op.test/v1"
    assert await url_of(operations, document, "http://127.0.0.1:1") == "http://op.test/v1"


@pytest.mark.parametrize(("server", "reason"), TABLES["unusable servers"])
async def test_without_a_usable_server_an_operation_is_listed_and_its_call_says_why(
    operations, api, server, reason
):
    found = operations(api({"get /x": {}}, servers=[server]))
    assert found["get_x"].spec.input_schema.raw["type"] == "object"
    with pytest.raises(CallError, match=f"EXECUTION_ERROR: .*{reason}"):
        await found["get_x"].handler({}, None)


async def test_an_operation_whose_own_server_has_no_value_is_told_when_it_is_loaded(operations, api, caplog):
    own = [{"url": "https://{agent}", "variables": {"agent": {"default": "{your-agent}"}}}]
    paths = {"get /a": {}, "get /x": {"servers": own}, "get /y": {"servers": own}}
    document = api(paths, servers=[{"url": "https://a.test"}])
    operations(document)
    assert caplog.text.count('the operation cannot be called: servers: the variable "agent" has no value') == 1
    given = {"agent": "mine.test"}
    assert await url_of(operations, document, server_variables=given) == "https://mine.test"


@pytest.mark.parametrize("host", ["h.test", "https://h.test", "https://h.test/"])
@pytest.mark.parametrize(
    ("path", "url"), [("/v1", "/v1"), ("v1/", "/v1"), ("/", ""), ("", ""), (".evil.test", "/.evil.test")]
)
async def test_host_and_base_path_of_swagger_2_are_the_server_also_without_a_slash_or_with_a_scheme(
    operations, api, host, path, url
):
    document = api({"get /x": {}}, version="2.0", host=host, basePath=path, schemes=["http", "https"])
    assert await url_of(operations, document) == f"https://h.test{url}"


@pytest.mark.parametrize(
    ("produces", "accept"),
    [(None, "application/octet-stream, */*"), (["application/pdf"], "application/pdf"),
     ([], "application/octet-stream, */*")],
)  # fmt: skip
async def test_a_file_of_swagger_2_is_asked_for_as_what_its_operation_produces(api, call, produces, accept):
    node = {"responses": {"200": {"description": "", "schema": {"type": "file"}}}}
    node |= {} if produces is None else {"produces": produces}
    document = api({"get /x": node}, version="2.0", produces=[JSON])
    assert (await call(echo, document)).data["headers"]["Accept"] == accept


def test_a_defect_of_a_shared_schema_is_told_once(operations, api, caplog):
    operation = {"responses": answers({"$ref": "#/components/schemas/A"})}
    schemas = {"A": {"type": "object", "properties": {"x": {"minLength": "long"}}}}
    paths = {f"get /{name}": {"operationId": name, **operation} for name in "abc"}
    found = operations(api(paths, components={"schemas": schemas}), NOWHERE)
    for name in "abc":
        _ = found[name].spec.output_schema.validator
    assert [record.getMessage().count("minLength") for record in caplog.records] == [1]


# --- documents ---------------------------------------------------------------------------------------


def test_a_bad_operation_is_skipped_and_named():
    found = made(DOCUMENTS["bad operations"])
    assert [operation.spec.name for operation in found] == ["get_good"]
    bad = {"~1missing/get", "~1nameless/get", "~1body/post", "no-slash", "~1list", "~1text/get"}
    assert {diagnostic.pointer.removeprefix("#/paths/") for diagnostic in found.diagnostics} == bad


@pytest.mark.parametrize("document", [[], {}, {"openapi": "4.0"}, {"swagger": "1.2"}, {"openapi": None}])
def test_what_is_no_openapi_document_is_refused(document):
    with pytest.raises(SourceError, match="expected"):
        made(document)


@pytest.mark.parametrize(("patterns", "expected"), TABLES["filters"])
def test_filters(operations, api, patterns, expected):
    document = api({"get /a": {"tags": ["t"]}, "get /b": {}, "put /b": {"tags": ["u", "t"]}})
    assert list(operations(document, **patterns)) == expected


def test_what_chosen_operations_do_not_reach_is_let_go():
    document = DOCUMENTS["more than is reached"]
    found = made(document, include=["get_a"])
    operation = found[0].handler.__self__
    root = operation.source.document.root
    assert {place: set(kept) for place, kept in root["components"].items()} == {
        "schemas": {"A", "B", "C", "D"}, "responses": {"R"}, "securitySchemes": {"s"},
    }  # fmt: skip
    assert "paths" not in root
    assert "put" not in operation.raw.item
    assert root["components"]["schemas"]["A"] is document["components"]["schemas"]["A"]
    assert found[0].spec.output_schema.is_valid({"b": {"back": {}}})
    assert not found[0].spec.output_schema.is_valid({"b": {"back": 1}})


@pytest.mark.parametrize("include", [(), ["pet"]])
@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("mapping", [None, {"lion": "Lion", "Cat": "#/components/schemas/Cat"}])
def test_answers_of_a_base_are_cast_by_their_kinds(mapping, hidden, include):
    document = copy.deepcopy(DOCUMENTS["kinds of pets"])
    pet = document["components"]["schemas"]["Pet"]
    if mapping:
        pet["discriminator"]["mapping"] = mapping
    if not hidden:  # then answers see the document itself
        del pet["properties"]["secret"]
    found = made(document, include=include)
    cast = next(one for one in found if one.spec.name == "pet").spec.output_schema.cast
    assert cast({"kind": "Cat", "lives": "9", "x": 1}) == {"kind": "Cat", "lives": 9}
    lion = {"kind": "lion" if mapping else "Lion", "lives": "9", "mane": "true", "x": 1}
    assert cast(lion) == {"kind": lion["kind"], "lives": 9, "mane": True}
    assert cast({"kind": "Stone", "kg": "1"}) == {"kind": "Stone", "kg": "1"}
    if hidden:
        assert cast({"kind": "Cat", "secret": "s"}) == {"kind": "Cat"}


@pytest.mark.parametrize("include", [(), ["pet"]])
def test_answers_of_a_base_of_swagger_are_cast_by_their_kinds(include):
    document = DOCUMENTS["kinds of pets in swagger"]
    before = copy.deepcopy(document)
    found = made(document, include=include)
    cast = next(one for one in found if one.spec.name == "pet").spec.output_schema.cast
    assert cast({"kind": "Cat", "lives": "9", "x": 1}) == {"kind": "Cat", "lives": 9}
    for tag in ("Lion", "panthera"):
        assert cast({"kind": tag, "lives": "9", "mane": "true", "x": 1}) == {"kind": tag, "lives": 9, "mane": True}
    assert document == before, "the document itself stays as it is"


async def test_a_download_comes_in_chunks(serve, api):
    def handler(request):
        response = web.Response(status=404) if request.query.get("fail") else web.Response(body=b"x" * 5_000_000)
        response.enable_chunked_encoding()
        return response

    document = api({"get /x": {"operationId": "x", "parameters": [parameter("fail", "query")]}})
    async with made(document, base_url=await serve(handler), limits={"response_bytes": 1000}) as found:
        assert sum([len(chunk) async for chunk in found.download("x")]) == 5_000_000
        with pytest.raises(CallError, match="404"):
            await anext(found.download("x", {"fail": "1"}))


def test_an_empty_filter_is_an_error(api):
    with pytest.raises(ConfigError, match="include"):
        made(api({"get /a": {}}), include=[""])


async def test_files_of_the_folder_are_read_and_no_others(tmp_path, api):
    folder = tmp_path / "spec"
    (folder / "paths").mkdir(parents=True)
    (tmp_path / "outside.json").write_text('{"X": {"type": "string"}}')
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    page, ok = parameter("page", schema={"$ref": "#/Int"}), answers({"$ref": "root.json#/info"})["200"]
    (folder / "common.json").write_text(json.dumps({"Page": page, "Int": {"type": "integer"}, "Ok": ok}))
    (folder / "paths" / "a.yaml").write_text(
        "get:\n  operationId: a\n  parameters: [{$ref: '../common.json#/Page'}]\n"
        "  responses: {200: {$ref: '../common.json#/Ok'}}\n"
    )
    document = api({})
    document["paths"] = {
        "/a": {"$ref": "paths/a.yaml"},
        "/b": {"$ref": "../outside.json#/X"},
        "/c": {"$ref": "link.json#/X"},
        "/d": {"$ref": "http://127.0.0.1:1/d.json"},
        "/e": {"$ref": f"{(tmp_path / 'outside.json').as_uri()}#/X"},
    }
    (folder / "root.json").write_text(json.dumps(document))
    async with await read(folder / "root.json") as found:
        assert [operation.spec.name for operation in found] == ["a"]
        assert [found[0].spec.input_schema.is_valid({"page": page}) for page in (1, "x")] == [True, False]
        reasons = [diagnostic.reason for diagnostic in found.diagnostics if diagnostic.severity == "warning"]
        assert sum("outside the document's folder" in reason for reason in reasons) == 3
        assert sum("may not be read" in reason for reason in reasons) == 1


@pytest.mark.parametrize(
    ("server", "expected"),
    [("/v1", "/v1/x?q=1"), ("", "/x?q=1")],
    ids=["its path", "the root of the document's host"],
)
async def test_a_document_of_a_url_has_a_server_there_and_what_it_refers_to(serve, api, server, expected):
    """An empty server would be the document itself by RFC 3986, and is the root in connexion's documents."""
    document = api({"get /x": {"parameters": [{"$ref": "../p.json"}]}}, servers=[{"url": server}])
    files = {"/spec/openapi.json": document, "/p.json": parameter("q")}
    base = await serve(result_of(lambda request: files.get(request.path, request.path_qs)))
    async with await from_openapi_url(f"{base}/spec/openapi.json", config(base_url=None)) as found:
        assert (await found[0].handler({"q": "1"}, None)).data == expected


@pytest.mark.parametrize("status", [404, 500])
async def test_a_url_without_a_document_is_an_error(serve, status):
    with pytest.raises(SourceError, match=str(status)):
        await from_openapi_url(await serve(replying(status=status)), config(retries=0))


@pytest.mark.parametrize("text", ["{", "[1, 2]", "a: [", "", "\0", "[" * 100_000, '{"openapi": ' + "[" * 5_000])
async def test_a_file_without_a_document_is_an_error(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError, match=r"x\.json"):
        await read(tmp_path / "x.json")


async def test_a_document_beyond_the_limit_is_an_error(tmp_path):
    (tmp_path / "x.json").write_text(" " * 2000)
    with pytest.raises(SourceError, match="document_bytes"):
        await read(tmp_path / "x.json", limits={"document_bytes": 1000})


class Shelf:
    """An `OpenAPIFS` in memory."""

    def __init__(self, files):
        self.files = files

    async def read(self, path, limit):
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return self.files[path]

    async def realpath(self, path):
        return path


async def test_files_can_come_from_elsewhere(api):
    document = api({}) | {"paths": {"/a": {"$ref": "a.json"}, "/b": {"$ref": "b.json"}}}
    shelf = Shelf({"/s/root.json": json.dumps(document).encode(), "/s/a.json": b'{"get": {"operationId": "a"}}'})
    async with await from_openapi_file("/s/root.json", config(), shelf) as found:
        assert [operation.spec.name for operation in found] == ["a"]


# --- the source --------------------------------------------------------------------------------------


async def test_the_registry_loads_calls_and_closes(serve, api, tmp_path):
    base = await serve(result_of(lambda request: {"id": request.match_info["tail"]}))
    node = {
        "operationId": "get",
        "parameters": [path_parameter("id")],
        "responses": answers(fields("id", id=TEXT)),
    }
    configured(
        tmp_path, api({"get /p/{id}": node}), f'base_url = "{base}"', "timeout = 5", "retries = {attempts = 1}"
    )
    plugins = load_plugins(only=["openapi"])
    async with OperationRegistry.from_config(tmp_path / "operad.toml", plugins) as registry:
        envelope = await registry.execute("api.get", {"id": "x"})
        assert envelope.data == {"id": "p/x"}
        wire = envelope.to_wire()
        assert (wire["meta"]["source"], wire["meta"]["statusCode"]) == ("http", 200)
        assert plugins.envelope_kinds.from_wire(wire) == envelope
        with pytest.raises(CallError, match="VALIDATION_ERROR"):
            await registry.execute("api.get", {"id": 1})
    assert "api.get" not in registry


async def test_an_unknown_option_names_the_nearest(registry, api):
    with pytest.raises(ConfigError, match="base_url"):
        await registry.load("openapi", namespace="api", spec=api({}), base_uri="http://127.0.0.1")


async def test_files_are_uploaded_from_a_folder_beside_the_configuration(serve, api, tmp_path):
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "a.txt").write_text("content")
    document = api({"post /x": {"operationId": "x", **body(FILE, media="application/octet-stream")}})
    configured(tmp_path, document, f'base_url = "{await serve(echo)}"', 'upload_root = "up"')
    async with OperationRegistry.from_config(tmp_path, load_plugins(only=["openapi"]), strict=True) as registry:
        assert (await registry.execute("api.x", {"body": {"path": "a.txt"}})).data["body"] == "content"


@pytest.mark.parametrize(
    ("name", "id"), [("My API.json", "my-api.get_x"), ("v1.2.yaml", "v1-2.get_x"), ("--.json", "openapi.get_x")]
)
async def test_a_source_without_a_namespace_takes_the_name_of_its_file(registry, api, tmp_path, name, id):
    (tmp_path / name).write_text(json.dumps(api({"get /x": {}})))
    assert [spec.id for spec in await registry.load("openapi", spec=str(tmp_path / name))] == [id]


async def test_a_source_without_a_namespace_takes_its_title(registry, api):
    specs = await registry.load("openapi", spec=api({"get /x": {}}, info={"title": "My API!", "version": "1"}))
    assert specs[0].id == "my-api.get_x"


# --- real documents ----------------------------------------------------------------------------------

REAL = {"petstore3": 19, "opencode": 104, "openai": 281, "stripe": 417, "discord": 242}


@pytest.mark.parametrize("name", REAL)
async def test_a_real_document_loads_with_every_operation(name):
    path = SPECS / f"{name}.json"
    if not path.exists():
        pytest.skip("the shared documents are not here")
    async with await read(path) as found:
        own = [operation for operation in found if not operation.spec.name.endswith("_stream")]
        assert len(own) >= REAL[name]
        assert not [d for d in found.diagnostics if d.severity == "error"]
        for operation in found:
            assert operation.spec.input_schema.raw["type"] == "object"
            _ = operation.spec.output_schema.raw
            assert all(definition.schema.raw for definition in operation.spec.error_schemas)


@pytest.mark.parametrize(
    ("home", "origin", "sent"), [(True, False, "hush"), (False, False, None), (False, True, "hush")]
)
async def test_headers_go_with_the_request_for_a_document_to_origins_of_the_api_alone(
    api, serve, requests, home, origin, sent
):
    base = await serve(result_of(lambda request: api(GET)))
    options = {"base_url": base if home else NOWHERE, "origins": [base] if origin else []}
    await from_openapi_url(f"{base}/openapi.json", config(headers={"X-Key": "hush"}, **options))
    assert [request.headers.get("X-Key") for request in requests] == [sent]


def test_a_deprecated_parameter_says_so(api):
    given = [parameter("a", deprecated=True), parameter("b", deprecated=False), parameter("c")]
    (operation,) = made(api({"get /x": {"parameters": given}}, components={"parameters": {}}))
    found = operation.spec.input_schema.published()["properties"]
    assert {name: "deprecated" in field for name, field in found.items()} == {"a": True, "b": False, "c": False}


def test_an_input_of_any_depth_is_adapted(api):
    (operation,) = made(api({"post /x": {"operationId": "x", **body({})}}))
    deep = value = []
    for _ in range(5_000):
        value.append([])
        value = value[0]
    for nested in (deep, {"a": deep}, (deep,)):
        assert operation.adapt({"body": nested})["body"]
    assert operation.adapt({"body": {"at": [datetime.date(2024, 5, 6)]}}) == {"body": {"at": ["2024-05-06"]}}
    for levels, expected in ((64, "2024-05-06"), (65, datetime.date(2024, 5, 6))):
        value = datetime.date(2024, 5, 6)
        for _ in range(levels):
            value = [value]
        value = operation.adapt({"body": value})["body"]
        for _ in range(levels):
            (value,) = value
        assert value == expected

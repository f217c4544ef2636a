"""Inputs that a server takes although its document is wrong about them, and keys that nothing else sends."""

import gzip
import json
import logging

import pytest
from aiohttp import web

from operad import CallError, ConfigError, ErrorCode
from operad_openapi import HTTPServiceConfig
from operad_openapi._document.origins import origin_of
from plugins.openapi.tests.making import body, fields, parameter, path_parameter


async def echo(request):
    key, body = request.headers.get("X-Key"), (await request.read()).decode()
    return web.json_response({"path": request.raw_path, "key": key, "body": body})


async def refused(registry, operation, input):
    with pytest.raises(CallError) as caught:
        await registry.execute(operation, input)
    assert caught.value.code == ErrorCode.VALIDATION_ERROR
    return caught.value


@pytest.mark.parametrize("version", ["2.0", "3.0.3", "3.1.0"])
async def test_alternatives_without_a_discriminator_may_overlap(load, api, registry, version):
    value = {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}
    record = {"oneOf": [{"type": "object"}, {"type": "object", "properties": {"x": value}}]}
    schema = fields(meta={"type": "object", "additionalProperties": value}, record=record)
    given = {"parameters": [parameter("body", "body", schema)]} if version == "2.0" else body(schema)
    operation = {"operationId": "add", **given}
    await load(echo, api({"post /add": operation}, version=version))
    input = {"meta": {"a": 1, "b": 1.5, "c": "s"}, "record": {"x": 1}}
    assert (await registry.execute("api.add", input)).data["body"].startswith('{"meta":{"a":1,')
    error = await refused(registry, "api.add", {"meta": {"a": []}})
    assert error.details["errors"][0]["path"] == "$.meta.a"


async def test_a_discriminator_keeps_its_alternatives_apart(load, api, registry):
    def kind(tag):
        return {"type": "object", "required": ["kind"], "properties": {"kind": {"const": tag}}}

    pet = {"oneOf": [kind("cat"), kind("dog")], "discriminator": {"propertyName": "kind"}}
    await load(echo, api({"post /pet": {"operationId": "pet", **body(pet)}}))
    assert (await registry.execute("api.pet", {"body": {"kind": "cat"}})).data["body"] == '{"kind":"cat"}'
    for wrong in ({"kind": "cow"}, {}, {"kind": 5}):
        await refused(registry, "api.pet", {"body": wrong})


async def test_a_discriminator_that_an_input_lacks_does_not_make_alternatives_exclude_each_other(
    load, api, registry
):
    alternatives = [{"$ref": f"#/components/schemas/{name}"} for name in ("Sidecar", "Runbook")]
    schema = {"oneOf": alternatives, "discriminator": {"propertyName": "kind"}}
    text = {"type": "string"}
    components = {"schemas": {"Sidecar": fields(name=text), "Runbook": fields(name=text, uri=text)}}
    document = api({"put /r": {"operationId": "r", **body(schema)}}, components=components)
    await load(echo, document)
    for value in ({"name": "n"}, {"name": "n", "kind": "Runbook"}):
        sent = await registry.execute("api.r", {"body": value})
        assert sent.data["body"].startswith('{"name":"n"')
    for wrong in ({"kind": "Other"}, {"kind": "Runbook", "uri": 5}):
        await refused(registry, "api.r", {"body": wrong})


@pytest.mark.parametrize("version", ["2.0", "3.0.3", "3.1.0"])
async def test_closed_members_of_an_all_of_do_not_forbid_each_other(load, api, registry, version):
    def closed(**properties):
        return {**fields(**properties), "additionalProperties": False}

    text = {"type": "string"}
    place = "#/definitions/" if version == "2.0" else "#/components/schemas/"
    schemas = {
        "Key": closed(key=text),
        "Base": {"allOf": [{"$ref": f"{place}Key"}, closed(id=text)]},
        "Tree": {
            **closed(key=text),
            "allOf": [{"$ref": f"{place}Base"}, {"properties": {"n": {"type": "integer"}}}],
        },
        "List": {"type": "array", "items": {"$ref": f"{place}Tree"}},
        "Alone": closed(left={"$ref": f"{place}Tree"}, key={"$ref": f"{place}Key"}),
    }
    whole = {"allOf": [{"$ref": f"{place}Base"}, closed(trees={"$ref": f"{place}List"})]}
    kept = {"allOf": [{"$ref": f"{place}Alone"}, {"description": "the same"}]}
    operations = {"post /add": {"operationId": "add", **body(whole)}, "post /kept": body(kept)}
    more = {"components": {"schemas": schemas}}
    if version == "2.0":
        more = {"definitions": schemas}
        for operation, schema in zip(operations.values(), (whole, kept), strict=True):
            del operation["requestBody"]
            operation["parameters"] = [parameter("body", "body", schema, required=True)]
    await load(echo, api(operations, version=version, **more))
    properties = registry.get_spec("api.add").input_schema.raw["properties"]
    assert sorted(properties) == ["id", "key", "trees"]
    input = {"id": "i", "key": "k", "trees": [{"id": "i", "key": "k", "n": 1}]}
    assert json.loads((await registry.execute("api.add", input)).data["body"]) == input
    for wrong in ({"key": 5}, {"trees": [{"n": "many"}]}, {"trees": [{"id": 5}]}, {"other": 1}):
        await refused(registry, "api.add", wrong)
    # Where nothing contradicts, what is closed stays so, also a schema that is open as a member elsewhere.
    assert (await registry.execute("api.post_kept", {"left": {"key": "k", "n": 1}})).data["body"]
    await refused(registry, "api.post_kept", {"key": {"id": "i"}})


async def test_a_reference_into_a_one_of_leads_to_its_member(load, api, registry):
    value = {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}
    member = {"$ref": "#/components/schemas/Field/properties/value/oneOf/1"}
    components = {"schemas": {"Field": fields(value=value)}}
    document = api({"put /f": {"operationId": "f", **body(fields(text=member))}}, components=components)
    await load(echo, document)
    assert (await registry.execute("api.f", {"text": "ab"})).data["body"] == '{"text":"ab"}'
    for wrong in ("abc", 5):
        await refused(registry, "api.f", {"text": wrong})


async def test_members_of_the_enum_of_a_string_are_text(load, api, registry):
    accepted = parameter("accepted", schema={"type": "string", "enum": [True, False, 10, "all"]})
    numbers = parameter("n", schema={"type": "integer", "enum": [1, 2]})
    await load(echo, {"get /q": {"operationId": "q", "parameters": [accepted, numbers]}})
    for text in ("true", "10", "all"):
        sent = (await registry.execute("api.q", {"accepted": text, "n": 2})).data
        assert sent["path"] == f"/q?accepted={text}&n=2"
    await refused(registry, "api.q", {"accepted": "maybe"})
    await refused(registry, "api.q", {"n": "1"})


async def test_the_validation_of_inputs_can_be_switched_off(load, api, registry, caplog):
    number = parameter("n", schema={"type": "integer"}, required=True)
    document = api({"get /q": {"operationId": "q", "parameters": [number]}})
    for validate in ("error", "warn", "off"):
        await load(echo, document, namespace=validate, validate_inputs=validate)
    await refused(registry, "error.q", {"n": "many"})
    with caplog.at_level(logging.WARNING):
        assert (await registry.execute("off.q", {"n": "many"})).data["path"] == "/q?n=many"
        assert not caplog.records
        assert (await registry.execute("warn.q", {"n": "many"})).data["path"] == "/q?n=many"
        assert "GET /q: the input does not match its schema: expected integer" in caplog.text
    assert registry.get_spec("off.q").input_schema.raw["required"] == ["n"]
    assert "unknown parameter" in (await refused(registry, "off.q", {"n": 1, "m": 2})).message
    with pytest.raises(ConfigError, match='^validate_inputs: expected "error", "warn" or "off", got '):
        HTTPServiceConfig(namespace="a", validate_inputs="maybe")


async def test_fields_of_a_whole_body_at_the_top_are_refused_with_a_hint(load, api, registry):
    schema = fields("name", name={"type": "string"})
    operation = {"operationId": "add", **body(schema, required=False)}
    await load(echo, api({"post /add": operation}))
    assert (await registry.execute("api.add", {"body": {"name": "x"}})).data["body"] == '{"name":"x"}'
    assert (await registry.execute("api.add", {})).data["body"] == ""
    error = await refused(registry, "api.add", {"name": "x"})
    assert 'put the fields of the body into the key "body"' in error.message
    assert "belong" not in (await refused(registry, "api.add", {"nothing": "x"})).message


def board(api):
    """A document whose operation requires two keys that are alternatives of its security."""
    schemes = {name: {"type": "apiKey", "in": "query", "name": name} for name in ("key", "token")}
    keys = [parameter(name, required=True) for name in schemes]
    operation = {"operationId": "board", "parameters": keys, "security": [{"key": []}, {"token": []}]}
    return api({"get /board": operation}, components={"securitySchemes": schemes})


def credential(token):
    return {"type": "apiKey", "token": token}


@pytest.mark.parametrize(
    ("configured", "input", "path"),
    [
        ({"key": "k", "token": "t"}, {}, "/board?key=k&token=t"),
        ({"key": "k"}, {"token": "mine"}, "/board?token=mine&key=k"),
        ({"token": "t"}, {"key": "mine"}, "/board?key=mine&token=t"),
        ({}, {"key": "a", "token": "b"}, "/board?key=a&token=b"),
    ],
)
async def test_a_required_key_stays_an_input_unless_a_credential_sends_it(
    load, api, registry, configured, input, path
):
    credentials = {name: credential(token) for name, token in configured.items()}
    await load(echo, board(api), credentials=credentials)
    assert registry.get_spec("api.board").input_schema.raw.get("required", []) == list(input)
    assert (await registry.execute("api.board", input)).data["path"] == path
    if input:
        await refused(registry, "api.board", {})


async def test_an_optional_key_and_the_key_of_each_caller_are_no_inputs(load, api, registry):
    document = api(
        {"get /a": {"operationId": "a", "parameters": [parameter("X-Key", "header")]}},
        components={"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "x-key"}}},
        security=[{"k": []}],
    )
    await load(echo, document, auth=credential("s"))
    assert registry.get_spec("api.a").input_schema.raw["properties"] == {}
    assert (await registry.execute("api.a")).data["key"] == "s"
    await load(echo, board(api), namespace="b", credentials_for=lambda context: None)
    assert registry.get_spec("b.board").input_schema.raw["properties"] == {}


async def test_the_root_of_an_api_of_files_is_an_empty_path(load, api, registry):
    routes = {
        f"get /{route}": {"operationId": name, "parameters": [path_parameter("path")]}
        for name, route in (("contents", "contents/{path}"), ("info", "{path}/info"))
    }
    await load(echo, api(routes), slashes=["path"])
    assert (await registry.execute("api.contents", {"path": ""})).data["path"] == "/contents/"
    assert (await registry.execute("api.contents", {"path": "a/b"})).data["path"] == "/contents/a/b"
    await refused(registry, "api.info", {"path": ""})
    await refused(registry, "api.contents", {"path": "a//b"})
    await refused(registry, "api.contents", {"path": ".."})


async def test_a_body_of_plain_text_is_described_by_its_scalar(load, api, registry):
    operations = {
        f"put /{kind}": {"operationId": kind, **body({"type": kind}, media="text/plain")}
        for kind in ("integer", "boolean", "string")
    }
    await load(echo, api(operations))
    for kind, value, text in (("integer", 5, "5"), ("boolean", True, "true"), ("string", "x", "x")):
        assert registry.get_spec(f"api.{kind}").input_schema.raw["properties"]["body"]["type"] == kind
        assert (await registry.execute(f"api.{kind}", {"body": value})).data["body"] == text


async def test_an_operation_whose_id_holds_a_glob_can_be_named(load, api, registry):
    document = api({"get /a": {"operationId": "../x[1]"}, "get /b": {"operationId": "other"}})
    await load(echo, document, include=["../x[1]"], operation_types={"../x[1]": "mutation"})
    assert [(spec.name, str(spec.type)) for spec in registry.specs()] == [("../x[1]", "mutation")]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip, gzip", gzip.compress(gzip.compress(b"[1]"))), ("gzip", gzip.compress(b"[1]") + b"rest")],
    ids=["twice", "with bytes after it"],
)
async def test_bodies_that_other_clients_unpack(call, encoding, body):
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    assert (await call(lambda request: web.Response(body=body, headers=headers))).data == [1]


def test_the_origin_of_an_ipv6_address_has_its_brackets():
    assert origin_of("http://[::1]:8080/x") == "http://[::1]:8080"


@pytest.mark.parametrize("rules", [{}, {"b": {"page": "page"}}])
async def test_paging_without_a_rule_and_a_link_warns_that_it_is_one_page(load, api, registry, caplog, rules):
    document = api({"get /a": {"operationId": "a"}, "get /b": {"operationId": "b"}})
    await load(lambda request: web.json_response([1]), document, pagination=rules)
    for _ in range(2):
        assert [page.data async for page in registry.paginate("api.a")] == [[1]]
    warning = "a: one page, because the response has no Link header and no pagination rule fits"
    assert caplog.text.count(warning) == 1
    assert 'pagination = { "a" = ' in caplog.text


async def test_paging_by_links_warns_of_nothing_on_a_last_page_without_a_header(load, api, registry, caplog):
    async def handler(request):
        page = int(request.query.get("page", 1))
        return web.json_response([page], headers={"Link": '</a?page=2>; rel="next"'} if page == 1 else {})

    parameters = [parameter("page", schema={"type": "integer"})]
    await load(handler, {"get /a": {"operationId": "a", "parameters": parameters}})
    assert [page.data async for page in registry.paginate("api.a")] == [[1], [2]]
    assert "one page" not in caplog.text


async def test_a_host_that_is_none_is_said_in_words(fails):
    assert "the host name is not valid" in (await fails("http://a..b", retries=0)).message


def test_the_configuration_names_the_ways_to_validate():
    assert HTTPServiceConfig(namespace="a").validate_inputs == "error"


async def test_a_document_without_an_absolute_server_is_told_when_it_is_loaded(api, registry, caplog, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(api({"get /a": {}, "get /b": {}}, servers=[{"url": "/"}])))
    await registry.load("openapi", namespace="api", spec=str(tmp_path / "x.json"))
    assert caplog.text.count("no operation can be called") == 1
    assert 'got "/"; set base_url' in caplog.text


@pytest.mark.parametrize("servers", [{}, {"https://files.example": "https://files.example"}])
async def test_naming_a_server_of_an_operation_silences_its_warning(load, caplog, servers):
    paths = {"get /a": {}, "get /f": {"servers": [{"url": "https://files.example"}]}}
    await load("http://127.0.0.1:1", paths, servers=servers)
    assert ("a server of its own, https://files.example" in caplog.text) is not bool(servers)

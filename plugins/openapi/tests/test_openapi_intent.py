"""Inputs that a server takes although its document is wrong about them, and keys that nothing else sends."""

import gzip
import json
import logging

import pytest
from aiohttp import web

from operad import CallError, ConfigError, ErrorCode
from operad_openapi import HTTPServiceConfig
from operad_openapi._document.origins import origin_of


async def echo(request):
    return web.json_response(
        {
            "path": request.raw_path,
            "cookie": request.headers.get("Cookie"),
            "key": request.headers.get("X-Key"),
            "body": (await request.read()).decode(),
        }
    )


def body_of(schema, *, required=True, kind="application/json"):
    return {"requestBody": {"required": required, "content": {kind: {"schema": schema}}}}


async def load(registry, document, base, **options):
    await registry.load("openapi", namespace="a", spec=document, base_url=base, **options)


async def refused(registry, operation, input):
    with pytest.raises(CallError) as caught:
        await registry.execute(operation, input)
    assert caught.value.code == ErrorCode.VALIDATION_ERROR
    return caught.value


@pytest.mark.parametrize("version", ["2.0", "3.0.3", "3.1.0"])
async def test_alternatives_without_a_discriminator_may_overlap(serve, api, registry, version):
    value = {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}
    record = {"oneOf": [{"type": "object"}, {"type": "object", "properties": {"x": value}}]}
    fields = {
        "type": "object",
        "properties": {"meta": {"type": "object", "additionalProperties": value}, "record": record},
    }
    operation = {"operationId": "add", **body_of(fields)}
    if version == "2.0":
        operation = {"operationId": "add", "parameters": [{"in": "body", "name": "body", "schema": fields}]}
    await load(registry, api({"post /add": operation}, version=version), await serve(echo))
    input = {"meta": {"a": 1, "b": 1.5, "c": "s"}, "record": {"x": 1}}
    assert (await registry.execute("a.add", input)).data["body"].startswith('{"meta":{"a":1,')
    error = await refused(registry, "a.add", {"meta": {"a": []}})
    assert error.details["errors"][0]["path"] == "$.meta.a"


async def test_a_discriminator_keeps_its_alternatives_apart(serve, api, registry):
    def kind(tag):
        return {"type": "object", "required": ["kind"], "properties": {"kind": {"const": tag}}}

    pet = {"oneOf": [kind("cat"), kind("dog")], "discriminator": {"propertyName": "kind"}}
    await load(registry, api({"post /pet": {"operationId": "pet", **body_of(pet)}}), await serve(echo))
    assert (await registry.execute("a.pet", {"body": {"kind": "cat"}})).data["body"] == '{"kind":"cat"}'
    for body in ({"kind": "cow"}, {}, {"kind": 5}):
        await refused(registry, "a.pet", {"body": body})


async def test_a_discriminator_that_an_input_lacks_does_not_make_alternatives_exclude_each_other(
    serve, api, registry
):
    def runner(*names):
        return {"type": "object", "properties": {name: {"type": "string"} for name in names}}

    body = {
        "oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("Sidecar", "Runbook")],
        "discriminator": {"propertyName": "kind"},
    }
    components = {"schemas": {"Sidecar": runner("name"), "Runbook": runner("name", "uri")}}
    document = api({"put /r": {"operationId": "r", **body_of(body)}}, components=components)
    await load(registry, document, await serve(echo))
    for value in ({"name": "n"}, {"name": "n", "kind": "Runbook"}):
        sent = await registry.execute("a.r", {"body": value})
        assert sent.data["body"].startswith('{"name":"n"')
    for wrong in ({"kind": "Other"}, {"kind": "Runbook", "uri": 5}):
        await refused(registry, "a.r", {"body": wrong})


@pytest.mark.parametrize("version", ["2.0", "3.0.3", "3.1.0"])
async def test_closed_members_of_an_all_of_do_not_forbid_each_other(serve, api, registry, version):
    def closed(**properties):
        return {"type": "object", "properties": properties, "additionalProperties": False}

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
    fields = {"allOf": [{"$ref": f"{place}Base"}, closed(trees={"$ref": f"{place}List"})]}
    kept = {"allOf": [{"$ref": f"{place}Alone"}, {"description": "the same"}]}
    operations = {"post /add": {"operationId": "add", **body_of(fields)}, "post /kept": {**body_of(kept)}}
    more = {"components": {"schemas": schemas}}
    if version == "2.0":
        more = {"definitions": schemas}
        for operation, schema in zip(operations.values(), (fields, kept), strict=True):
            del operation["requestBody"]
            operation["parameters"] = [{"in": "body", "name": "body", "required": True, "schema": schema}]
    await load(registry, api(operations, version=version, **more), await serve(echo))
    properties = registry.get_spec("a.add").input_schema.raw["properties"]
    assert sorted(properties) == ["id", "key", "trees"]
    input = {"id": "i", "key": "k", "trees": [{"id": "i", "key": "k", "n": 1}]}
    assert json.loads((await registry.execute("a.add", input)).data["body"]) == input
    for wrong in ({"key": 5}, {"trees": [{"n": "many"}]}, {"trees": [{"id": 5}]}, {"other": 1}):
        await refused(registry, "a.add", wrong)
    # Where nothing contradicts, what is closed stays so, also a schema that is open as a member elsewhere.
    assert (await registry.execute("a.post_kept", {"left": {"key": "k", "n": 1}})).data["body"]
    await refused(registry, "a.post_kept", {"key": {"id": "i"}})


async def test_a_reference_into_a_one_of_leads_to_its_member(serve, api, registry):
    value = {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}
    member = {"$ref": "#/components/schemas/Field/properties/value/oneOf/1"}
    components = {"schemas": {"Field": {"type": "object", "properties": {"value": value}}}}
    body = {"type": "object", "properties": {"text": member}}
    document = api({"put /f": {"operationId": "f", **body_of(body)}}, components=components)
    await load(registry, document, await serve(echo))
    assert (await registry.execute("a.f", {"text": "ab"})).data["body"] == '{"text":"ab"}'
    for wrong in ("abc", 5):
        await refused(registry, "a.f", {"text": wrong})


async def test_members_of_the_enum_of_a_string_are_text(serve, api, registry):
    schema = {"type": "string", "enum": [True, False, 10, "all"]}
    parameter = {"name": "accepted", "in": "query", "schema": schema}
    numbers = {"name": "n", "in": "query", "schema": {"type": "integer", "enum": [1, 2]}}
    await load(
        registry,
        api({"get /q": {"operationId": "q", "parameters": [parameter, numbers]}}),
        await serve(echo),
    )
    for text in ("true", "10", "all"):
        assert (await registry.execute("a.q", {"accepted": text, "n": 2})).data[
            "path"
        ] == f"/q?accepted={text}&n=2"
    await refused(registry, "a.q", {"accepted": "maybe"})
    await refused(registry, "a.q", {"n": "1"})


async def test_the_validation_of_inputs_can_be_switched_off(serve, api, registry, caplog):
    parameter = {"name": "n", "in": "query", "required": True, "schema": {"type": "integer"}}
    document, base = api({"get /q": {"operationId": "q", "parameters": [parameter]}}), await serve(echo)
    for validate in ("error", "warn", "off"):
        await registry.load("openapi", namespace=validate, spec=document, base_url=base, validate_inputs=validate)
    await refused(registry, "error.q", {"n": "many"})
    with caplog.at_level(logging.WARNING):
        assert (await registry.execute("off.q", {"n": "many"})).data["path"] == "/q?n=many"
        assert not caplog.records
        assert (await registry.execute("warn.q", {"n": "many"})).data["path"] == "/q?n=many"
        assert "GET /q: the input does not match its schema: expected integer" in caplog.text
    assert registry.get_spec("off.q").input_schema.raw["required"] == ["n"]
    assert "unknown parameter" in (await refused(registry, "off.q", {"n": 1, "m": 2})).message
    with pytest.raises(ConfigError, match="validate_inputs"):
        await registry.load("openapi", namespace="x", spec=document, base_url=base, validate_inputs="maybe")


async def test_fields_of_a_whole_body_at_the_top_are_refused_with_a_hint(serve, api, registry):
    fields = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    operation = {"operationId": "add", **body_of(fields, required=False)}
    await load(registry, api({"post /add": operation}), await serve(echo))
    assert (await registry.execute("a.add", {"body": {"name": "x"}})).data["body"] == '{"name":"x"}'
    assert (await registry.execute("a.add", {})).data["body"] == ""
    assert (
        'put the fields of the body into the key "body"'
        in (await refused(registry, "a.add", {"name": "x"})).message
    )
    assert "belong" not in (await refused(registry, "a.add", {"nothing": "x"})).message


KEYS = [{"name": name, "in": "query", "required": True, "schema": {"type": "string"}} for name in ("key", "token")]


def board(api):
    """A document whose operation requires two keys that are alternatives of its security."""
    schemes = {name: {"type": "apiKey", "in": "query", "name": name} for name in ("key", "token")}
    operation = {"operationId": "board", "parameters": KEYS, "security": [{"key": []}, {"token": []}]}
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
    serve, api, registry, configured, input, path
):
    credentials = {name: credential(token) for name, token in configured.items()}
    await load(registry, board(api), await serve(echo), credentials=credentials)
    assert registry.get_spec("a.board").input_schema.raw.get("required", []) == list(input)
    assert (await registry.execute("a.board", input)).data["path"] == path
    if input:
        await refused(registry, "a.board", {})


async def test_an_optional_key_and_the_key_of_each_caller_are_no_inputs(serve, api, registry):
    optional = {"name": "X-Key", "in": "header", "schema": {"type": "string"}}
    document = api(
        {"get /a": {"operationId": "a", "parameters": [optional]}},
        components={"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "x-key"}}},
        security=[{"k": []}],
    )
    base = await serve(echo)
    await load(registry, document, base, auth=credential("s"))
    assert registry.get_spec("a.a").input_schema.raw["properties"] == {}
    assert (await registry.execute("a.a")).data["key"] == "s"
    await registry.load(
        "openapi", namespace="b", spec=board(api), base_url=base, credentials_for=lambda context: None
    )
    assert registry.get_spec("b.board").input_schema.raw["properties"] == {}


async def test_the_root_of_an_api_of_files_is_an_empty_path(serve, api, registry):
    path = {"name": "path", "in": "path", "required": True, "schema": {"type": "string"}}
    routes = {
        f"get /{route}": {"operationId": name, "parameters": [path]}
        for name, route in (("contents", "contents/{path}"), ("info", "{path}/info"))
    }
    await load(registry, api(routes), await serve(echo), slashes=["path"])
    assert (await registry.execute("a.contents", {"path": ""})).data["path"] == "/contents/"
    assert (await registry.execute("a.contents", {"path": "a/b"})).data["path"] == "/contents/a/b"
    await refused(registry, "a.info", {"path": ""})
    await refused(registry, "a.contents", {"path": "a//b"})
    await refused(registry, "a.contents", {"path": ".."})


async def test_a_body_of_plain_text_is_described_by_its_scalar(serve, api, registry):
    operations = {
        f"put /{kind}": {"operationId": kind, **body_of({"type": kind}, kind="text/plain")}
        for kind in ("integer", "boolean", "string")
    }
    await load(registry, api(operations), await serve(echo))
    for kind, value, text in (("integer", 5, "5"), ("boolean", True, "true"), ("string", "x", "x")):
        assert registry.get_spec(f"a.{kind}").input_schema.raw["properties"]["body"]["type"] == kind
        assert (await registry.execute(f"a.{kind}", {"body": value})).data["body"] == text


async def test_an_operation_whose_id_holds_a_glob_can_be_named(serve, api, registry):
    document = api({"get /a": {"operationId": "../x[1]"}, "get /b": {"operationId": "other"}})
    base = await serve(echo)
    await load(registry, document, base, include=["../x[1]"], operation_types={"../x[1]": "mutation"})
    assert [(spec.name, str(spec.type)) for spec in registry.specs()] == [("../x[1]", "mutation")]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip, gzip", gzip.compress(gzip.compress(b"[1]"))), ("gzip", gzip.compress(b"[1]") + b"rest")],
    ids=["twice", "with bytes after it"],
)
async def test_bodies_that_other_clients_unpack(serve, api, registry, encoding, body):
    await load(
        registry,
        api({"get /a": {"operationId": "a"}}),
        await serve(
            lambda request: web.Response(
                body=body, headers={"Content-Type": "application/json", "Content-Encoding": encoding}
            )
        ),
    )
    assert (await registry.execute("a.a")).data == [1]


def test_the_origin_of_an_ipv6_address_has_its_brackets():
    assert origin_of("http://[::1]:8080/x") == "http://[::1]:8080"


@pytest.mark.parametrize("rules", [{}, {"b": {"page": "page"}}])
async def test_paging_without_a_rule_and_a_link_warns_that_it_is_one_page(serve, api, registry, caplog, rules):
    async def handler(request):
        return web.json_response([1])

    document = api({"get /a": {"operationId": "a"}, "get /b": {"operationId": "b"}})
    await load(registry, document, await serve(handler), pagination=rules)
    for _ in range(2):
        assert [page.data async for page in registry.paginate("a.a")] == [[1]]
    assert (
        caplog.text.count("a: one page, because the response has no Link header and no pagination rule fits") == 1
    )
    assert 'pagination = { "a" = ' in caplog.text


async def test_paging_by_links_warns_of_nothing_on_a_last_page_without_a_header(serve, api, registry, caplog):
    async def handler(request):
        page = int(request.query.get("page", 1))
        return web.json_response([page], headers={"Link": '</a?page=2>; rel="next"'} if page == 1 else {})

    parameters = [{"name": "page", "in": "query", "schema": {"type": "integer"}}]
    document = api({"get /a": {"operationId": "a", "parameters": parameters}})
    await load(registry, document, await serve(handler))
    assert [page.data async for page in registry.paginate("a.a")] == [[1], [2]]
    assert "one page" not in caplog.text


async def test_a_host_that_is_none_is_said_in_words(call):
    with pytest.raises(CallError, match="the host name is not valid"):
        await call("http://a..b", {"get /a": {"operationId": "a"}}, retries=0)


def test_the_configuration_names_the_ways_to_validate():
    assert HTTPServiceConfig(namespace="a").validate_inputs == "error"


async def test_a_document_without_an_absolute_server_is_told_when_it_is_loaded(api, registry, caplog, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(api({"get /a": {}, "get /b": {}}, servers=[{"url": "/"}])))
    await registry.load("openapi", namespace="a", spec=str(tmp_path / "x.json"))
    assert caplog.text.count("no operation can be called") == 1
    assert 'got "/"; set base_url' in caplog.text


@pytest.mark.parametrize("servers", [{}, {"https://files.example": "https://files.example"}])
async def test_naming_a_server_of_an_operation_silences_its_warning(api, registry, caplog, servers):
    document = api({"get /a": {}, "get /f": {"servers": [{"url": "https://files.example"}]}})
    await load(registry, document, "http://127.0.0.1:1", servers=servers)
    assert ("a server of its own, https://files.example" in caplog.text) is not bool(servers)

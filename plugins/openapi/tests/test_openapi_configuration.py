"""What a configuration gives to every call, where it may lead, and how its mistakes are told."""

import datetime
import io
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import web

from operad import CallError, ConfigError
from operad_openapi import HTTPAuth, HTTPServiceConfig
from plugins.openapi.tests.data import DOCUMENTS, FORM, GET, JSON, NOWHERE, TABLES, TEXT
from plugins.openapi.tests.handlers import result_of
from plugins.openapi.tests.making import body, fields, made, parameter

KEY = {"type": "bearer", "token": "t"}


async def echo(request):
    seen = {"path": request.path, "query": request.rel_url.raw_query_string, "body": await request.text()}
    named = {"X-Tenant", "Cookie", "X-More", "Authorization"} & request.headers.keys()
    return web.json_response({**seen, **{name: request.headers[name] for name in named}})


def required(name, place="query", **more):
    return parameter(name, place, required=True, **more)


@pytest.fixture
def call(registry, load, api):
    """Loads a document whose one operation is ``x``, and calls it through the registry."""

    async def call(operation, input=None, *, method="get", path="/x", more=None, **config):
        document = api({f"{method} {path}": {"operationId": "x", **operation}}, **(more or {}))
        if "api.x" not in registry:
            await load(echo, document, **config)
        return (await registry.execute("api.x", input)).data

    return call


# --- what the configuration gives --------------------------------------------------------------------


async def test_a_configured_value_stands_for_a_required_parameter_and_yields_to_the_call(call, registry):
    places = {"X-Tenant": "header", "page size": "query", "sid": "cookie", "account": "path"}
    operation = {"parameters": [required(*place) for place in places.items()]}
    config = {
        "headers": {"x-tenant": "t1"},
        "query": {"page size": 50, "trace": "on"},
        "cookies": {"sid": "a b", "lang": "de"},
        "path_parameters": {"account": "a/1"},
    }
    sent = await call(operation, path="/{account}/x", **config)
    assert registry.get_spec("api.x").input_schema.raw.get("required") is None
    query = "page%20size=50&trace=on"
    assert sent == {"path": "/a/1/x", "query": query, "body": "", "X-Tenant": "t1", "Cookie": "lang=de; sid=a%20b"}
    sent = await call(operation, {"X-Tenant": "mine", "page size": "7", "sid": "s", "account": "b"})
    query = "page%20size=7&trace=on"
    assert sent == {"path": "/b/x", "query": query, "body": "", "X-Tenant": "mine", "Cookie": "lang=de; sid=s"}


async def test_a_cookie_of_the_call_joins_the_configured_header(call):
    operation = {"parameters": [required("c", "cookie"), parameter("session", "cookie")]}
    sent = await call(operation, {"c": "1"}, headers={"Cookie": "session=s; x=1"})
    assert sent["Cookie"] == "session=s; x=1; c=1"
    assert (await call(operation, {"c": "1", "session": "2"}))["Cookie"] == "x=1; c=1; session=2"


async def test_configured_values_go_to_the_api_alone(serve, operations, api):
    other = await serve(echo)
    servers = {"servers": [{"url": other}]}
    document = api({"get /x": {"operationId": "x", "parameters": [required("X-Tenant", "header")], **servers}})
    given = {"headers": {"X-Tenant": "t1"}, "query": {"key": "s"}, "cookies": {"sid": "s"}}
    found = operations(document, await serve(echo), **given)
    assert found["x"].spec.input_schema.raw["required"] == ["X-Tenant"]
    data = (await found["x"].handler({"X-Tenant": "mine"}, None)).data
    assert data == {"path": "/x", "query": "", "body": "", "X-Tenant": "mine"}


async def test_the_query_of_a_base_url_goes_with_every_request(serve, operations, api):
    found = operations(api(GET), f"{await serve(echo)}/v1?key=1")
    assert (await found["x"].handler({}, None)).data == {"path": "/v1/x", "query": "key=1", "body": ""}


# --- servers -----------------------------------------------------------------------------------------


async def test_a_table_of_servers_moves_what_the_document_names_and_credentials_follow(serve, operations, api):
    mock, uploads = await serve(echo), await serve(echo)
    y = {"operationId": "y", "servers": [{"url": "https://upload.example.com/2.0"}]}
    document = api({**GET, "get /y": y}, servers=[{"url": "https://api.example.com/v1"}])
    table = {"https://api.example.com": mock, "https://upload.example.com/2.0": f"{uploads}/up"}
    nothing = {"query": "", "body": ""}
    found = operations(document, servers=table, auth=KEY)
    assert (await found["x"].handler({}, None)).data == {"path": "/v1/x", "Authorization": "Bearer t", **nothing}
    assert (await found["y"].handler({}, None)).data == {"path": "/up/y", **nothing}
    found = operations(document, servers=table, origins=["https://upload.example.com"], auth=KEY)
    assert (await found["y"].handler({}, None)).data["Authorization"] == "Bearer t"


def test_servers_that_base_url_does_not_replace_are_told(api):
    document = api({"get /x": {"servers": [{"url": "https://a.example.com"}]}, "get /y": {}})
    [warning] = made(document).diagnostics
    assert "1 operation has a server of its own, https://a.example.com, which" in warning.reason
    assert made(document, servers={"https://a.example.com": NOWHERE}).diagnostics == []


# --- what the document forgot ------------------------------------------------------------------------


async def test_extras_go_beyond_the_document_if_they_are_allowed(call, registry):
    given = {
        "a": 1,
        "extra_query": {"beta": True, "tags": ["x", "y"], "filter": {"a": 1}},
        "extra_body": {"b": [2]},
        "extra_headers": {"X-More": "m"},
    }
    whole = body(fields(a={"type": "integer"}), required=False)
    sent = await call(whole, given, method="post", extras=["query", "body", "headers"])
    query = "beta=true&tags=x&tags=y&filter%5Ba%5D=1"
    assert sent == {"path": "/x", "query": query, "body": '{"a":1,"b":[2]}', "X-More": "m"}
    with pytest.raises(CallError, match="cannot be set"):
        await registry.execute("api.x", {"extra_headers": {"Authorization": "x"}})


async def test_without_extras_an_unknown_key_is_an_error(call):
    with pytest.raises(CallError, match="VALIDATION_ERROR"):
        await call({}, {"extra_query": {"a": 1}})


async def test_a_required_name_without_a_property_is_an_input(call):
    whole = body(fields("team", a=TEXT))
    assert (await call(whole, {"team": {"id": 1}}, method="post"))["body"] == '{"team":{"id":1}}'
    with pytest.raises(CallError, match="team"):
        await call({}, {"a": "x"})


# --- None and Python's values ------------------------------------------------------------------------


async def test_none_for_what_may_be_absent_is_absent(call):
    schema = fields(a=TEXT, n={"type": ["string", "null"]}, r={"$ref": "#/components/schemas/R"})
    operation = {"parameters": [parameter("q"), required("p")], **body(schema, required=False)}
    more = {"components": {"schemas": {"R": {"anyOf": [TEXT, {"type": "null"}]}}}}
    given = {"q": None, "p": "1", "a": None, "n": None, "r": None}
    sent = await call(operation, given, method="post", more=more)
    assert (sent["query"], sent["body"]) == ("p=1", '{"n":null,"r":null}')
    with pytest.raises(CallError, match=r"\$\.p"):
        await call(operation, {"p": None})


class Colour(Enum):
    RED = "red"


async def test_values_of_python_become_json(call):
    item = fields(price={"type": "number"}, exact=TEXT, ids={"type": "array", "items": TEXT})
    parameters = [required("since", schema={**TEXT, "format": "date"}), required("colour")]
    operation = {"parameters": parameters, **body(fields(item=item, at=TEXT), required=False)}
    given = {
        "since": datetime.date(2026, 1, 2),
        "colour": Colour.RED,
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "item": {"price": Decimal("1.50"), "exact": Decimal("1.50"), "ids": {UUID(int=1)}},
    }
    sent = await call(operation, given, method="post")
    assert sent["query"] == "since=2026-01-02&colour=red"
    assert sent["body"] == (
        '{"at":"2026-01-02T03:04:05+00:00",'
        '"item":{"price":1.5,"exact":"1.50","ids":["00000000-0000-0000-0000-000000000001"]}}'
    )


DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "value", "sent"),
    [
        (DECIMAL, Decimal("0.10000000000000000001"), '"0.10000000000000000001"'),
        ({"type": ["number", "string"]}, Decimal("1E+3"), '"1000"'),
        ({"anyOf": [{"$ref": "#/components/schemas/Item"}, {"type": "null"}]}, {"p": Decimal("1.50")}, '{"p":"1.50"}'),
        ({"type": "array", "items": DECIMAL}, [Decimal("1.50")], '["1.50"]'),
        ({"type": "number"}, Decimal("1.50"), "1.5"),
    ],
)  # fmt: skip
async def test_a_decimal_keeps_its_digits_wherever_text_will_do(call, schema, value, sent):
    operation, more = body(fields(v=schema)), {"components": {"schemas": {"Item": fields(p=DECIMAL)}}}
    assert (await call(operation, {"v": value}, method="post", more=more))["body"] == f'{{"v":{sent}}}'


async def test_a_decimal_that_is_no_number_is_an_error_of_the_input(call):
    with pytest.raises(CallError, match="VALIDATION_ERROR"):
        await call(body(fields(v={"type": "number"})), {"v": Decimal("Infinity")}, method="post")


async def test_null_in_a_merge_patch_takes_a_field_away(call):
    """RFC 7396: what a patch says null of is removed, whether or not the resource's schema takes null."""
    schema = fields("id", id=TEXT, name=TEXT, note=TEXT)
    operation = body(schema, media="application/merge-patch+json")
    sent = await call(operation, {"id": "1", "note": None}, method="patch")
    assert sent["body"] == '{"id":"1","note":null}'
    with pytest.raises(CallError, match=r"expected string, got null at \$.id"):
        await call(operation, {"id": None}, method="patch")


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
async def test_a_file_that_may_be_null_is_a_file(call, word):
    """FastAPI's ``UploadFile | None``, and a list of them."""
    binary = {"type": "string", "contentMediaType": "application/octet-stream"}
    maybe, many = ({word: [schema, {"type": "null"}]} for schema in (binary, {"type": "array", "items": binary}))
    operation = body(fields(f={**maybe, "title": "F"}, g=many, h=maybe), required=False, media=FORM)
    given = {"f": ("a.txt", b"1"), "g": [("b.txt", b"2"), {"text": "3", "filename": "c.txt"}], "h": None}
    sent = (await call(operation, given, method="post"))["body"]
    parts = ('"a.txt"', '"b.txt"', '"c.txt"', "\r\n3\r\n", 'name="h"')
    assert [part in sent for part in parts] == [True, True, True, True, False]


@pytest.mark.parametrize("kind", ["path", "tuple", "tuple with a type", "tuple of a file", "bytes"])
async def test_a_file_of_python_is_sent_by_what_it_is(call, tmp_path: Path, kind):
    (tmp_path / "a.csv").write_bytes(b"1,2")
    value, name, content_type = {
        "path": (tmp_path / "a.csv", "a.csv", "text/csv"),
        "tuple": (("b.csv", b"1,2"), "b.csv", "text/csv"),
        "tuple with a type": (("b.csv", b"1,2", "text/x"), "b.csv", "text/x"),
        "tuple of a file": (("c.csv", io.BytesIO(b"1,2"), "text/y"), "c.csv", "text/y"),
        "bytes": (b"1,2", "file", "application/octet-stream"),
    }[kind]
    operation = body(fields(f={"type": "string", "format": "binary"}), required=False, media=FORM)
    sent = (await call(operation, {"f": value}, method="post", more={"version": "3.0.0"}))["body"]
    for part in (f'filename="{name}"', f"Content-Type: {content_type}", "\r\n1,2\r\n"):
        assert part in sent


@pytest.mark.parametrize("text", ["test", "hello world"])
async def test_text_is_no_file(call, text):
    """Of text nobody can know whether it is the content or its base64."""
    with pytest.raises(CallError, match="VALIDATION_ERROR"):
        await call(body({}, media="application/octet-stream", required=False), {"body": text}, method="post")
    assert (await call({}, {"body": {"text": text}}))["body"] == text


# --- mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("config", "message"), TABLES["unknown to the document"])
def test_what_the_document_does_not_know_is_an_error_that_names_the_nearest(config, message):
    with pytest.raises(ConfigError, match=message):
        made(DOCUMENTS["pets of a region"], **{"base_url": None, **config})


@pytest.mark.parametrize(("config", "message"), TABLES["errors of the configuration"])
def test_what_cannot_work_is_an_error_of_the_configuration(config, message):
    with pytest.raises(ConfigError, match=message):
        HTTPServiceConfig(namespace="api", **config)


def test_a_line_break_at_the_end_of_a_token_is_not_part_of_it():
    assert HTTPAuth(type="bearer", token="t0ken\n").token == "t0ken"


async def test_of_credentials_that_are_needed_together_those_that_there_are_are_sent(serve, operations, api):
    schemes = {key: {"type": "apiKey", "in": "header", "name": f"X-{key}"} for key in ("Tenant", "More")}
    document = api(GET, components={"securitySchemes": schemes}, security=[{"Tenant": [], "More": []}])
    given = {"Tenant": {"type": "apiKey", "token": "k"}}
    [warning] = made(document, credentials=given).diagnostics
    assert warning.reason.endswith("credentials for More; set them")
    found = operations(document, await serve(echo), credentials=given)
    assert (await found["x"].handler({}, None)).data["X-Tenant"] == "k"


async def test_digest_is_answered_and_no_password_sent_in_the_clear(serve, operations, api):
    seen = []

    async def handler(request):
        seen.append(request.headers.get("Authorization", ""))
        if seen[-1].startswith("Digest "):
            return web.json_response("in")
        challenge = 'Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    schemes = {"d": {"type": "http", "scheme": "digest"}}
    document = api(GET, components={"securitySchemes": schemes}, security=[{"d": []}])
    for kind, secured in (("basic", document), ("digest", document), ("digest", api(GET))):
        auth = {"type": kind, "username": "u", "password": "s3cret"}
        found = operations(secured, await serve(handler), auth=auth)
        assert (await found["x"].handler({}, None)).data == "in"
    assert not any(header.startswith("Basic") for header in seen)
    assert 'username="u"' in seen[-1]


@pytest.mark.parametrize("wrap", [lambda schema: schema, lambda schema: {"anyOf": [schema, {"type": "object"}]}])
async def test_a_file_in_a_form_that_is_one_key_is_a_file(call, wrap):
    """An optional body with required fields, and one that is no plain object."""
    schema = fields("f", f={"type": "string", "format": "binary"})
    operation = body(wrap({"$ref": "#/components/schemas/F"}), required=False, media=FORM)
    more = {"version": "3.0.0", "components": {"schemas": {"F": schema}}}
    for value in (b"1,2", {"text": "1,2"}):
        sent = await call(operation, {"body": {"f": value}}, method="post", more=more)
        assert "\r\n1,2\r\n" in sent["body"]


async def test_media_types_can_be_preferred_by_operation(serve, operations, api):
    schema = {"schema": fields(a=TEXT)}
    kinds = (JSON, "application/x-www-form-urlencoded", FORM)
    operation = {"requestBody": {"content": dict.fromkeys(kinds, schema)}}
    paths = {f"post /{name}": {"operationId": name, **operation} for name in ("one", "two", "three")}
    table = {"tw*": [kinds[1]], "POST /three": [kinds[2]]}
    found = operations(api(paths), await serve(result_of(lambda request: request.content_type)), media_types=table)
    sent = [(await found[name].handler({"a": "x"}, None)).data for name in ("one", "two", "three")]
    assert sent == list(kinds)


@pytest.mark.parametrize(("config", "message"), TABLES["tables that fit no operation"])
def test_a_table_that_fits_no_operation_names_the_nearest(api, config, message):
    document = api({"get /a/{path}": {"operationId": "list", "parameters": []}})
    with pytest.raises(ConfigError, match=message):
        made(document, **config)


@pytest.mark.parametrize("port", ["", ":443"])
def test_a_table_of_servers_may_name_the_port_that_everybody_leaves_out(api, port):
    document = api({"get /x": {"servers": [{"url": f"https://a.example.com{port}/v1"}]}})
    for key in ("https://a.example.com", "https://a.example.com:443", "https://a.example.com:443/v1"):
        assert made(document, servers={key: NOWHERE}).diagnostics == []

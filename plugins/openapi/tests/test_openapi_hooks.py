"""Hooks around requests and responses, how often a request was sent, and links from a response to a call."""

import hashlib
import json

import pytest
from aiohttp import web

from operad import CallError, ErrorCode, Identity, OperationContext
from operad_openapi import HTTPRequest, http_envelope
from plugins.openapi.tests.data import NOWHERE, TABLES
from plugins.openapi.tests.handlers import redirect
from plugins.openapi.tests.making import EVENTS_OK, body, parameter, path_parameter


async def echo(request):
    content = await request.read()
    seen = {name: request.headers.get(f"X-{name}") for name in ("signature", "caller", "note")}
    expected = hashlib.sha256(request.raw_path.encode() + content).hexdigest()
    return web.json_response({**seen, "expected": expected, "path": request.raw_path})


def sign(request, context):
    path = request.url.partition("//")[2].partition("/")[2]
    request.headers["X-Signature"] = hashlib.sha256(f"/{path}".encode() + (request.body or b"")).hexdigest()


KEY = {"type": "apiKey", "in": "query", "name": "key"}
NAME = body({"type": "object", "properties": {"name": {"type": "string"}}})
ADD = {"operationId": "add", "parameters": [parameter("n", schema={"type": "integer"})], **NAME}


async def test_a_request_can_be_signed_as_it_is_sent(load, api, registry):
    document = api({"post /add": ADD}, components={"securitySchemes": {"k": KEY}}, security=[{"k": []}])
    await load(echo, document, auth={"type": "apiKey", "token": "s"}, on_request=sign)
    data = (await registry.execute("api.add", {"n": 1, "name": "ä"})).data
    assert data["path"] == "/add?n=1&key=s"
    assert data["signature"] == data["expected"]


async def test_a_hook_may_be_asynchronous_and_knows_the_caller(load, api, registry):
    seen = []

    async def on_request(request, context):
        assert isinstance(request, HTTPRequest)
        request.headers["X-Caller"] = context.identity.id
        request.url += "&traced=1"

    async def on_response(envelope, context):
        seen.append((envelope.meta.status_code, envelope.data["path"], context.identity.id))

    await load(echo, {"post /add": ADD}, on_request=on_request, on_response=on_response)
    context = OperationContext(identity=Identity("ann"))
    data = (await registry.execute("api.add", {"n": 1, "name": "x"}, context)).data
    assert (data["caller"], data["path"]) == ("ann", "/add?n=1&traced=1")
    assert seen == [(200, "/add?n=1&traced=1", "ann")]


async def test_the_hook_sees_each_attempt_and_no_other_origin(serve, call):
    seen = []
    other = await serve(lambda request: web.json_response({"signed": "X-Signature" in request.headers}))

    def handler(request):
        seen.append(request.headers["X-Signature"])
        return web.Response(status=503) if len(seen) == 1 else redirect(f"{other}/x", 307)

    envelope = await call(handler, on_request=sign, retries={"backoff": 0})
    assert envelope.data == {"signed": False}
    assert len(seen) == 2
    assert envelope.meta.attempts == 2


async def test_a_hook_that_fails_is_the_error_of_the_call(load, api, registry):
    def broken(request, context):
        raise OSError("no key")

    def refused(envelope, context):
        if not envelope.data.get("ok"):
            raise CallError(ErrorCode.EXECUTION_ERROR, f"refused: {envelope.data['error']}")

    def closed(request):
        return web.json_response({"ok": False, "error": "closed"})

    await load(closed, on_request=broken)
    with pytest.raises(CallError, match="on_request raised OSError: no key"):
        await registry.execute("api.x")
    await load(closed, namespace="b", on_response=refused)
    with pytest.raises(CallError, match="refused: closed"):
        await registry.execute("b.x")


async def test_the_response_hook_sees_failures_and_streams_and_may_replace_an_envelope(load, api, registry):
    seen = []

    def on_response(envelope, context):
        seen.append((envelope.meta.status_code, envelope.data))
        return http_envelope(envelope.data["data"]) if isinstance(envelope.data, dict) else None

    async def handler(request):
        if request.path == "/events":
            return web.Response(text='data: {"n": 1}\n\n', content_type="text/event-stream")
        return web.json_response({"data": [1]}, status=404 if request.path == "/missing" else 200)

    paths = {f"get /{name}": {"operationId": name} for name in ("x", "missing")}
    paths["get /events"] = {"operationId": "events", "responses": EVENTS_OK}
    await load(handler, paths, on_response=on_response)
    assert (await registry.execute("api.x")).data == [1]
    with pytest.raises(CallError, match="404"):
        await registry.execute("api.missing")
    assert [item.data async for item in registry.subscribe("api.events")] == [{"n": 1}]
    assert seen == [(200, {"data": [1]}), (404, {"data": [1]}), (200, None)]


async def test_the_number_of_attempts_is_in_meta_and_in_errors(call, fails, requests, caplog):
    def handler(request):
        return web.json_response(1, status=200 if request.path == "/good" and len(requests) == 3 else 503)

    retries = {"attempts": 2, "backoff": 0}
    with caplog.at_level("INFO", logger="operad.openapi"):
        assert (await call(handler, {"get /good": {}}, retries=retries)).meta.attempts == 3
    assert "HTTP 503; attempt 2 follows" in caplog.text
    for server in (handler, NOWHERE):
        assert (await fails(server, {"get /bad": {}}, retries=retries)).details["attempts"] == 3


async def test_the_reason_of_a_failure_names_no_host(fails):
    error = await fails(lambda request: web.json_response({"message": "no such item"}, status=404))
    assert error.details["reason"] == "404 Not Found: no such item"
    error = await fails(NOWHERE, retries=0)
    assert error.details["reason"] == "cannot connect: Connection refused"


def repository():
    """Operations whose responses lead to other ones."""
    links = {
        "owner": {"operationId": "getUser", "parameters": {"name": "$response.body#/owner/name"}},
        "next": {
            "operationRef": "#/paths/~1repos~1{name}/get",
            "parameters": {"path.name": "$request.path.name", "page": "$response.body#/next"},
        },
        "star": {
            "operationId": "star",
            "requestBody": {"repository": "tea"},
            "parameters": {"X-Note": "from {$method} {$response.header.x-id}"},
        },
        "tag": {"operationId": "tag", "requestBody": "$response.body#/tags"},
        "gone": {"operationId": "getUser", "parameters": {"name": "$response.body#/nobody"}},
        "unknown": {"operationId": "nope"},
    }
    whole = {"200": {"description": "", "content": {"application/json": {"schema": {}}}, "links": links}}
    name, page = path_parameter("name"), parameter("page", schema={"type": "integer"})
    given = body({"type": "object", "properties": {"repository": {"type": "string"}}}, required=False)
    star = {"operationId": "star", "parameters": [parameter("X-Note", "header")], **given}
    return {
        "get /repos/{name}": {"operationId": "getRepo", "parameters": [name, page], "responses": whole},
        "get /users/{name}": {"operationId": "getUser", "parameters": [name]},
        "post /stars": star,
        "post /tags": {
            "operationId": "tag",
            **body({"type": "array", "items": {"type": "string"}}, required=False),
        },
    }


async def test_links_lead_from_a_response_to_the_next_call(load, api, registry):
    async def handler(request):
        if request.path.startswith("/repos"):
            page = int(request.query.get("page", 1))
            data = {"owner": {"name": "ann"}, "tags": ["hot"], **({"next": page + 1} if page < 3 else {})}
            return web.json_response(data, headers={"X-Id": "7"})
        return await echo(request)

    paths, cases = repository(), TABLES["links of a response"]
    paths["get /repos/{name}"]["responses"]["200"]["links"] |= {name: link for name, (link, _) in cases.items()}
    await load(handler, paths, namespace="hub")
    envelope = await registry.execute("hub.getRepo", {"name": "tea"})
    made_ones = {name: case for name, case in cases.items() if case[1]}
    assert envelope.meta.links == {
        "owner": {"operation": "hub.getUser", "input": {"name": "ann"}},
        "next": {"operation": "hub.getRepo", "input": {"name": "tea", "page": 2}},
        "star": {"operation": "hub.star", "input": {"X-Note": "from GET 7", "repository": "tea"}},
        "tag": {"operation": "hub.tag", "input": {"body": ["hot"]}},
        **{name: {"operation": operation, "input": input} for name, (_, (operation, input)) in made_ones.items()},
    }
    owner = envelope.meta.links["owner"]
    assert (await registry.execute(owner["operation"], owner["input"])).data["path"] == "/users/ann"
    pages = 1
    while link := envelope.meta.links.get("next"):
        envelope = await registry.execute(link["operation"], link["input"])
        pages += 1
    assert pages == 3
    assert json.dumps(envelope.to_wire())

"""Hooks around requests and responses, how often a request was sent, and links from a response to a call."""

import hashlib
import json

import pytest
from aiohttp import web

from operad import CallError, ErrorCode, Identity, OperationContext
from operad_openapi import HTTPRequest, http_envelope

OK = {"200": {"description": ""}}


async def echo(request):
    body = await request.read()
    return web.json_response(
        {
            "signature": request.headers.get("X-Signature"),
            "expected": hashlib.sha256(request.raw_path.encode() + body).hexdigest(),
            "path": request.raw_path,
            "caller": request.headers.get("X-Caller"),
        }
    )


def sign(request, context):
    path = request.url.partition("//")[2].partition("/")[2]
    request.headers["X-Signature"] = hashlib.sha256(f"/{path}".encode() + (request.body or b"")).hexdigest()


ADD = {
    "operationId": "add",
    "parameters": [{"name": "n", "in": "query", "schema": {"type": "integer"}}],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object", "properties": {"name": {"type": "string"}}}}
        },
    },
}


async def test_a_request_can_be_signed_as_it_is_sent(serve, api, registry):
    document = api({"post /add": ADD}, components={"securitySchemes": {"k": KEY}}, security=[{"k": []}])
    await registry.load(
        "openapi",
        namespace="a",
        spec=document,
        base_url=await serve(echo),
        auth={"type": "apiKey", "token": "s"},
        on_request=sign,
    )
    data = (await registry.execute("a.add", {"n": 1, "name": "ä"})).data
    assert data["path"] == "/add?n=1&key=s"
    assert data["signature"] == data["expected"]


KEY = {"type": "apiKey", "in": "query", "name": "key"}


async def test_a_hook_may_be_asynchronous_and_knows_the_caller(serve, api, registry):
    seen = []

    async def on_request(request, context):
        assert isinstance(request, HTTPRequest)
        request.headers["X-Caller"] = context.identity.id
        request.url += "&traced=1"

    async def on_response(envelope, context):
        seen.append((envelope.meta.status_code, envelope.data["path"], context.identity.id))

    await registry.load(
        "openapi",
        namespace="a",
        spec=api({"post /add": ADD}),
        base_url=await serve(echo),
        on_request=on_request,
        on_response=on_response,
    )
    context = OperationContext(identity=Identity("ann"))
    data = (await registry.execute("a.add", {"n": 1, "name": "x"}, context)).data
    assert (data["caller"], data["path"]) == ("ann", "/add?n=1&traced=1")
    assert seen == [(200, "/add?n=1&traced=1", "ann")]


async def test_the_hook_sees_each_attempt_and_no_other_origin(serve, call):
    seen = []
    answers = [503, 307, 200]

    other = await serve(lambda request: web.json_response({"signed": "X-Signature" in request.headers}))

    async def handler(request):
        seen.append(request.headers["X-Signature"])
        status = answers.pop(0)
        return web.Response(status=status, headers={"Location": f"{other}/x"} if status == 307 else {})

    envelope = await call(handler, on_request=sign, retries={"backoff": 0})
    assert envelope.data == {"signed": False}
    assert len(seen) == 2
    assert envelope.meta.attempts == 2


async def test_a_hook_that_fails_is_the_error_of_the_call(serve, api, registry):
    def broken(request, context):
        raise OSError("no key")

    def refused(envelope, context):
        if not envelope.data.get("ok"):
            raise CallError(ErrorCode.EXECUTION_ERROR, f"refused: {envelope.data['error']}")

    document, base = (
        api({"get /x": {"operationId": "x"}}),
        await serve(lambda request: web.json_response({"ok": False, "error": "closed"})),
    )
    await registry.load("openapi", namespace="a", spec=document, base_url=base, on_request=broken)
    with pytest.raises(CallError, match="on_request raised OSError: no key"):
        await registry.execute("a.x")
    await registry.load("openapi", namespace="b", spec=document, base_url=base, on_response=refused)
    with pytest.raises(CallError, match="refused: closed"):
        await registry.execute("b.x")


async def test_the_response_hook_sees_failures_and_streams_and_may_replace_an_envelope(serve, api, registry):
    seen = []

    def on_response(envelope, context):
        seen.append((envelope.meta.status_code, envelope.data))
        return http_envelope(envelope.data["data"]) if isinstance(envelope.data, dict) else None

    async def handler(request):
        if request.path == "/events":
            return web.Response(text='data: {"n": 1}\n\n', content_type="text/event-stream")
        return web.json_response({"data": [1]}, status=404 if request.path == "/missing" else 200)

    events = {"200": {"description": "", "content": {"text/event-stream": {"schema": {"type": "object"}}}}}
    document = api(
        {
            "get /x": {"operationId": "x"},
            "get /missing": {"operationId": "missing"},
            "get /events": {"operationId": "events", "responses": events},
        }
    )
    await registry.load(
        "openapi", namespace="a", spec=document, base_url=await serve(handler), on_response=on_response
    )
    assert (await registry.execute("a.x")).data == [1]
    with pytest.raises(CallError, match="404"):
        await registry.execute("a.missing")
    assert [item.data async for item in registry.subscribe("a.events")] == [{"n": 1}]
    assert seen == [(200, {"data": [1]}), (404, {"data": [1]}), (200, None)]


async def test_the_number_of_attempts_is_in_meta_and_in_errors(serve, api, operations, call, caplog):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return web.json_response(count, status=200 if request.path == "/good" and count % 3 == 0 else 503)

    document = api({"get /good": {"operationId": "good"}, "get /bad": {"operationId": "bad"}})
    base = await serve(handler)
    found = operations(document, base, retries={"attempts": 2, "backoff": 0})
    with caplog.at_level("INFO", logger="operad.openapi"):
        assert (await found["good"].handler({}, None)).meta.attempts == 3
    assert "HTTP 503; attempt 2 follows" in caplog.text
    with pytest.raises(CallError) as caught:
        await found["bad"].handler({}, None)
    assert caught.value.details["attempts"] == 3
    with pytest.raises(CallError) as caught:
        await call("http://127.0.0.1:9", document, retries={"attempts": 1, "backoff": 0})
    assert caught.value.details["attempts"] == 2


async def test_the_reason_of_a_failure_names_no_host(serve, api, call):
    document, base = (
        api({"get /x": {"operationId": "x"}}),
        await serve(lambda request: web.json_response({"message": "no such item"}, status=404)),
    )
    with pytest.raises(CallError) as caught:
        await call(base, document)
    assert caught.value.details["reason"] == "404 Not Found: no such item"
    with pytest.raises(CallError) as caught:
        await call("http://127.0.0.1:9", document, retries=0)
    assert caught.value.details["reason"] == "cannot connect: Connection refused"


def repository(api):
    """A document in which each response leads to other operations."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    page = {"name": "page", "in": "query", "schema": {"type": "integer"}}
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
        "gone": {"operationId": "getUser", "parameters": {"name": "$response.body#/nobody"}},
        "unknown": {"operationId": "nope"},
    }
    star = {
        "operationId": "star",
        "parameters": [{"name": "X-Note", "in": "header", "schema": {"type": "string"}}],
        "requestBody": {
            "content": {
                "application/json": {
                    "schema": {"type": "object", "properties": {"repository": {"type": "string"}}}
                }
            }
        },
    }
    return api(
        {
            "get /repos/{name}": {
                "operationId": "getRepo",
                "parameters": [name, page],
                "responses": {
                    "200": {"description": "", "content": {"application/json": {"schema": {}}}, "links": links}
                },
            },
            "get /users/{name}": {"operationId": "getUser", "parameters": [name]},
            "post /stars": star,
        }
    )


async def test_links_lead_from_a_response_to_the_next_call(serve, api, registry):
    async def handler(request):
        if request.path.startswith("/repos"):
            page = int(request.query.get("page", 1))
            data = {"owner": {"name": "ann"}, **({"next": page + 1} if page < 3 else {})}
            return web.json_response(data, headers={"X-Id": "7"})
        return web.json_response({"path": request.path, "note": request.headers.get("X-Note")})

    await registry.load("openapi", namespace="hub", spec=repository(api), base_url=await serve(handler))
    envelope = await registry.execute("hub.getRepo", {"name": "tea"})
    assert envelope.meta.links == {
        "owner": {"operation": "hub.getUser", "input": {"name": "ann"}},
        "next": {"operation": "hub.getRepo", "input": {"name": "tea", "page": 2}},
        "star": {
            "operation": "hub.star",
            "input": {"X-Note": "from GET 7", "repository": "tea"},
        },
    }
    owner = envelope.meta.links["owner"]
    assert (await registry.execute(owner["operation"], owner["input"])).data["path"] == "/users/ann"
    pages = 1
    while link := envelope.meta.links.get("next"):
        envelope = await registry.execute(link["operation"], link["input"])
        pages += 1
    assert pages == 3
    assert json.dumps(envelope.to_wire())

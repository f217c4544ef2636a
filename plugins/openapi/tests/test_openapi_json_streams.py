"""Streams of JSON values that call themselves ``application/json``, in the styles of three well-known APIs."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from operad import CallError
from operad_openapi._http.records import _Values
from plugins.openapi.tests.making import EVENTS_OK, answers, body

MANY = 1_000
DOCUMENTS = json.loads(Path(__file__).with_name("documents.json").read_text())
GATEWAY, CLUSTER, ENGINE = (DOCUMENTS[name] for name in ("grpc-gateway", "kubernetes", "docker"))


async def streamed(request, first, render, content_type="application/json"):
    """Send events from ``first`` on, several to a chunk and cut anywhere, until `MANY` or the client has left."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    for start in range(first, MANY + 1, 7):
        data = b"".join(render(number) for number in range(start, min(start + 7, MANY + 1)))
        await response.write(data[:5])
        await response.write(data[5:])
    return response


async def watched_left_and_resumed(registry, operation, input, resumed, number_of):
    """Watch all events, then leave after 400, then go on from there: each number comes once and in order."""
    async with asyncio.timeout(60):
        every = [number_of(item.data) async for item in registry.subscribe(operation, input)]
        assert every == list(range(1, MANY + 1))
        seen = []
        items = registry.subscribe(operation, input)
        async for item in items:
            seen.append(number_of(item.data))
            if len(seen) == 400:
                break
        await items.aclose()
        seen += [number_of(item.data) async for item in registry.subscribe(operation, resumed(seen[-1]))]
        assert seen == every


async def test_a_watch_of_grpc_gateway(load, registry):
    async def handler(request):
        body = await request.json()
        first = int(body["create_request"].get("start_revision", 1))
        return await streamed(request, first, lambda n: b'{"result":{"revision":"%d"}}\n' % n)

    specs = await load(handler, GATEWAY, namespace="store")
    assert {spec.name: str(spec.type) for spec in specs} == dict.fromkeys(
        ("Watch_Watch", "Lease_KeepAlive"), "subscription"
    )
    await watched_left_and_resumed(
        registry,
        "store.Watch_Watch",
        {"body": {"create_request": {"key": "Zm9v"}}},
        lambda last: {"body": {"create_request": {"key": "Zm9v", "start_revision": str(last + 1)}}},
        lambda data: int(data["result"]["revision"]),
    )
    assert (await registry.execute("store.Watch_Watch", {"body": {"create_request": {}}})).data == {
        "result": {"revision": "1"}
    }


async def test_a_watch_of_kubernetes_is_the_twin_of_a_listing(load, registry):
    async def handler(request):
        assert request.headers["Accept"].startswith("application/json")
        if request.query.get("watch") != "true" and request.path == "/pods":
            return web.json_response({"items": [{"name": "a"}]})
        first = int(request.query.get("resourceVersion", 0)) + 1
        return await streamed(
            request, first, lambda n: b'{"type":"ADDED","object":{"version":%d,"text":"} \\"{["}}' % n
        )

    specs = await load(handler, CLUSTER, namespace="k")
    assert {spec.name: str(spec.type) for spec in specs} == {
        "listPods": "query",
        "listPods_stream": "subscription",
        "watchPods": "subscription",
    }
    assert (await registry.execute("k.listPods")).data == {"items": [{"name": "a"}]}
    assert (await registry.execute("k.watchPods")).data["object"]["version"] == 1
    await watched_left_and_resumed(
        registry,
        "k.listPods_stream",
        {},
        lambda last: {"resourceVersion": str(last)},
        lambda data: data["object"]["version"],
    )


async def test_events_of_docker_are_a_stream_by_configuration(load, registry):
    async def handler(request):
        first = int(request.query.get("since", 0)) + 1
        return await streamed(request, first, lambda n: b'{\n "time": %d\n}\n' % n)

    for namespace, types in (("one", {"SystemEvents": "subscription"}), ("two", {"*Events": "subscription"})):
        await load(handler, ENGINE, namespace=namespace, operation_types=types)
        await watched_left_and_resumed(
            registry,
            f"{namespace}.SystemEvents",
            {},
            lambda last: {"since": str(last)},
            lambda data: data["time"],
        )


async def test_an_error_among_json_values_names_the_record(load, registry):
    async def handler(request):
        return await streamed(request, MANY, lambda n: b'{"time": 1} oops\n')

    await load(handler, ENGINE, namespace="d", operation_types={"SystemEvents": "subscription"})
    items = registry.subscribe("d.SystemEvents")
    assert (await anext(items)).data == {"time": 1}
    with pytest.raises(CallError, match="expected JSON, as the content type states") as caught:
        await anext(items)
    assert caught.value.details["body"] == "oops"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_values_are_cut_wherever_the_chunks_are(size):
    texts = ['{"a":"\\"}\\\\"}', "[1,[2,{}]]", '"x\\ny"', "17", "null", '{"b":{"c":[]}}']
    data = f"{texts[0]}{texts[1]} {texts[2]}\n{texts[3]}\n\n{texts[4]}\r\n{texts[5]}".encode()
    cutter = _Values(b"", 100, "here")
    found = [record for at in range(0, len(data), size) for record in cutter.feed(data[at : at + size])]
    assert [json.loads(record) for record in [*found, *cutter.close()]] == [json.loads(text) for text in texts]


def test_a_value_beyond_the_limit_is_refused():
    with pytest.raises(CallError) as caught:
        list(_Values(b"", 100, "here").feed(b"{" * 101))
    assert caught.value.details == {"limit": "event_bytes", "bytes": 100}


@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_without_end_does_not_hold_a_subscription_beyond_the_timeout(serve, operations, api, status):
    async def handler(request):
        response = web.StreamResponse(status=status, headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.02)

    document = api({"get /x": {"operationId": "x", "responses": EVENTS_OK}})
    found = operations(document, await serve(handler, handler_cancellation=True), timeout=0.5)
    with pytest.raises(CallError, match=f"EXECUTION_ERROR: .*{'text/html' if status == 200 else 500}"):
        await asyncio.wait_for(anext(found["x"].handler({}, None)), 20)


async def test_json_lines_where_json_was_expected_are_a_list_and_a_hint(serve, operations, api, caplog):
    async def handler(request):
        if (await request.json()).get("stream") is False:
            return web.json_response({"n": 0})
        return web.Response(body=b'{"n": 1}\n{"n": 2}\n', content_type="application/x-ndjson")

    content = {kind: {"schema": {"type": "object"}} for kind in ("application/json", "application/x-ndjson")}
    whole = body({"type": "object", "properties": {"stream": {"type": "boolean"}}})
    operation = {"operationId": "generate", "responses": {"200": {"description": "", "content": content}}, **whole}
    found = operations(api({"post /g": operation}), await serve(handler))
    assert (await found["generate"].handler({"stream": False}, None)).data == {"n": 0}
    assert not caplog.records
    assert (await found["generate"].handler({}, None)).data == [{"n": 1}, {"n": 2}]
    assert "subscribe to api.generate_stream" in caplog.text


async def test_json_where_only_json_lines_are_declared_is_a_stream(serve, operations, api):
    async def handler(request):
        return await streamed(request, 1, lambda n: b'{"time": %d}\n' % n)

    responses = answers({"type": "object"}, "application/jsonl")
    document = api({"get /e": {"operationId": "e", "responses": responses}})
    found = operations(document, await serve(handler))
    assert [item.data["time"] async for item in found["e"].handler({}, None)] == list(range(1, MANY + 1))

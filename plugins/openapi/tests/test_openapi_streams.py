"""Subscriptions: event streams, JSON lines, twins, resuming."""

import asyncio
import json

import pytest
from aiohttp import web

from operad import CallError, ErrorCode, OperationRegistry, load_plugins

EVENTS = {"text/event-stream": {"schema": {"type": "object"}}}


def streaming(content, **operation):
    responses = {"200": {"description": "", "content": content}}
    return {"get /x": {"operationId": "x", "responses": responses, **operation}}


async def send(request, *chunks, content_type="text/event-stream", **headers):
    response = web.StreamResponse(headers={"Content-Type": content_type, **headers})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    return response


async def collect(operation, input=None):
    return [envelope async for envelope in operation.handler(input or {}, None)]


async def failure(operation, input=None) -> CallError:
    with pytest.raises(CallError) as caught:
        await collect(operation, input)
    return caught.value


async def test_events_are_envelopes_with_type_and_id(serve, operations, api):
    async def handler(request):
        assert request.headers["Accept"] == "text/event-stream"
        return await send(request, b'id: 1\nevent: a\ndata: {"n": 1}\n\n', b'data: {"n": 2}\n\n', b"data: lost")

    found = operations(api(streaming(EVENTS)), await serve(handler))
    assert found["x"].spec.type == "subscription"
    envelopes = await collect(found["x"])
    assert [(e.data, e.meta.event_type, e.meta.last_event_id) for e in envelopes] == [
        ({"n": 1}, "a", "1"),
        ({"n": 2}, "message", "1"),
    ]
    assert envelopes[0].meta.content_type == "text/event-stream"


@pytest.mark.parametrize(
    ("schema", "expected"), [({}, [1, "no json"]), ({"type": "string"}, ["1", "no json", "[DONE]"])]
)
async def test_data_are_parsed_unless_the_items_are_text(serve, operations, api, schema, expected):
    async def handler(request):
        return await send(request, b"data: 1\n\ndata: no json\n\ndata: [DONE]\n\n")

    content = {"text/event-stream": {"schema": schema}}
    found = operations(api(streaming(content)), await serve(handler))
    assert [e.data for e in await collect(found["x"])] == expected


async def test_the_item_schema_of_3_2_is_that_of_the_data(operations, api):
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"type": "integer"}}
    content = {"text/event-stream": {"itemSchema": {"type": "object", "properties": {"data": data}}}}
    found = operations(api(streaming(content), version="3.2.0"))
    assert found["x"].spec.output_schema.raw == {"type": "integer"}


@pytest.mark.parametrize(
    ("content_type", "chunks"),
    [
        ("application/jsonl", [b'{"a":', b" 1}\n\n", b'{"a": 2}']),
        ("application/x-ndjson; charset=utf-8", [b'{"a": 1}\r\n{"a": 2}\r\n']),
        ("application/json-seq", [b'\x1e{"a":\n 1}\n\x1e', b'{"a": 2}\n']),
    ],
)
async def test_json_records(serve, operations, api, content_type, chunks):
    async def handler(request):
        return await send(request, *chunks, content_type=content_type)

    content = {content_type: {"itemSchema": {"type": "object"}}}
    found = operations(api(streaming(content), version="3.2.0"), await serve(handler))
    assert found["x"].spec.output_schema.raw == {"type": "object"}
    assert [e.data for e in await collect(found["x"])] == [{"a": 1}, {"a": 2}]


async def test_a_record_that_is_no_json_is_an_error(serve, operations, api):
    async def handler(request):
        return await send(request, b"{}\n{\n", content_type="application/jsonl")

    found = operations(api(streaming({"application/jsonl": {}})), await serve(handler))
    assert (await failure(found["x"])).code == ErrorCode.EXECUTION_ERROR


async def test_an_operation_that_answers_both_ways_has_a_twin(serve, operations, api):
    async def handler(request):
        body = await request.json()
        if body.get("stream"):
            return await send(request, b'data: {"n": 1}\n\ndata: [DONE]\n\n')
        return web.json_response(body)

    body = {"type": "object", "properties": {"stream": {"type": "boolean"}, "q": {"type": "string"}}}
    content = {"application/json": {"schema": {}}, **EVENTS}
    document = api(
        {
            "post /x": {
                "operationId": "ask",
                "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
                "responses": {"200": {"description": "", "content": content}},
            }
        }
    )
    found = operations(document, await serve(handler))
    assert {name: str(o.spec.type) for name, o in found.items()} == {
        "ask": "mutation",
        "ask_stream": "subscription",
    }
    assert (await found["ask"].handler({"q": "a"}, None)).data == {"q": "a"}
    assert [e.data for e in await collect(found["ask_stream"], {"q": "a"})] == [{"n": 1}]


async def test_an_answer_that_is_no_stream_is_an_error(serve, operations, api):
    async def handler(request):
        return web.json_response({})

    error = await failure(operations(api(streaming(EVENTS)), await serve(handler))["x"])
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "expected a stream" in error.message


async def test_a_stream_that_is_refused_has_the_error_of_the_response(serve, operations, api):
    async def handler(request):
        return web.json_response({"why": 1}, status=403)

    error = await failure(operations(api(streaming(EVENTS)), await serve(handler))["x"])
    assert error.details["body"] == {"why": 1}


async def test_204_is_an_empty_stream(serve, operations, api):
    async def handler(request):
        return web.Response(status=204)

    assert await collect(operations(api(streaming(EVENTS)), await serve(handler))["x"]) == []


async def test_a_stream_that_breaks_off_gives_its_items_and_an_error(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"b\r\ndata: {}\n\n\n\r\n")
        await writer.drain()

    found = operations(api(streaming(EVENTS)), await serve_raw(talk))
    items = found["x"].handler({}, None)
    assert (await anext(items)).data == {}
    with pytest.raises(CallError) as caught:
        await anext(items)
    assert caught.value.code == ErrorCode.UNAVAILABLE


async def test_an_event_of_100_mb_is_refused_at_the_limit(serve, operations, api):
    sent = 0

    async def handler(request):
        nonlocal sent
        response = await send(request, b"data: ")
        for _ in range(100):
            await response.write(b"x" * 1_000_000)
            sent += 1
        return response

    error = await failure(operations(api(streaming(EVENTS)), await serve(handler))["x"])
    assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
    assert error.details["limit"] == "event_bytes"
    assert sent < 100


async def test_a_json_line_without_end_is_refused_at_the_limit(serve, operations, api):
    async def handler(request):
        return await send(request, *[b"x" * 10_000] * 10, content_type="application/jsonl")

    found = operations(
        api(streaming({"application/jsonl": {}})), await serve(handler), limits={"event_bytes": 50_000}
    )
    assert (await failure(found["x"])).details["limit"] == "event_bytes"


async def test_a_silent_stream_ends_with_the_idle_timeout(serve, operations, api):
    async def handler(request):
        response = await send(request, b"data: {}\n\n")
        await asyncio.sleep(30)
        return response

    found = operations(api(streaming(EVENTS)), await serve(handler, handler_cancellation=True), idle_timeout=0.2)
    assert (await failure(found["x"])).code == ErrorCode.TIMEOUT


async def test_a_stream_may_outlive_the_timeout_of_calls(serve, operations, api):
    for timeout in (0.3, 3, 15):  # where this machine is too busy for the first one, a longer one counts
        come = []

        async def handler(request, timeout=timeout):
            response = await send(request)
            for _ in range(6):
                await asyncio.sleep(timeout / 3)
                await response.write(b"data: {}\n\n")
            return response

        found = operations(api(streaming(EVENTS)), await serve(handler), timeout=timeout)
        try:
            come = await collect(found["x"])
        except CallError:
            continue
        break
    assert len(come) == 6


async def test_a_stream_that_does_not_begin_ends_with_the_timeout(serve, operations, api):
    async def handler(request):
        await asyncio.sleep(30)

    found = operations(api(streaming(EVENTS)), await serve(handler, handler_cancellation=True), timeout=0.2)
    assert (await failure(found["x"])).code == ErrorCode.TIMEOUT


async def test_leaving_the_loop_closes_the_connection(serve, operations, api):
    gone = asyncio.Event()

    async def handler(request):
        response = await send(request, b"data: {}\n\n")
        try:
            while True:
                await response.write(b": still here\n\n")
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    found = operations(api(streaming(EVENTS)), await serve(handler, handler_cancellation=True))
    items = found["x"].handler({}, None)
    async for _ in items:
        break
    await items.aclose()
    await asyncio.wait_for(gone.wait(), 5)


async def test_a_stream_is_resumed_where_it_broke_off(serve, operations, api):
    seen = []

    async def handler(request):
        seen.append(request.headers.get("Last-Event-ID"))
        if len(seen) == 3:
            return web.Response(status=204)
        number = len(seen)
        response = await send(request, f"retry: 1\nid: {number}\ndata: {{}}\n\n".encode())
        if number == 1:
            request.transport.abort()
        return response

    found = operations(api(streaming(EVENTS)), await serve(handler), reconnect=True)
    assert [e.meta.last_event_id for e in await collect(found["x"])] == ["1", "2"]
    assert seen == [None, "1", "2"]


async def test_without_reconnect_a_stream_is_asked_for_once(serve, operations, api):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return await send(request, b"id: 1\ndata: {}\n\n")

    await collect(operations(api(streaming(EVENTS)), await serve(handler))["x"])
    assert count == 1


async def test_a_registry_runs_streams_to_their_end(serve, api):
    async def handler(request):
        return await send(request, *[f"data: {json.dumps({'n': n})}\n\n".encode() for n in range(5)])

    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        await registry.load("openapi", namespace="api", spec=api(streaming(EVENTS)), base_url=await serve(handler))
        assert [e.data["n"] async for e in registry.subscribe("api.x")] == [0, 1, 2, 3, 4]
        assert (await registry.execute("api.x")).data == {"n": 0}


@pytest.mark.parametrize("how", ["by its content type", "by the configuration"])
async def test_a_stream_that_the_document_does_not_mention_is_one(serve, api, how):
    """As FastAPI documents a StreamingResponse: JSON of any kind."""

    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await response.write(f"data: {number}\n\n".encode())
        return response

    config = {} if how == "by its content type" else {"operation_types": {"x": "subscription"}}
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        document = api({"get /x": {"operationId": "x"}})
        await registry.load("openapi", namespace="api", spec=document, base_url=await serve(handler), **config)
        assert [item.data async for item in registry.subscribe("api.x")] == [0, 1, 2]
        assert (await registry.execute("api.x")).data == 0


async def test_a_stream_without_end_answers_a_call_with_its_first_item(serve, api):
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 0\n\n")
        await asyncio.sleep(60)

    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        base = await serve(handler, handler_cancellation=True)
        await registry.load("openapi", namespace="api", spec=api({"get /x": {"operationId": "x"}}), base_url=base)
        assert (await registry.execute("api.x")).data == 0


async def test_what_could_be_a_stream_and_is_none_is_one_item(serve, api):
    async def handler(request):
        return web.json_response({"a": 1})

    for config in ({}, {"operation_types": {"x": "subscription"}}):
        async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
            document = api({"get /x": {"operationId": "x"}})
            await registry.load("openapi", namespace="api", spec=document, base_url=await serve(handler), **config)
            assert [item.data async for item in registry.subscribe("api.x")] == [{"a": 1}]
            assert (await registry.execute("api.x")).data == {"a": 1}


async def test_an_answer_instead_of_a_stream_says_what_it_said(serve, operations, api):
    async def handler(request):
        return web.json_response({"error": {"message": "quota exceeded"}})

    found = operations(api(streaming(EVENTS)), await serve(handler))
    with pytest.raises(CallError, match="expected a stream .*application/json: quota exceeded"):
        await collect(found["x"])

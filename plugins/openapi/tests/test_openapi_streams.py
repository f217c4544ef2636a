"""Subscriptions: event streams, JSON lines, twins, resuming."""

import asyncio
import re
from contextlib import suppress

import pytest
from aiohttp import web

from operad import CallError, ErrorCode
from plugins.openapi.tests.data import GET, JSON, TEXT
from plugins.openapi.tests.handlers import replying, result_of
from plugins.openapi.tests.making import body, fields

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


@pytest.fixture
def collect(serve, operations, api):
    """Subscribes to a stream at a server with a handler, or at a URL, until its end; returns the envelopes."""

    async def run(server, content=EVENTS, **config):
        base = server if isinstance(server, str) else await serve(server, handler_cancellation=True)
        found = operations(api(streaming(content), version="3.2.0"), base, **config)
        return [envelope async for envelope in found["x"].handler({}, None)]

    return run


@pytest.fixture
def failure(collect):
    """Does what `collect` does; returns the error of the stream."""

    async def run(server, content=EVENTS, **config):
        with pytest.raises(CallError) as caught:
            await collect(server, content, **config)
        return caught.value

    return run


def sending(*chunks, **options):
    return lambda request: send(request, *chunks, **options)


async def test_events_are_envelopes_with_type_and_id(collect, requests):
    lines = [b'id: 1\nevent: a\ndata: {"n": 1}\n\n', b'data: {"n": 2}\n\n', b"data: lost"]
    envelopes = await collect(sending(*lines))
    found = [(e.data, e.meta.event_type, e.meta.last_event_id) for e in envelopes]
    assert found == [({"n": 1}, "a", "1"), ({"n": 2}, "message", "1")]
    assert envelopes[0].meta.content_type == "text/event-stream"
    assert [request.headers["Accept"] for request in requests] == ["text/event-stream"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [({}, [1, "no json"]), ({"$ref": "#/no"}, [1, "no json"]), ({"type": "string"}, ["1", "no json", "[DONE]"])],
)
async def test_data_are_parsed_unless_the_items_are_text(collect, schema, expected):
    data = b"data: 1\n\ndata: no json\n\ndata: [DONE]\n\n"
    found = await collect(sending(data), {"text/event-stream": {"schema": schema}})
    assert [e.data for e in found] == expected


def test_the_item_schema_of_3_2_is_that_of_the_data(operations, api):
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"type": "integer"}}
    content = {"text/event-stream": {"itemSchema": {"type": "object", "properties": {"data": data}}}}
    spec = operations(api(streaming(content), version="3.2.0"))["x"].spec
    assert (spec.type, spec.output_schema.raw) == ("subscription", {"type": "integer"})


@pytest.mark.parametrize(
    ("content_type", "chunks"),
    [
        ("application/jsonl", [b'{"a":', b" 1}\n\n", b'{"a": 2}']),
        ("application/x-ndjson; charset=utf-8", [b'{"a": 1}\r\n{"a": 2}\r\n']),
        ("application/json-seq", [b'\x1e{"a":\n 1}\n\x1e', b'{"a": 2}\n']),
    ],
)
async def test_json_records(collect, operations, api, content_type, chunks):
    content = {content_type: {"itemSchema": {"type": "object"}}}
    found = await collect(sending(*chunks, content_type=content_type), content)
    assert [e.data for e in found] == [{"a": 1}, {"a": 2}]
    document = api(streaming(content), version="3.2.0")
    assert operations(document)["x"].spec.output_schema.raw == {"type": "object"}


@pytest.mark.parametrize(
    ("kind", "data"), [("jsonl", b"[10]\n[2]"), ("json-seq", b"\x1e[10]\x1e[2]"), ("json", b"[10][2]")]
)
async def test_a_value_of_a_stream_may_be_as_large_as_its_limit(collect, failure, kind, data):
    handler = sending(data, content_type=f"application/{kind}")
    content, options = {f"application/{kind}": {"itemSchema": {}}}, {"operation_types": {"x": "subscription"}}
    found = await collect(handler, content, limits={"event_bytes": 4}, **options)
    assert [envelope.data for envelope in found] == [[10], [2]]
    error = await failure(handler, content, limits={"event_bytes": 3}, **options)
    assert error.details == {"limit": "event_bytes", "bytes": 3}


def test_a_subscription_of_which_the_document_tells_nothing_has_items_of_any_kind(operations, api):
    paths = {"get /x": {"operationId": "x", "responses": {"200": {"description": ""}}}}
    spec = operations(api(paths), operation_types={"x": "subscription"})["x"].spec
    assert (spec.type, spec.output_schema.raw) == ("subscription", True)


async def test_an_operation_that_answers_both_ways_has_a_twin(serve, operations, api):
    async def handler(request):
        given = await request.json()
        if given.get("stream"):
            return await send(request, b'data: {"n": 1}\n\ndata: [DONE]\n\n')
        return web.json_response(given)

    both = {"200": {"description": "", "content": {JSON: {"schema": {}}, **EVENTS}}}
    operation = {"operationId": "ask", **body(fields(stream={"type": "boolean"}, q=TEXT)), "responses": both}
    found = operations(api({"post /x": operation}), await serve(handler))
    types = {name: str(o.spec.type) for name, o in found.items()}
    assert types == {"ask": "mutation", "ask_stream": "subscription"}
    assert (await found["ask"].handler({"q": "a"}, None)).data == {"q": "a"}
    assert [e.data async for e in found["ask_stream"].handler({"q": "a"}, None)] == [{"n": 1}]


@pytest.mark.parametrize(
    ("input", "sent"),
    [({"body": {"q": "a"}}, {"q": "a", "stream": True}), ({}, {"stream": True}), ({"body": [1]}, [1])],
)
async def test_a_twin_asks_for_a_stream_in_a_body_that_is_one_key(serve, operations, api, input, sent):
    got = []

    async def handler(request):
        got.append(await request.json())
        return await send(request, b"data: 1\n\n")

    both = {"200": {"description": "", "content": {JSON: {"schema": {}}, **EVENTS}}}
    operation = {"operationId": "ask", **body({"anyOf": [{}], "properties": {"stream": {}}}), "responses": both}
    found = operations(api({"post /x": operation}), await serve(handler))
    assert [e.data async for e in found["ask_stream"].handler(input, None)] == [1]
    assert got == [sent]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, {}, "expected a stream"),
        (200, {"error": {"message": "quota exceeded"}}, "expected a stream .*application/json: quota exceeded"),
        (403, {"why": 1}, "403"),
    ],
)
async def test_an_answer_instead_of_a_stream_is_an_error_that_says_what_it_said(failure, status, body, message):
    error = await failure(lambda request: web.json_response(body, status=status))
    assert re.search(f"EXECUTION_ERROR: .*{message}", str(error))
    assert (error.details or {}).get("body") == (body if status == 403 else None)


async def test_204_is_an_empty_stream(collect):
    assert await collect(replying(status=204)) == []


async def test_a_stream_that_breaks_off_gives_its_items_and_an_error(serve_raw, operations, api):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = operations(api(streaming(EVENTS)), await serve_raw(head + b"b\r\ndata: {}\n\n\n\r\n"))
    items = found["x"].handler({}, None)
    assert (await anext(items)).data == {}
    with pytest.raises(CallError, match="UNAVAILABLE"):
        await anext(items)


async def test_an_event_of_100_mb_is_refused_at_the_limit(failure):
    sent = []

    async def handler(request):
        response = await send(request, b"data: ")
        for number in range(100):
            await response.write(b"x" * 1_000_000)
            sent.append(number)

    error = await failure(handler)
    assert (error.code, error.details["limit"]) == (ErrorCode.PAYLOAD_TOO_LARGE, "event_bytes")
    assert len(sent) < 100


async def test_a_json_line_without_end_is_refused_at_the_limit_and_one_that_is_no_json(failure):
    too_large = (ErrorCode.PAYLOAD_TOO_LARGE, "event_bytes")
    for chunks, found in (([b"x" * 10_000] * 10, too_large), ([b"{}\n{\n"], (ErrorCode.EXECUTION_ERROR, None))):
        handler = sending(*chunks, content_type="application/jsonl")
        error = await failure(handler, {"application/jsonl": {}}, limits={"event_bytes": 50_000})
        assert (error.code, error.details.get("limit")) == found


@pytest.mark.parametrize(
    ("chunks", "config"), [([b"data: {}\n\n"], {"idle_timeout": 0.2}), (None, {"timeout": 0.2})]
)
async def test_a_stream_that_is_silent_or_does_not_begin_ends_with_its_timeout(failure, chunks, config):
    async def handler(request):
        if chunks:
            await send(request, *chunks)
        await asyncio.sleep(30)

    assert (await failure(handler, **config)).code == ErrorCode.TIMEOUT


async def test_a_stream_may_outlive_the_timeout_of_calls(collect):
    async def handler(request):
        response = await send(request)
        for _ in range(6):
            await asyncio.sleep(timeout / 3)
            await response.write(b"data: {}\n\n")
        return response

    for timeout in (0.3, 3, 15):  # where this machine is too busy for the first one, a longer one counts
        with suppress(CallError):
            assert len(await collect(handler, timeout=timeout)) == 6
            return
    pytest.fail("no stream outlived its timeout")


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
    await anext(items)
    await items.aclose()
    await asyncio.wait_for(gone.wait(), 5)


async def test_a_stream_is_resumed_where_it_broke_off_if_that_is_wanted(collect, requests):
    async def handler(request):
        number = len(requests)
        if number == 3:
            return web.Response(status=204)
        response = await send(request, f"retry: 1\nid: {number}\ndata: {{}}\n\n".encode())
        if number == 1:
            request.transport.abort()
        return response

    assert [e.meta.last_event_id for e in await collect(handler, reconnect=True)] == ["1", "2"]
    assert [request.headers.get("Last-Event-ID") for request in requests] == [None, "1", "2"]
    requests.clear()
    await collect(sending(b"id: 1\ndata: {}\n\n"))
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("document", "config"),
    [(streaming(EVENTS), {}), (GET, {}), (GET, {"operation_types": {"x": "subscription"}})],
    ids=["by the document", "by its content type", "by the configuration"],
)
async def test_a_registry_runs_streams_also_those_that_the_document_does_not_mention(
    registry, load, document, config
):
    """As FastAPI documents a StreamingResponse: JSON of any kind."""
    await load(sending(*[b"data: %d\n\n" % number for number in range(3)]), document, **config)
    assert [item.data async for item in registry.subscribe("api.x")] == [0, 1, 2]
    assert (await registry.execute("api.x")).data == 0


async def test_a_stream_without_end_answers_a_call_with_its_first_item(registry, serve, load):
    async def handler(request):
        await send(request, b"data: 0\n\n")
        await asyncio.sleep(60)

    await load(await serve(handler, handler_cancellation=True))
    assert (await registry.execute("api.x")).data == 0


@pytest.mark.parametrize("config", [{}, {"operation_types": {"x": "subscription"}}])
async def test_what_could_be_a_stream_and_is_none_is_one_item(registry, load, config):
    await load(result_of(lambda request: {"a": 1}), **config)
    assert [item.data async for item in registry.subscribe("api.x")] == [{"a": 1}]
    assert (await registry.execute("api.x")).data == {"a": 1}

"""What observers of a call learn of its requests: those that are sent again, and how far large bodies are."""

import gzip

import pytest
from aiohttp import web

from operad import OperationContext, OperationRegistry, load_plugins
from operad_openapi._http.progress import Progress
from operad_testing import CallLog
from plugins.openapi.tests.data import GET
from plugins.openapi.tests.handlers import replying
from plugins.openapi.tests.making import api

BINARY = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
FILES = {
    "post /up": {"operationId": "up", "requestBody": BINARY},
    "get /down": {"operationId": "down", "responses": {"200": {"description": "a file", **BINARY}}},
}
MIB = 1024 * 1024


async def observed(base_url, paths=GET):
    log = CallLog()
    plugins = load_plugins(only=["openapi"])
    plugins.register(log)
    registry = OperationRegistry(plugins)
    await registry.load("openapi", namespace="api", spec=api(paths), base_url=base_url)
    return registry, log


async def test_a_request_that_is_sent_again_is_reported_with_why_and_when(serve, requests):
    def handler(request):
        if len(requests) == 1:
            request.transport.close()
        is_second = len(requests) == 2
        return web.Response(status=503, headers={"Retry-After": "0"}) if is_second else web.json_response(1)

    registry, log = await observed(await serve(handler))
    async with registry:
        await registry.execute("api.x", {})
    told = [(each.kind, each.level, each.attributes["attempt"]) for _, each in log.reported]
    assert told == [("retry", "warning", 1), ("retry", "warning", 2)]
    assert all(each.attributes["delay"] >= 0 for _, each in log.reported)
    assert log.reported[1][1].message.endswith("/x: HTTP 503")


async def test_large_bodies_tell_how_far_they_are_in_both_directions_and_arrive_whole(serve, tmp_path):
    body = bytes(range(256)) * (12 * 1024)
    came = []

    async def handler(request):
        if request.method == "POST":
            came.append((request.headers.get("Content-Length"), await request.read()))
            return web.json_response(1)
        return web.Response(body=body)

    registry, log = await observed(await serve(handler), FILES)
    (tmp_path / "file").write_bytes(body)
    async with registry:
        await registry.execute("api.up", {"body": body})
        await registry.execute("api.up", {"body": tmp_path / "file"})
        assert (await registry.execute("api.down")).data == body
        assert b"".join([chunk async for chunk in registry.download("api.down")]) == body
    assert came == [(str(len(body)), body)] * 2
    told = {}
    for call, each in log.reported:
        assert (each.total, each.unit) == (3 * MIB, "By")
        told.setdefault((call.request_id, each.kind), []).append(each.progress)
    assert [kind for _, kind in told] == ["upload", "upload", "download", "download"]
    for sizes in told.values():
        assert sizes == sorted(sizes)
        assert sizes[-1] == 3 * MIB
        assert 2 <= len(sizes) <= 101


async def test_a_compressed_body_tells_how_much_of_it_came(serve):
    body = gzip.compress(bytes(range(256)) * 16 * 1024, 0)
    registry, log = await observed(await serve(replying(body, Content_Encoding="gzip")), FILES)
    async with registry:
        assert len((await registry.execute("api.down")).data) == 4 * MIB
    assert log.reported[-1][1].progress == log.reported[-1][1].total == len(body)


async def test_of_small_bodies_nothing_is_told(serve):
    async def handler(request):
        await request.read()
        return web.Response(body=b"x" * 1_000_000)

    registry, log = await observed(await serve(handler), FILES)
    async with registry:
        await registry.execute("api.up", {"body": b"x" * 1_000_000})
        await registry.execute("api.down")
    assert log.reported == []


async def test_the_context_of_a_trace_goes_to_the_api_and_what_is_malformed_does_not(serve, requests):
    registry, _ = await observed(await serve(replying()))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given = {"traceparent": parent, "tracestate": "a=1", "baggage": "user=al%20ice;p,shop=" + "7" * 8_000}
    broken = {"traceparent": parent + "x", "tracestate": "a=1", "baggage": "k=v\r\nEvil: 1"}
    async with registry:
        await registry.execute("api.x", {}, OperationContext(metadata=given))
        await registry.execute("api.x", {}, OperationContext(metadata=broken))
    seen = [{name: request.headers.get(name) for name in given} for request in requests]
    assert seen == [given, {"traceparent": None, "tracestate": None, "baggage": None}]


@pytest.mark.parametrize(
    ("total", "pieces", "told"),
    [(None, [MIB - 1, 1, MIB, 1], [MIB, 2 * MIB]), (None, [MIB // 2], []), (MIB - 1, [MIB - 1], []),
     (MIB, [MIB // 4 - 1, 1, MIB // 2, MIB // 4 - 1, 1], [MIB // 4, 3 * MIB // 4, MIB]),
     (200 * MIB, [2 * MIB - 1, 1, MIB, MIB], [2 * MIB, 4 * MIB])],
)  # fmt: skip
def test_progress_is_told_for_each_step_of_a_large_body_and_its_end(total, pieces, told):
    seen = []
    progress = Progress(lambda kind, **more: seen.append((kind, more)), "upload", total)
    for size in pieces:
        progress.passed(size)
    assert seen == [("upload", {"progress": size, "total": total, "unit": "By"}) for size in told]

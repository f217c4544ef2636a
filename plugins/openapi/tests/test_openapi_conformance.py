"""operad-openapi against the conformance kit, with a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from operad_openapi import HTTPResponseMeta
from operad_testing import (
    EnvelopeKindCapabilities,
    EnvelopeKindConformance,
    Example,
    PluginConformance,
    SourceCapabilities,
    SourceConformance,
)
from plugins.openapi.tests.data import DOCUMENTS


async def bird(request: web.Request) -> web.Response:
    if request.match_info["ring"] == "lost":
        return web.json_response({"title": "a hawk"}, status=404)
    return web.json_response({"ring": request.match_info["ring"], "feathers": 2000})


async def add(request: web.Request) -> web.Response:
    return web.json_response(await request.json())


async def watch(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for ring in ("a", "b", "c"):
        await response.write(f'data: {{"ring": "{ring}"}}\n\n'.encode())
    await asyncio.sleep(60)
    return response


async def slow(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.json_response(None)


@asynccontextmanager
async def loft() -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(
        [web.get("/birds/{ring}", bird), web.post("/birds", add), web.get("/watch", watch), web.get("/slow", slow)]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class TestOpenAPI(SourceConformance):
    source = "openapi"
    capabilities = SourceCapabilities(subscriptions=True, envelope_kind="http")
    example = Example("getBird", {"ring": "a"}, data={"ring": "a", "feathers": 2000})
    invalid = Example("addBird", {"feathers": "many"})
    stream = Example("watch", data=[{"ring": "a"}, {"ring": "b"}])
    failing = Example("getBird", {"ring": "lost"}, error="EXECUTION_ERROR")
    slow = Example("slow")
    broken = ({"spec": "/no/such/file.json"}, {"spec": {"no": "document"}}, {"spec": 3})
    secrets = ("s3cret",)

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        async with loft() as url:
            yield {"spec": DOCUMENTS["loft"], "base_url": url, "auth": {"type": "bearer", "token": "s3cret"}}


class TestHTTPEnvelope(EnvelopeKindConformance):
    kind_source = "http"
    capabilities = EnvelopeKindCapabilities(binary=True)
    examples = (
        HTTPResponseMeta(204, {}, ""),
        HTTPResponseMeta(200, {"a": "b, c"}, "text/plain", "http://h/p", "GET", 1.5, ["a=b", "c=d"]),
        HTTPResponseMeta(200, {}, "text/event-stream", event_type="tick", last_event_id="7"),
    )


class TestPlugin(PluginConformance):
    distribution = "operad-openapi"
    contributes = {"sources": ["openapi"], "envelope_kinds": ["http"]}

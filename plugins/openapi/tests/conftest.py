"""Real servers on 127.0.0.1, and documents for them."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from operad_openapi import HTTPServiceConfig, from_openapi


@pytest.fixture
async def serve():
    """Starts an HTTP server for a handler of every request; answers its base URL."""
    runners = []

    async def start(handler, **options):
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1, **options)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def serve_raw():
    """Starts a TCP server for a function of (reader, writer); answers its base URL."""
    servers, tasks = [], set()

    async def start(talk):
        async def connected(reader, writer):
            tasks.add(asyncio.current_task())
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                await talk(reader, writer)
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def operations():
    """Makes operations by name from a document, and closes their session."""
    opened = []

    def make(document, base_url=None, **config):
        found = from_openapi(document, HTTPServiceConfig(namespace="api", base_url=base_url, **config))
        opened.append(found)
        return {operation.spec.name: operation for operation in found}

    yield make
    for found in opened:
        await found.aclose()


JSON_OK = {"200": {"description": "ok", "content": {"application/json": {"schema": {}}}}}
EVENTS_OK = {"200": {"description": "ok", "content": {"text/event-stream": {"schema": {"type": "object"}}}}}


def api(paths, version="3.1.0", **more):
    """A document of ``{"get /path": operation}``."""
    document = {"openapi": version, "info": {"title": "t", "version": "1"}, "paths": {}, **more}
    if version == "2.0":
        document["swagger"] = document.pop("openapi")
    for route, operation in paths.items():
        method, path = route.split(" ", 1)
        item = document["paths"].setdefault(path, {})
        item[method] = {"responses": JSON_OK, **operation}
    return document


@pytest.fixture(name="api")
def api_fixture():
    """The function that makes documents."""
    return api


@pytest.fixture
def events_ok():
    """Responses of a stream of objects."""
    return EVENTS_OK

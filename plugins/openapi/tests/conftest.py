"""Real servers on 127.0.0.1, and documents for them."""

import asyncio
import contextlib
import inspect

import pytest
from aiohttp import web

from operad import CallError, OperationRegistry, load_plugins
from plugins.openapi.tests.data import GET
from plugins.openapi.tests.making import EVENTS_OK, api, made


@pytest.fixture
def requests():
    """The requests that the servers of `serve` received, and the heads of those that `serve_raw` received."""
    return []


@pytest.fixture
async def serve(requests):
    """Starts an HTTP server for a handler of every request, async or not; returns its base URL."""
    runners = []

    async def start(handler, ssl_context=None, **options):
        async def handle(request):
            requests.append(request)
            found = handler(request)
            return await found if inspect.isawaitable(found) else found

        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{tail:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, **options)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
        port = runner.addresses[0][1]
        return f"http://127.0.0.1:{port}" if ssl_context is None else f"https://localhost:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def serve_raw(requests):
    """Starts a TCP server for a function of (reader, writer), or for bytes to send; returns its base URL."""
    servers, tasks = [], set()

    async def start(talk):
        async def connected(reader, writer):
            tasks.add(asyncio.current_task())
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                if isinstance(talk, bytes):
                    writer.write(talk)
                    await writer.drain()
                else:
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
        found = made(document, base_url=base_url, **config)
        opened.append(found)
        return {operation.spec.name: operation for operation in found}

    yield make
    for found in opened:
        await found.aclose()


@pytest.fixture
async def registry():
    """A registry with the plugin alone."""
    async with OperationRegistry(load_plugins(only=["openapi"])) as made:
        yield made


@pytest.fixture
def load(registry, serve):
    """Loads a document for a server with a handler, or for a URL, into `registry`; returns the specs."""

    async def run(server, document=GET, namespace="api", **options):
        base = server if isinstance(server, str) else await serve(server)
        document = document if "paths" in document else api(document)
        return await registry.load("openapi", namespace=namespace, spec=document, base_url=base, **options)

    return run


@pytest.fixture
def call(serve, operations):
    """Calls the first operation of a document at a server with a handler, or at a URL; returns its envelope."""

    async def run(server, document=GET, input=None, **config):
        base = server if isinstance(server, str) else await serve(server)
        document = document if "paths" in document else api(document)
        found = operations(document, base, **config)
        return await next(iter(found.values())).handler(input or {}, None)

    return run


@pytest.fixture
def fails(call):
    """Does what `call` does; returns the error of the call."""

    async def run(*arguments, **config):
        with pytest.raises(CallError) as caught:
            await call(*arguments, **config)
        return caught.value

    return run


@pytest.fixture(name="api")
def api_fixture():
    """The function that makes documents."""
    return api


@pytest.fixture
def events_ok():
    """Responses of a stream of objects."""
    return EVENTS_OK

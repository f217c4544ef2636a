"""What must not be crossed: from https to http, from public to private, and the bounds of hostile documents."""

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from operad import CallError, ErrorCode
from operad_openapi import HTTPServiceConfig
from operad_openapi._document.document import Document
from operad_openapi._http import resolving
from operad_openapi.operations import build_operations

PATHOLOGICAL = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")).absolute() / "specs" / "pathological"
GET = {"get /x": {"operationId": "x"}}


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def serve_tls(authority):
    """Starts an HTTPS server that may ask for certificates; answers its base URL."""
    runners = []

    async def start(handler, *, asks=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            authority.configure_trust(context)
        app = web.Application()
        app.router.add_get("/x", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        return f"https://localhost:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


def client_context(authority, *, certificate=False):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate:
        authority.issue_cert("client@example.test").configure_cert(context)
    return context


async def test_a_redirect_from_https_to_http_is_refused(serve, call, serve_tls, authority):
    asked = []

    async def plain(request):
        asked.append(request)
        return web.json_response(1)

    target = await serve(plain)

    async def handler(request):
        raise web.HTTPFound(f"{target}/x")

    base = await serve_tls(handler)
    with pytest.raises(CallError, match="from https to http is not followed"):
        await call(base, ssl=client_context(authority))
    assert asked == []


async def test_mutual_tls_is_met_by_a_certificate(serve_tls, operations, api, call, authority):
    async def handler(request):
        return web.json_response(request.headers.get("Authorization"))

    base = await serve_tls(handler, asks=True)
    schemes = {"tls": {"type": "mutualTLS"}, "token": {"type": "http", "scheme": "bearer"}}
    document = api(
        {"get /x": {"operationId": "x", "security": [{"tls": []}, {"token": []}]}},
        components={"securitySchemes": schemes},
    )
    config = {"auth": {"type": "bearer", "token": "t"}, "retries": 0}
    call = operations(document, base, ssl=client_context(authority, certificate=True), **config)["x"].handler
    assert (await call({}, None)).data is None  # the first alternative is met: the second is not needed
    call = operations(document, base, ssl=client_context(authority), **config)["x"].handler
    with pytest.raises(CallError) as caught:
        await call({}, None)
    assert caught.value.code == ErrorCode.UNAVAILABLE


async def test_a_certificate_of_nobody_is_refused(call, serve_tls):
    async def handler(request):
        return web.json_response(1)

    with pytest.raises(CallError, match="certificate is not valid"):
        await call(await serve_tls(handler), retries=0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1", "2130706433"])
async def test_a_public_document_cannot_name_a_private_server(api, host):
    document = api(GET, servers=[{"url": f"http://{host}/"}])
    loaded = Document(document, "https://api.example.com/openapi.json")
    async with build_operations(loaded, HTTPServiceConfig(namespace="api")) as found:
        with pytest.raises(CallError, match="private address"):
            await found[0].handler({}, None)
    async with build_operations(loaded, HTTPServiceConfig(namespace="api", trusted=True)) as found:
        assert found.built["x"].plan.server.startswith("http://")


async def test_a_public_document_cannot_name_a_host_with_a_private_address(serve, api, monkeypatch):
    # The nearest thing to a public name with a private address that every machine has.
    monkeypatch.setattr("operad_openapi._document.servers.is_private_host", lambda host: False)
    monkeypatch.setattr(resolving, "is_private", lambda host: _answer(host == "intranet.example"))
    port = (await serve(lambda request: web.json_response("inside"))).rpartition(":")[2]
    document = api(GET, servers=[{"url": f"http://localhost:{port}"}])
    config = HTTPServiceConfig(namespace="api", retries=0)
    async with build_operations(Document(document, "https://api.example.com/o.json"), config) as found:
        with pytest.raises(CallError, match=r"localhost, which api\.example\.com named, has a private address"):
            await found[0].handler({}, None)
    async with build_operations(Document(document, "https://intranet.example/o.json"), config) as found:
        assert (await found[0].handler({}, None)).data == "inside"


async def _answer(value):
    return value


async def test_a_name_that_turns_private_after_the_check_is_not_connected_to(serve, call, monkeypatch):
    asked = []

    async def handler(request):
        asked.append(request.host)
        raise web.HTTPFound(f"http://localhost:{request.url.port}/x")

    monkeypatch.setattr(resolving, "is_private", lambda host: _answer(False))  # what DNS said when it was asked
    base = await serve(handler)
    with pytest.raises(CallError, match=r"localhost, which 127\.0\.0\.1 named, has a private address"):
        await call(base, retries=0)
    assert asked == [base.removeprefix("http://")]


LOADING = """
import asyncio, resource, sys
from operad.errors import SourceError
from operad_openapi import HTTPServiceConfig, from_openapi_file
import aiohttp, jsonschema
async def main():
    try:
        found = await from_openapi_file(sys.argv[1], HTTPServiceConfig(namespace="api"))
    except SourceError:
        return
    async with found:
        for operation in found:
            _ = operation.spec.input_schema.raw, operation.spec.output_schema.raw
used = resource.getrusage(resource.RUSAGE_SELF)
spent = int(used.ru_utime + used.ru_stime)
resource.setrlimit(resource.RLIMIT_CPU, (spent + 3, spent + 3))  # whole seconds: 2 and what is begun
asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used.ru_maxrss)
"""
HOSTILE = sorted(p.name for p in PATHOLOGICAL.glob("*.*")) if PATHOLOGICAL.exists() else []


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of the memory as Linux counts it (KiB)")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_pathological_document_stays_within_two_seconds_of_processor_and_200_mb(name):
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(PATHOLOGICAL / name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert int(done.stdout) < 200 * 1024

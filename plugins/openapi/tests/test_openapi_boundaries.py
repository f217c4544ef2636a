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
from operad_openapi._document.document import Document
from operad_openapi._http import resolving
from operad_openapi.operations import build_operations
from plugins.openapi.tests.data import GET
from plugins.openapi.tests.handlers import redirect, replying, result_of, server_context
from plugins.openapi.tests.making import config

PATHOLOGICAL = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")).absolute() / "specs" / "pathological"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def client_context(authority, *, certificate=False):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate:
        authority.issue_cert("client@example.test").configure_cert(context)
    return context


async def test_a_redirect_from_https_to_http_is_refused(serve, fails, requests, authority):
    target = await serve(replying())
    base = await serve(lambda request: redirect(f"{target}/x"), server_context(authority))
    error = await fails(base, ssl=client_context(authority))
    assert "got one to http, which is not followed" in error.message
    assert len(requests) == 1


async def test_mutual_tls_is_met_by_a_certificate(serve, call, fails, api, authority):
    base = await serve(
        result_of(lambda request: request.headers.get("Authorization")), server_context(authority, asks=True)
    )
    schemes = {"tls": {"type": "mutualTLS"}, "token": {"type": "http", "scheme": "bearer"}}
    document = api(GET, components={"securitySchemes": schemes}, security=[{"tls": []}, {"token": []}])
    config = {"auth": {"type": "bearer", "token": "t"}, "retries": 0}
    shown = client_context(authority, certificate=True)
    assert (await call(base, document, ssl=shown, **config)).data is None  # the first alternative is met
    assert (await fails(base, document, ssl=client_context(authority), **config)).code == ErrorCode.UNAVAILABLE


async def test_a_certificate_of_nobody_is_refused(serve, fails, authority):
    base = await serve(replying(), server_context(authority))
    assert "certificate is not valid" in (await fails(base, retries=0)).message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1", "2130706433"])
async def test_a_public_document_cannot_name_a_private_server(api, host):
    document = api(GET, servers=[{"url": f"http://{host}/"}])
    loaded = Document(document, "https://api.example.com/openapi.json")
    async with build_operations(loaded, config(base_url=None)) as found:
        with pytest.raises(CallError, match="private address"):
            await found[0].handler({}, None)
    async with build_operations(loaded, config(base_url=None, trusted=True)) as found:
        assert found.built["x"].plan.server.startswith("http://")


async def test_a_server_of_a_public_document_may_be_private_at_the_origin_of_base_url(api):
    loaded = Document(api({"get /x": {"servers": [{"url": "/v2"}]}}), "https://api.example.com/openapi.json")
    async with build_operations(loaded, config(base_url="http://10.0.0.1")) as found:
        assert found.built["get_x"].plan.server == "http://10.0.0.1/v2"


async def test_a_public_document_cannot_name_a_host_with_a_private_address(serve, api, monkeypatch):
    # The nearest thing to a public name with a private address that every machine has.
    monkeypatch.setattr("operad_openapi._document.servers.is_private_host", lambda host: False)
    monkeypatch.setattr(resolving, "is_private", lambda host: _answer(host == "intranet.example"))
    port = (await serve(lambda request: web.json_response("inside"))).rpartition(":")[2]
    document = api(GET, servers=[{"url": f"http://localhost:{port}"}])
    options = config(base_url=None, retries=0)
    async with build_operations(Document(document, "https://api.example.com/o.json"), options) as found:
        with pytest.raises(CallError, match=r"api\.example\.com refers to localhost, which has a private"):
            await found[0].handler({}, None)
    async with build_operations(Document(document, "https://intranet.example/o.json"), options) as found:
        assert (await found[0].handler({}, None)).data == "inside"


async def test_a_private_document_cannot_name_a_host_with_a_link_local_address(serve, api, monkeypatch):
    monkeypatch.setattr("operad_openapi._document.servers.is_private_host", lambda host: False)
    monkeypatch.setattr(resolving, "is_private", lambda host: _answer(True))
    monkeypatch.setattr(resolving, "is_link_local", lambda host: _answer(False))
    monkeypatch.setattr(resolving, "is_link_local_host", lambda host: True)
    port = (await serve(lambda request: web.json_response("inside"))).rpartition(":")[2]
    document = Document(api(GET, servers=[{"url": f"http://localhost:{port}"}]), "https://intranet.example/o.json")
    refers = r"intranet\.example refers to localhost, which has a link-local address; set trusted = true"
    async with build_operations(document, config(base_url=None, retries=0)) as found:
        with pytest.raises(CallError, match=refers):
            await found[0].handler({}, None)
    async with build_operations(document, config(base_url=None, retries=0, trusted=True)) as found:
        assert (await found[0].handler({}, None)).data == "inside"


async def _answer(value):
    return value


async def test_a_name_that_turns_private_after_the_check_is_not_connected_to(serve, fails, requests, monkeypatch):
    def handler(request):
        return redirect(f"http://localhost:{request.url.port}/x")

    monkeypatch.setattr(resolving, "is_private", lambda host: _answer(False))  # what DNS said when it was asked
    base = await serve(handler)
    error = await fails(base, retries=0)
    assert "127.0.0.1 refers to localhost, which has a private address" in error.message
    assert [request.host for request in requests] == [base.removeprefix("http://")]


LOADING = """
import asyncio, resource, sys
from operad.errors import SourceError
from operad_openapi import HTTPServiceConfig, from_openapi_file
import aiohttp, jsonschema
async def main():
    try:
        found = await from_openapi_file(sys.argv[1], HTTPServiceConfig(namespace="api"))
    except SourceError:
        assert sys.argv[1].endswith("deep-nesting-1200.json")
        return
    async with found:
        assert found
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
def test_a_pathological_document_ends_in_operations_or_an_error_within_2_seconds_and_200_mb(name):
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(PATHOLOGICAL / name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert int(done.stdout) < 200 * 1024

"""Which HTTPS servers a source trusts by default, each tried in a process of its own."""

import asyncio
import json
import os
import sys

import pytest
import trustme

from plugins.openapi.tests.handlers import result_of, server_context

PROGRAM = """
import asyncio, json, sys
from operad import CallError
from operad_openapi import HTTPServiceConfig, from_openapi

plain, secure = sys.argv[1:]
document = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {"/x": {"get": {"operationId": "x"}}}}

async def called(base, **options):
    (operation,) = from_openapi(document, HTTPServiceConfig(namespace="a", base_url=base, retries=0, **options))
    try:
        return (await operation.handler({}, None)).data
    except CallError as error:
        return error.message

async def main():
    found = {"plain": await called(plain), "unverified": await called(secure, tls_verify=False)}
    print(json.dumps({**found, "verified": await called(secure)}))

asyncio.run(main())
"""


async def called(plain: str, secure: str, **environment: str) -> dict:
    """Return what the calls of another process returned; the environment names the certificates it trusts."""
    command = [sys.executable, "-c", PROGRAM, plain, secure]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


@pytest.fixture
async def servers(serve, tmp_path):
    """The URLs of a server without TLS and of one with TLS, and the path of its authority's certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    contexts = (None, server_context(authority))
    plain, secure = [await serve(result_of(lambda request: True), context) for context in contexts]
    return plain, secure, str(tmp_path / "ca.pem")


async def test_a_server_with_a_certificate_that_the_system_trusts_is_called(servers):
    plain, secure, trusted = servers
    found = await called(plain, secure, SSL_CERT_FILE=trusted, SSL_CERT_DIR="/nowhere")
    assert found == {"plain": True, "unverified": True, "verified": True}


async def test_a_server_without_such_a_certificate_is_refused_even_after_a_call_that_did_not_verify_it(servers):
    plain, secure, _ = servers
    found = await called(plain, secure)
    assert found["unverified"] is True  # as the configuration demands
    assert "certificate verify failed" in found["verified"]

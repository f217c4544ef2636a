"""The certificates of the system are read late, and before anybody is believed: each in a process that has no aiohttp yet."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import threading

import pytest
import trustme
from aiohttp import web

from operad_openapi._http.trust import LateContext, read_late

PROGRAM = """
import asyncio, json, ssl, sys
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
    told = {"plain": await called(plain)}
    from aiohttp import ClientError, ClientSession, connector
    verified, unverified = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED
    stored = ssl.SSLContext.cert_store_stats
    told["read"] = [stored(verified)["x509_ca"], stored(unverified)["x509_ca"]]
    told["unverified"] = await called(secure, tls_verify=False)
    told["read"] += [stored(verified)["x509_ca"], stored(unverified)["x509_ca"]]
    told["verified"] = await called(secure)
    told["bare"] = []
    async with ClientSession() as session:
        for options in ({}, {"ssl": True}):
            try:
                async with session.get(secure + "/x", **options) as response:
                    told["bare"].append(await response.json())
            except ClientError as error:
                told["bare"].append(str(error))
    told["kinds"] = [type(verified) is ssl.SSLContext, verified.verify_mode == ssl.CERT_REQUIRED, verified.check_hostname]
    print(json.dumps(told))

asyncio.run(main())
"""


async def told(plain: str, secure: str, **environment: str) -> dict:
    """What a process of its own says of its calls, which trusts what the environment says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        plain,
        secure,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


@pytest.fixture
async def servers(tmp_path):
    """The addresses of a server without TLS and of one with, and the file of the authority that vouches for that."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    async def handler(request):
        return web.json_response(True)

    app = web.Application()
    app.router.add_get("/x", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    for tls in (None, context):
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    plain, secure = (address[1] for address in runner.addresses)
    yield f"http://localhost:{plain}", f"https://localhost:{secure}", str(tmp_path / "ca.pem")
    await runner.cleanup()


async def test_a_server_for_which_the_system_vouches_is_believed_and_the_certificates_are_read_for_it(servers):
    plain, secure, trusted = servers
    found = await told(plain, secure, SSL_CERT_FILE=trusted, SSL_CERT_DIR="/nowhere")
    assert found == {
        "plain": True, "unverified": True, "verified": True, "bare": [True, True], "read": [0, 0, 0, 0],
        "kinds": [True, True, True],
    }  # fmt: skip


async def test_a_server_for_which_nobody_vouches_is_refused_even_after_one_that_was_not_verified(servers):
    plain, secure, _ = servers
    found = await told(plain, secure)
    assert found["unverified"] is True  # as it was asked to
    for message in (found["verified"], *found["bare"]):
        assert "certificate verify failed" in message


@pytest.mark.parametrize("verify", [True, False])
def test_threads_that_connect_at_once_wait_until_the_certificates_are_read(verify, monkeypatch):
    context = LateContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    times = []
    monkeypatch.setattr(
        LateContext, "load_default_certs", lambda self: times.append(ssl.SSLContext.load_default_certs(self))
    )
    gate, found = threading.Barrier(4), []

    def connect():
        gate.wait(5)
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
        found.append(ssl.SSLContext.cert_store_stats(context))

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == int(verify)
    assert len({str(each) for each in found}) == 1
    assert isinstance(context, LateContext) is not verify


def test_a_late_context_answers_for_its_certificates_as_any_other():
    usual = ssl.create_default_context()
    for ask in (ssl.SSLContext.cert_store_stats, ssl.SSLContext.get_ca_certs):
        context = LateContext(ssl.PROTOCOL_TLS_CLIENT)
        assert getattr(context, ask.__name__)() == ask(usual)


def test_contexts_that_others_make_meanwhile_have_their_certificates():
    program = (
        "import ssl\n"
        "from operad_openapi._http.trust import LateContext, read_late\n"
        "usual = ssl.create_default_context().cert_store_stats()\n"
        "with read_late():\n"
        "    context = ssl.create_default_context()\n"
        "    import aiohttp.connector\n"
        "assert type(aiohttp.connector._SSL_CONTEXT_VERIFIED) is LateContext\n"
        "assert type(context) is ssl.SSLContext and context.cert_store_stats() == usual\n"
        "assert 'set_default_verify_paths' not in vars(ssl.SSLContext)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_where_aiohttp_is_imported_already_nothing_is_changed():
    with read_late():
        assert "set_default_verify_paths" not in vars(ssl.SSLContext)

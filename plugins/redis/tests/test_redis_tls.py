"""TLS in front of a real Redis server, with certificates that are named as files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from operad.plugin import ConfigError, LinkDownError
from operad_redis.plugin import create
from operad_testing import Participant

pytestmark = pytest.mark.redis


@asynccontextmanager
async def tls_in_front(url: str, context: ssl.SSLContext) -> AsyncIterator[str]:
    """What ends TLS, as stunnel does: the server of the tests' wheel is built without."""
    there = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = await asyncio.open_connection(there.hostname, there.port)
        tasks.update({asyncio.create_task(pump(reader, back[1])), asyncio.create_task(pump(back[0], writer))})

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def test_certificates_may_be_named_as_files_that_trust_and_that_are_shown(redis_url, tmp_path):
    trustme = pytest.importorskip("trustme", reason="trustme makes the certificates")
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("worker").private_key_and_cert_chain_pem.write_to_path(tmp_path / "worker.pem")
    files = {"tls_ca": str(tmp_path / "ca.pem"), "tls_cert": str(tmp_path / "worker.pem")}
    async with tls_in_front(redis_url, context) as url:
        async with Participant.open(create(url, bus="tls", **files)) as one:
            await one.send(one.link.inbox, "news", number=1)
            await one.wait_for("news")
        for fewer in ({}, {"tls_ca": files["tls_ca"]}):
            with pytest.raises(LinkDownError):
                await create(url, bus="tls", connect_timeout=2, **fewer).open(lambda *_: None, lambda *_: None)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("redis://h", {"tls_ca": "ca.pem"}, "expected a URL rediss://"),
        ("rediss://h", {"tls_ca": 7}, "expected a string, got an integer"),
        ("redis://h", {"lease": "10"}, "expected a number, got a string"),
        ("redis://h", {"options": []}, "expected a table, got a list"),
    ],
)
def test_an_option_of_another_type_is_a_configuration_error(url, options, words):
    with pytest.raises(ConfigError, match=words):
        create(url, **options)


async def test_a_file_that_cannot_be_used_is_an_error_that_names_it():
    with pytest.raises(
        ConfigError, match=r"tls_ca: expected a PEM file with certificates, got none\.pem: No such"
    ):
        await create("rediss://127.0.0.1:1", tls_ca="none.pem").open(lambda *_: None, lambda *_: None)

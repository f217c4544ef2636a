"""Links over a real NATS server: events out and in."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
import pytest

from operad.plugin import LinkDownError, TransportError
from operad_calls.transport import encode
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer
from plugins.calls.tests.links import RUBBISH, Joiner, Participant, joining, news, request

pytestmark = pytest.mark.nats


@pytest.fixture
async def raw(nats_url: str) -> AsyncIterator[Any]:
    """A client of the shared server."""
    client = await nats.connect(nats_url)
    yield client
    await client.close()


def subject_of(participant: Participant, below: str = "r") -> str:
    """A subject of its inbox."""
    return f"_INBOX.{participant.link.inbox.removeprefix('inbox:')}.{below}"


@pytest.fixture
async def join(nats_url: str) -> Any:
    """Makes participants on the shared server, on a bus of this test's own; closes them."""
    shared = {"prefix": f"test{secrets.token_hex(8)}", "connect_timeout": 20.0}

    def make(url: str = nats_url, **options: Any) -> NATSTransport:
        return NATSTransport(servers=url, **{**shared, **options})

    async with joining(make) as join:
        yield join


async def test_an_inbox_may_have_a_part_that_permissions_can_name(join: Joiner) -> None:
    alice, bob = await join(inbox="alice"), await join()
    assert alice.link.inbox.startswith("inbox:alice.")
    await bob.link.send(alice.link.inbox, news(1))
    await alice.until(lambda: len(alice.events) == 1)


@pytest.mark.parametrize(
    "operation_id",
    ["a.b.c", "ns.*", "ns.>", "ns.a b", "ns.ünïcode/日本", "ns." + "x" * 5000, "ns.a\r\nPUB x 0", "ns.%2E", "ns.."],
)  # fmt: skip
async def test_any_operation_id_reaches_its_operation_and_no_other(join: Joiner, operation_id: str) -> None:
    server, client, other = await join(), await join(), await join()
    await server.link.register(f"op:{operation_id}", "workers")
    await other.link.register("op:ns.else", "workers")
    await client.link.send(f"op:{operation_id}", request(1, operation_id))
    await server.until(lambda: len(server.events) == 1)
    assert other.events == []


@pytest.mark.parametrize("request_id", ["r1", "a.b-*>ü /", "x" * 100])
async def test_a_request_that_nobody_serves_is_refused_at_once(join: Joiner, request_id: str) -> None:
    client = await join()
    event = request(1, requestId=request_id)
    await client.link.send("op:test.nobody.here", event)
    await client.until(lambda: len(client.events) == 1)
    refusal = client.events[0]["payload"]
    assert (client.events[0]["type"], refusal["code"]) == ("call.error", "NO_RESPONDERS")
    assert (refusal["requestId"], refusal["details"]) == (request_id, {"operationId": "test.nobody.here"})


async def test_a_peer_that_sends_rubbish_harms_nobody(join: Joiner, raw: Any) -> None:
    server, client = await join(), await join()
    for data in RUBBISH:
        await raw.publish(subject_of(server), data)
        await raw.publish(subject_of(server, "n.x"), data, headers={"Status": "503"})
    await raw.close()
    await client.link.send(server.link.inbox, news(1))
    await server.until(lambda: news(1) in server.events)
    assert server.states == [("up", 1)], "the connection was lost over it"


@pytest.mark.parametrize("below", [b"\xff\xfe", b"n.\xff.\xff", b"n.%FF.%FF", b"n", b"n.x", b"r"])
@pytest.mark.parametrize("operation_id", ["", ".", "a", "test.op", "a\x00b.c", "x" * 100_000])
async def test_no_request_ends_the_connection_of_whoever_it_comes_to(
    join: Joiner, nats_url: str, below: bytes, operation_id: str
) -> None:
    """Whoever may publish one subject could silence a worker: a server takes subjects of any bytes."""
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    data = encode(request(1, operation_id))
    address = urlsplit(nats_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
    for subject in (subject_of(server, "").encode() + below, f"{server.transport.prefix}.op.test.op".encode()):
        writer.write(b"PUB %b %d\r\n%b\r\n" % (subject, len(data), data))
        headers = b"NATS/1.0 503\xff\r\n\r\n"
        sizes = len(headers), len(headers) + len(data)
        writer.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, *sizes, headers, data))
    writer.write(b"PING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await client.link.send(server.link.inbox, news(1))
    await server.until(lambda: news(1) in server.events)
    assert server.states == [("up", 1)], "the connection was lost over it"
    writer.close()
    await writer.wait_closed()


async def test_wrong_credentials_are_refused_at_once(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text("authorization { user: alice, password: wonder, timeout: 60 }\n")  # not of who is busy
    with NATSServer(["-c", str(config)]) as server:
        with pytest.raises(LinkDownError, match="Authorization Violation"):
            await Participant().open(NATSTransport(servers=server.url, user="alice", password="land"))
        right = await Participant().open(NATSTransport(servers=server.url, user="alice", password="wonder"))
        await right.link.close()
        inside = server.url.replace("//", "//alice:wonder@")
        await (await Participant().open(NATSTransport(servers=inside))).link.close()


async def test_a_url_that_demands_tls_refuses_a_server_without(nats_url: str) -> None:
    """Credentials would go over the wire in the clear."""
    with pytest.raises(LinkDownError, match="requires TLS"):
        await Participant().open(NATSTransport(servers=nats_url.replace("nats:", "tls+nats:")))


async def test_a_request_that_cannot_be_read_is_answered_and_so_is_who_waits_for_an_answer(
    join: Joiner, raw: Any
) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    bad = b'{"type":"call.requested","payload":{"requestId":"q","operationId":"test.op","input":1e999,"replyTo":"%s"}}'
    await raw.publish(f"{server.transport.prefix}.op.test.op", bad % client.link.inbox.encode())
    await client.until(lambda: len(client.events) == 1)
    answer = b'{"type":"call.responded","payload":{"requestId":"a","output":{"data":{"x":1e999},"meta":{}}}}'
    await raw.publish(subject_of(client), answer)
    await client.until(lambda: len(client.events) == 2)
    for event, request_id in zip(client.events, ("q", "a"), strict=True):
        assert event["type"] == "call.error"
        assert (event["payload"]["requestId"], event["payload"]["code"]) == (request_id, "SERIALIZATION_ERROR")
    assert server.events == []


async def test_what_peers_send_fills_no_log(join: Joiner, raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = await join()
    for data in (*[b"\x1b[2J\n" * 1_000] * 500, b'{"type":"news","payload":{}}'):
        await raw.publish(subject_of(server), data)
    await server.until(lambda: bool(server.events))
    assert 1 <= len(caplog.records) <= 60
    assert len(caplog.text) < 40_000
    assert all(record.getMessage().isprintable() for record in caplog.records)


async def test_a_wait_for_the_server_that_is_given_up_is_not_the_end_of_the_reader(
    join: Joiner, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's answer comes later, for somebody who is not there any more; all else that it sends is taken."""
    with NATSServer() as server:
        one, other = await join(server.url), await join(server.url)
        server.freeze()
        try:
            with pytest.raises(TransportError):
                await one.link.drain(0.1)
        finally:
            server.thaw()
        await other.link.send(one.link.inbox, news(1))
        await one.until(lambda: len(one.events) == 1)
        assert one.states == [("up", 1)]
        assert [record.getMessage() for record in caplog.records if record.levelno > logging.WARNING] == []
        await one.link.close()
        await other.link.close()


async def test_a_registration_that_is_cancelled_as_its_link_closes_leaves_no_error_to_nobody(
    join: Joiner, caplog: pytest.LogCaptureFixture
) -> None:
    for turns in range(4):
        one = await join()
        registering = asyncio.create_task(one.link.register("op:test.op", "workers"))
        for _ in range(turns):
            await asyncio.sleep(0)
        registering.cancel()
        await one.link.close()
        await asyncio.wait({registering})
        del registering
        gc.collect()
    assert [task for task in asyncio.all_tasks() if "_round_trip" in repr(task)] == []
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_a_registration_that_waits_for_a_link_that_is_closed_learns_that_it_is(join: Joiner) -> None:
    for turns in range(3):
        one = await join()
        registering = asyncio.create_task(one.link.register("op:test.op", "workers"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await one.link.close()
        (outcome,) = await asyncio.gather(registering, return_exceptions=True)
        assert not isinstance(outcome, BaseException) or isinstance(outcome, TransportError), repr(outcome)

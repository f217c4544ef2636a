"""The door of a hub: connections that are no spoke's yet, tokens of browsers, health and metrics."""

from __future__ import annotations

import asyncio
import base64
import logging
import resource
import socket
import ssl
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any

import aiohttp
import pytest

from operad import CallError, CallHandler, Identity, operation
from operad.plugin import TransportError
from operad_auth import Credentials, StaticTokens, as_authenticator
from operad_websocket import Hub, Limits, WebSocketTransport, bearer_tokens
from operad_websocket._connection import Unfinished
from plugins.websocket.tests.kit import calling, code_of, error_of, registry_of, until
from plugins.websocket.tests.sockets import UPGRADE, connected, dialled, heard, port_of, upgraded

ALICE = Identity("alice")
BY_FRAME = ("operad.v1", "operad.authenticate")
HASTY = Limits(handshake=0.2)


def waiting(hub: Hub) -> int:
    return int(hub.metrics().split("\noperad_hub_handshakes ")[1].split()[0])


async def answers(hub: Hub, **options: Any) -> None:
    """A spoke connects and is answered."""
    async with calling(hub, **options) as calls:
        assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"


async def connect(hub: Hub, idle: list[socket.socket]) -> None:
    """Connect sockets that send nothing."""
    for each in idle:
        each.setblocking(False)
        await asyncio.get_running_loop().sock_connect(each, ("127.0.0.1", port_of(hub)))


async def answer_to(hub: Hub, headers: bytes) -> bytes:
    """The first line of the answer to a request with further headers."""
    async with connected(hub, UPGRADE.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n\r\n")) as (reader, _):
        return await reader.readline()


# --- connections that are no spoke's yet -----------------------------------------------------------------


HELLO = b"\x16\x03\x01\x02\x00\x01"  # the beginning of a ClientHello


@pytest.mark.parametrize(
    ("sent", "tls"), [(b"", False), (b"GET / HTTP/1.1\r\nHost: 127", False), (HELLO, False), (HELLO, True)]
)
async def test_a_connection_that_becomes_no_spoke_is_closed_in_time(
    sent: bytes, tls: bool, server_context: ssl.SSLContext
) -> None:
    context = server_context if tls else None
    async with (
        Hub(port=0, ssl=context, limits=HASTY) as hub,
        connected(hub, sent) as (reader, _),
        asyncio.timeout(10),
    ):
        with suppress(ConnectionError):
            answer = await reader.read()
            assert not tls or answer == b""
        await until(lambda: waiting(hub) == 0)


async def test_a_hub_that_closes_ends_handshakes_at_once(server_context: ssl.SSLContext) -> None:
    hub = Hub(port=0, ssl=server_context, limits=Limits(handshake=60))
    await hub.start()
    async with connected(hub, HELLO) as (reader, _), asyncio.timeout(10):
        await until(lambda: waiting(hub) == 1)
        await hub.close()
        with suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_spoke_is_not_counted_and_stays() -> None:
    for handshake in (0.1, 2.0, 10.0):  # a busy machine may need longer to become one
        async with Hub(port=0, limits=Limits(handshake=handshake)) as hub:
            calls = calling(hub)
            try:
                await calls.open()
            except TransportError:
                continue
            async with aclosing(calls):
                await until(lambda hub=hub: hub.connections == 1)  # type: ignore[misc]  # bound early
                assert waiting(hub) == 0
                await asyncio.sleep(1.5 * handshake + 0.1)
                assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"
                assert hub.connections == 1
            return
    raise AssertionError("it does not become one")


@pytest.mark.parametrize("limit", ["handshakes_per_address", "handshakes"])
async def test_idle_connections_keep_no_spoke_out(limit: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those that wait longest make room, of one address and of all together."""
    async with Hub(port=0, limits=Limits(handshake=600, **{limit: 5})) as hub:
        idle = [socket.socket() for _ in range(60)]
        await connect(hub, idle)
        await until(lambda: hub.switch.refused >= 55)
        assert waiting(hub) <= 5
        await answers(hub)
        for each in idle:
            each.close()
    assert len(caplog.records) <= 45


async def test_a_hub_without_descriptors_says_so_briefly_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with Hub(port=0) as hub, calling(hub) as calls:
        coming = [socket.socket() for _ in range(3)]
        used = max(made.fileno() for made in coming)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        try:
            await connect(hub, coming)
            await until(lambda: "no connection can be accepted" in caplog.text)
            assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for made in coming:
                made.close()
        assert len(caplog.records) <= 3
        await answers(hub)


async def test_messages_that_never_end_cost_so_much_memory_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async with Hub(port=0, limits=Limits(unfinished=600_000)) as hub:
        for _ in range(2):  # what was unfinished of a connection that is gone is forgotten
            async with AsyncExitStack() as stack:
                for _ in range(4):
                    _, writer = await stack.enter_async_context(upgraded(hub))
                    for begins in (b"\x02", b"\0", b"\0", b"\0"):  # the first of many fragments, and others
                        writer.write(begins + b"\xfe\xff\xff\0\0\0\0" + b"x" * 65_535)
                await until(lambda: hub.connections == 2)
                await asyncio.sleep(0.05)
                assert hub.connections == 2
            await until(lambda: hub.connections == 0)
        assert "its unfinished messages exceed" in caplog.text
        large = {"x": "y" * 2_000_000}
        async with calling(hub) as calls:  # of more than an account may have unfinished at once
            await error_of(calls.call("a.b", large, timeout=5))


async def test_a_message_of_less_than_64_kib_is_not_counted() -> None:
    async with Hub(port=0, limits=Limits(unfinished=1)) as hub, calling(hub) as calls:
        assert await code_of(calls.call("a.b", "x" * 60_000)) == "OPERATION_NOT_FOUND"


def test_what_is_counted_is_forgotten_when_it_is_whole() -> None:
    counted = Unfinished(100)
    assert counted.add("a", 100)
    assert not counted.add("a", 1)
    assert counted.add("b", 50)
    counted.add("a", -101)
    assert counted.add("a", 50), "no less than nothing is unfinished"
    assert not counted.add("b", 51)


# --- tokens ----------------------------------------------------------------------------------------------


async def by_credentials(credentials: Credentials) -> Identity | None:
    return ALICE if credentials.bearer == "tökén" and credentials.peer == "127.0.0.1" else None


AUTHENTICATORS = [
    pytest.param(bearer_tokens({"tökén": ALICE}), id="of the request"),
    pytest.param(StaticTokens({"tökén": ALICE}), id="of operad.auth"),
    pytest.param(as_authenticator(by_credentials), id="a callable of the credentials"),
]


@pytest.mark.parametrize("authenticate", AUTHENTICATORS)
async def test_a_token_may_come_as_a_subprotocol_or_in_the_first_frame(authenticate: Any) -> None:
    """What a browser can send: it has no way to set a header."""
    async with Hub(authenticate, port=0) as hub:
        text = base64.urlsafe_b64encode("tökén".encode()).decode().rstrip("=")
        async with dialled(hub, protocols=("operad.v1", f"operad.bearer.{text}")) as made:
            assert made.protocol == "operad.v1"
            assert {(peer.owner, peer.address) for peer in hub.switch.peers} == {("alice", "127.0.0.1")}
        async with dialled(hub, protocols=BY_FRAME) as made:
            assert waiting(hub) == 1
            answer = await heard(made, '{"type":"link.authenticate","id":"7","payload":{"token":"tökén"}}')
            assert answer == {"type": "link.authenticated", "id": "7", "payload": {"identity": "alice"}}
            answer = await heard(made, '{"type":"link.register","id":"1","payload":{"topics":["op:a.b"]}}')
            assert (answer["payload"]["topics"], waiting(hub)) == (["op:a.b"], 0)


@pytest.mark.parametrize("authenticate", AUTHENTICATORS)
async def test_a_wrong_token_is_refused_wherever_it_comes(
    authenticate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Hub(authenticate, port=0) as hub:
        for protocols in ((), ("operad.bearer.d3Jvbmc",), ("operad.bearer.%",)):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await dialled(hub, protocols=("operad.v1", *protocols)).__aenter__()
            assert caught.value.status == 401
        for frame in (
            '{"type":"link.authenticate","payload":{"token":"wrong"}}',
            '{"type":"link.authenticate","payload":{"token":7}}',
            '{"type":"call.requested","payload":{}}',
            "junk",
        ):
            async with dialled(hub, protocols=BY_FRAME) as made:
                await made.send_str(frame)
                message = await made.receive(timeout=10)
                assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert (hub.connections, hub.switch.refused) == (0, 7)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_first_frame_that_does_not_come_ends_the_connection() -> None:
    hub = Hub(StaticTokens({"t": ALICE}), port=0, limits=HASTY)
    async with hub, dialled(hub, protocols=BY_FRAME) as made:
        assert (await made.receive(timeout=10)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param(b"Authorization: Bearer \xff\xfe", b" 401 ", id="that is no text"),
        pytest.param(b"Authorization: Bearer a\r\nauthorization: Bearer b", b" 400 ", id="that shows two tokens"),
    ],
)
@pytest.mark.parametrize("tokens", [bearer_tokens, StaticTokens])
async def test_a_header_is_refused_without_a_traceback(
    tokens: Any, headers: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Hub(tokens({"a": ALICE, "b": Identity("bob")}), port=0) as hub:
        assert status in await answer_to(hub, headers)
    assert "Traceback" not in caplog.text
    assert len(caplog.text) < 500


async def test_malformed_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Hub(port=0) as hub:
        for number in range(60):
            assert b" 400 " in await answer_to(hub, b"Host: b")
            assert hub.switch.refused == number + 1
    assert "Traceback" not in caplog.text
    assert len(caplog.records) < 50


@pytest.mark.parametrize(
    ("code", "status", "close"), [("UNAVAILABLE", 503, 1013), ("ACCESS_DENIED", 401, 1008), ("BROKEN", 401, 1008)]
)
async def test_an_issuer_that_cannot_be_asked_is_no_wrong_token(code: str, status: int, close: int) -> None:
    async def undecided(credentials: Credentials) -> Identity | None:
        raise CallError(code, "the keys at secret.internal cannot be fetched")

    async with Hub(as_authenticator(undecided), port=0) as hub:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await dialled(hub, headers={"Authorization": "Bearer x"}).__aenter__()
        refused = 0 if status == 503 else 1
        assert (caught.value.status, hub.switch.refused) == (status, refused)
        async with dialled(hub, protocols=BY_FRAME) as made:
            await made.send_str('{"type":"link.authenticate","payload":{"token":"x"}}')
            message = await made.receive(timeout=10)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, close)
        assert "secret.internal" not in str(message.extra)
        assert hub.switch.refused == 2 * refused


async def test_an_authenticator_that_fails_admits_no_client_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(request: Any) -> Identity:
        raise ValueError("no such table")

    async with Hub(broken, port=0) as hub:
        with pytest.raises(TransportError, match="500"):
            await calling(hub).open()
        assert hub.switch.refused == 0
    assert "no such table" in caplog.text


# --- health, metrics, and the end --------------------------------------------------------------------------


async def test_health_and_metrics() -> None:
    token = {"Authorization": "Bearer t"}
    async with Hub(StaticTokens({"t": ALICE}), port=0) as hub, aiohttp.ClientSession() as session:
        url = hub.url.replace("ws", "http", 1)
        async with session.get(f"{url}/health") as response:
            assert (response.status, await response.json()) == (200, {"status": "ok"})
        for path in ("health", "metrics", "x"):  # the hub is on every path
            async with session.ws_connect(f"{hub.url}/{path}", headers=token) as socket:
                asked = '{"type":"link.topics","id":"1","payload":{"instance":"i","topics":[]}}'
                assert (await heard(socket, asked))["id"] == "1"
        async with session.get(f"{url}/metrics") as response:
            assert response.status == 401
        async with calling(hub, token="t") as calls:
            await error_of(calls.call("a.b"))
            async with session.get(f"{url}/metrics", headers=token) as response:
                assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
                text = await response.text()
        assert "operad_hub_connections 1\n" in text
        assert "operad_hub_requests_total 0\n" in text
        assert text.endswith("# EOF\n")
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names)) >= 6


async def test_metrics_are_openmetrics_to_a_parser_of_somebody_else() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="it reads the format")
    families = parser.text_string_to_metric_families(Hub(port=0).metrics())
    types = {family.name: family.type for family in families}
    assert (types["operad_hub_pending"], types["operad_hub_refused"]) == ("gauge", "counter")


async def test_a_hub_that_drains_finishes_what_is_under_way_and_takes_nothing_new() -> None:
    gate = asyncio.Event()

    @operation(namespace="a", type="query")
    async def wait() -> str:
        await gate.wait()
        return "done"

    async with (
        Hub(port=0) as hub,
        CallHandler(registry_of(wait), WebSocketTransport(hub.url)),
        calling(hub) as calls,
    ):
        call = asyncio.create_task(calls.call("a.wait"))
        await until(lambda: hub.pending == 1)
        draining = asyncio.create_task(hub.drain(10))
        await asyncio.sleep(0)
        error: Any = await error_of(calls.call("a.wait"))
        assert (error.code, error.details["sent"]) == ("UNAVAILABLE", False)
        async with aiohttp.request("GET", hub.url.replace("ws", "http", 1) + "/health") as response:
            assert (response.status, await response.json()) == (503, {"status": "draining"})
        with pytest.raises(TransportError, match="503"):
            await calling(hub).open()
        gate.set()
        assert await draining
        assert (await call).data == "done"
        gate.clear()


async def test_who_is_refused_is_disconnected_at_once() -> None:
    """A connection without a token holds its descriptor no longer than the answer takes."""
    hub = Hub(bearer_tokens({"t": ALICE}), port=0, limits=Limits(handshake=30.0))
    async with hub, connected(hub, UPGRADE) as (reader, _), asyncio.timeout(10):
        answer = await reader.read()  # to the end of the connection
        assert answer.startswith(b"HTTP/1.1 401")
        await until(lambda: waiting(hub) == 0)

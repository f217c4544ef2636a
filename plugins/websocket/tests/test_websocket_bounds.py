"""Connections of hubs and spokes at their exact bounds, and what they do when something is missing."""

import asyncio
import socket
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import WSMsgType
from click.testing import CliRunner

from operad import ConfigError, Identity
from operad.plugin import LinkDownError, PayloadTooLargeError, TransportError
from operad_auth import StaticTokens
from operad_calls.transport import encode
from operad_testing import Participant
from operad_websocket import Hub, Limits, WebSocketTransport
from operad_websocket._command import hub as command
from operad_websocket._connection import Connection
from operad_websocket._registering import Registering
from operad_websocket._switch import Switch
from plugins.websocket.tests.kit import TABLES, calling, code_of, until
from plugins.websocket.tests.sockets import connected, dialled, heard, port_of, server_of
from plugins.websocket.tests.test_websocket_door import BY_FRAME
from plugins.websocket.tests.test_websocket_writing import Input, Output, read

TOKENS = StaticTokens({"t": Identity("alice")})


class Both(Input, Output):
    """A transport for both directions."""

    def __init__(self):
        Input.__init__(self)
        Output.__init__(self)


@pytest.fixture
async def hub_side():
    """A connection of a hub, its transport, its WebSocket, and the sizes that it counts."""
    transport, websocket, counts = Both(), SimpleNamespace(closed=False), []
    limits = {
        "max_payload": 100_000,
        "max_buffer": 2**21,
        "unfinished": SimpleNamespace(add=lambda account, size: counts.append(size) is None),
    }
    return Connection(Switch(), transport, websocket, None, address="", **limits), transport, websocket, counts


async def test_a_silent_connection_is_pinged_twice_and_then_closed(hub_side):
    connection, transport, *_ = hub_side
    for pings in (0, 1, 2):
        connection.check()
        await asyncio.sleep(0)
        assert (b"".join(transport.writes), transport.closing) == (b"\x89\x00" * pings, False)
    connection.check()
    assert transport.closing


@pytest.mark.parametrize(("size", "header"), TABLES["headers"])
async def test_the_length_of_a_frame_has_its_shortest_form(hub_side, size, header):
    connection, transport, *_ = hub_side
    connection.peer.deliver(b"x" * size)
    assert transport.writes == [bytes.fromhex(header) + b"x" * size]


async def test_an_event_may_have_64_kib_more_than_the_limit_and_no_more(hub_side):
    connection, transport, websocket, _ = hub_side
    connection.peer.deliver(b"x" * (100_000 + 65_536))
    with pytest.raises(PayloadTooLargeError):
        connection.peer.deliver(b"x" * (100_001 + 65_536))
    websocket.closed = True
    connection.peer.deliver(b"late")
    assert len(transport.writes) == 1


async def test_a_peer_is_slow_above_1_mib_and_closed_above_its_buffer(hub_side):
    connection, transport, *_ = hub_side
    for transport.unwritten, slow in ((2**20, False), (2**20 + 1, True), (2**21, True)):
        assert connection.peer.is_slow() is slow
    connection.peer.deliver(b"x")
    assert not transport.closing
    transport.unwritten += 1
    connection.peer.deliver(b"y" * 70_000)
    assert transport.closing


async def test_an_unfinished_message_is_counted_from_64_kib_on_and_forgotten_when_it_is_whole(hub_side):
    connection, transport, websocket, counts = hub_side
    parts = [[2**15, 2**15, 1, 2**16, 1], [2**15, 2**15]]
    messages = [(WSMsgType.TEXT, b"{"), (WSMsgType.CLOSE, 1000)]

    async def receive():
        for size in parts.pop(0):
            read(transport.protocol, b"x" * size)
        type_, data = messages.pop(0)
        return SimpleNamespace(type=type_, data=data)

    websocket.receive = receive
    await connection.run()
    assert counts == [2**16 + 1, 2**16 + 1, -(2**17 + 2), 0]


# --- links -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False])
async def test_an_event_may_be_as_large_as_the_limit(own):
    async with Hub(port=0, max_payload=1_000) as hub:
        link = await (hub.transport if own else WebSocketTransport(hub.url)).open(lambda *_: None, lambda *_: None)
        event = {"type": "news", "id": "", "payload": {"text": ""}}
        event["payload"]["text"] = "x" * (1_000 - len(encode(event)))
        await link.send("", event)
        event["payload"]["text"] += "x"
        with pytest.raises(PayloadTooLargeError):
            await link.send("", event)
        await link.close()


async def test_a_link_in_the_process_of_the_hub_closes_once():
    changes = []
    link = await Hub(port=0).transport.open(lambda *_: None, lambda *change: changes.append(change))
    registration = await link.register("op:a.b")
    for close in (link.close, link.close, registration.unregister):
        await close()
    assert changes == [("up", 1), ("down", 1)]
    for use in (link.register("op:a.b"), link.served_by("i", []), link.send("", {"type": "x", "payload": {}})):
        with pytest.raises(LinkDownError, match="open a new one"):
            await use


async def test_a_request_of_exactly_the_limit_is_routed():
    asked = '{"type":"call.requested","payload":{"requestId":"1","operationId":"a.b","input":"%s"}}'
    async with Hub(port=0, max_payload=1_000) as hub, dialled(hub) as client:
        for size, code in ((1_000, "OPERATION_NOT_FOUND"), (1_001, "PAYLOAD_TOO_LARGE")):
            answer = await heard(client, asked % ("x" * (size - len(asked) + 2)))
            assert answer["payload"]["code"] == code


async def test_in_the_process_of_the_hub_what_cannot_be_read_is_reported_to_both():
    async with Hub(port=0) as hub, Participant.open(hub.transport) as own, dialled(hub) as raw:
        await own.link.register("op:a.own")
        asked = '{"type":"call.requested","payload":{"requestId":"1","operationId":"a.own","input":1e999}}'
        assert (await heard(raw, asked))["payload"]["code"] == "SERIALIZATION_ERROR"
        await heard(raw, '{"type":"link.register","payload":{"topics":["op:a.raw"]}}')
        await own.request("a.raw", "2", {})
        await heard(raw, '{"type":"call.responded","payload":{"requestId":"2","output":{"data":1e999}}}')
        assert (await own.wait_for("call.error"))[0]["code"] == "SERIALIZATION_ERROR"


async def test_a_link_counts_its_connections():
    changes = []
    async with Hub(port=0) as first:
        link = await WebSocketTransport(first.url).open(lambda *_: None, lambda *change: changes.append(change))
    async with Hub(port=port_of(first)):
        await until(lambda: len(changes) == 3)
        await link.close()
    assert changes == [("up", 1), ("down", 1), ("up", 2), ("down", 2)]


async def test_a_registration_fails_with_its_connection():
    async def close(socket):
        await socket.receive()

    async with server_of(close) as url, Participant.open(WebSocketTransport(url)) as spoke, asyncio.timeout(8):
        with pytest.raises(LinkDownError, match="is lost"):
            await spoke.link.register("op:a.b")


async def test_addresses_are_registered_in_parts_and_again_after_a_break(caplog, monkeypatch):
    monkeypatch.setattr("operad_websocket._registering.RETRY", 0.01)
    sent, told, refused = [], [], set()

    async def ask(type_, payload):
        sent.append((type_, len(payload["topics"])))
        return {"topics": [topic for topic in payload["topics"] if topic not in refused]}

    registering = Registering(ask, told.append)
    await asyncio.gather(*(registering.register(f"op:{number}", "g") for number in range(5_001)))
    await registering.unregister("op:never")
    await registering.unregister("op:5000")
    await registering.register("op:5000", None)
    refused.update(f"op:{number}" for number in range(7))
    with pytest.raises(TransportError, match="op:1: the hub states no reason"):
        await registering.register("op:1", "g")
    registering.again()
    await until(lambda: told)
    assert (len(told[0]["payload"]["topics"]), len(told[0]["payload"]["refused"])) == (4_994, 7)
    assert "op:4 (the hub states no reason) and 2 more" in caplog.text
    await registering.unregister("op:1")
    refused.remove("op:0")
    await until(lambda: len(told) == 2)
    assert (len(told[1]["payload"]["topics"]), len(told[1]["payload"]["refused"])) == (4_995, 5)
    assert [record.getMessage() for record in caplog.records][1:] == ["served again: op:0"]
    await registering.drain()
    registering.again()
    await asyncio.sleep(0)
    parts = [("link.register", 5_000), ("link.register", 1)]
    single = [("link.unregister", 1), ("link.register", 1), ("link.register", 1)]
    assert sent[:7] == [*parts, *single, *parts]
    assert sent[-1] == ("link.unregister", 5_000)


# --- hubs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("headers", "protocols", "admitted"), TABLES["anonymous"])
async def test_only_a_client_without_credentials_is_anonymous(headers, protocols, admitted):
    async with Hub(TOKENS, port=0, anonymous=True) as hub:
        if admitted:
            async with dialled(hub, headers=headers, protocols=protocols):
                assert [peer.account for peer in hub.switch.peers] == ["address 127.0.0.1"]
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await dialled(hub, headers=headers, protocols=protocols).__aenter__()
        assert hub.switch.refused == (not admitted)


async def test_connections_are_bounded_however_the_client_authenticates():
    limits = Limits(links=1)
    async with Hub(port=0, limits=limits) as hub, dialled(hub, protocols=BY_FRAME):
        with pytest.raises(TransportError, match="429"):
            await calling(hub).open()
    async with Hub(TOKENS, port=0, limits=limits) as hub, calling(hub, token="t", headers={"Host": "hub.example"}):
        await until(lambda: hub.connections == 1)
        async with dialled(hub, protocols=BY_FRAME) as second:
            await heard(second, '{"type":"link.authenticate","payload":{"token":"t"}}')
            assert (await second.receive(timeout=10)).data == 1013


async def test_a_hub_drains_and_opens_again():
    hub = Hub(TOKENS, port=0)
    async with hub:
        assert await hub.drain(0)
        async with dialled(hub, protocols=BY_FRAME) as late:
            await heard(late, '{"type":"link.authenticate","payload":{"token":"t"}}')
            assert (await late.receive(timeout=10)).data == 1013
    await hub.close()
    async with hub, calling(hub, token="t") as calls:
        assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"


async def test_a_hub_itself_ends_calls_whose_handlers_do_not(monkeypatch):
    monkeypatch.setattr("operad_websocket.hub._SWEEP", 0.02)
    asked = '{"type":"call.requested","payload":{"requestId":"%d","operationId":"a.b","timeoutMs":%d}}'
    async with Hub(port=0) as hub, dialled(hub) as raw:
        await heard(raw, '{"type":"link.register","payload":{"topics":["op:a.b"]}}')
        await heard(raw, asked % (1, 60_000))
        await heard(raw, asked % (2, -60_000))
        assert {(await heard(raw))["type"], (await heard(raw))["type"]} == {"call.aborted", "call.error"}
        assert "operad_hub_pending 1\n" in hub.metrics()
        assert not await hub.drain(0.01)


async def test_a_hub_listens_where_it_is_told_or_not_at_all():
    async with Hub(host="::1", port=0) as hub, calling(hub) as calls:
        assert hub.url.startswith("ws://[::1]:")
        assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"
    async with Hub(port=0) as first:
        second = Hub(port=port_of(first))
        with pytest.raises(OSError, match="in use"):
            await second.start()
        asked = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with asyncio.timeout(4), connected(first, asked) as (reader, _):
            assert (await reader.read()).endswith(b'{"status": "ok"}'), "and the connection is closed"
    async with second:
        pass


def test_the_command_says_where_it_cannot_listen():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ["--jwks", "https://issuer.example/keys", "--issuer", "i", "--audience", "a"]
        for host, more in (("127.0.0.1", []), ("0.0.0.0", flags)):  # with tokens it may listen for other machines
            where = f"{host}:{taken.getsockname()[1]}"
            result = CliRunner().invoke(command, ["--listen", where, *more])
            assert isinstance(result.exception, ConfigError)
            assert f"cannot listen on {where}: Address already in use; use another" in str(result.exception)


async def test_a_server_that_says_nothing_is_left_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = WebSocketTransport(f"ws://127.0.0.1:{silent.getsockname()[1]}", connect_timeout=0.05)
        with pytest.raises(LinkDownError, match="no response within 0.05 s"):
            await transport.open(lambda *_: None, lambda *_: None)

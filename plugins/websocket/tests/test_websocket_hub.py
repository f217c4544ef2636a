"""The hub over real sockets: who may connect and serve, what is refused, what breaks and comes back."""
# ruff: noqa: SIM117  # what is opened first and closed last is the point of many of these tests

import asyncio
import json
import logging
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from operad import (
    AccessControl,
    CallHandler,
    ErrorCode,
    Identity,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    load_plugins,
)
from operad.errors import ConfigError
from operad.transports import LinkDownError, PayloadTooLargeError, TransportError
from operad_testing import Participant
from operad_websocket import Hub, Limits, WebSocketTransport, bearer_tokens
from operad_websocket._served import ServedHub
from operad_websocket.config import HubConfig
from plugins.websocket.tests.sockets import UPGRADE, connected, error_of, masked, port_of, server_of, until

ALICE, BOB, EVE = Identity("alice", ["pay"]), Identity("bob"), Identity("eve")
TOKENS = {"token of alice": ALICE, "token of bob": BOB, "token of eve": EVE}
TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
ASKED = '{"type":"call.requested","id":"","payload":{"requestId":"1","operationId":"a.b","input":1}}'
ENVELOPE = {"data": "right", "meta": {"source": "local", "operationId": "bank.pay", "timestamp": 0}}


def bank(started=None):
    async def pay(input, context):
        return context.identity.id

    async def wait(input, context):
        if started is not None:
            started.append(context.identity)
        await asyncio.sleep(60)

    async def count(input, context):
        number = 0
        while True:
            yield "x" * 10_000
            number += 1

    registry = OperationRegistry()
    guard = AccessControl(required_scopes=["pay"])
    registry.register(OperationSpec(namespace="bank", name="pay", type="mutation", access_control=guard), pay)
    registry.register(OperationSpec(namespace="bank", name="wait", type="query"), wait)
    registry.register(OperationSpec(namespace="bank", name="count", type="subscription"), count)
    return registry


def guarded(**options):
    return Hub(bearer_tokens(TOKENS), port=0, **options)


def spoke(hub, who):
    return WebSocketTransport(hub.url, token=f"token of {who}")


# --- spoofing ------------------------------------------------------------------------------------------


async def test_an_identity_cannot_be_claimed():
    """What a request says about its caller is replaced by whom the hub authenticated."""
    async with guarded() as hub, CallHandler(bank(), spoke(hub, "bob")):
        async with PendingRequestMap(spoke(hub, "eve")) as eve, PendingRequestMap(spoke(hub, "alice")) as alice:
            assert (await error_of(eve.call("bank.pay", identity=ALICE))).code == ErrorCode.ACCESS_DENIED
            assert (await alice.call("bank.pay", identity=EVE)).data == "alice"


async def test_an_answer_cannot_be_forged(caplog):
    """An answer to a request that another spoke has is refused and logged, whatever it says."""
    async with guarded() as hub, Participant.open(spoke(hub, "bob")) as server:
        await server.link.register("op:bank.pay", "operad")
        async with PendingRequestMap(spoke(hub, "alice")) as alice, Participant.open(spoke(hub, "eve")) as eve:
            task = asyncio.create_task(alice.call("bank.pay"))
            (request,) = await server.wait_for("call.requested")
            forged = {**ENVELOPE, "data": "forged"}
            with caplog.at_level(logging.WARNING):
                for type_, fields in (
                    ("call.responded", {"output": forged}),
                    ("call.error", {"code": "X", "message": ""}),
                    ("call.completed", {"count": 0}),
                    ("call.aborted", {}),
                    ("link.lost", {"peer": request["replyTo"]}),
                ):
                    await eve.send(request["replyTo"], type_, requestId=request["requestId"], **fields)
                await until(lambda: hub.switch.refused == 4)
            assert caplog.text.count("refused a frame of eve") == 4
            assert not task.done()
            await server.send("", "call.responded", requestId=request["requestId"], output=ENVELOPE)
            assert (await task).data == "right"


async def test_a_request_of_another_peer_cannot_be_aborted(caplog):
    started = []
    async with guarded() as hub, CallHandler(bank(started), spoke(hub, "bob"), drain_timeout=0.1) as handler:
        async with Participant.open(spoke(hub, "alice")) as alice, Participant.open(spoke(hub, "eve")) as eve:
            await alice.request("bank.wait", "the id")
            await until(lambda: started)
            with caplog.at_level(logging.WARNING):
                await eve.send("", "call.aborted", requestId="the id", replyTo=alice.link.inbox)
                await eve.send("", "call.credit", requestId="the id", total=5, replyTo=alice.link.inbox)
                await until(lambda: hub.switch.refused == 1)
            assert "an abort of a request of another peer" in caplog.text
            assert handler.active == 1
            assert hub.pending == 1


async def test_an_operation_of_another_identity_cannot_be_taken_over(caplog):
    """While one identity serves an operation, no other one can put itself beside it."""
    async with guarded() as hub, CallHandler(bank(), spoke(hub, "bob")):
        async with Participant.open(spoke(hub, "eve")) as eve, PendingRequestMap(spoke(hub, "alice")) as alice:
            with caplog.at_level(logging.WARNING), pytest.raises(TransportError, match="another identity"):
                await eve.link.register("op:bank.pay", "operad")
            assert "refused a frame of eve" in caplog.text
            for _ in range(4):
                assert (await alice.call("bank.pay")).data == "alice"
            assert not eve.of("call.requested")
            async with CallHandler(bank(), spoke(hub, "bob")):  # a second worker of the same identity may
                assert (await alice.call("bank.pay")).data == "alice"


async def test_who_may_serve_can_be_restricted():

    def authorize(identity, topic):
        return identity is not None and identity.id == "bob"

    async with guarded(authorize=authorize) as hub:
        async with Participant.open(spoke(hub, "eve")) as eve, Participant.open(spoke(hub, "bob")) as bob:
            with pytest.raises(TransportError, match="may not serve"):
                await eve.link.register("op:new.one")
            await bob.link.register("op:new.one")
            with pytest.raises(TransportError, match="op: or all:"):
                await bob.link.register("inbox:of.somebody")


# --- who may connect -----------------------------------------------------------------------------------


async def test_without_a_valid_token_nobody_connects():
    async with guarded() as hub:
        for options in ({}, {"token": "wrong"}, {"headers": {"Authorization": "Basic eDp5"}}):
            with pytest.raises(TransportError, match="401"):
                await PendingRequestMap(WebSocketTransport(hub.url, **options)).open()
        assert hub.connections == 0


def test_without_an_authenticator_only_loopback_is_served():
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        with pytest.raises(ConfigError, match="bearer_tokens"):
            Hub(host=host)
    assert Hub(bearer_tokens(TOKENS), host="0.0.0.0").url == "ws://0.0.0.0:8765"


async def test_a_web_page_cannot_use_a_hub_on_this_machine():
    """A browser names the page's origin; a rebound DNS name shows in the host header."""
    async with Hub(port=0, allowed_origins=["https://app.example"]) as hub, aiohttp.ClientSession() as session:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(hub.url, headers=headers)
            assert caught.value.status == 403
        socket = await session.ws_connect(hub.url, headers={"Origin": "https://app.example"})
        await socket.close()


async def test_a_plain_http_request_gets_a_hint():
    async with Hub(port=0) as hub, aiohttp.ClientSession() as session:
        async with session.get(hub.url.replace("ws", "http", 1)) as response:
            assert response.status == 426
            assert "operad hub" in await response.text()


async def test_connections_and_calls_of_an_identity_are_bounded():
    limits = Limits(calls=2, links=2)
    async with guarded(limits=limits) as hub, CallHandler(bank(), spoke(hub, "bob"), drain_timeout=0.1):
        async with PendingRequestMap(spoke(hub, "eve")) as one, PendingRequestMap(spoke(hub, "eve")) as two:
            with pytest.raises(TransportError, match="429"):
                await PendingRequestMap(spoke(hub, "eve")).open()
            tasks = [asyncio.create_task(calls.call("bank.wait")) for calls in (one, two)]
            await until(lambda: hub.pending == 2)
            error = await error_of(one.call("bank.wait"))
            assert (error.code, error.details) == (ErrorCode.OVERLOADED, {"limit": "calls", "value": 2})
            async with PendingRequestMap(spoke(hub, "alice")) as alice:
                assert (await alice.call("bank.pay")).data == "alice"
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await until(lambda: hub.pending == 0)
            assert (await error_of(one.call("bank.pay"))).code == ErrorCode.ACCESS_DENIED


async def test_tls(authority, server_context):
    """``wss`` works with a certificate that the spoke trusts, and only with one."""
    client = ssl.create_default_context()
    authority.configure_trust(client)
    async with Hub(port=0, ssl=server_context) as hub:
        assert hub.url.startswith("wss://")
        async with PendingRequestMap(WebSocketTransport(hub.url, ssl=client)) as calls:
            assert (await error_of(calls.call("bank.pay"))).code == ErrorCode.OPERATION_NOT_FOUND
        with pytest.raises(LinkDownError):
            await PendingRequestMap(WebSocketTransport(hub.url)).open()


# --- what peers send -----------------------------------------------------------------------------------


async def test_a_client_without_a_subprotocol_is_served():
    async with Hub(port=0) as hub, aiohttp.ClientSession() as session:
        plain = await session.ws_connect(hub.url)
        assert plain.protocol is None
        offered = await session.ws_connect(hub.url, protocols=("operad.v1",))
        assert offered.protocol == "operad.v1"
        await plain.send_str(ASKED)
        answer = json.loads((await plain.receive()).data)
        assert (answer["type"], answer["payload"]["code"]) == ("call.error", "OPERATION_NOT_FOUND")
        await plain.close()
        await offered.close()


@pytest.mark.parametrize("frame", [*TABLES["bad frames"], "[" * 50_000])
async def test_a_bad_frame_harms_nobody(frame):
    async with Hub(port=0) as hub, aiohttp.ClientSession() as session:
        socket = await session.ws_connect(hub.url)
        await socket.send_bytes(frame.encode("latin-1"))
        await socket.send_str(ASKED)
        async with asyncio.timeout(10):
            while True:
                event = json.loads((await socket.receive()).data)
                if event["payload"].get("requestId") == "1":
                    break
        assert event["payload"]["code"] == "OPERATION_NOT_FOUND"
        assert hub.pending == 0
        await socket.close()


async def test_a_spoke_that_does_not_read_only_harms_itself():
    """A stream without credit to a slow peer ends with ``SLOW_CONSUMER``, and costs it that stream alone; other
    spokes do not notice."""
    text = b'{"type":"call.requested","payload":{"requestId":"1","operationId":"bank.count","input":{}}}'
    async with (
        Hub(port=0) as hub,
        CallHandler(bank(), WebSocketTransport(hub.url)) as handler,
        connected(hub, UPGRADE) as (reader, writer),
    ):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(masked(text))  # and not read for long
        await until(lambda: hub.pending == 1)
        async with PendingRequestMap(WebSocketTransport(hub.url)) as other:
            await until(lambda: hub.pending == 0)
            assert (await error_of(other.call("bank.pay"))).code == ErrorCode.ACCESS_DENIED
        await until(lambda: handler.active == 0)
        last = b""
        async with asyncio.timeout(10):
            while b"SLOW_CONSUMER" not in last:  # it reads at last: its connection is there still
                chunk = await reader.read(65_536)
                assert chunk
                last = (last + chunk)[-100_000:]


async def test_too_large_is_refused_before_it_is_sent():
    async with Hub(port=0, max_payload=10_000) as hub:
        async with Participant.open(WebSocketTransport(hub.url, max_payload=10_000)) as peer:
            with pytest.raises(PayloadTooLargeError, match="10000"):
                await peer.send("all:x", "news", text="x" * 20_000)
            assert await peer.send("all:x", "news", text="x") == "all:x"


# --- what breaks ---------------------------------------------------------------------------------------


async def test_a_hub_that_restarts_gets_its_spokes_back(caplog):
    """Spokes come back by themselves and serve what they served; the log tells of both."""
    async with Hub(port=0) as first:
        port = port_of(first)
        transport = WebSocketTransport(first.url)
        handler, calls = CallHandler(bank(), transport, drain_timeout=0.1), PendingRequestMap(transport)
        await handler.open()
        await calls.open()
        assert (await error_of(calls.call("bank.pay"))).code == ErrorCode.ACCESS_DENIED
        task = asyncio.create_task(error_of(calls.call("bank.wait")))
        await until(lambda: handler.active == 1)
        await first.close()
        assert (await task).code == ErrorCode.UNAVAILABLE
        assert (await error_of(calls.call("bank.pay"))).details["sent"] is False
        await until(lambda: handler.active == 0)
    async with Hub(port=port) as second:
        await until(lambda: second.connections == 2 and second.switch.addresses)
        assert (await error_of(calls.call("bank.pay", retry=True))).code == ErrorCode.ACCESS_DENIED
        said = [record.message for record in caplog.records if record.name == "operad.calls"]
        assert said == [
            "the connection was lost; operations to serve when it is back: 3",
            "the connection is back; operations served: 3",
        ]
        await calls.aclose()
        await handler.aclose()


async def test_a_spoke_that_answers_no_ping_is_disconnected():
    async with Hub(port=0, ping=0.1) as hub, aiohttp.ClientSession() as session:
        quiet = await session.ws_connect(hub.url, autoping=False)
        assert (await quiet.receive(timeout=10)).type is aiohttp.WSMsgType.PING
        await until(lambda: hub.connections == 0)
        await quiet.close()


async def test_a_large_message_on_a_slow_line_is_not_taken_for_silence():
    """No pong can come in the middle of a frame."""
    # Where this process stands still for longer than a hub waits, so does the line: once more with a patient one.
    assert await answered_on_a_slow_line(0.2, 24) or await answered_on_a_slow_line(4.0, 12)


async def answered_on_a_slow_line(ping, pieces):
    """Whether the hub, which pings so often, takes a message of so many pieces, which come four times as often."""
    frame = masked(b'{"type":"call.requested","payload":{"requestId":"1","operationId":"a.b","input":"xxxxxxxx"}}')
    size = -(-len(frame) // pieces)
    async with Hub(port=0, ping=ping) as hub, connected(hub, UPGRADE) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        try:
            async with asyncio.timeout(10 + pieces * ping):
                for start in range(0, len(frame), size):
                    writer.write(frame[start : start + size])
                    await asyncio.sleep(ping / 4)
                await reader.readuntil(b"OPERATION_NOT_FOUND")
        except (OSError, asyncio.IncompleteReadError):
            return False
        return True


async def test_a_spoke_that_only_answers_pings_stays_connected():
    for ping, pings in ((0.1, 6), (4.0, 3)):  # the second one where this process stood still meanwhile
        async with Hub(port=0, ping=ping) as hub, aiohttp.ClientSession() as session:
            quiet = await session.ws_connect(hub.url, autoping=False)
            come = []
            while len(come) < pings and (await quiet.receive(timeout=20)).type is aiohttp.WSMsgType.PING:
                come.append(await quiet.pong())
            stayed = len(come) == pings and hub.connections == 1
            await quiet.close()
        if stayed:
            break
    assert stayed


async def test_a_ping_of_a_client_is_answered():
    async with Hub(port=0) as hub, aiohttp.ClientSession() as session:
        client = await session.ws_connect(hub.url, autoping=False)
        await client.ping(b"here?")
        answer = await client.receive(timeout=10)
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"here?")
        await client.close()


async def test_a_hub_that_answers_no_ping_is_left_and_looked_for_again():
    sockets, pings = [], []

    async def say_nothing(socket):
        sockets.append(socket)
        async for message in socket:
            pings.append(message.type)  # noqa: PERF401  # one by one: the end of the connection cancels this

    async with server_of(say_nothing) as url, PendingRequestMap(WebSocketTransport(url, ping=0.1)) as calls:
        assert (await error_of(calls.call("bank.pay"))).code == ErrorCode.UNAVAILABLE
        await until(lambda: len(sockets) >= 2)
    assert aiohttp.WSMsgType.PING in pings


async def test_a_hub_that_pings_gets_its_answer():
    pongs = []

    async def ping(socket):
        await socket.ping(b"here?")
        pongs.append(await socket.receive())
        async for _ in socket:
            pass

    async with server_of(ping) as url, PendingRequestMap(WebSocketTransport(url)):
        await until(lambda: pongs)
    assert (pongs[0].type, pongs[0].data) == (aiohttp.WSMsgType.PONG, b"here?")


async def test_a_hub_remembers_no_call_that_has_ended():
    """It counts the calls under way, to know what travels together."""
    async with Hub(port=0) as hub, CallHandler(bank(), WebSocketTransport(hub.url)) as handler:
        async with PendingRequestMap(WebSocketTransport(hub.url)) as calls:
            assert (await error_of(calls.call("bank.pay"))).code == ErrorCode.ACCESS_DENIED
            assert (await error_of(calls.call("bank.none"))).code == ErrorCode.OPERATION_NOT_FOUND
            late = await error_of(calls.call("bank.wait", timeout=0.4))
            assert late.code in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE)  # a busy handler refuses what came late
            assert len((await calls.call("bank.count")).data) == 10_000
            async with calls.subscribe("bank.count") as items:
                async for _ in items:
                    break
            await until(lambda: handler.active == 0 and hub.pending == 0)
            assert not any(peer.calls or peer.serving for peer in hub.switch.peers)


async def test_a_stream_whose_consumer_is_silent_leaves_nothing():
    """Its lease ends it for all: the consumer is told, and hub and handler forget it."""
    async with Hub(port=0) as hub, CallHandler(bank(), WebSocketTransport(hub.url), lease=0.2) as handler:
        async with Participant.open(WebSocketTransport(hub.url)) as caller:
            asked = {"requestId": "1", "operationId": "bank.count", "input": {}, "credit": 2}
            await caller.send("op:bank.count", "call.requested", **asked)
            (error,) = await caller.wait_for("call.error")
            assert error["code"] == ErrorCode.ABORTED
            assert "no sign of life" in error["message"]
            await until(lambda: hub.pending == 0 and handler.active == 0)


async def test_a_hub_that_is_not_there_is_a_clear_error():
    with pytest.raises(LinkDownError, match="127.0.0.1:1"):
        await PendingRequestMap(WebSocketTransport("ws://127.0.0.1:1")).open()


async def test_a_request_nobody_ends_is_ended_by_the_hub():
    """Long after its deadline a request leaves the hub's table, even if both sides forgot it."""
    async with Hub(port=0) as hub:
        transport = WebSocketTransport(hub.url)
        async with Participant.open(transport) as server, Participant.open(transport) as caller:
            await server.link.register("op:a.b")
            await caller.request("a.b", "1", timeoutMs=0)
            await server.wait_for("call.requested")
            assert hub.pending == 1
            for peer in hub.switch.peers:
                for route in peer.calls.values():
                    route.expires = 0.0
            hub.switch.expire()
            assert (await caller.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
            assert await server.wait_for("call.aborted")
            assert hub.pending == 0


async def test_the_hubs_own_process_takes_part():
    async with guarded() as hub, CallHandler(bank(), hub.transport):
        async with PendingRequestMap(spoke(hub, "alice")) as alice, PendingRequestMap(hub.transport) as own:
            assert (await alice.call("bank.pay")).data == "alice"
            assert (await own.call("bank.pay", identity=ALICE)).data == "alice"
            assert (await error_of(own.call("bank.pay"))).code == ErrorCode.ACCESS_DENIED


def test_the_plugin_is_found_and_light():
    """``ws`` and ``wss`` are this plugin's, and finding it imports no aiohttp."""
    transport = load_plugins(only=["websocket"]).transport("ws://127.0.0.1:9", token="t")
    assert transport.capabilities.authenticates_peer
    assert "token" not in repr(transport)
    code = "import sys, operad; operad.load_plugins(only=['websocket'], strict=True); sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


async def test_beside_an_authenticator_anonymous_spokes_serve_nothing():
    for authenticate, token, may_serve in (
        (None, None, True),
        (bearer_tokens(TOKENS), None, False),
        (bearer_tokens(TOKENS), "token of alice", True),
    ):
        async with (
            Hub(authenticate, port=0, anonymous=True) as hub,
            Participant.open(WebSocketTransport(hub.url, token=token)) as peer,
        ):
            if may_serve:
                await peer.link.register("op:a.b")
            else:
                with pytest.raises(TransportError, match="refuses the registration"):
                    await peer.link.register("op:a.b")


async def test_a_request_above_the_limit_is_answered_and_another_event_has_more_room():
    async with Hub(port=0, max_payload=1_000) as hub, aiohttp.ClientSession() as session:
        sockets = [await session.ws_connect(hub.url) for _ in range(2)]

        async def send(socket, type_, to=None, **payload):
            await socket.send_str(json.dumps({"type": type_, "id": "1", "to": to, "payload": payload}))

        async def heard(socket):
            return json.loads((await socket.receive()).data)

        async with asyncio.timeout(10):
            await send(sockets[0], "link.register", topics=["all:x"])
            assert (await heard(sockets[0]))["type"] == "link.registered"
            request = {"requestId": "r", "operationId": "a.b"}
            await send(sockets[1], "call.requested", **request, input="x" * 1_000)
            error = (await heard(sockets[1]))["payload"]
            assert (error["requestId"], error["code"]) == ("r", "PAYLOAD_TOO_LARGE")
            await send(sockets[1], "news", to="all:x", text="x" * 1_000)
            assert len((await heard(sockets[0]))["payload"]["text"]) == 1_000


@pytest.mark.parametrize("listen", ["", "h", ":1", "h:", "h:x", "h:-1", "127.0.0.1:65536"])
def test_what_is_no_address_to_listen_on_is_refused(listen, tmp_path):
    with pytest.raises(ConfigError, match="listen: expected HOST:PORT"):
        _ = ServedHub(HubConfig(listen=listen), tmp_path).url
    assert ServedHub(HubConfig(listen="127.0.0.1:65535"), tmp_path).url == "ws://127.0.0.1:65535"

"""The hub over real sockets: who may connect and serve, what is refused, what breaks and comes back."""
# ruff: noqa: SIM117  # what is opened first and closed last is the point of many of these tests

import asyncio
import json
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from operad import CallHandler, ErrorCode, Identity, OperationContext, PendingRequestMap, operation
from operad.errors import ConfigError
from operad.transports import LinkDownError, TransportError
from operad_testing import Participant
from operad_websocket import Hub, Limits, WebSocketTransport, bearer_tokens
from plugins.websocket.tests.kit import TABLES, calling, code_of, error_of, registry_of, until
from plugins.websocket.tests.sockets import dialled, heard, masked, port_of, server_of, upgraded

ALICE, BOB, EVE = Identity("alice", ["pay"]), Identity("bob"), Identity("eve")
TOKENS = {"token of alice": ALICE, "token of bob": BOB, "token of eve": EVE}
ASKED = '{"type":"call.requested","id":"","payload":{"requestId":"1","operationId":"a.b","input":1}}'


@operation(namespace="bank", access_control={"required_scopes": ["pay"]})
async def pay(context: OperationContext) -> str:
    return context.identity.id


@operation(namespace="bank", type="query")
async def wait() -> None:
    await asyncio.sleep(60)


@operation(namespace="bank")
async def count() -> AsyncIterator[str]:
    while True:
        yield "x" * 10_000


def guarded(**options):
    return Hub(bearer_tokens(TOKENS), port=0, **options)


def spoke(hub, who=None):
    return WebSocketTransport(hub.url, token=who and f"token of {who}")


def by(hub, who):
    return PendingRequestMap(spoke(hub, who))


def bank(hub, who=None, **options):
    """A handler of the operations above."""
    return CallHandler(registry_of(pay, wait, count), spoke(hub, who), **options)


# --- spoofing ------------------------------------------------------------------------------------------


async def test_an_identity_cannot_be_claimed():
    """What a request says about its caller is replaced by whom the hub authenticated."""
    async with guarded() as hub, bank(hub, "bob"):
        async with by(hub, "eve") as eve, by(hub, "alice") as alice:
            assert await code_of(eve.call("bank.pay", identity=ALICE)) == ErrorCode.ACCESS_DENIED
            assert (await alice.call("bank.pay", identity=EVE)).data == "alice"


async def test_an_operation_of_another_identity_cannot_be_taken_over(caplog):
    """While one identity serves an operation, no other one can put itself beside it."""
    async with guarded() as hub, bank(hub, "bob"):
        async with Participant.open(spoke(hub, "eve")) as eve, by(hub, "alice") as alice:
            with pytest.raises(TransportError, match="another identity"):
                await eve.link.register("op:bank.pay", "operad")
            assert "refused a frame of eve" in caplog.text
            for _ in range(4):
                assert (await alice.call("bank.pay")).data == "alice"
            assert not eve.of("call.requested")
            async with bank(hub, "bob"):  # a second worker of the same identity may
                assert (await alice.call("bank.pay")).data == "alice"


async def test_who_may_serve_can_be_restricted():
    async with guarded(authorize=lambda identity, topic: identity == BOB) as hub:
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
                await calling(hub, **options).open()
        assert hub.connections == 0


def test_without_an_authenticator_only_loopback_is_served():
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        with pytest.raises(ConfigError, match="bearer_tokens"):
            Hub(host=host)
    assert Hub(bearer_tokens(TOKENS), host="0.0.0.0").url == "ws://0.0.0.0:8765"


async def test_a_web_page_cannot_use_a_hub_on_this_machine():
    """A browser names the page's origin; a rebound DNS name shows in the host header."""
    async with Hub(port=0, allowed_origins=["https://app.example"]) as hub:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await dialled(hub, headers=headers).__aenter__()
            assert caught.value.status == 403
            for path in ("/health", "/metrics"):
                url = hub.url.replace("ws", "http", 1) + path
                async with aiohttp.request("GET", url, headers=headers) as page:
                    assert page.status == 403
        async with dialled(hub, headers={"Origin": "https://app.example"}):
            pass


async def test_a_plain_http_request_gets_a_hint():
    async with Hub(port=0) as hub, aiohttp.ClientSession() as session:
        async with session.get(hub.url.replace("ws", "http", 1)) as response:
            assert response.status == 426
            assert "operad hub" in await response.text()


async def test_connections_and_calls_of_an_identity_are_bounded():
    async with guarded(limits=Limits(calls=2, links=2)) as hub, bank(hub, "bob", drain_timeout=0.1):
        async with by(hub, "eve") as one, by(hub, "eve") as two:
            with pytest.raises(TransportError, match="429"):
                await by(hub, "eve").open()
            tasks = [asyncio.create_task(calls.call("bank.wait")) for calls in (one, two)]
            await until(lambda: hub.pending == 2)
            error = await error_of(one.call("bank.wait"))
            assert (error.code, error.details) == (ErrorCode.OVERLOADED, {"limit": "calls", "value": 2})
            async with by(hub, "alice") as alice:
                assert (await alice.call("bank.pay")).data == "alice"
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await until(lambda: hub.pending == 0)
            assert await code_of(one.call("bank.pay")) == ErrorCode.ACCESS_DENIED


async def test_tls(authority, server_context):
    """``wss`` works with a certificate that the spoke trusts, and only with one."""
    client = ssl.create_default_context()
    authority.configure_trust(client)
    async with Hub(port=0, ssl=server_context) as hub:
        assert hub.url.startswith("wss://")
        async with calling(hub, ssl=client) as calls:
            assert await code_of(calls.call("bank.pay")) == ErrorCode.OPERATION_NOT_FOUND
        with pytest.raises(LinkDownError):
            await calling(hub).open()


# --- what peers send -----------------------------------------------------------------------------------


async def test_a_client_without_a_subprotocol_is_served():
    async with Hub(port=0) as hub, dialled(hub) as plain, dialled(hub, protocols=("operad.v1",)) as offered:
        assert (plain.protocol, offered.protocol) == (None, "operad.v1")
        answer = await heard(plain, ASKED)
        assert (answer["type"], answer["payload"]["code"]) == ("call.error", "OPERATION_NOT_FOUND")


@pytest.mark.parametrize("frame", [*TABLES["bad frames"], "[" * 50_000])
async def test_a_bad_frame_harms_nobody(frame):
    async with Hub(port=0) as hub, dialled(hub) as socket:
        await socket.send_bytes(frame.encode("latin-1"))
        event = await heard(socket, ASKED)
        while event["payload"].get("requestId") != "1":
            event = await heard(socket)
        assert event["payload"]["code"] == "OPERATION_NOT_FOUND"
        assert hub.pending == 0


async def test_a_spoke_that_does_not_read_only_harms_itself():
    """A stream without credit to a slow peer ends with ``SLOW_CONSUMER``, and costs it that stream alone; other
    spokes do not notice."""
    text = b'{"type":"call.requested","payload":{"requestId":"1","operationId":"bank.count","input":{}}}'
    async with Hub(port=0) as hub, bank(hub) as handler, upgraded(hub) as (reader, writer):
        writer.write(masked(text))  # and not read for long
        await until(lambda: hub.pending == 1)
        async with calling(hub) as other:
            await until(lambda: hub.pending == 0)
            assert await code_of(other.call("bank.pay")) == ErrorCode.ACCESS_DENIED
        await until(lambda: handler.active == 0)
        last = b""
        async with asyncio.timeout(10):
            while b"SLOW_CONSUMER" not in last:  # it reads at last: its connection is there still
                chunk = await reader.read(65_536)
                assert chunk
                last = (last + chunk)[-100_000:]


# --- what breaks ---------------------------------------------------------------------------------------


async def test_a_hub_that_restarts_gets_its_spokes_back(caplog):
    """Spokes come back by themselves and serve what they served; the log tells of both."""
    async with Hub(port=0) as first:
        handler, calls = bank(first, drain_timeout=0.1), calling(first)
        await handler.open()
        await calls.open()
        assert await code_of(calls.call("bank.pay")) == ErrorCode.ACCESS_DENIED
        task = asyncio.create_task(code_of(calls.call("bank.wait")))
        await until(lambda: handler.active == 1)
        await first.close()
        assert await task == ErrorCode.UNAVAILABLE
        assert (await error_of(calls.call("bank.pay"))).details["sent"] is False
        await until(lambda: handler.active == 0)
    async with Hub(port=port_of(first)) as second:
        await until(lambda: second.connections == 2 and second.switch.addresses)
        assert await code_of(calls.call("bank.pay", retry=True)) == ErrorCode.ACCESS_DENIED
        said = [record.message for record in caplog.records if record.name == "operad.calls"]
        assert said == [
            "the connection was lost; operations to serve when it is back: 3",
            "the connection is back; operations served: 3",
        ]
        await calls.aclose()
        await handler.aclose()


async def test_a_spoke_that_answers_no_ping_is_disconnected():
    async with Hub(port=0, ping=0.1) as hub, dialled(hub, autoping=False) as quiet:
        assert (await quiet.receive(timeout=10)).type is aiohttp.WSMsgType.PING
        await until(lambda: hub.connections == 0)


async def test_a_large_message_on_a_slow_line_is_not_taken_for_silence():
    """No pong can come in the middle of a frame."""
    # Where this process stands still for longer than a hub waits, so does the line: once more with a patient one.
    assert await answered_on_a_slow_line(0.2, 24) or await answered_on_a_slow_line(4.0, 12)


async def answered_on_a_slow_line(ping, pieces):
    """Whether the hub, which pings so often, takes a message of so many pieces, which come four times as often."""
    frame = masked(b'{"type":"call.requested","payload":{"requestId":"1","operationId":"a.b","input":"xxxxxxxx"}}')
    size = -(-len(frame) // pieces)
    async with Hub(port=0, ping=ping) as hub, upgraded(hub) as (reader, writer):
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
        async with Hub(port=0, ping=ping) as hub, dialled(hub, autoping=False) as quiet:
            come = []
            while len(come) < pings and (await quiet.receive(timeout=20)).type is aiohttp.WSMsgType.PING:
                come.append(await quiet.pong())
            stayed = len(come) == pings and hub.connections == 1
        if stayed:
            break
    assert stayed


async def test_a_ping_of_a_client_is_answered():
    async with Hub(port=0) as hub, dialled(hub, autoping=False) as client:
        await client.ping(b"here?")
        answer = await client.receive(timeout=10)
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"here?")


async def test_a_hub_that_answers_no_ping_is_left_and_looked_for_again():
    sockets, pings = [], []

    async def say_nothing(socket):
        sockets.append(socket)
        async for message in socket:
            pings.append((sockets.index(socket), message.type))  # noqa: PERF401  # one by one: the end of the connection cancels this

    async with server_of(say_nothing) as url, PendingRequestMap(WebSocketTransport(url, ping=0.1)) as calls:
        assert await code_of(calls.call("bank.pay")) == ErrorCode.UNAVAILABLE
        await until(lambda: len(sockets) >= 2)
    assert 1 <= pings.count((0, aiohttp.WSMsgType.PING)) <= 2


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
    async with Hub(port=0) as hub, bank(hub) as handler, calling(hub) as calls:
        assert await code_of(calls.call("bank.pay")) == ErrorCode.ACCESS_DENIED
        assert await code_of(calls.call("bank.none")) == ErrorCode.OPERATION_NOT_FOUND
        late = await code_of(calls.call("bank.wait", timeout=0.4))
        assert late in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE)  # a busy handler refuses what came late
        assert len((await calls.call("bank.count")).data) == 10_000
        async with calls.subscribe("bank.count") as items:
            async for _ in items:
                break
        await until(lambda: handler.active == 0 and hub.pending == 0)
        assert not any(peer.calls or peer.serving for peer in hub.switch.peers)


async def test_the_hubs_own_process_takes_part():
    async with guarded() as hub, CallHandler(registry_of(pay), hub.transport):
        async with by(hub, "alice") as alice, PendingRequestMap(hub.transport) as own:
            assert (await alice.call("bank.pay")).data == "alice"
            assert (await own.call("bank.pay", identity=ALICE)).data == "alice"
            assert await code_of(own.call("bank.pay")) == ErrorCode.ACCESS_DENIED


@pytest.mark.parametrize(
    ("tokens", "options", "may_serve"),
    [(None, {}, True), (TOKENS, {}, False), (TOKENS, {"token": "token of alice"}, True)],
)
async def test_beside_an_authenticator_anonymous_spokes_serve_nothing(tokens, options, may_serve):
    async with Hub(tokens and bearer_tokens(tokens), port=0, anonymous=True) as hub:
        async with Participant.open(WebSocketTransport(hub.url, **options)) as peer:
            if may_serve:
                await peer.link.register("op:a.b")
            else:
                with pytest.raises(TransportError, match="refuses the registration"):
                    await peer.link.register("op:a.b")


async def test_a_request_above_the_limit_is_answered_and_another_event_has_more_room():
    def frame(type_, to=None, **payload):
        return json.dumps({"type": type_, "id": "1", "to": to, "payload": payload})

    async with Hub(port=0, max_payload=1_000) as hub, dialled(hub) as member, dialled(hub) as sender:
        assert (await heard(member, frame("link.register", topics=["all:x"])))["type"] == "link.registered"
        request = {"requestId": "r", "operationId": "a.b", "input": "x" * 1_000}
        error = (await heard(sender, frame("call.requested", **request)))["payload"]
        assert (error["requestId"], error["code"]) == ("r", "PAYLOAD_TOO_LARGE")
        await sender.send_str(frame("news", "all:x", text="x" * 1_000))
        assert len((await heard(member))["payload"]["text"]) == 1_000

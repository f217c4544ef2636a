"""Spokes: what one sender's end costs the others, names that were lost meanwhile, hubs that are not there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from operad import (
    CallError,
    CallHandler,
    Identity,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    load_plugins,
)
from operad.plugin import ConfigError, LinkDownError, TransportError
from operad_calls.serving import answers
from operad_calls.transport import protocol
from operad_testing import Participant
from operad_websocket import Hub, WebSocketTransport, _registering, bearer_tokens
from operad_websocket.config import WebSocketConfig
from plugins.websocket.tests.kit import calling, code_of, error_of, until
from plugins.websocket.tests.sockets import dialled, heard, port_of

TOKENS = {"a": Identity("alice"), "b": Identity("bob")}


def echoing(hub: Hub | WebSocketTransport) -> CallHandler:
    """A handler of ``a.echo`` and of ``a.wait``, which never ends."""
    registry = OperationRegistry()

    async def echo(input: Any, context: Any) -> Any:
        return input

    async def wait(input: Any, context: Any) -> None:
        await asyncio.Event().wait()

    for handler in (echo, wait):
        registry.register(OperationSpec(namespace="a", name=handler.__name__, type="query"), handler)
    return CallHandler(registry, WebSocketTransport(hub.url) if isinstance(hub, Hub) else hub)


@asynccontextmanager
async def deaf_hub() -> AsyncIterator[tuple[str, list[asyncio.Transport], list[bytes]]]:
    """A server that does not read until its transports are told to."""
    transports: list[Any] = []
    heard: list[bytes] = []

    async def accept(request: web.BaseRequest) -> web.WebSocketResponse:
        made = web.WebSocketResponse(max_msg_size=2**23)
        await made.prepare(request)
        assert request.transport is not None
        request.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket's transport
        transports.append(request.transport)
        async for message in made:
            heard.append(message.data)  # noqa: PERF401  # one by one: the end of the connection cancels this
        return made

    async with RawTestServer(accept) as server:
        yield f"ws://127.0.0.1:{server.port}", transports, heard
        for transport in transports:
            transport.resume_reading()


# --- one socket ------------------------------------------------------------------------------------------


async def test_a_cancelled_sender_does_not_end_those_that_wait_for_the_same_socket() -> None:
    async with deaf_hub() as (url, transports, heard), Participant.open(WebSocketTransport(url)) as sender:
        large, sending = "x" * 3_000_000, []
        for number in range(8):
            sending.append(asyncio.create_task(sender.send("all:x", "news", number=number, text=large)))
            await asyncio.sleep(0.02)
        waiting = [task for task in sending if not task.done()]
        assert len(waiting) >= 4
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting[1:])
        transports[0].resume_reading()  # type: ignore[attr-defined]  # of a socket's transport
        await asyncio.gather(*waiting[1:])
        await sender.link.close()
        await until(lambda: len(heard) == 8)


async def test_an_event_of_a_peers_own_may_name_any_value_as_its_reply_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is shared between the events of one peer is looked up by that name."""
    async with Hub(port=0) as hub, Participant.open(WebSocketTransport(hub.url)) as listener:
        await listener.link.register("all:x")
        async with Participant.open(WebSocketTransport(hub.url)) as peer:
            odd = [["a list"], {"an": "object"}, 7, "y" * 1_000_000, "inbox:1"]
            for value in odd:
                await peer.send("all:x", "news", replyTo=value, identity=value)
        assert [payload["replyTo"] for payload in await listener.wait_for("news", len(odd))] == odd
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_request_that_cannot_be_read_is_answered_and_so_is_who_waits_for_an_answer() -> None:
    """The hub passes on what it does not look into; who gets it says so."""
    async with Hub(port=0) as hub, echoing(hub), dialled(hub) as raw, calling(hub) as calls:
        asked = '{"type":"call.requested","payload":{"requestId":"1","operationId":"a.echo","input":1e999}}'
        answer = (await heard(raw, asked))["payload"]
        assert (answer["requestId"], answer["code"]) == ("1", "SERIALIZATION_ERROR")
        await heard(raw, '{"type":"link.register","id":"1","payload":{"topics":["op:a.twice"]}}')
        call = asyncio.create_task(calls.call("a.twice", timeout=60))
        request_id = (await heard(raw))["payload"]["requestId"]
        bad = '{"type":"call.responded","payload":{"requestId":"%s","output":{"data":{"x":1,"x":2}}}}'
        await raw.send_str(bad % request_id)
        assert await code_of(call) == "SERIALIZATION_ERROR"


# --- names -----------------------------------------------------------------------------------------------


async def test_a_worker_that_lost_its_name_meanwhile_knows_it_and_gets_it_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_registering, "RETRY", 0.05)
    first = Hub(bearer_tokens(TOKENS), port=0)
    await first.start()
    async with Participant.open(WebSocketTransport(first.url, token="a")) as worker:
        await worker.link.register("op:bank.transfer", "operad")
        await worker.link.register("op:bank.balance", "operad")
        await first.close()
        second = Hub(bearer_tokens(TOKENS), port=port_of(first))
        async with Participant.open(second.transport) as other:  # there before the worker is back
            await other.link.register("op:bank.transfer", "operad")
            await second.start()
            told = (await worker.wait_for(protocol.REGISTERED))[0]
            assert told["refused"] == [{"topic": "op:bank.transfer", "reason": "it is served by another identity"}]
            assert told["topics"] == ["op:bank.balance"]
            assert "refuses addresses that this process served before" in caplog.text
            assert "op:bank.transfer" in caplog.text
        await worker.wait_for(protocol.REGISTERED, 2)
        told = worker.of(protocol.REGISTERED)[-1]
        assert (sorted(told["topics"]), told["refused"]) == (["op:bank.balance", "op:bank.transfer"], [])
        assert "served again: op:bank.transfer" in caplog.text
        await second.close()


@pytest.mark.parametrize(("code", "breaks"), [(1000, False), (1001, False), (1002, True), (None, True)])
async def test_a_broken_connection_keeps_its_names_and_a_closed_one_does_not(
    code: int | None, breaks: bool
) -> None:
    hub = Hub(bearer_tokens(TOKENS), port=0)
    async with hub, Participant.open(WebSocketTransport(hub.url, token="b")) as other:
        async with dialled(hub, headers={"Authorization": "Bearer a"}) as worker:
            await heard(worker, '{"type":"link.register","id":"1","payload":{"topics":["op:bank.transfer"]}}')
            if code is None:
                worker._response.connection.transport.abort()  # type: ignore[union-attr]  # there while it is open
            else:
                await worker.close(code=code)
        await until(lambda: hub.connections == 1)
        if breaks:
            with pytest.raises(TransportError, match="reserved for another identity"):
                await other.link.register("op:bank.transfer", "operad")
        else:
            await other.link.register("op:bank.transfer", "operad")


async def test_who_vouches_for_a_listing() -> None:
    async with (
        Hub(port=0) as hub,
        echoing(hub) as handler,
        Participant.open(WebSocketTransport(hub.url)) as spoke,
        Participant.open(hub.transport) as own,
    ):
        for link in (spoke.link, own.link):
            served = await link.served_by(handler.instance, ["op:a.echo", "op:a.other"])  # type: ignore[attr-defined]  # these links vouch
            assert served == {"op:a.echo"}
            assert await link.served_by("nobody", ["op:a.echo"]) == frozenset()  # type: ignore[attr-defined]  # a link of this transport tells it


# --- hubs ------------------------------------------------------------------------------------------------


async def test_a_spoke_goes_to_the_next_hub_when_one_is_gone() -> None:
    first, second = Hub(port=0), Hub(port=0)
    await first.start()
    await second.start()
    both = f"{first.url}, {second.url}"
    transport = load_plugins(only=["websocket"]).transport(both)
    async with echoing(transport), PendingRequestMap(transport) as calls:
        assert (first.connections, second.connections) == (2, 0)
        await first.close()
        await until(lambda: second.connections == 2 and second.switch.addresses)
        results: list[Any] = []
        async with asyncio.timeout(10):
            while not results:  # the hub sees the caller's connection before the caller does
                await asyncio.sleep(0.01)
                with contextlib.suppress(CallError):
                    results.append((await calls.call("a.echo", {"x": 1})).data)
        assert results == [{"x": 1}]
    await second.close()
    with pytest.raises(LinkDownError):
        await PendingRequestMap(transport).open()


async def test_a_hub_that_says_why_it_refuses_is_quoted_before_one_that_is_not_there() -> None:
    async with Hub(bearer_tokens(TOKENS), port=0) as hub:
        with pytest.raises(TransportError, match="401"):
            await PendingRequestMap(WebSocketTransport(f"ws://127.0.0.1:1,{hub.url}")).open()


async def test_no_secret_of_a_url_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    transport = WebSocketTransport("ws://user:s3cret@127.0.0.1:1/path?token=s3cret#s3cret", token="s3cret")
    assert repr(transport) == "WebSocketTransport('ws://127.0.0.1:1/path')"
    with pytest.raises(LinkDownError) as caught:
        await PendingRequestMap(transport).open()
    assert "s3cret" not in str(caught.value) + caplog.text
    assert "s3cret" not in repr(WebSocketConfig("ws://127.0.0.1:1", token="s3cret", headers={"X-Key": "s3cret"}))


@pytest.mark.parametrize(
    "option", [{"ping": "20"}, {"ping": 0}, {"token": 7}, {"headers": "x"}, {"max_payload": 1.5}]
)
def test_an_option_of_another_type_is_a_configuration_error(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        load_plugins(only=["websocket"]).transport("ws://127.0.0.1:1", **option)


async def _use(transport: WebSocketTransport) -> None:
    link = await transport.open(lambda *_: None, lambda *_: None)
    await link.register("op:x.y")  # a refused certificate may show with the first frame alone


async def test_a_spoke_whose_closing_is_cancelled_leaves_no_connection_open() -> None:
    async with Hub(port=0) as hub:
        link: Any = await WebSocketTransport(hub.url).open(lambda *_: None, lambda *_: None)
        waits = asyncio.Event()

        async def stop() -> None:
            waits.set()
            await asyncio.sleep(60)

        link._registering.stop = stop
        closing = asyncio.create_task(link.close())
        await waits.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: hub.connections == 0)


async def test_a_hub_whose_closing_is_cancelled_ends_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(port=0)
    await hub.start()
    runner, waits = hub._runner, asyncio.Event()
    assert runner is not None
    link = await WebSocketTransport(hub.url).open(lambda *_: None, lambda *_: None)

    async def close(connection: Any) -> None:
        waits.set()
        await asyncio.sleep(60)

    monkeypatch.setattr("operad_websocket._connection.Connection.close", close)
    closing = asyncio.create_task(hub.close())
    await waits.wait()
    await link.close()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert runner.server is None


async def test_certificates_are_named_as_files_and_so_is_a_file_that_cannot_be_used(
    tmp_path: Path, authority: Any, server_context: ssl.SSLContext
) -> None:
    server_context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server_context)
    ca, cert = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("spoke").private_key_and_cert_chain_pem.write_to_path(cert)
    async with Hub(port=0, ssl=server_context) as hub:
        transport = load_plugins(only=["websocket"]).transport(hub.url, tls_ca=str(ca), tls_cert=str(cert))
        async with echoing(transport), PendingRequestMap(transport) as calls:
            assert (await calls.call("a.echo", 1)).data == 1
        for options, words in (
            ({"tls_ca": str(ca)}, "cannot be reached"),
            ({"tls_ca": str(tmp_path / "none.pem")}, "tls_ca: expected .*none.pem: No such file"),
        ):
            with pytest.raises((LinkDownError, ConfigError), match=words):
                await _use(WebSocketTransport(hub.url, **options))
        with pytest.raises(ConfigError, match="either ssl, or tls_ca"):
            WebSocketTransport(hub.url, ssl=ssl.create_default_context(), tls_ca=str(ca))


async def test_a_caller_that_has_granted_room_once_is_waited_for_when_it_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taken for one that counts no bytes, it would get all large answers at once, and its connection would be cut."""
    monkeypatch.setattr(answers, "_AGAIN", 0.02)
    large = {"text": "x" * 10_000}
    async with Hub(port=0) as hub, echoing(hub), Participant.open(WebSocketTransport(hub.url)) as caller:
        for request_id in ("new", "granted", "busy"):
            # The one that grants has all the time that a busy machine needs.
            monkeypatch.setattr(answers, "_PATIENCE", 60.0 if request_id == "granted" else 0.05)
            await caller.request("a.echo", request_id, large, creditBytes=100)
            await until(lambda request_id=request_id: request_id in _wanting(caller))  # type: ignore[misc]  # bound early
            if request_id == "granted":
                await caller.send("", protocol.CREDIT, requestId=request_id, total=0, totalBytes=20_000)
            if request_id != "busy":
                await caller.wait_for(protocol.RESPONDED, 1 if request_id == "new" else 2)
        await until(lambda: _wanting(caller).count("busy") >= 6)
        assert [item["requestId"] for item in caller.of(protocol.RESPONDED)] == ["new", "granted"]
        await caller.send("", protocol.CREDIT, requestId="busy", total=0, totalBytes=20_000)
        await caller.wait_for(protocol.RESPONDED, 3)


def _wanting(caller: Participant) -> list[str]:
    return [payload["requestId"] for payload in caller.of(protocol.CREDIT) if "wantsBytes" in payload]


async def test_a_ping_of_a_hub_that_is_gone_already_is_not_the_end_of_a_link(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply to it cannot be written any more: the connection is lost, and the link connects again."""
    pings = []

    async def pong(socket: Any, data: bytes = b"") -> None:
        pings.append(data)
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(aiohttp.ClientWebSocketResponse, "pong", pong)
    async with Hub(port=0, ping=0.05) as hub, echoing(hub):
        await until(lambda: pings)
        (connection,) = hub._connections
        await connection.close()
        await until(lambda: hub.switch.addresses and connection not in hub._connections)
        async with PendingRequestMap(hub.transport) as calls:
            assert (await calls.call("a.echo", {"n": 1})).data == {"n": 1}
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("error", [ConnectionResetError, aiohttp.ClientConnectionResetError, RuntimeError])
async def test_what_a_socket_raises_when_it_is_lost_is_a_call_error(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a call and a stream; and the error states that nothing ran."""

    async def send_bytes(socket: Any, data: bytes) -> None:
        raise error("lost")

    async with Hub(port=0) as hub, calling(hub) as calls:
        with monkeypatch.context() as patch:
            patch.setattr(aiohttp.ClientWebSocketResponse, "send_bytes", send_bytes)
            caught = await error_of(calls.call("a.echo"))
            assert (caught.code, caught.ran) == ("UNAVAILABLE", False)
            assert await code_of(anext(calls.subscribe("a.echo"))) == "UNAVAILABLE"
        assert calls.pending == 0


async def test_a_call_that_is_lost_while_it_is_written_may_have_run() -> None:
    async with deaf_hub() as (url, transports, _), PendingRequestMap(WebSocketTransport(url)) as calls:
        waiting = [asyncio.create_task(calls.call("a.echo", {"text": "x" * 60_000})) for _ in range(200)]
        await until(lambda: calls.pending == len(waiting))
        transports[0].abort()
        async with asyncio.timeout(10):
            errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {(error.code, error.ran) for error in errors if isinstance(error, CallError)} == {("UNAVAILABLE", None)}


@pytest.mark.parametrize("error", [RuntimeError("of a library"), asyncio.CancelledError()])
async def test_no_error_is_the_end_of_a_link(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an attempt to connect again raises, another one follows."""
    connect, attempts = aiohttp.ClientSession.ws_connect, 0

    async def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise error
        return await connect(*arguments, **options)

    async with Hub(port=0) as hub, echoing(hub):
        (connection,) = hub._connections
        monkeypatch.setattr(aiohttp.ClientSession, "ws_connect", failing)
        connection.abort()
        async with PendingRequestMap(hub.transport) as calls:
            await until(lambda: attempts == 3 and hub.switch.addresses)
            assert (await calls.call("a.echo", {"n": 1})).data == {"n": 1}


@pytest.mark.parametrize("frame_id", [["a"], {"a": 1}, 5, None])
async def test_what_a_hub_objects_to_may_have_any_id(frame_id: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The id of a frame is any JSON value, and comes back in the answer."""
    async with Hub(port=0) as hub, Participant.open(WebSocketTransport(hub.url)) as one:
        frame = {"type": "link.register", "id": frame_id, "payload": {"topics": 5}}
        await one.link.send("op:a.b", frame)  # type: ignore[arg-type]  # an event has a string there
        await one.link.register("op:a.b")
        assert "the hub refuses a frame: link.register: topics: expected a list" in caplog.text
        assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


async def test_what_a_hub_does_not_take_is_not_sent_to_it_whatever_its_spoke_would_send() -> None:
    """It would end the connection, and every call on it. After a restart counts what the hub says then."""
    hub = Hub(port=0, max_payload=10_000)
    await hub.start()
    larger = Hub(port=port_of(hub), max_payload=300_000)
    transport = WebSocketTransport(hub.url)
    try:
        async with echoing(transport), PendingRequestMap(transport) as calls:
            waiting = asyncio.create_task(calls.call("a.wait"))
            for size in (20_000, 200_000):
                with pytest.raises(CallError, match=r"PAYLOAD_TOO_LARGE.*the limit is 10000"):
                    await calls.call("a.echo", {"text": "x" * size})
            assert not waiting.done()
            await hub.close()
            await larger.start()
            assert await code_of(waiting) == "UNAVAILABLE"
            given = {"text": "x" * 200_000}
            assert (await calls.call("a.echo", given, retry=True, timeout=10)).data == given
    finally:
        await hub.close()
        await larger.close()


async def test_a_spoke_looks_for_its_hub_with_pauses_that_double_up_to_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    links: list[tuple[str, int]] = []

    class Factor(float):
        def __rmul__(self, pause: float) -> float:
            pauses.append(pause)
            return 0.0

    async with Hub(port=0) as hub:
        link = await WebSocketTransport(hub.url).open(lambda *_: None, lambda *change: links.append(change))
        monkeypatch.setattr("operad_websocket.spoke.random.uniform", lambda *_: Factor())
    try:
        await until(lambda: len(pauses) >= 10)
    finally:
        await link.close()
    assert pauses[:10] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert links[:2] == [("up", 1), ("down", 1)]


@pytest.mark.parametrize("url", ["ws://", "wss://:1", "http://h:1", "h:1", "ws://h:1,ftp://h", ""])
def test_what_is_no_url_of_a_hub_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected ws://host:port or wss://host:port"):
        WebSocketConfig(url)
    assert WebSocketConfig("ws://a:1, wss://b").urls == ("ws://a:1", "wss://b")

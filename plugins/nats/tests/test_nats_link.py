"""Links over a real NATS server: events out and in."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from operad.plugin import Delivery, Event, Link, LinkDownError, PayloadTooLargeError, TransportError
from operad.transports import Link as LinkProtocol
from operad.transports import Transport
from operad_nats import NATSTransport
from operad_nats._client import StrictClient
from operad_nats.testing import NATSServer

pytestmark = pytest.mark.nats


class Participant:
    """A link and what came to it."""

    link: Link

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: list[tuple[str, int]] = []
        self._changed = asyncio.Event()

    async def open(self, transport: Transport) -> Participant:
        self.link = await transport.open(self._on_event, self._on_link)
        return self

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        assert delivery.identity is None
        self.events.append(event)
        self._changed.set()

    def _on_link(self, state: str, epoch: int) -> None:
        self.states.append((state, epoch))
        self._changed.set()

    async def until(self, condition: Callable[[], bool], timeout: float = 10) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


Joiner = Callable[..., Awaitable[Participant]]


@pytest.fixture
async def join(nats_url: str) -> Any:
    """Makes participants on the shared server, on a bus of this test's own; closes them."""
    prefix = f"test{id(object())}"
    joined: list[Participant] = []

    async def join(url: str = nats_url, **options: Any) -> Participant:
        participant = Participant()
        joined.append(await participant.open(NATSTransport(servers=url, **{"prefix": prefix, **options})))
        return participant

    yield join
    for participant in joined:
        await participant.link.close()


def request(number: int, operation_id: str = "test.op", **payload: Any) -> Event:
    return {
        "type": "call.requested",
        "id": "",
        "payload": {"requestId": f"r{number}", "operationId": operation_id, "input": None, **payload},
    }


async def test_transport_and_link_have_the_interface_of_the_core(join: Joiner, nats_url: str) -> None:
    assert isinstance(NATSTransport(servers=nats_url), Transport)
    assert isinstance((await join()).link, LinkProtocol)


async def test_events_arrive_unchanged_and_in_order(join: Joiner) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    sent = [request(i, text="ünïcode \u2028 \x00", big=2**70) for i in range(500)]
    for event in sent:
        await client.link.send("op:test.op", event)
    await server.until(lambda: len(server.events) == 500)
    assert server.events == sent


async def test_order_holds_between_addresses_of_one_sender(join: Joiner) -> None:
    server, client = await join(), await join()
    for name in "abcd":
        await server.link.register(f"op:test.{name}", "workers")
    sent = [request(i) for i in range(200)]
    for i, event in enumerate(sent):
        await client.link.send(f"op:test.{'abcd'[i % 4]}", event)
    await server.until(lambda: len(server.events) == 200)
    assert server.events == sent


async def test_an_inbox_is_reached_by_its_address_alone(join: Joiner) -> None:
    one, other = await join(), await join()
    assert one.link.inbox != other.link.inbox
    await other.link.send(one.link.inbox, request(1))
    await one.until(lambda: len(one.events) == 1)
    assert other.events == []


async def test_an_inbox_may_have_a_part_that_permissions_can_name(join: Joiner) -> None:
    alice, bob = await join(inbox="alice"), await join()
    assert alice.link.inbox.startswith("inbox:alice.")
    await bob.link.send(alice.link.inbox, request(1))
    await alice.until(lambda: len(alice.events) == 1)


async def test_a_message_for_a_subscription_given_up_meanwhile_is_delivered() -> None:
    received: list[bytes] = []
    client = StrictClient(lambda subject, reply, data, headers: received.append(data), require_tls=False)
    await client._process_msg(7, b"subject", b"", b"sent before the server learnt of it", None)
    assert received == [b"sent before the server learnt of it"]


async def test_one_member_of_a_group_gets_each_request(join: Joiner) -> None:
    members = [await join() for _ in range(3)]
    for member in members:
        await member.link.register("op:test.op", "workers")
    client = await join()
    for i in range(300):
        await client.link.send("op:test.op", request(i))
    await client.link.drain(5)
    for member in members:
        await member.link.drain(5)
    counts = [len(member.events) for member in members]
    assert sum(counts) == 300
    assert min(counts) > 50


async def test_everybody_who_registered_a_topic_gets_its_events(join: Joiner) -> None:
    members = [await join() for _ in range(3)]
    for member in members:
        await member.link.register("all:news")
    client = await join()
    await client.link.send("all:news", request(1))
    for member in members:
        await member.until(lambda member=member: len(member.events) == 1)  # type: ignore[misc]  # bound early


@pytest.mark.parametrize(
    "operation_id",
    ["a.b.c", "ns.*", "ns.>", "ns.a b", "ns.ünïcode/日本", "ns." + "x" * 5000, "ns.a\r\nPUB x 0", "ns.%2E", "ns..", "ns.\ud800"],
)  # fmt: skip
async def test_any_operation_id_reaches_its_operation_and_no_other(join: Joiner, operation_id: str) -> None:
    server, client, other = await join(), await join(), await join()
    await server.link.register(f"op:{operation_id}", "workers")
    await other.link.register("op:ns.else", "workers")
    await client.link.send(f"op:{operation_id}", request(1))
    await server.until(lambda: len(server.events) == 1)
    assert other.events == []


@pytest.mark.parametrize("request_id", ["r1", "a.b-*>ü /", "x" * 100])
async def test_a_request_that_nobody_serves_is_refused_at_once(join: Joiner, request_id: str) -> None:
    client = await join()
    event = request(1, requestId=request_id)
    await client.link.send("op:test.nobody.here", event)
    await client.until(lambda: len(client.events) == 1)
    refusal = client.events[0]
    assert refusal["type"] == "call.error"
    assert refusal["payload"]["code"] == "NO_RESPONDERS"
    assert refusal["payload"]["requestId"] == request_id
    assert refusal["payload"]["details"] == {"operationId": "test.nobody.here"}


async def test_only_requests_are_refused(join: Joiner) -> None:
    client = await join()
    await client.link.send("op:test.nobody", {"type": "call.aborted", "id": "", "payload": {"requestId": "r1"}})
    await client.link.send("all:nobody", request(1))
    await client.link.send("inbox:nobody", request(1))
    await client.link.send(client.link.inbox, request(2))
    await client.until(lambda: len(client.events) == 1)
    assert client.events == [request(2)]


async def test_what_is_unregistered_is_served_no_longer(join: Joiner) -> None:
    server, client = await join(), await join()
    registration = await server.link.register("op:test.op", "workers")
    await registration.unregister()
    await registration.unregister()
    await server.link.drain(5)
    await client.link.send("op:test.op", request(1))
    await client.until(lambda: len(client.events) == 1)
    assert client.events[0]["payload"]["code"] == "NO_RESPONDERS"


async def test_draining_delivers_what_was_under_way_and_keeps_the_inbox(join: Joiner) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    for i in range(100):
        await client.link.send("op:test.op", request(i))
    await client.link.drain(5)
    await server.link.drain(5)
    assert len(server.events) == 100
    await server.link.send(client.link.inbox, request(1))
    await client.link.send(server.link.inbox, request(2))
    await client.until(lambda: bool(client.events))
    await server.until(lambda: len(server.events) == 101)


async def test_an_event_that_is_too_large_is_refused_before_it_is_sent(join: Joiner) -> None:
    server, client, small = await join(), await join(), await join(max_payload=1000)
    await server.link.register("op:test.op", "workers")
    with pytest.raises(PayloadTooLargeError, match=r"has 20000\d\d bytes, the connection takes 1048576"):
        await client.link.send("op:test.op", request(1, input="x" * 2_000_000))
    with pytest.raises(PayloadTooLargeError, match="takes 1000"):
        await small.link.send("op:test.op", request(1, input="x" * 1000))
    await client.link.send("op:test.op", request(2))  # the connection lives
    await server.until(lambda: len(server.events) == 1)
    assert server.events[0]["payload"]["requestId"] == "r2"


async def test_a_peer_that_sends_rubbish_harms_nobody(join: Joiner, nats_url: str) -> None:
    import nats

    server, client = await join(), await join()
    rubbish = await nats.connect(nats_url)
    subject = f"_INBOX.{server.link.inbox.removeprefix('inbox:')}"
    for data in (
        b"",
        b"\xff\xfe",
        b"[1]",
        b'"x"',
        b"{}",
        b'{"type": 1}',
        b"{" * 10_000,
        b'{"type":"x","payload":[]}',
    ):
        await rubbish.publish(f"{subject}.r", data)
        await rubbish.publish(f"{subject}.n.x", data, headers={"Status": "503"})
    await rubbish.close()
    await client.link.send(server.link.inbox, request(1))
    await server.until(lambda: request(1) in server.events)


@pytest.mark.parametrize("type_", ["link.stored", "link.lost", "link.registered"])
async def test_what_only_a_link_may_say_is_dropped_if_a_peer_says_it(join: Joiner, type_: str) -> None:
    server, client = await join(), await join()
    await client.link.send(server.link.inbox, {"type": type_, "id": "", "payload": {"requestId": "1"}})
    await client.link.send(server.link.inbox, request(1))
    await server.until(lambda: request(1) in server.events)
    assert server.events == [request(1)]


async def test_a_receiver_that_raises_does_not_end_the_connection(nats_url: str) -> None:
    seen: list[Event] = []

    def on_event(event: Event, delivery: Delivery) -> None:
        seen.append(event)
        raise RuntimeError("a defect of the receiver")

    link = await NATSTransport(servers=nats_url).open(on_event, lambda state, epoch: None)
    await link.send(link.inbox, request(1))
    await link.send(link.inbox, request(2))
    async with asyncio.timeout(10):
        while len(seen) < 2:
            await asyncio.sleep(0.01)
    await link.close()


async def test_nobody_there_is_an_error_that_names_the_host() -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        url = f"nats://user:secret@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(LinkDownError, match=r"no connection to 127\.0\.0\.1:\d+") as caught:
            await Participant().open(NATSTransport(servers=url))
    assert "secret" not in str(caught.value)


async def test_wrong_credentials_are_refused_at_once() -> None:
    with NATSServer(["--user", "alice", "--pass", "wonder"]) as server:
        with pytest.raises(LinkDownError, match="Authorization Violation"):
            await Participant().open(NATSTransport(servers=server.url, user="alice", password="land"))
        right = await Participant().open(NATSTransport(servers=server.url, user="alice", password="wonder"))
        await right.link.close()
        inside = server.url.replace("//", "//alice:wonder@")
        await (await Participant().open(NATSTransport(servers=inside))).link.close()


async def test_a_url_that_demands_tls_refuses_a_server_without(nats_url: str) -> None:
    """Credentials would go over the wire in the clear."""
    with pytest.raises(LinkDownError, match="demands TLS"):
        await Participant().open(NATSTransport(servers=nats_url.replace("nats:", "tls+nats:")))


async def test_a_link_survives_its_server(join: Joiner, nats_server: NATSServer) -> None:
    """Down and up are reported with a growing epoch, what is sent between is refused, registrations hold."""
    server = await join(nats_server.url, reconnect_wait=0.05)
    client = await join(nats_server.url, reconnect_wait=0.05)
    await server.link.register("op:test.op", "workers")
    nats_server.kill()
    await client.until(lambda: client.states[-1] == ("down", 1))
    with pytest.raises(LinkDownError):
        await client.link.send("op:test.op", request(1))
    nats_server.start()
    await client.until(lambda: client.states[-1] == ("up", 2))
    await server.until(lambda: server.states[-1] == ("up", 2))
    await client.link.send("op:test.op", request(2))
    await server.until(lambda: bool(server.events))
    assert server.events == [request(2)]
    assert client.states == [("up", 1), ("down", 1), ("up", 2)]


async def test_a_server_that_stops_answering_is_noticed(join: Joiner, nats_server: NATSServer) -> None:
    client = await join(nats_server.url, ping_interval=0.05, reconnect_wait=0.05, connect_timeout=0.5)
    nats_server.freeze()
    await client.until(lambda: client.states[-1] == ("down", 1))
    nats_server.thaw()
    await client.until(lambda: client.states[-1] == ("up", 2))


async def test_a_registration_made_while_the_link_is_down_holds_when_it_is_up(
    join: Joiner, nats_server: NATSServer
) -> None:
    server = await join(nats_server.url, reconnect_wait=0.05)
    nats_server.kill()
    await server.until(lambda: server.states[-1] == ("down", 1))
    await server.link.register("op:test.op", "workers")
    nats_server.start()
    await server.until(lambda: server.states[-1] == ("up", 2))
    client = await join(nats_server.url)
    await client.link.send("op:test.op", request(1))
    await server.until(lambda: server.events == [request(1)])


async def test_closing_is_idempotent_and_refuses_what_comes_after(join: Joiner) -> None:
    client = await join()
    await client.link.close()
    await client.link.close()
    with pytest.raises(LinkDownError):
        await client.link.send("op:test.op", request(1))
    with pytest.raises(TransportError):
        await client.link.register("op:test.op")


async def test_closing_writes_what_was_sent(join: Joiner) -> None:
    server, client = await join(), await join()
    for i in range(200):
        await client.link.send(server.link.inbox, request(i))
    await client.link.close()
    await server.until(lambda: len(server.events) == 200)


async def test_links_of_another_prefix_are_on_another_bus(join: Joiner) -> None:
    server, stranger = await join(), await join(prefix="another")
    await server.link.register("op:test.op", "workers")
    await stranger.link.send("op:test.op", request(1))
    await stranger.until(lambda: bool(stranger.events))
    assert stranger.events[0]["payload"]["code"] == "NO_RESPONDERS"
    assert server.events == []


async def test_a_caller_that_tries_again_at_once_does_not_keep_the_link_down(
    join: Joiner, nats_server: NATSServer
) -> None:
    client = await join(nats_server.url, reconnect_wait=0.05)
    nats_server.kill()
    await client.until(lambda: client.states[-1] == ("down", 1))
    nats_server.start()
    async with asyncio.timeout(10):
        while True:
            try:
                await client.link.send(client.link.inbox, request(1))
            except LinkDownError:
                continue
            break
    await client.until(lambda: client.events == [request(1)])

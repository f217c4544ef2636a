"""Links over a real Redis server: events out and in."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio

from operad.plugin import (
    Delivery,
    Event,
    Link,
    LinkDownError,
    NoRespondersError,
    PayloadTooLargeError,
    TransportError,
)
from operad.transports import Link as LinkProtocol
from operad.transports import Transport
from operad_redis import RedisTransport
from operad_redis._keys import Keys
from operad_redis.testing import RedisServer

pytestmark = pytest.mark.redis

BUS = "test-" + secrets.token_hex(4)


class Participant:
    """A link and what came to it."""

    link: Link

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.deliveries: list[Delivery] = []
        self.states: list[tuple[str, int]] = []
        self._changed = asyncio.Event()

    async def open(self, transport: Transport) -> Participant:
        self.link = await transport.open(self._on_event, self._on_link)
        return self

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        assert delivery.identity is None
        self.events.append(event)
        if delivery.done is not None:
            self.deliveries.append(delivery)
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
async def join(redis_url: str) -> Any:
    """Makes participants on the shared server, on a bus of this test's own; closes them."""
    joined: list[Participant] = []

    async def join(url: str = redis_url, **options: Any) -> Participant:
        participant = Participant()
        joined.append(await participant.open(RedisTransport(url=url, **{"bus": BUS, **options})))
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


async def test_transport_and_link_have_the_interface_of_the_core(join: Joiner, redis_url: str) -> None:
    assert isinstance(RedisTransport(url=redis_url), Transport)
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


async def test_the_sender_of_a_request_learns_who_got_it(join: Joiner) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    assert await client.link.send("op:test.op", request(1)) == server.link.inbox


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


async def test_a_request_that_nobody_serves_is_refused_at_once(join: Joiner) -> None:
    client = await join()
    with pytest.raises(NoRespondersError, match=r'nobody serves "test\.nobody\.here"'):
        await client.link.send("op:test.nobody.here", request(1))


async def test_broadcasts_and_inboxes_without_a_listener_are_no_errors(join: Joiner) -> None:
    client = await join()
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
    with pytest.raises(NoRespondersError):
        await client.link.send("op:test.op", request(1))


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
    with pytest.raises(PayloadTooLargeError, match=r"has 50000\d\d bytes, the transport takes 4194304"):
        await client.link.send("op:test.op", request(1, input="x" * 5_000_000))
    with pytest.raises(PayloadTooLargeError, match="takes 1000"):
        await small.link.send("op:test.op", request(1, input="x" * 1000))
    await client.link.send("op:test.op", request(2))
    await server.until(lambda: len(server.events) == 1)
    assert server.events[0]["payload"]["requestId"] == "r2"


async def test_a_peer_that_sends_rubbish_harms_nobody(join: Joiner, redis_url: str) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    keys, own = Keys(BUS), server.link.inbox.removeprefix("inbox:")
    rubbish = redis.asyncio.Redis.from_url(redis_url)
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
        await rubbish.publish(keys.channel(server.link.inbox), data)
        await rubbish.xadd(keys.stream(own), {"e": data})
    await rubbish.xadd(keys.stream(own), {"nothing": "of ours"})
    await client.link.send("op:test.op", request(1))
    await server.until(lambda: request(1) in server.events)
    await client.link.send(server.link.inbox, request(2))
    await server.until(lambda: request(2) in server.events)
    server.deliveries[0].done()  # type: ignore[misc]  # requests on a stream have it
    await server.link.drain(5)
    assert await rubbish.xlen(keys.stream(own)) == 0  # what is no event is acknowledged
    await rubbish.aclose()


async def test_a_receiver_that_raises_does_not_end_the_connection(redis_url: str) -> None:
    seen: list[Event] = []

    def on_event(event: Event, delivery: Delivery) -> None:
        seen.append(event)
        raise RuntimeError("a defect of the receiver")

    link = await RedisTransport(url=redis_url).open(on_event, lambda state, epoch: None)
    await link.send(link.inbox, request(1))
    await link.send(link.inbox, request(2))
    async with asyncio.timeout(10):
        while len(seen) < 2:
            await asyncio.sleep(0.01)
    await link.close()


async def test_nobody_there_is_an_error_that_names_the_host() -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        url = f"redis://user:secret@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(LinkDownError, match=r"no connection to 127\.0\.0\.1:\d+") as caught:
            await Participant().open(RedisTransport(url=url))
    assert "secret" not in str(caught.value)


async def test_wrong_credentials_are_refused_at_once() -> None:
    with RedisServer(["--requirepass", "wonder"]) as server:
        for wrong in (server.url, server.url.replace("//", "//:land@")):
            with pytest.raises(LinkDownError, match="(?i)auth|password") as caught:
                await Participant().open(RedisTransport(url=wrong))
            assert "land" not in str(caught.value)
        right = await Participant().open(RedisTransport(url=server.url.replace("//", "//:wonder@")))
        await right.link.close()


async def test_a_url_that_demands_tls_refuses_a_server_without(redis_url: str) -> None:
    with pytest.raises(LinkDownError):
        await Participant().open(RedisTransport(url=redis_url.replace("redis:", "rediss:"), connect_timeout=1))


async def test_a_link_survives_its_server(join: Joiner, redis_server: RedisServer) -> None:
    """Down and up are reported with a growing epoch, what is sent between is refused, registrations hold."""
    server = await join(redis_server.url, reconnect_wait=0.05)
    client = await join(redis_server.url, reconnect_wait=0.05)
    await server.link.register("op:test.op", "workers")
    redis_server.kill()
    await client.until(lambda: client.states[-1] == ("down", 1))
    with pytest.raises(LinkDownError):
        await client.link.send("op:test.op", request(1))
    redis_server.start()
    await client.until(lambda: client.states[-1] == ("up", 2))
    await server.until(lambda: server.states[-1] == ("up", 2))
    await client.link.send("op:test.op", request(2))
    await server.until(lambda: bool(server.events))
    assert server.events == [request(2)]
    assert client.states == [("up", 1), ("down", 1), ("up", 2)]


async def test_a_server_that_stops_answering_is_noticed(join: Joiner, redis_server: RedisServer) -> None:
    client = await join(redis_server.url, lease=0.3, reconnect_wait=0.05, connect_timeout=0.5)
    redis_server.freeze()
    await client.until(lambda: client.states[-1] == ("down", 1))
    redis_server.thaw()
    await client.until(lambda: client.states[-1] == ("up", 2))


async def test_a_registration_made_while_the_link_is_down_holds_when_it_is_up(
    join: Joiner, redis_server: RedisServer
) -> None:
    server = await join(redis_server.url, reconnect_wait=0.05)
    redis_server.kill()
    await server.until(lambda: server.states[-1] == ("down", 1))
    await server.link.register("op:test.op", "workers")
    redis_server.start()
    await server.until(lambda: server.states[-1] == ("up", 2))
    client = await join(redis_server.url)
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


async def test_links_of_another_bus_are_on_another_bus(join: Joiner) -> None:
    server, stranger = await join(), await join(bus="another")
    await server.link.register("op:test.op", "workers")
    with pytest.raises(NoRespondersError):
        await stranger.link.send("op:test.op", request(1))
    assert server.events == []


async def test_a_request_stays_on_its_stream_until_its_work_has_ended(join: Joiner, redis_url: str) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    keys = Keys(BUS)
    stream, own = keys.stream(server.link.inbox.removeprefix("inbox:")), server.link.inbox.removeprefix("inbox:")
    async with redis.asyncio.Redis.from_url(redis_url) as raw:
        await client.link.send("op:test.op", request(1))
        await server.until(lambda: bool(server.events))
        assert await raw.xlen(stream) == 1
        assert await raw.hget(keys.load, own) == b"1"
        (delivery,) = server.deliveries
        assert not delivery.redelivered
        assert delivery.done is not None
        delivery.done()
        delivery.done()  # idempotent
        await server.link.drain(5)
        assert await raw.xlen(stream) == 0
        assert await raw.hget(keys.load, own) == b"0"


async def test_the_member_with_the_fewest_unfinished_requests_gets_the_next(join: Joiner) -> None:
    quick, slow, client = await join(), await join(), await join()
    for server in (quick, slow):
        await server.link.register("op:test.op", "workers")
    for i in range(40):
        await client.link.send("op:test.op", request(i))
        await asyncio.sleep(0)
        for delivery in quick.deliveries:
            delivery.done()  # type: ignore[misc]  # requests on a stream have it
        quick.deliveries.clear()
    await quick.link.drain(5)
    await slow.link.drain(5)
    assert len(quick.events) + len(slow.events) == 40
    assert len(slow.events) < 15


async def test_what_a_link_leaves_unfinished_goes_to_another_marked_as_redelivered(join: Joiner) -> None:
    first, client = await join(), await join()
    await first.link.register("op:test.op", "workers")
    await client.link.send("op:test.op", request(1))
    await first.until(lambda: bool(first.events))
    second = await join()
    await second.link.register("op:test.op", "workers")
    await first.link.close()
    await second.until(lambda: bool(second.events))
    assert second.events == [request(1)]
    assert second.deliveries[0].redelivered


async def test_what_nobody_can_take_over_is_unavailable(join: Joiner) -> None:
    server, client = await join(), await join()
    await server.link.register("op:test.op", "workers")
    await client.link.send("op:test.op", request(1, replyTo=client.link.inbox))
    await server.until(lambda: bool(server.events))
    await server.link.close()
    await client.until(lambda: bool(client.events))
    assert client.events[0]["type"] == "call.error"
    assert client.events[0]["payload"]["code"] == "UNAVAILABLE"
    assert client.events[0]["payload"]["requestId"] == "r1"


async def test_links_that_close_leave_no_key(redis_server: RedisServer) -> None:
    transport = RedisTransport(url=redis_server.url)
    server, client = await Participant().open(transport), await Participant().open(transport)
    for i in range(20):
        await server.link.register(f"op:test.op{i}", "workers")
    await client.link.send("op:test.op1", request(1))
    await server.until(lambda: bool(server.events))
    await server.link.close()
    await client.link.close()
    async with redis.asyncio.Redis.from_url(redis_server.url) as raw:
        assert await raw.keys("*") == []
        assert await raw.pubsub_channels() == []


async def test_scripts_that_the_server_forgot_are_loaded_again(join: Joiner, redis_server: RedisServer) -> None:
    server = await join(redis_server.url, reconnect_wait=0.05)
    client = await join(redis_server.url, reconnect_wait=0.05)
    await server.link.register("op:test.op", "workers")
    async with redis.asyncio.Redis.from_url(redis_server.url) as raw:
        await raw.script_flush()
    with pytest.raises(LinkDownError):
        await client.link.send("op:test.op", request(1))
    await client.until(lambda: client.states[-1] == ("up", 2))
    await client.link.send("op:test.op", request(2))
    await server.until(lambda: bool(server.events))


async def test_a_caller_that_tries_again_at_once_does_not_keep_the_link_down(
    join: Joiner, redis_server: RedisServer
) -> None:
    client = await join(redis_server.url, reconnect_wait=0.05)
    redis_server.kill()
    await client.until(lambda: client.states[-1] == ("down", 1))
    redis_server.start()
    async with asyncio.timeout(10):
        while True:
            try:
                await client.link.send(client.link.inbox, request(1))
            except LinkDownError:
                continue
            break
    await client.until(lambda: client.events == [request(1)])

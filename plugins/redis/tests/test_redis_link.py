"""Links over a real Redis server: events out and in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
import redis.asyncio

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from operad.plugin import LinkDownError
from operad_calls.transport import encode
from operad_redis import RedisTransport
from operad_redis._keys import Keys
from operad_redis.testing import RedisServer
from plugins.calls.tests.links import RUBBISH, Joiner, Participant, joining, news, request

pytestmark = pytest.mark.redis

BUS = "test-" + secrets.token_hex(4)
Pair = tuple[Participant, Participant]


@pytest.fixture
async def join(redis_url: str) -> Any:
    """Makes participants on the shared server, on a bus of this test's own; closes them."""

    def make(url: str = redis_url, **options: Any) -> RedisTransport:
        return RedisTransport(url=url, **{"bus": BUS, "connect_timeout": 20.0, **options})

    async with joining(make) as join:
        yield join


@pytest.fixture
async def raw(redis_url: str) -> AsyncIterator[Any]:
    """A client of the shared server."""
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        yield client


async def serving(join: Joiner, *url: str, **options: Any) -> Participant:
    """A server of ``test.op``."""
    server = await join(*url, **options)
    await server.link.register("op:test.op", "workers")
    return server


@pytest.fixture
async def pair(join: Joiner) -> Pair:
    """A server of ``test.op`` and a client."""
    return await serving(join), await join()


def id_of(participant: Participant) -> str:
    """The id of its link."""
    return participant.link.inbox.removeprefix("inbox:")


async def test_the_sender_of_a_request_learns_who_got_it(pair):
    server, client = pair
    assert await client.link.send("op:test.op", request(1)) == server.link.inbox


async def test_a_peer_that_sends_rubbish_harms_nobody(pair, raw):
    server, client = pair
    keys, stream = Keys(BUS), Keys(BUS).stream(id_of(server))
    for data in RUBBISH:
        await raw.publish(keys.channel(server.link.inbox), data)
        await raw.xadd(stream, {"e": data, "o": "op:test.op"})
    event = encode(request(3))
    for field in ({}, {"o": b"\xff"}, {"o": ""}, {"o": "op:test.op", "r": b"\xff", "t": "9" * 400}, {"o": "op:"}):
        await raw.xadd(stream, {"e": event, **field})
    await raw.xadd(stream, {"nothing": "of ours"})
    await client.link.send("op:test.op", request(1))
    await server.until(lambda: request(1) in server.events)
    await client.link.send(server.link.inbox, news(2))
    await server.until(lambda: news(2) in server.events)
    for delivery in server.deliveries:
        delivery.done()
    await server.link.drain(5)
    assert await raw.xlen(stream) == 0  # what is no event is acknowledged
    assert server.states == [("up", 1)], "the connection was lost over it"


async def test_a_link_comes_back_whatever_goes_wrong_meanwhile(join, monkeypatch, caplog):
    participant = await join(reconnect_wait=0.01)
    link: Any = participant.link
    disconnect, establish, faults = link.disconnect, link.establish, ["disconnect", "establish"]

    def broken(step: str, real: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            if step in faults:
                faults.remove(step)
                raise ValueError(f"{step}: what nobody thought of")
            await real()

        return run

    monkeypatch.setattr(link, "disconnect", broken("disconnect", disconnect))
    monkeypatch.setattr(link, "establish", broken("establish", establish))
    link.lost(ConnectionError("it broke"))
    await participant.until(lambda: participant.states[-1] == ("up", 2))
    assert faults == []
    told = [str(record.exc_info[1]).partition(":")[0] for record in caplog.records if record.exc_info]
    assert told == ["disconnect", "establish"]


@pytest.mark.parametrize("reader", ["_requests", "_channels"])
async def test_a_reader_that_fails_is_followed_by_another(pair, reader, caplog):
    """One that ends without a word looks alive, and answers nobody."""
    server, client = pair
    getattr(server.link, reader)._receive = None
    await client.link.send("op:test.op" if reader == "_requests" else server.link.inbox, request(1))
    await server.until(lambda: server.states[-1] == ("up", 2))
    assert "the link reconnects" in caplog.text
    await client.link.send("op:test.op", request(2))
    await server.until(lambda: request(2) in server.events)


class Damaging:
    """Stands between a link and the server, and replaces bytes of what the server sends."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.damage: tuple[bytes, bytes] | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        for source, target, damages in ((reader, back, False), (there, writer, True)):
            self.tasks.add(asyncio.create_task(self.pump(source, target, damages)))

    async def pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, damages: bool) -> None:
        try:
            while data := await source.read(65_536):
                if damages and self.damage is not None and self.damage[0] in data:
                    data, self.damage = data.replace(*self.damage), None
                target.write(data)
        finally:
            target.close()


@pytest.mark.parametrize(
    "damaged",
    [b"*1\r\n*1\r\n$32\r\n", b"+OK\r\n*1\r\n$32\r\n", b":7\r\n*1\r\n$32\r\n", b"*1\r\n$32\r\n\xff\xff"],
)
async def test_a_reply_of_another_shape_is_a_lost_connection(redis_server, damaged):
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="test", name="op", type="query"), lambda given, context: 5)
    damaging = Damaging(redis_server.port)
    async with damaging as url:
        direct, through = (RedisTransport(url=each, bus=BUS) for each in (redis_server.url, url))
        async with CallHandler(registry, direct), PendingRequestMap(through, timeout=30) as calls:
            assert (await calls.call("test.op")).data == 5
            damaging.damage = (b"*1\r\n$32\r\n", damaged)
            with suppress(CallError):  # a reply too many is noticed after the call
                await calls.call("test.op")
            assert damaging.damage is None
            assert (await calls.call("test.op", retry=True)).data == 5
            assert calls.pending == 0


async def test_wrong_credentials_are_refused_at_once():
    with RedisServer(["--requirepass", "wonder"]) as server:
        for wrong in (server.url, server.url.replace("//", "//:land@")):
            with pytest.raises(LinkDownError, match="(?i)auth|password") as caught:
                await Participant().open(RedisTransport(url=wrong))
            assert "land" not in str(caught.value)
        right = await Participant().open(RedisTransport(url=server.url.replace("//", "//:wonder@")))
        await right.link.close()


async def test_a_url_that_demands_tls_refuses_a_server_without(redis_url):
    with pytest.raises(LinkDownError):
        await Participant().open(RedisTransport(url=redis_url.replace("redis:", "rediss:"), connect_timeout=1))


async def test_a_request_stays_on_its_stream_until_its_work_has_ended(pair, raw):
    server, client = pair
    keys = Keys(BUS)
    own = id_of(server)
    stream = keys.stream(own)
    await client.link.send("op:test.op", request(1))
    await server.until(lambda: bool(server.events))
    assert await raw.xlen(stream) == 1
    assert await raw.hget(keys.load, own) == b"1"
    (delivery,) = server.deliveries
    assert not delivery.redelivered
    delivery.done()
    delivery.done()  # idempotent
    await server.link.drain(5)
    assert await raw.xlen(stream) == 0
    assert await raw.hget(keys.load, own) == b"0"


async def test_an_end_that_the_server_did_not_hear_is_told_again(join, raw):
    """A connection that breaks meanwhile, or a server that only reads: else the request would count for ever."""
    server, client = await serving(join, reconnect_wait=0.02), await join()
    own = id_of(server)
    keys, link = Keys(BUS), cast(Any, server.link)
    for number in (1, 2):
        await client.link.send("op:test.op", request(number))
    await server.until(lambda: len(server.deliveries) == 2)
    first, second = server.deliveries
    first.done()
    for task in link._commands._tasks:
        task.cancel()  # before it is written
    second.done()
    link._commands._lost(ConnectionError("cut"))
    async with asyncio.timeout(10):
        while await raw.xlen(keys.stream(own)) or await raw.hget(keys.load, own) != b"0":
            await asyncio.sleep(0.01)


async def test_the_member_with_the_fewest_unfinished_requests_gets_the_next(join):
    quick, slow, client = await serving(join), await serving(join), await join()
    members = {server.link.inbox: server for server in (quick, slow)}
    for i in range(40):
        member = members[await client.link.send("op:test.op", request(i)) or ""]
        await member.until(lambda member=member, i=i: request(i) in member.events)
        for delivery in quick.deliveries:
            delivery.done()
        quick.deliveries.clear()
    await quick.link.drain(5)
    await slow.link.drain(5)
    assert len(quick.events) + len(slow.events) == 40
    assert len(slow.events) < 15


async def test_what_a_link_leaves_unfinished_goes_to_another_marked_as_redelivered(pair, join):
    first, client = pair
    await client.link.send("op:test.op", request(1))
    await first.until(lambda: bool(first.events))
    second = await serving(join)
    await first.link.close()
    await second.until(lambda: bool(second.events))
    assert second.events == [request(1)]
    assert second.deliveries[0].redelivered


async def test_what_nobody_can_take_over_is_unavailable(pair):
    server, client = pair
    await client.link.send("op:test.op", request(1, replyTo=client.link.inbox))
    await server.until(lambda: bool(server.events))
    await server.link.close()
    await client.until(lambda: bool(client.events))
    error = client.events[0]["payload"]
    assert (client.events[0]["type"], error["code"], error["requestId"]) == ("call.error", "UNAVAILABLE", "r1")


async def test_links_that_close_leave_no_key(redis_server):
    transport = RedisTransport(url=redis_server.url)
    server, client = await Participant().open(transport), await Participant().open(transport)
    for i in range(20):
        await server.link.register(f"op:test.op{i}", "workers")
    await client.link.send("op:test.op1", request(1, "test.op1"))
    await server.until(lambda: bool(server.events))
    await server.link.close()
    await client.link.close()
    async with redis.asyncio.Redis.from_url(redis_server.url) as raw:
        assert await raw.keys("*") == []
        assert await raw.pubsub_channels() == []


async def test_scripts_that_the_server_forgot_are_loaded_again(join, redis_server, monkeypatch):
    monkeypatch.setattr("operad_redis.link.BEAT", 60.0)  # a beat would load them, too
    server = await serving(join, redis_server.url, reconnect_wait=0.05)
    client = await join(redis_server.url, reconnect_wait=0.05)
    async with redis.asyncio.Redis.from_url(redis_server.url) as raw:
        await raw.script_flush()
    with pytest.raises(LinkDownError):
        await client.link.send("op:test.op", request(1))
    await client.until(lambda: client.states[-1] == ("up", 2))
    await client.link.send("op:test.op", request(2))
    await server.until(lambda: bool(server.events))


async def test_a_request_that_cannot_be_read_is_answered_and_so_is_who_waits_for_an_answer(pair, raw):
    server, client = pair
    keys, own, reply_to = Keys(BUS), id_of(server), client.link.inbox
    bad = b'{"type":"call.requested","payload":{"requestId":"q","operationId":"test.op","input":1e999,"replyTo":"%s"}}'
    answer = b'{"type":"call.responded","payload":{"requestId":"a","output":{"data":{"x":1e999},"meta":{}}}}'
    await raw.xadd(keys.stream(own), {"e": bad % reply_to.encode(), "o": "op:test.op"})
    await client.until(lambda: len(client.events) == 1)
    await raw.publish(keys.channel(reply_to), answer)
    await client.until(lambda: len(client.events) == 2)
    for event, request_id in zip(client.events, ("q", "a"), strict=True):
        assert event["type"] == "call.error"
        assert (event["payload"]["requestId"], event["payload"]["code"]) == (request_id, "SERIALIZATION_ERROR")
    assert server.events == []


async def test_a_beat_looks_at_a_few_of_those_who_live(join, redis_url, monkeypatch):
    """Otherwise the work of all would grow with the square of their number."""
    monkeypatch.setattr("operad_redis.link.BEAT", 0.02)
    keys = Keys(BUS)
    others = [secrets.token_hex(16) for _ in range(60)]
    async with redis.asyncio.Redis.from_url(redis_url) as raw, raw.pubsub() as listening:
        await listening.subscribe(*(keys.inboxes + link for link in others))
        await raw.zadd(keys.links, dict.fromkeys(others, 10**14))
        server = await join()

        async def counted() -> tuple[int, int]:
            found = await raw.info("commandstats")
            return found["cmdstat_pubsub"]["calls"], found["cmdstat_zrandmember"]["calls"]

        try:
            await server.link.register("op:test.op", "workers")
            async with asyncio.timeout(10):
                while "cmdstat_zrandmember" not in await raw.info("commandstats"):
                    await asyncio.sleep(0.01)
                looks, beats = await counted()
                while (now := await counted())[1] < beats + 10:
                    await asyncio.sleep(0.01)
            assert now[0] - looks <= 8 * (now[1] - beats + 1)
        finally:
            await raw.zrem(keys.links, *others)


async def test_a_link_whose_stream_is_gone_begins_anew(join, raw, monkeypatch):
    """A server that evicts keys takes those with a lifetime first; the one who waits on it would not be told."""
    monkeypatch.setattr("operad_redis.link.BEAT", 0.02)
    server, client = await serving(join), await join()
    assert await raw.delete(Keys(BUS).stream(id_of(server))) == 1
    await server.until(lambda: ("up", 2) in server.states)
    await client.link.send("op:test.op", request(1))
    await server.until(lambda: len(server.events) == 1)


async def test_a_request_is_as_old_as_the_server_says(join, redis_url):
    """By its clock alone, also where another worker had it before."""
    first, client = await serving(join), await join()
    await client.link.send("op:test.op", request(1))
    await first.until(lambda: bool(first.deliveries))
    held = first.deliveries[0].held
    assert 0 <= held < 5_000
    await asyncio.sleep(0.3)
    second = await serving(join)
    await first.link.close()
    await second.until(lambda: bool(second.deliveries))
    assert second.deliveries[0].redelivered
    assert held + 250 <= second.deliveries[0].held < 60_000


async def test_what_is_no_request_is_taken_off_the_stream(pair, raw):
    """Nobody works on it, so nobody would."""
    server, client = pair
    stream = Keys(BUS).stream(id_of(server))
    await raw.xadd(stream, {"e": b'{"type":"call.odd","payload":{}}', "o": "op:test.op"})
    await client.link.send("op:test.op", request(1))
    await server.until(lambda: len(server.deliveries) == 2)
    assert [event["type"] for event in server.events] == ["call.odd", "call.requested"]
    async with asyncio.timeout(20):
        while await raw.xlen(stream) > 1:
            await asyncio.sleep(0.01)
    server.deliveries[1].done()
    await server.link.drain(5)
    assert await raw.xlen(stream) == 0


async def test_large_requests_wait_for_the_socket_before_they_have_bytes(pair):
    """Otherwise all that wait would be in memory at once, and again in one piece to be written."""
    server, client = pair
    large, most = "x" * 1_000_000, 0
    sending = {asyncio.create_task(client.link.send("op:test.op", request(i, input=large))) for i in range(30)}
    while sending:
        done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        most = max(most, client.link._commands._buffered)
        for task in done:
            task.result()
    await server.until(lambda: len(server.events) == 30)
    assert most <= 6_000_000


async def test_a_few_look_after_all_and_nobody_is_forgotten(join, raw):
    """Each looks at so many of the others and no more, however many there are."""
    servers = [await join() for _ in range(12)]
    for number, server in enumerate(servers):
        await server.link.register(f"op:test.{number}", "workers")
    keys = Keys(BUS)
    gone = [secrets.token_hex(16) for _ in range(20)]
    for link in gone:  # enrolled, and nobody listens at their inboxes
        await raw.zadd(keys.links, {link: 10**14})
        await raw.hset(keys.load, link, 0)
    async with asyncio.timeout(60):
        while await raw.zcard(keys.links) > 12:
            await asyncio.sleep(0.05)
    assert await raw.hlen(keys.load) == 12

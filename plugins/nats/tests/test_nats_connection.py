"""Connections to a NATS server: what is lost with one, what waits, and which server follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operad.plugin import Link, LinkDownError
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer
from plugins.nats.tests.fake_server import FakeServer


class Opened:
    """A link and the states that it reported."""

    link: Link

    def __init__(self) -> None:
        self.states: list[str] = []
        self._changed = asyncio.Event()

    def on_link(self, state: str, epoch: int) -> None:
        self.states.append(state)
        self._changed.set()

    async def until(self, *states: str) -> None:
        """Return when it has reported these states since it was opened."""
        async with asyncio.timeout(30):
            while self.states != list(states):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Opened]:
    made = Opened()
    transport = NATSTransport(servers=url, **{"reconnect_wait": 0.05, **options})
    made.link = await transport.open(lambda event, delivery: None, made.on_link)
    try:
        yield made
    finally:
        await made.link.close()


def news(text: str) -> dict[str, Any]:
    return {"type": "news", "id": "", "payload": {"text": text}}


async def test_senders_wait_for_a_server_that_reads_nothing_and_what_it_did_not_take_is_never_sent() -> None:
    async with FakeServer() as server, opened(server.url) as one:
        server.reading.clear()
        sending = [asyncio.ensure_future(one.link.send("all:news", news("x" * 100_000))) for _ in range(500)]
        await asyncio.wait(sending, timeout=0.2)
        assert sum(task.done() for task in sending) < 250  # 25 MB: far more than sockets take
        server.hang_up()
        server.reading.set()
        ends = await asyncio.gather(*sending, return_exceptions=True)
        assert {type(end) for end in ends} == {type(None), LinkDownError}
        await one.until("up", "down", "up")
        await one.link.send("all:news", news("afterwards"))
        await one.link.drain(10)
        assert b"afterwards" in server.read[1]
        assert b"xxx" not in server.read[1]


@pytest.mark.parametrize(
    ("words", "logged"),
    [
        ("User Authentication Expired", "the server ended the connection: nats: user authentication expired"),
        ("Authorization Violation", "the server ended the connection: nats: authorization failed"),
        ("Stale Connection", ""),
    ],
)
async def test_a_connection_that_the_server_ends_with_an_error_is_followed_by_another(
    words: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """nats-py's client would end for good; the error is in the log."""
    async with FakeServer() as server, opened(server.url) as one:
        await one.link.register("op:test.op", "workers")
        server.say(f"-ERR '{words}'".encode())
        await one.until("up", "down", "up")
        assert b" operad.op.test.op workers " in server.read[1]
    assert logged in caplog.text


@pytest.mark.nats
async def test_a_server_that_stands_still_with_much_unread_is_given_up(nats_server: NATSServer) -> None:
    async with opened(nats_server.url, ping_interval=0.1) as one:
        nats_server.freeze()
        sending = [asyncio.ensure_future(one.link.send("all:news", news("x" * 900_000))) for _ in range(20)]
        await one.until("up", "down")
        ends = await asyncio.gather(*sending, return_exceptions=True)
        assert LinkDownError in map(type, ends)
        nats_server.kill()  # what its socket did not take is kept until it is gone
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_link_goes_to_another_server_of_the_cluster_though_it_was_given_one_only() -> None:
    async with FakeServer() as other:
        named = other.url.removeprefix("nats://")
        async with FakeServer(connect_urls=[named]) as first, opened(first.url, user="u", password="p") as one:
            await first.close()
            await one.until("up", "down", "up")
    assert b'"pass": "p"' in other.read[0]


async def test_of_several_servers_one_that_is_there_is_enough() -> None:
    async with FakeServer() as server:
        for _ in range(4):  # they are tried in random order
            async with opened(f"nats://127.0.0.1:9,{server.url}") as one:
                await one.until("up")


async def test_a_subject_that_is_not_utf_8_does_not_end_the_connection() -> None:
    """It would end nats-py's reader without a word: any peer could silence a worker."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    async with FakeServer() as server:
        transport = NATSTransport(servers=server.url)
        link = await transport.open(lambda event, delivery: events.put_nowait(event), lambda *_: None)
        server.say(b"MSG a.\xff 1 2\r\n{}")
        server.say(b"HMSG a.b 1 18 20\r\nNATS/1.0 503 \xff\r\n\r\n{}")
        data = b'{"type":"news","payload":{}}'
        server.say(b"MSG a.b 1 %d\r\n%b" % (len(data), data))
        async with asyncio.timeout(20):
            assert (await events.get())["type"] == "news"
        await link.close()


async def test_what_is_registered_while_a_link_reconnects_is_served_whenever_it_comes() -> None:
    async with FakeServer() as server:
        for turns in range(60):
            async with opened(server.url, reconnect_wait=0.0) as one:
                server.hang_up()
                await one.until("up", "down")
                for _ in range(turns):
                    await asyncio.sleep(0)
                await one.link.register("op:test.op", "workers")
                await one.until("up", "down", "up")
                await one.link.register("op:test.other", "workers")
                assert b" operad.op.test.op workers " in server.read[-1], turns

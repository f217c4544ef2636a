"""Requests that an application serves by hand: their ends, deadlines and streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operad import InProcessTransport, PendingRequestMap, local_envelope
from operad_calls import IncomingRequest
from operad_testing import Participant
from plugins.calls.tests.parts import Wired

ITEM = local_envelope(1, "t.op")


class Hand(PendingRequestMap):
    """A call map that serves ``t.op`` by hand, and keeps what it is asked."""

    def __init__(self, transport: Any, **options: Any) -> None:
        self.requests: asyncio.Queue[IncomingRequest] = asyncio.Queue()
        super().__init__(transport, on_request=self.requests.put_nowait, **options)

    async def asked(self) -> IncomingRequest:
        async with asyncio.timeout(30):
            return await self.requests.get()


@asynccontextmanager
async def both(transport: Any, **options: Any) -> AsyncIterator[tuple[Hand, Participant]]:
    """A server, and a peer that speaks the protocol by itself."""
    async with Hand(transport, **options) as server, Participant.open(transport) as peer:
        await server.serve("t.op")
        yield server, peer


ENDS: dict[str, Callable[[Hand, str], Awaitable[None]]] = {
    "call.responded": lambda server, name: server.respond(name, ITEM),
    "call.error": lambda server, name: server.emit_error(name, "X"),
    "call.aborted": lambda server, name: server.abort(name),
}


@pytest.mark.parametrize("type_", ENDS)
async def test_a_request_ends_once(type_: str) -> None:
    async with both(InProcessTransport(strict=True)) as (server, peer):
        await peer.request("t.op", "1")
        name = (await server.asked()).request_id
        await ENDS[type_](server, name)
        await peer.wait_for(type_)
        for end in (*ENDS.values(), Hand.complete):
            with pytest.raises(LookupError, match="no request"):
                await end(server, name)
        assert [event["type"] for event, _ in peer.events] == [type_]


@pytest.mark.parametrize(
    "value", [None, 5, "data", {"data": 1}, {"meta": {"source": "x"}}, {"data": 1, "meta": {}}]
)
async def test_what_is_no_envelope_is_refused_and_the_request_stays(value: Any) -> None:
    async with both(InProcessTransport(strict=True)) as (server, peer):
        await peer.request("t.op", "1")
        name = (await server.asked()).request_id
        with pytest.raises(TypeError, match="expected a response envelope, got"):
            await server.respond(name, value)
        await server.respond(name, {"data": 7, "meta": {"source": "x"}})
        assert (await peer.wait_for("call.responded"))[0]["output"]["data"] == 7


async def test_a_stream_ends_once() -> None:
    async with both(InProcessTransport(strict=True)) as (server, peer):
        await peer.request("t.op", "1", credit=5)
        name = (await server.asked()).request_id
        await server.respond(name, ITEM)
        await server.complete(name)
        assert (await peer.wait_for("call.completed"))[0]["count"] == 1
        for end in (*ENDS.values(), Hand.complete):
            with pytest.raises(LookupError, match="no request"):
                await end(server, name)


async def test_a_request_without_a_deadline_gets_the_default_one() -> None:
    async with both(InProcessTransport(strict=True), timeout=50) as (server, peer):
        before = time.time() * 1000
        payload = {"operationId": "t.op", "input": {}, "replyTo": peer.link.inbox}
        await peer.send("op:t.op", "call.requested", requestId="1", **payload)
        single = await server.asked()
        assert single.deadline is not None
        assert before + 50_000 <= single.deadline <= time.time() * 1000 + 50_000
        await peer.send("op:t.op", "call.requested", requestId="2", credit=5, **payload)
        assert (await server.asked()).deadline is None  # a stream has a lease instead


async def test_a_request_whose_time_is_up_ends_with_a_timeout() -> None:
    async with both(InProcessTransport(strict=True)) as (server, peer):
        await peer.request("t.op", "1", timeoutMs=20)
        name = (await server.asked()).request_id
        assert (await peer.wait_for("call.error"))[0]["code"] == "TIMEOUT"
        with pytest.raises(LookupError):
            await server.respond(name, ITEM)


async def test_an_item_waits_for_credit_until_the_stream_is_over() -> None:
    async with both(InProcessTransport(strict=True)) as (server, peer):
        follow = await peer.request("t.op", "1", credit=1)
        name = (await server.asked()).request_id
        await server.respond(name, ITEM)
        waiting = [asyncio.create_task(server.respond(name, ITEM)) for _ in range(2)]
        await peer.send(follow, "call.credit", requestId="1", total=2, replyTo=peer.link.inbox)
        assert [payload["seq"] for payload in await peer.wait_for("call.responded", 2)] == [0, 1]
        await waiting[0]
        assert not waiting[1].done()
        await peer.send(follow, "call.aborted", requestId="1", replyTo=peer.link.inbox)
        with pytest.raises(LookupError, match="no request"):
            await waiting[1]
        assert len(peer.of("call.responded")) == 2


async def test_on_a_broker_a_stream_is_acknowledged_before_its_first_item() -> None:
    async with both(Wired()) as (server, peer):
        await peer.request("t.op", "1", credit=5)
        name = (await server.asked()).request_id
        for _ in range(2):
            await server.respond(name, ITEM)
        await peer.wait_for("call.responded", 2)
        events = [event for event, _ in peer.events]
        assert [event["type"] for event in events] == ["call.credit", "call.responded", "call.responded"]
        assert server.link is not None
        assert events[0]["payload"]["replyTo"] == server.link.inbox


async def test_a_request_that_could_not_be_taken_is_over(caplog: pytest.LogCaptureFixture) -> None:
    names: list[str] = []

    def refuse(request: IncomingRequest) -> None:
        names.append(request.request_id)
        raise ValueError("no room")

    transport = InProcessTransport(strict=True)
    async with PendingRequestMap(transport, on_request=refuse) as server, Participant.open(transport) as peer:
        await server.serve("t.op")
        await peer.request("t.op", "1")
        (error,) = await peer.wait_for("call.error")
        assert (error["code"], error["message"]) == ("EXECUTION_ERROR", "ValueError: no room")
        assert "on_request failed for t.op" in caplog.text
        with pytest.raises(LookupError, match="no request"):
            await server.respond(names[0], ITEM)


class Unspoken(InProcessTransport):
    """Does not report that a link closes, as links over a broker."""

    async def open(self, on_event: Any, on_link: Any) -> Any:
        return await super().open(on_event, lambda state, epoch: None)


async def test_what_was_not_ended_is_forgotten_when_the_map_closes() -> None:
    async with both(Unspoken(strict=True)) as (server, peer):
        await peer.request("t.op", "1")
        name = (await server.asked()).request_id
        await server.aclose()
        with pytest.raises(LookupError, match="no request"):
            await server.respond(name, ITEM)
        await server.open()
        with pytest.raises(LookupError, match="no request"):
            await server.respond(name, ITEM)

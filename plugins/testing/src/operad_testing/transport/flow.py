"""The part of the transport suite about byte windows: large items slow calls down, but end none of them."""

from __future__ import annotations

import asyncio
from typing import Any

from operad.errors import CallError
from operad_calls import protocol
from operad_testing._examples import skip
from operad_testing.transport.participant import Kit, TransportSuite, data_of, with_kit

_LARGE = 300_000
"""The length of a large result in characters, unless the limit of the transport is lower."""


def _large(kit: Kit) -> int:
    limit = kit.capabilities.max_payload
    return _LARGE if limit is None else min(_LARGE, limit * 9 // 10)


class Flow(TransportSuite):
    """Tests of the limit on the bytes that are in flight to a caller."""

    @with_kit
    async def test_many_large_answers_at_once_all_arrive(self, kit: Kit) -> None:
        """Many concurrent large responses arrive at one caller, and so do small responses between them."""
        size = _large(kit)
        async with kit.serving(), kit.calling() as calls:

            async def large() -> int:
                return len((await calls.call("kit.big", {"size": size})).data)

            async def small() -> list[Any]:
                return [(await calls.call("kit.echo", {"value": n})).data for n in range(20)]

            *sizes, numbers = await asyncio.gather(*(large() for _ in range(64)), small())
            assert sizes == [size] * 64
            assert numbers == list(range(20))
            assert calls.pending == 0

    @with_kit
    async def test_a_stream_of_large_items_is_complete(self, kit: Kit) -> None:
        """All items of a stream arrive, even if each of them is larger than the initial window."""
        size = _large(kit)
        async with kit.serving() as handler, kit.calling() as calls:
            count = 0
            async for envelope in calls.subscribe("kit.bigs", {"size": size, "count": 24}):
                assert len(envelope.data) == size
                count += 1
            assert count == 24
            await kit.served.until(lambda: handler.active == 0)

    @with_kit
    async def test_an_answer_waits_for_room(self, kit: Kit) -> None:
        """A handler asks for room before it sends a response above the caller's window, and waits for credit."""
        async with kit.serving(), kit.participant() as caller:
            follow = await caller.request("kit.big", "b", {"size": 5_000}, creditBytes=1_000)
            asked = await _question(caller, "b")
            assert 5_000 < asked["wantsBytes"] < 6_000
            await caller.request("kit.echo", "e", {"value": 1})
            (answer,) = await caller.wait_for(protocol.RESPONDED)
            assert answer["requestId"] == "e"
            room = {
                "requestId": "b",
                "total": 1,
                "totalBytes": asked["wantsBytes"],
                "replyTo": caller.link.inbox,
            }
            await caller.send(follow or asked["replyTo"], protocol.CREDIT, **room)
            answer = (await caller.wait_for(protocol.RESPONDED, 2))[1]
            assert len(data_of(answer)) == 5_000

    @with_kit
    async def test_a_stream_stays_within_the_bytes_that_it_was_granted(self, kit: Kit) -> None:
        """Each item states the total number of bytes so far; the next one waits until the window has room."""
        async with kit.serving(), kit.participant() as caller:
            input = {"size": 1_000, "count": 5}
            follow = await caller.request("kit.bigs", "s", input, credit=64, creditBytes=3_000)
            asked = await _question(caller, "s")
            items = caller.of(protocol.RESPONDED)
            assert len(items) == 2
            assert 2_000 < items[1]["sentBytes"] <= 3_000 < asked["wantsBytes"]
            room = {"requestId": "s", "total": 64, "totalBytes": 10_000, "replyTo": caller.link.inbox}
            await caller.send(follow or asked["replyTo"], protocol.CREDIT, **room)
            assert (await caller.wait_for(protocol.COMPLETED))[0]["count"] == 5
            sent = [item["sentBytes"] for item in caller.of(protocol.RESPONDED)]
            assert sent == sorted(sent)

    @with_kit
    async def test_a_handler_that_asks_is_answered(self, kit: Kit) -> None:
        """If a handler asks for more room, the caller grants at least the bytes that the handler wants to send."""
        if kit.capabilities.same_process:
            skip("within one process nothing is counted")
        async with kit.participant() as server, kit.calling() as calls:
            await server.link.register("op:kit.served", "operad")
            task = asyncio.create_task(calls.call("kit.served"))
            (request,) = await server.wait_for(protocol.REQUESTED)
            assert 1_024 <= request["creditBytes"] <= 1_048_576
            to, request_id, wants = request["replyTo"], request["requestId"], 3_000_000
            question = {"requestId": request_id, "total": 0, "wantsBytes": wants, "replyTo": server.link.inbox}
            await server.send(to, protocol.CREDIT, **question)
            (credit,) = await server.wait_for(protocol.CREDIT)
            assert credit["totalBytes"] >= wants
            meta = {"source": "local", "operationId": "kit.served", "timestamp": 0}
            output = {"data": "large", "meta": meta}
            await server.send(to, protocol.RESPONDED, requestId=request_id, output=output)
            assert (await task).data == "large"

    @with_kit
    async def test_a_large_request_is_acknowledged_at_once(self, kit: Kit) -> None:
        """The sender of a large request learns that it has arrived, before the response."""
        limit = kit.capabilities.max_payload
        if limit is not None and limit < 100_000:
            skip("the transport carries no large request")
        async with kit.serving(), kit.participant() as caller:
            await caller.request("kit.wait", "w", {"text": "x" * 70_000}, sentBytes=70_200)
            notice = (await caller.wait_for(protocol.CREDIT))[0]
            assert notice["requestId"] == "w"
            assert notice["replyTo"]
            kit.served.gate.set()
            await caller.wait_for(protocol.RESPONDED)

    @with_kit
    async def test_many_large_requests_at_once_all_arrive(self, kit: Kit) -> None:
        """Concurrent requests that together exceed the window all arrive."""
        value = "x" * _large(kit)
        async with kit.serving(), kit.calling() as calls:

            async def echo() -> bool:
                return bool((await calls.call("kit.echo", {"value": value})).data == value)

            assert await asyncio.gather(*(echo() for _ in range(48))) == [True] * 48

    @with_kit
    async def test_cancelling_one_that_waits_for_the_socket_ends_one(self, kit: Kit) -> None:
        """Cancelling one event that waits for the connection does not affect the others."""
        size = min((kit.capabilities.max_payload or 2**20) - 4_096, 2**20)
        async with kit.participant() as sender, kit.participant() as receiver:
            await receiver.link.register("all:news")
            tasks = []
            for number in range(32):
                sending = sender.send("all:news", "news", number=number, text="x" * size)
                tasks.append(asyncio.create_task(sending))
                if not number % 8:
                    await asyncio.sleep(0)  # what is written by now fills the socket, for those that follow
            await asyncio.sleep(0)
            for task in tasks[::4]:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            others = [end for number, end in enumerate(ends) if number % 4]
            assert not any(isinstance(end, BaseException) for end in others), f"got {others}"
            await receiver.wait_for("news", len(others))

    @with_kit
    async def test_cancelling_one_call_ends_one(self, kit: Kit) -> None:
        """Cancelling one of several calls that wait for the same socket does not affect the others."""
        value = "x" * _large(kit)
        async with kit.serving(), kit.calling() as calls:
            tasks = [asyncio.create_task(calls.call("kit.echo", {"value": value})) for _ in range(24)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            endings = await asyncio.gather(*tasks, return_exceptions=True)
            for number, ending in enumerate(endings):
                assert isinstance(ending, asyncio.CancelledError) == (number % 3 == 0), repr(ending)[:200]
                assert not isinstance(ending, CallError)
            assert calls.pending == 0

    @with_kit
    async def test_requests_that_are_left_while_they_wait_for_the_socket_are_aborted(self, kit: Kit) -> None:
        """A cancelled request that may have been sent already is aborted, so that no handler keeps running."""
        size = min((kit.capabilities.max_payload or 2**20) - 4_096, 2**20)
        async with kit.serving() as handler, kit.calling() as calls, kit.participant() as receiver:
            await receiver.link.register("all:news")
            link = calls.link
            assert link is not None
            payload = {"text": "x" * size}
            sending = [
                asyncio.create_task(link.send("all:news", {"type": "news", "id": "", "payload": payload}))
                for _ in range(32)
            ]
            await asyncio.sleep(0)  # from here on the socket is full
            left = [asyncio.create_task(calls.call("kit.wait")) for _ in range(4)]
            streams = [calls.subscribe("kit.count", {"to": 1_000_000}) for _ in range(4)]
            left += [asyncio.ensure_future(anext(stream)) for stream in streams]
            await asyncio.sleep(0)
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            for stream in streams:  # a handler that starts immediately may have sent the first item already
                await stream.aclose()
            await asyncio.wait(sending)
            await receiver.wait_for("news", 32)
            assert (await calls.call("kit.echo", {"value": 1})).data == 1
            await kit.served.until(lambda: handler.active == 0)

    @with_kit
    async def test_an_abort_that_came_before_its_request_is_sent_again(self, kit: Kit) -> None:
        """An abort may overtake its request: a handler that then reports the request receives the abort again."""
        if kit.capabilities.detects_peer_loss:
            skip("the transport keeps the order, and ends what was left")
        async with kit.participant() as server, kit.calling() as calls:
            await server.link.register("op:kit.served", "operad")
            task, other = (asyncio.create_task(calls.call("kit.served")) for _ in range(2))
            request, second = await server.wait_for(protocol.REQUESTED, 2)
            notice = {"requestId": request["requestId"], "total": 0, "replyTo": server.link.inbox}
            await server.send(request["replyTo"], protocol.CREDIT, **notice)
            meta = {"source": "local", "operationId": "kit.served", "timestamp": 0}
            output = {"data": "after the notice", "meta": meta}
            await server.send(second["replyTo"], protocol.RESPONDED, requestId=second["requestId"], output=output)
            await other
            task.cancel()
            await asyncio.wait({task})
            await server.wait_for(protocol.ABORTED)
            await server.send(request["replyTo"], protocol.CREDIT, **notice)
            assert (await server.wait_for(protocol.ABORTED, 2))[1]["requestId"] == request["requestId"]


async def _question(caller: Any, request_id: str) -> dict[str, Any]:
    """Return the event in which a handler asks for room to send a response."""
    for count in range(1, 100):
        credit = (await caller.wait_for(protocol.CREDIT, count))[-1]
        if credit["requestId"] == request_id and "wantsBytes" in credit:
            return dict(credit)
    raise AssertionError(f"the handler did not ask for room to respond to {request_id}")

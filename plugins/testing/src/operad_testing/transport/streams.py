"""The part of the transport suite about streams, credit, deadlines and cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

from operad import PendingRequestMap
from operad.errors import ErrorCode
from operad_calls import protocol
from operad_testing._examples import skip
from operad_testing._running import pause
from operad_testing.transport.participant import Kit, TransportSuite, error_of, with_kit


class Streams(TransportSuite):
    """Tests of streams, credit, deadlines and cancellation."""

    @with_kit
    async def test_a_stream_is_complete_and_in_order(self, kit: Kit) -> None:
        """All items of a stream arrive in order, and then the stream ends. Concurrent streams do not mix."""
        async with kit.serving() as handler, kit.calling() as calls:

            async def read() -> list[Any]:
                return [envelope.data async for envelope in calls.subscribe("kit.count", {"to": 500})]

            assert list(await asyncio.gather(read(), read(), read())) == [list(range(500))] * 3
            assert [item.data async for item in calls.subscribe("kit.count", {"to": 0})] == []
            assert [item.data async for item in calls.subscribe("kit.echo", {"value": 7})] == [7]
            await kit.served.until(lambda: handler.active == 0)
            assert calls.pending == 0

    @with_kit
    async def test_a_stream_that_fails_delivers_what_came_before(self, kit: Kit) -> None:
        """The items before an error are delivered first, then the error is raised."""
        async with kit.serving(), kit.calling() as calls:
            stream = calls.subscribe("kit.count", {"to": 3, "then": "fail"})
            assert [(await anext(stream)).data for _ in range(3)] == [0, 1, 2]
            error = await error_of(anext(stream))
            assert (error.code, error.details) == ("BROKEN", {"after": 3})

    @with_kit
    async def test_leaving_a_stream_closes_its_handler(self, kit: Kit) -> None:
        """Leaving the loop, or closing the subscription, ends the handler's generator."""
        async with kit.serving() as handler, kit.calling() as calls:
            async for envelope in calls.subscribe("kit.count", {"to": 10**9}):
                if envelope.data == 20:
                    break
            await kit.served.until(lambda: kit.served.ended == 1)
            async with calls.subscribe("kit.count", {"to": 1, "then": "wait"}) as stream:
                await anext(stream)
            await kit.served.until(lambda: kit.served.ended == 2 and handler.active == 0)
            assert calls.pending == 0

    @with_kit
    async def test_calling_a_subscription_takes_one_item(self, kit: Kit) -> None:
        """``call`` of a subscription returns its first item and ends the handler. Without items it fails."""
        async with kit.serving() as handler, kit.calling() as calls:
            assert (await calls.call("kit.count", {"to": 10**9})).data == 0
            await kit.served.until(lambda: kit.served.ended == 1 and handler.active == 0)
            error = await error_of(calls.call("kit.count", {"to": 0}))
            assert error.code == ErrorCode.EXECUTION_ERROR
            assert calls.pending == 0

    @with_kit
    async def test_a_slow_consumer_holds_its_producer_back(self, kit: Kit) -> None:
        """No more items are produced than the consumer gave credit for."""
        async with kit.serving(), kit.calling() as calls, kit.calling() as others:
            async with calls.subscribe("kit.count", {"to": 10**9}, credit=8) as stream:
                assert (await anext(stream)).data == 0
                for _ in range(20):  # other callers are served meanwhile
                    assert (await others.call("kit.echo", {"value": 1})).data == 1
                assert kit.served.yielded <= 9
                for expected in range(1, 50):
                    assert (await anext(stream)).data == expected
                assert kit.served.yielded <= 50 + 9
            await kit.served.until(lambda: kit.served.ended == 1)

    @with_kit
    async def test_credit_is_cumulative(self, kit: Kit) -> None:
        """A handler sends as many items as the highest total of credit allows; a lower total changes nothing."""
        async with kit.serving(), kit.participant() as caller:
            follow = await caller.request("kit.count", "s", {"to": 10}, credit=2)
            first = (await caller.wait_for(protocol.RESPONDED, 2))[0]
            follow = follow or first["replyTo"]
            inbox = caller.link.inbox
            await caller.send(follow, protocol.CREDIT, requestId="s", total=1, replyTo=inbox)
            await caller.request("kit.echo", "e", {"value": 1})
            await caller.wait_for(protocol.RESPONDED, 3)
            assert [item["seq"] for item in caller.of(protocol.RESPONDED) if "seq" in item] == [0, 1]
            await caller.send(follow, protocol.CREDIT, requestId="s", total=20, replyTo=inbox)
            assert (await caller.wait_for(protocol.COMPLETED))[0]["count"] == 10
            assert [item["seq"] for item in caller.of(protocol.RESPONDED) if "seq" in item] == list(range(10))

    @with_kit
    async def test_a_peer_without_credit_sees_the_end(self, kit: Kit) -> None:
        """A caller that gives no credit receives "completed" and then "aborted" after the items of a stream."""
        async with kit.serving() as handler, kit.participant() as caller:
            await caller.request("kit.count", "s", {"to": 3})
            await caller.wait_for(protocol.ABORTED)
            kinds = [event["type"] for event, _ in caller.events if event["type"] != protocol.CREDIT]
            assert kinds == [protocol.RESPONDED] * 3 + [protocol.COMPLETED, protocol.ABORTED]
            await kit.served.until(lambda: handler.active == 0)

    @with_kit
    async def test_a_stream_whose_handler_is_silent_ends(self, kit: Kit) -> None:
        """A handler that promised heartbeats and sends none is treated as lost, even if its connection is open."""
        if kit.capabilities.same_process:
            skip("within one process no peer is silent")
        async with kit.participant() as server, kit.calling(lease=1.5) as calls, kit.serving():
            await server.link.register("op:kit.served", "operad")
            silent = asyncio.create_task(error_of(anext(calls.subscribe("kit.served"))))
            (request,) = await server.wait_for(protocol.REQUESTED)
            notice = {"requestId": request["requestId"], "total": 0, "replyTo": server.link.inbox}
            await server.send(request["replyTo"], protocol.CREDIT, **notice)
            alive = calls.subscribe("kit.count", {"to": 1, "then": "wait"})
            await anext(alive)
            assert (await silent).code == ErrorCode.UNAVAILABLE
            kit.served.gate.set()
            assert [item.data async for item in alive] == []

    @with_kit
    async def test_a_stream_of_which_no_handler_says_that_it_has_it_ends(self, kit: Kit) -> None:
        """If no handler acknowledges a stream, and the transport detects no losses, the lease ends the stream."""
        if kit.capabilities.detects_peer_loss:
            skip("the transport reports a lost handler")
        async with kit.participant() as server, kit.calling(lease=1.5) as calls, kit.serving():
            await server.link.register("op:kit.served", "operad")
            silent = asyncio.create_task(error_of(anext(calls.subscribe("kit.served"))))
            await server.wait_for(protocol.REQUESTED)
            alive = calls.subscribe("kit.count", {"to": 0, "then": "wait"})
            waits = asyncio.create_task(anext(alive, None))
            error = await silent
            assert (error.code, error.details["sent"]) == (ErrorCode.UNAVAILABLE, True)
            kit.served.gate.set()
            assert await waits is None, "a stream whose handler has acknowledged it waits for its first item"

    @with_kit
    async def test_a_handler_says_that_it_has_a_stream_before_its_first_item(self, kit: Kit) -> None:
        """A handler acknowledges a stream immediately, because the caller could not end the stream otherwise."""
        if kit.capabilities.detects_peer_loss:
            skip("the transport knows which handler has a request")
        hand = PendingRequestMap(kit.transport, on_request=lambda _: None)
        async with kit.serving(), hand, kit.participant() as caller:
            await hand.serve("kit.hand")
            await caller.request("kit.count", "a", {"to": 0, "then": "wait"}, credit=4)
            await caller.request("kit.hand", "b", credit=4)
            said = {notice["requestId"]: notice["replyTo"] for notice in await caller.wait_for(protocol.CREDIT, 2)}
            assert said.keys() == {"a", "b"}
            for request_id, reply_to in said.items():
                await caller.send(reply_to, protocol.ABORTED, requestId=request_id, replyTo=caller.link.inbox)
            await kit.served.until(lambda: kit.served.ended == kit.served.started)

    @with_kit
    async def test_a_stream_whose_consumer_is_silent_ends(self, kit: Kit) -> None:
        """A stream ends if its consumer sends no heartbeat during the lease, and continues with heartbeats."""
        async with kit.serving(lease=1.5), kit.calling(lease=1.5) as calls, kit.participant() as caller:
            alive = calls.subscribe("kit.count", {"to": 1, "then": "wait"})
            await anext(alive)
            await caller.request("kit.count", "s", {"to": 1, "then": "wait"}, credit=4)
            await kit.served.until(lambda: kit.served.started == 2)
            await kit.served.until(lambda: kit.served.ended == 1)
            kit.served.gate.set()
            assert [item.data async for item in alive] == []

    @with_kit
    async def test_a_call_ends_at_its_deadline_on_both_sides(self, kit: Kit) -> None:
        """The caller receives ``TIMEOUT`` with the deadline, and the handler is cancelled."""
        async with kit.serving(), kit.calling() as calls:
            for seconds in (0.1, 1.0, 5.0):
                error = await error_of(calls.call("kit.wait", timeout=seconds))
                if kit.served.started:  # on a busy machine it may come too late to be begun
                    break
            assert error.code == ErrorCode.TIMEOUT
            assert error.details is not None
            assert isinstance(error.details["deadline"], float)
            assert calls.pending == 0
            await kit.served.until(lambda: kit.served.ended == kit.served.started)

    @with_kit
    async def test_the_handler_keeps_the_deadline_by_itself(self, kit: Kit) -> None:
        """A handler whose caller sends nothing more stops at the deadline of the request."""
        async with kit.serving(), kit.participant() as caller:
            for count, milliseconds in enumerate((200, 1_000, 5_000), 1):
                await caller.request("kit.wait", f"late {count}", timeoutMs=milliseconds)
                error = (await caller.wait_for(protocol.ERROR, count))[-1]
                if kit.served.started:  # on a busy machine it may come too late to be begun
                    break
            assert error["code"] == ErrorCode.TIMEOUT
            assert (kit.served.started, kit.served.ended) == (1, 1)

    @with_kit
    async def test_cancelling_a_call_cancels_its_handler(self, kit: Kit) -> None:
        """A cancelled call ends its handler and the calls that the handler made."""
        async with kit.serving(), kit.calling() as calls:
            for operation_id in ("kit.wait", "kit.nested"):
                before = kit.served.started
                task = asyncio.create_task(calls.call(operation_id))
                await kit.served.until(lambda before=before: kit.served.started == before + 1)  # type: ignore[misc]  # binds the loop's value
                task.cancel()
                await asyncio.wait({task})
                assert task.cancelled()
                await kit.served.until(lambda: kit.served.ended == kit.served.started)
            assert calls.pending == 0

    @with_kit
    async def test_closing_the_call_map_ends_its_calls(self, kit: Kit) -> None:
        """Closing the calling side ends its calls in progress with ``ABORTED``, on both sides."""
        async with kit.serving() as handler:
            async with kit.calling() as calls:
                task = asyncio.create_task(error_of(calls.call("kit.wait")))
                await kit.served.until(lambda: kit.served.started == 1)
                await pause(0.2)  # a broker's handler sends its address
            assert (await task).code == ErrorCode.ABORTED
            await kit.served.until(lambda: kit.served.ended == 1 and handler.active == 0)

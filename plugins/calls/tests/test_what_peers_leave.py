"""What peers leave behind that say little, say it twice, or go in the middle: nothing stays."""

import asyncio
import time
import tracemalloc

import pytest

from operad import ErrorCode, InProcessTransport, PendingRequestMap, local_envelope
from operad.transports import Capabilities, Delivery, LinkDownError
from operad_calls import CallSettings
from operad_testing import Participant
from plugins.calls.tests.parts import (
    Wired,
    cancel,
    error_of,
    event,
    registry_of,
    until,
    waiting,
    with_caller,
    with_server,
)


async def test_the_end_of_a_request_acknowledges_every_delivery_of_it():
    """A broker that gave it twice waits for the end of both, or holds one for ever."""
    done, transport = [], Wired(redelivers=True)
    async with with_caller(registry_of(wait=("query", waiting)), transport) as (handler, caller):
        asked = {"requestId": "1", "operationId": "t.wait", "input": {}, "replyTo": caller.link.inbox}
        for name in ("first", "second"):
            delivery = Delivery(to="op:t.wait", done=lambda name=name: done.append(name))
            transport.on_event(event("call.requested", **asked), delivery)
        assert (handler.active, done) == (1, [])
        await caller.send(handler.link.inbox, "call.aborted", requestId="1", replyTo=caller.link.inbox)
        await until(lambda: not handler.active)
        assert done == ["first", "second"]


async def test_a_single_request_that_says_nothing_ends_by_hand_too():
    """Nobody has to answer it for it to end: after the time of the one that serves."""
    requests = []
    settings = CallSettings(timeout=0.1)
    transport = InProcessTransport(strict=True)
    async with PendingRequestMap(transport, on_request=requests.append, settings=settings) as server:
        await server.serve("t.op")
        async with Participant.open(transport) as caller:
            await caller.request("t.op", "single", timeoutMs=1e300, deadline=None)
            assert (await caller.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
            assert requests[0].deadline < time.time() * 1000
            await caller.request("t.op", "stream", credit=1, timeoutMs=1e300, deadline=None)
            await asyncio.sleep(0.2)
            assert [request.deadline for request in requests[1:]] == [None], "a stream has a lease instead"
            await server.respond(requests[1].request_id, local_envelope(1, "t.op"))


class Jammed(Wired):
    """A bus over which no answer leaves, or whose connection breaks then."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error

    async def open(self, on_event, on_link):
        link = await super().open(on_event, on_link)
        send = link.send

        async def jammed(to, event):
            if event["type"] != "call.responded":
                return await send(to, event)
            if self.error is not None:
                raise self.error
            return await asyncio.Event().wait()

        link.send = jammed
        return link


@pytest.mark.parametrize("error", [None, LinkDownError("cut")])
async def test_an_answer_by_hand_that_does_not_leave_ends_its_request(error):
    """Cancelled while it waits for the socket, or cut: the request holds no place of its caller any more."""
    requests = []
    transport = Jammed(error)
    async with PendingRequestMap(transport, on_request=requests.append) as server:
        await server.serve("t.op")
        async with Participant.open(transport.bus) as caller:
            await caller.request("t.op", "1", replyTo=caller.link.inbox)
            answering = asyncio.create_task(server.respond(requests[0].request_id, local_envelope(1, "t.op")))
            await asyncio.wait({answering}, timeout=0.01 if error is None else 30)
            answering.cancel()
            (end,) = await asyncio.gather(answering, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError if error is None else LinkDownError)
            with pytest.raises(LookupError):
                await server.respond(requests[0].request_id, local_envelope(1, "t.op"))


class Swallowing:
    """A transport that takes a cancellation for its own: nobody is told of it."""

    capabilities = Capabilities()

    async def open(self, on_event, on_link):
        self.inbox = "inbox:0"
        return self

    async def send(self, to, event):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return

    async def close(self):
        pass


async def test_a_transport_that_swallows_a_cancellation_holds_no_call_beyond_its_deadline():
    async with PendingRequestMap(Swallowing()) as calls:
        assert (await error_of(calls.call("t.op", timeout=0.05))).code == ErrorCode.TIMEOUT
        assert asyncio.current_task().cancelling() == 0
        assert calls.pending == 0


async def test_large_requests_that_wait_are_not_in_memory_twice():
    """Each is written when its turn has come: what waits is what the caller has of it."""
    async with with_server(Wired()) as (calls, server):
        value = "x" * 1_000_000
        tracemalloc.start()
        try:
            tasks = [asyncio.create_task(calls.call("t.op", value)) for _ in range(64)]
            await server.wait_for("call.requested", 8)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await cancel(*tasks)
        assert held < 30_000_000, f"{held} bytes are held by 64 requests of 1 MB, of which 8 may be on their way"

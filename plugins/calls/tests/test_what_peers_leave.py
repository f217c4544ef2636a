"""What peers leave behind that say little, say it twice, or go in the middle: nothing stays."""

import asyncio
import tracemalloc

from operad import ErrorCode, PendingRequestMap
from operad.transports import Capabilities, Delivery
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

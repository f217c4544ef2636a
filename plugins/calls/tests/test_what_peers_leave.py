"""What peers leave behind that say little, say it twice, or go in the middle: nothing stays."""

import asyncio
import tracemalloc
from contextlib import suppress

from operad import ErrorCode, PendingRequestMap
from plugins.calls.tests.parts import Lone, Wired, cancel, error_of, with_server


async def test_a_transport_that_swallows_a_cancellation_holds_no_call_beyond_its_deadline():
    """As one that takes it for its own."""

    async def swallow():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)

    async with PendingRequestMap(Lone(swallow)) as calls:
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

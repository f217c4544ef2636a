"""The call protocol over a transport that knows as little as a broker: nobody's address, nobody's loss."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from operad import CallHandler, ErrorCode, PendingRequestMap
from operad.transports import Delivery
from operad_calls.protocol import LOST
from operad_calls.serving import answers
from operad_calls.serving.answers import Answers
from operad_testing import TransportConformance
from plugins.calls.tests.parts import (
    Wired,
    both,
    cancel,
    error_of,
    event,
    registry_of,
    settle,
    until,
    waiting,
    with_caller,
)


class TestBrokerLike(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield Wired([LOST])


async def test_an_abort_waits_for_the_handlers_address():
    """A call cancelled before its handler told where it is still reaches the handler."""
    async with both(registry_of(wait=("query", waiting)), Wired([LOST])) as (handler, calls):
        task = asyncio.create_task(calls.call("t.wait"))
        await settle(2)
        assert handler.active == 1
        await cancel(task)
        await until(lambda: not handler.active)


@pytest.mark.parametrize("payload", [{"credit": 2}, {"creditBytes": 100}], ids=["a stream", "a large answer"])
async def test_a_large_request_whose_caller_was_told_of_it_for_another_reason_is_told_of_once(
    payload, monkeypatch
):
    monkeypatch.setattr(answers, "_AGAIN", 60.0)  # who has no room is asked for it again

    async def items(input, context):
        await asyncio.sleep(0.02)
        yield "x"

    async def answer(input, context):
        return "x" * 1_000

    registry = registry_of(stream=("subscription", items), call=("query", answer))
    async with with_caller(registry, Wired([LOST])) as (_, caller):
        await caller.request("t.stream" if "credit" in payload else "t.call", "1", sentBytes=70_000, **payload)
        await caller.wait_for("call.credit")
        await asyncio.sleep(0.03)
        (notice,) = await caller.wait_for("call.credit")
        await caller.send(notice["replyTo"], "call.aborted", requestId="1", replyTo=caller.link.inbox)


async def test_a_stream_whose_handler_is_gone_ends_with_its_lease(monkeypatch):
    """Where no transport tells of a loss, silence does."""
    transport = Wired([LOST])

    async def silent(self, request, wants=None):
        pass

    async def quiet(input, context):
        yield 1
        await asyncio.sleep(60)

    async with PendingRequestMap(transport, lease=0.3) as calls:
        handler = CallHandler(registry_of(quiet=("subscription", quiet)), transport, drain_timeout=0.1)
        await handler.open()
        stream = calls.subscribe("t.quiet")
        assert (await anext(stream)).data == 1
        monkeypatch.setattr(Answers, "notice", silent)  # as good as dead: it gives no sign of life
        try:
            assert (await error_of(anext(stream))).code == ErrorCode.UNAVAILABLE
        finally:
            await handler.aclose()


async def read(input, context):
    return context.deadline


def deliver(transport, caller, request_id, fields, **delivery):
    payload = {"requestId": request_id, "operationId": "t.read", "input": {}, "replyTo": caller.link.inbox}
    transport.on_event(event("call.requested", **payload, **fields), Delivery(**delivery))


async def test_the_deadline_of_a_request_that_was_stored_counts_and_not_its_duration():
    """How long it lay there is in the deadline alone; one that comes too late does not run."""
    transport = Wired([LOST], redelivers=True)
    async with with_caller(registry_of(read=("query", read)), transport) as (handler, caller):
        deliver(transport, caller, "stored", {"timeoutMs": 20_000, "deadline": 1.0})
        assert handler.active == 0
        assert (await caller.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
        deliver(transport, caller, "quick", {"timeoutMs": 0, "deadline": time.time() * 1000 + 60_000})
        assert (await caller.wait_for("call.responded"))[0]["requestId"] == "quick"


async def test_what_a_broker_tells_of_how_long_it_held_a_request_needs_no_common_clock():
    """Its duration counts, less that; and what is late did not run, unless it came before."""
    transport = Wired([LOST], redelivers=True)
    async with with_caller(registry_of(read=("query", read)), transport) as (_, caller):
        hour_ago = {"timeoutMs": 20_000, "deadline": time.time() * 1000 - 3_600_000}
        deliver(transport, caller, "soon", hour_ago, held=5_000.0)
        (answer,) = await caller.wait_for("call.responded")
        left = answer["output"]["data"] - time.time() * 1000
        assert 10_000 < left <= 15_000
        deliver(transport, caller, "late", hour_ago, held=20_001.0)
        deliver(transport, caller, "again", hour_ago, held=20_001.0, redelivered=True)
        first, second = await caller.wait_for("call.error", 2)
        assert (first["code"], first["details"]["sent"]) == (ErrorCode.UNAVAILABLE, False)
        assert second["code"] == ErrorCode.TIMEOUT, "it may have run where it was before"

"""The call protocol over a transport that knows as little as a broker: nobody's address, nobody's loss."""
# ruff: noqa: SIM117  # what is opened first and closed last is the point of many of these tests

import asyncio
import logging
import time
from contextlib import asynccontextmanager

import attrs
import pytest

from operad import (
    CallError,
    CallHandler,
    ErrorCode,
    OperationRegistry,
    PendingRequestMap,
)
from operad.transports import Capabilities, Delivery
from operad_calls import InProcessTransport
from operad_calls.protocol import LOST
from operad_calls.serving import answers
from operad_calls.serving.answers import Answers
from operad_testing import Participant, TransportConformance
from plugins.calls.tests.parts import LinkOver, registry_of


class BrokerLike:
    """An in-process bus that hides who sent what, where it went, and who is gone."""

    def __init__(self, *, redelivers=False):
        self.bus = InProcessTransport(strict=True)
        self.capabilities = Capabilities(balances=True, detects_no_responders=True, redelivers=redelivers)
        self.on_event = None

    async def open(self, on_event, on_link):
        self.on_event = self.on_event or on_event  # the first link's

        def without_sender(event, delivery):
            if event["type"] != LOST:
                on_event(event, Delivery(to=delivery.to))

        return LinkOver(await self.bus.open(without_sender, on_link))


class TestBrokerLike(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield BrokerLike()


async def waiting(input, context):
    await asyncio.sleep(60)


async def test_an_abort_waits_for_the_handlers_address():
    """A call cancelled before its handler told where it is still reaches the handler."""
    transport = BrokerLike()
    async with CallHandler(registry_of(wait=("query", waiting)), transport) as handler:
        async with PendingRequestMap(transport) as calls:
            task = asyncio.create_task(calls.call("t.wait"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert handler.active == 1
            task.cancel()
            await asyncio.wait({task})
            async with asyncio.timeout(30):
                while handler.active:
                    await asyncio.sleep(0.01)


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
    transport = BrokerLike()
    async with CallHandler(registry, transport), Participant.open(transport) as caller:
        await caller.request("t.stream" if "credit" in payload else "t.call", "1", sentBytes=70_000, **payload)
        await caller.wait_for("call.credit")
        await asyncio.sleep(0.03)
        (notice,) = await caller.wait_for("call.credit")
        await caller.send(notice["replyTo"], "call.aborted", requestId="1", replyTo=caller.link.inbox)


async def test_a_stream_whose_handler_is_gone_ends_with_its_lease(monkeypatch):
    """Where no transport tells of a loss, silence does."""
    transport = BrokerLike()

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
            with pytest.raises(CallError) as caught:
                async with asyncio.timeout(30):
                    await anext(stream)
            assert caught.value.code == ErrorCode.UNAVAILABLE
        finally:
            await handler.aclose()


async def test_renewing_a_stream_that_is_not_there_is_answered():
    """A handler that was restarted tells a consumer that its stream is gone."""
    transport = BrokerLike()
    async with CallHandler(OperationRegistry(), transport) as handler, Participant.open(transport) as caller:
        to = handler.link.inbox
        await caller.send(to, "call.credit", requestId="old", total=100, replyTo=caller.link.inbox)
        (error,) = await caller.wait_for("call.error")
        assert (error["requestId"], error["code"]) == ("old", ErrorCode.UNAVAILABLE)


@attrs.define
class Acknowledged:
    count: int = 0

    def __call__(self):
        self.count += 1


async def test_a_redelivered_request_runs_again_only_if_it_reads():
    """After the loss of a handler a query runs again; anything else may have run, and is unavailable."""
    ran = []

    async def note(input, context):
        ran.append(input["n"])
        return input["n"]

    transport = BrokerLike(redelivers=True)
    registry = registry_of(read=("query", note), write=("mutation", note))
    async with CallHandler(registry, transport), Participant.open(transport) as caller:
        done = Acknowledged()

        def deliver(operation_id, request_id, **delivery):
            payload = {"requestId": request_id, "operationId": operation_id, "input": {"n": request_id}}
            payload["replyTo"] = caller.link.inbox
            event = {"type": "call.requested", "id": "", "payload": payload}
            transport.on_event(event, Delivery(done=done, **delivery))

        deliver("t.read", "1", redelivered=True)
        deliver("t.write", "2", redelivered=True)
        await caller.wait_for("call.responded")
        (error,) = await caller.wait_for("call.error")
        assert (error["requestId"], error["code"]) == ("2", ErrorCode.UNAVAILABLE)
        assert ran == ["1"]
        assert done.count == 2
        deliver("t.write", "3")
        await caller.wait_for("call.responded", 2)
        deliver("t.write", "3")  # its acknowledgement was lost
        assert done.count == 4
        await asyncio.sleep(0)
        assert ran == ["1", "3"]


async def read(input, context):
    return 1


def asked_of(transport, caller, request_id, **fields):
    payload = {"requestId": request_id, "operationId": "t.read", "input": {}, "replyTo": caller.link.inbox}
    transport.on_event({"type": "call.requested", "id": "", "payload": {**payload, **fields}}, Delivery())


async def test_the_deadline_of_a_request_that_was_stored_counts_and_not_its_duration():
    """How long it lay there is in the deadline alone; one that comes too late does not run."""
    transport = BrokerLike(redelivers=True)
    async with CallHandler(registry_of(read=("query", read)), transport) as handler:
        async with Participant.open(transport) as caller:
            asked_of(transport, caller, "stored", timeoutMs=20_000, deadline=1.0)
            assert handler.active == 0
            assert (await caller.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
            asked_of(transport, caller, "quick", timeoutMs=0, deadline=time.time() * 1000 + 60_000)
            assert (await caller.wait_for("call.responded"))[0]["requestId"] == "quick"


async def test_what_a_broker_tells_of_how_long_it_held_a_request_needs_no_common_clock():
    """Its duration counts, less that; and what is late did not run, unless it came before."""

    async def read(input, context):
        return context.deadline

    transport = BrokerLike(redelivers=True)
    async with CallHandler(registry_of(read=("query", read)), transport):
        async with Participant.open(transport) as caller:
            hour_ago = time.time() * 1000 - 3_600_000
            said = {"timeoutMs": 20_000, "deadline": hour_ago}

            def deliver(request_id, held, **how):
                payload = {
                    "requestId": request_id,
                    "operationId": "t.read",
                    "input": {},
                    "replyTo": caller.link.inbox,
                    **said,
                }
                event = {"type": "call.requested", "id": "", "payload": payload}
                transport.on_event(event, Delivery(to="op:t.read", held=held, **how))

            deliver("soon", 5_000.0)
            (answer,) = await caller.wait_for("call.responded")
            left = answer["output"]["data"] - time.time() * 1000
            assert 10_000 < left <= 15_000
            deliver("late", 20_001.0)
            deliver("again", 20_001.0, redelivered=True)
            first, second = await caller.wait_for("call.error", 2)
            assert (first["code"], first["details"]["sent"]) == (ErrorCode.UNAVAILABLE, False)
            assert second["code"] == ErrorCode.TIMEOUT, "it may have run where it was before"


async def test_a_request_that_cannot_be_answered_is_dropped(caplog):
    """Without an address for the answer nothing runs, and the request is acknowledged."""
    done = Acknowledged()
    transport = BrokerLike()
    async with CallHandler(registry_of(wait=("query", waiting)), transport) as handler:
        with caplog.at_level(logging.WARNING):
            payload = {"requestId": "1", "operationId": "t.wait", "input": {}}
            transport.on_event({"type": "call.requested", "id": "", "payload": payload}, Delivery(done=done))
        assert handler.active == 0
        assert done.count == 1
        assert "address" in caplog.text

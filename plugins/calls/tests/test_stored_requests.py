"""Requests that a broker stores: which ones may run again, and which calls outlive a connection."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from operad import CallHandler, ErrorCode, OperationSpec, PendingRequestMap, operation
from operad.transports import Capabilities, Delivery
from operad_calls import CallSettings, InProcessTransport
from operad_calls.protocol import STORED
from operad_testing import Participant
from plugins.calls.tests.parts import (
    LinkOver,
    error_of,
    event,
    registry_of,
    reply,
    waiting,
    with_caller,
    with_server,
)


class Storing:
    """An in-process bus whose links claim to store, and keep what was registered and how their owner is told."""

    def __init__(self, *, stores=True):
        self.bus = InProcessTransport(strict=True)
        self.capabilities = Capabilities(balances=True, redelivers=True, stores=stores)
        self.links = []

    async def open(self, on_event, on_link):
        link = await self.bus.open(lambda event, delivery: on_event(event, Delivery()), on_link)
        self.links.append(StoringLink(link, on_event, on_link))
        return self.links[-1]


class StoringLink(LinkOver):
    def __init__(self, link, on_event, on_link):
        super().__init__(link)
        self.on_event, self.on_link = on_event, on_link
        self.served, self.register = set(), self._register

    async def _register(self, topic, group=None):
        assert topic not in self.served, "registered twice"
        self.served.add(topic)
        registration = await self._link.register(topic, group)

        async def unregister():
            self.served.discard(topic)
            await registration.unregister()

        return SimpleNamespace(unregister=unregister)


IDEMPOTENT = {"idempotent": True}


async def answer(input, context):
    return 1


def deliver(link, caller, operation_id, request_id, **delivery):
    payload = {"requestId": request_id, "operationId": operation_id, "input": {}, "replyTo": caller.link.inbox}
    link.on_event(event("call.requested", **payload), Delivery(**delivery))


@pytest.mark.parametrize(
    ("type_", "idempotent", "runs"),
    [("query", False, True), ("mutation", True, True), ("mutation", False, False), ("subscription", True, False)],
)
async def test_a_redelivered_request_runs_again_only_if_that_does_no_harm(type_, idempotent, runs):
    """After the loss of a handler a query and an idempotent mutation run again; anything else is unavailable."""
    transport, done = Storing(), []
    registry = registry_of(work=(type_, answer, {"idempotent": idempotent}))
    async with with_caller(registry, transport) as (_, caller):
        deliver(transport.links[0], caller, "t.work", "1", redelivered=True, done=lambda: done.append(1))
        if runs:
            await caller.wait_for("call.responded")
        else:
            (error,) = await caller.wait_for("call.error")
            assert error["code"] == ErrorCode.UNAVAILABLE
        await asyncio.sleep(0)
        assert done == [1]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_queue_follows_what_an_operation_is_declared_to_be(idempotent):
    """Also one that is replaced between two looks at the registry."""
    transport = Storing()
    registry = registry_of(put=("mutation", answer, {"idempotent": not idempotent}))
    async with CallHandler(registry, transport) as handler:
        spec = OperationSpec(namespace="t", name="put", type="mutation", idempotent=idempotent)
        registry.unregister("t.put")
        registry.register(spec, answer)
        await handler.refresh()
        served = {topic for topic in transport.links[0].served if topic.endswith("t.put")}
        assert served == ({"op:t.put", "queue:t.put"} if idempotent else {"op:t.put"})


async def test_a_transport_that_does_not_store_is_asked_for_no_queue():
    """Its links know the addresses ``op:`` and ``all:`` only."""
    transport = Storing(stores=False)
    async with CallHandler(registry_of(put=("mutation", answer, IDEMPOTENT)), transport):
        assert not [topic for topic in transport.links[0].served if topic.startswith("queue:")]


@pytest.mark.parametrize("stores", [True, False])
async def test_a_call_outlives_the_connection_if_its_request_is_stored(stores):
    """The broker has it, and its answer will come; the other calls fail at once."""
    transport = Storing(stores=stores)
    async with with_server(transport) as (calls, server):
        stored, other = (asyncio.create_task(calls.call("t.op", timeout=20)) for _ in range(2))
        requests = await server.wait_for("call.requested", 2)
        link = transport.links[0]
        link.on_event(event(STORED, requestId=requests[0]["requestId"]), Delivery())
        link.on_link("down", 1)
        assert (await error_of(other)).code == "UNAVAILABLE"
        if not stores:
            assert (await error_of(stored)).code == "UNAVAILABLE"
            return
        assert calls.pending == 1
        link.on_link("up", 2)
        await reply(server, requests[0])
        assert (await stored).data == 1
        assert calls.pending == 0


async def test_a_stream_ends_with_the_connection_whatever_is_said_of_its_request():
    """It has no deadline, and nobody could go on with it."""
    transport = Storing()
    async with with_server(transport) as (calls, server):
        stream = asyncio.ensure_future(anext(calls.subscribe("t.op")))
        (asked,) = await server.wait_for("call.requested")
        link = transport.links[0]
        link.on_event(event(STORED, requestId=asked["requestId"]), Delivery())
        link.on_link("down", 1)
        assert (await error_of(stream)).code == "UNAVAILABLE"


@pytest.mark.parametrize(("deadline", "count"), [(10**400, 1), (-(10**400), 0)], ids=["after", "before"])
async def test_a_deadline_that_no_clock_has_is_none_or_has_passed(deadline, count):
    taken = []
    transport = Storing()
    async with PendingRequestMap(transport, on_request=taken.append):
        asked = {"requestId": "1", "operationId": "t.put", "replyTo": "inbox:x", "deadline": deadline}
        transport.links[0].on_event(event("call.requested", **asked), Delivery())
    assert len(taken) == count
    soon = (time.time() + CallSettings().timeout) * 1000  # as one that says nothing
    assert all(request.deadline <= soon for request in taken)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_what_a_drain_cannot_finish_is_left_to_others_if_it_may_run_again(idempotent):
    """It is not acknowledged and nobody is told: the link gives it back. Anything else is unavailable."""
    transport, done = Storing(), []
    registry = registry_of(work=("mutation", waiting, {"idempotent": idempotent}))
    async with Participant.open(transport) as caller:
        handler = CallHandler(registry, transport, drain_timeout=0.05)
        async with handler:
            deliver(transport.links[1], caller, "t.work", "1", done=lambda: done.append(1))
        errors = caller.of("call.error")
        assert (len(done), len(errors)) == ((0, 0) if idempotent else (1, 1))


def test_idempotence_is_declared_and_crosses_the_wire():
    """As a field of the spec, which listings show; without it a mutation is not repeatable."""

    @operation(namespace="t", idempotent=True)
    async def put(key: str) -> None: ...

    assert put.spec.is_repeatable
    wire = put.spec.to_wire(schemas=False)
    assert wire["idempotent"] is True
    assert OperationSpec.from_wire(wire).idempotent
    plain = OperationSpec(namespace="t", name="post")
    assert not plain.is_repeatable
    assert "idempotent" not in plain.to_wire()

"""The calling side step by step: single calls, the map as a whole, offers of peers, bounds on lines."""

import asyncio
import logging
import time
from types import SimpleNamespace

import pytest

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    ErrorCode,
    Identity,
    InProcessTransport,
    OperationSpec,
    PendingRequestMap,
    local_envelope,
)
from operad.transports import LinkDownError, TransportError
from operad_calls import CallSettings
from operad_calls.calling.pending import PendingRequests
from operad_calls.calling.single import call_once
from operad_calls.federation.offers import Offer
from operad_calls.protocol import encode
from operad_calls.reports import Reports
from operad_calls.requests import CallRequest, Pending
from plugins.calls.tests.parts import (
    BROKER,
    TABLES,
    Wire,
    both,
    echo,
    error_of,
    offer_of,
    operation_of,
    registry_of,
    settle,
    stricter,
)


class Side:
    """The calling side with single calls alone."""

    def __init__(self, **settings):
        self.requests = PendingRequests(SimpleNamespace(capabilities=BROKER), CallSettings(**settings))
        self.requests.start()
        self.link = self.requests.link = Wire()
        self.told = self.link.told

    async def begun(self, seconds=30.0, input=None):
        said = CallRequest("t.op", input, limit=(time.time() + seconds) * 1000)
        task = asyncio.ensure_future(call_once(self.requests, said))
        await settle()
        return next(iter(self.requests.table.values()), None), task

    async def begun_within(self, seconds):
        """The same, with more time if it was up before the call was under way, as on a busy machine."""
        while True:
            one, task = await self.begun(seconds)
            if one is not None:
                return one, task
            await asyncio.wait({task})
            assert isinstance(task.exception(), CallError)
            self.link.sent.clear()
            seconds *= 10


def answer(**more):
    return {"output": local_envelope(5, "t.op"), **more}


# --- single calls ---------------------------------------------------------------------------------


async def test_a_call_says_how_many_bytes_may_be_answered_unasked():
    side = Side()
    one, task = await side.begun()
    ((to, payload),) = side.told("call.requested")
    assert (to, payload["creditBytes"], one.granted, payload["replyTo"]) == ("op:t.op", 2**20, 2**20, "inbox:me")
    assert (one.target, one.sender, one.stored, one.outgoing, one.wants) == (None, None, False, 0, 0)
    one.on_event("call.responded", answer(replyTo="inbox:worker"))
    assert (await task).data == 5
    assert (side.requests.table, side.requests.answered) == ({}, {"t.op": None})
    assert side.told("call.aborted") == []


@pytest.mark.parametrize(("type_", "payload", "code", "message", "answered"), TABLES["ends of calls"])
async def test_each_way_in_which_a_call_fails(type_, payload, code, message, answered):
    side = Side()
    one, task = await side.begun()
    one.on_event(type_, payload)
    error = await error_of(task)
    assert (error.code, error.message) == (code, message or error.message)
    assert (side.requests.table, bool(side.requests.answered)) == ({}, answered)
    assert side.requests.orphans == {}, "what has ended is not aborted"
    if type_ == "call.completed":
        assert error.details == {"message": message}


async def test_a_call_that_the_transport_does_not_take_in_time_ends():
    side = Side()
    side.link.hold = asyncio.Event()
    one, task = await side.begun_within(0.02)
    assert (await error_of(task)).code == ErrorCode.TIMEOUT
    assert (task.cancelling(), one.expired, side.requests.table) == (0, True, {})


async def test_a_cancellation_from_outside_is_none_of_the_deadline():
    side = Side()
    side.link.hold = asyncio.Event()
    one, task = await side.begun()
    one.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_handler_that_asks_for_room_is_heard_and_granted_in_turn():
    side = Side(link_bytes=100_000)
    one, task = await side.begun()

    async def asked(**payload):
        one.on_event("call.credit", payload)
        await settle()
        return [payload["totalBytes"] for _, payload in side.told("call.credit")]

    before = one.granted
    assert await asked(replyTo=5, wantsBytes=90_000) == []
    assert one.target is None
    assert await asked(replyTo="inbox:worker") == []
    assert one.target == "inbox:worker"
    for size, told in ((10, [before]), (True, []), (before, [before]), (90_000, [90_000]), (80_000, [90_000])):
        assert await asked(replyTo="inbox:worker", wantsBytes=size) == told
    one.on_event("news", {"replyTo": "inbox:other"})
    assert one.target == "inbox:worker"
    one.on_event("call.responded", answer())
    await task
    assert side.requests.arrivals.in_flight == 0


@pytest.mark.parametrize("more", [0, 1])
async def test_a_large_request_says_its_size_until_somebody_has_it(more):
    side = Side()
    probe = side.requests.event(CallRequest("t.op", ""), "x" * 32, side.link, 0.0)
    probe["payload"].update(creditBytes=2**20, deadline=int(time.time() * 1000), timeoutMs=30_000)
    one, task = await side.begun(30.0, "x" * (65_536 - len(encode(probe)) + more))
    ((_, payload),) = side.told("call.requested")
    assert (payload.get("sentBytes"), one.outgoing) == ((65_537, 65_537) if more else (None, 0))
    one.on_event("call.credit", {"replyTo": "inbox:worker"})
    assert one.outgoing == 0
    one.on_event("call.responded", answer())
    await task


# --- the map --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "peer", "forged"),
    [
        ("inbox:a", "inbox:a", False),
        ("inbox:a", "inbox:b", True),
        ("inbox:a", None, False),
        (None, "inbox:b", False),
        ("op:t.op", "inbox:b", False),
    ],
)
def test_who_may_answer_a_request(target, peer, forged):
    one = Pending("t.op", "1")
    one.target = target
    assert one.accepts(peer) is not forged


async def test_a_call_that_names_an_identity_is_signed_unless_it_is_already():
    signed, seen = [], []
    ann = Identity(id="ann", scopes=frozenset())

    def verify(payload, delivery):
        seen.append(payload.get("delegation"))

    def sign(operation_id, identity):
        signed.append((operation_id, identity.id))
        return f"jws{len(signed)}"

    async with both(registry_of(echo=("query", echo)), handling={"identity": verify}, sign=sign) as (_, calls):
        await calls.call("t.echo", 1, identity=ann)
        await calls.call("t.echo", 1, identity=ann, retry=True)
        await calls.call("t.echo", 1)
        await calls.call("t.echo", 1, identity=ann, delegation="own")
        async for _ in calls.subscribe("t.echo", 1, identity=ann):
            pass
    assert seen == ["jws1", "jws2", None, "own", "jws3"]
    assert signed == [("t.echo", "ann")] * 3


# --- offers of peers ------------------------------------------------------------------------------


def spec(**more):
    return OperationSpec(namespace="t", name="op", **{"type": "query", **more})


def offer(instance="a", via=(), **more):
    return Offer(instance, spec(**more), via)


@pytest.mark.parametrize(("via", "taken"), [(7, True), (8, False)])
def test_an_operation_that_came_a_long_way_is_left_out(via, taken, caplog):
    found = offer_of("a", {**spec().to_wire(), "via": [str(number) for number in range(via)]})
    assert (found is not None) is taken
    assert ("8 handlers forward it, expected fewer than 8" in caplog.text) is not taken


@pytest.mark.parametrize("wire", [5, None, {}, {"id": 5}])
def test_an_entry_of_a_listing_that_is_none_is_left_out(wire, caplog):
    assert offer_of("a", wire) is None
    assert "peer a lists an operation that cannot be used: " in caplog.text


@pytest.mark.parametrize(("via", "way"), [({"via": ["x", 5]}, ("x",)), ({"via": "xy"}, ()), ({}, ())])
def test_the_way_of_an_offer_holds_names_alone(via, way):
    assert offer_of("a", {**spec().to_wire(), **via}).via == way


def test_an_offer_becomes_an_operation_here():
    plain = operation_of(offer(via=("x",), metadata={"m": 1}), None)
    assert plain.id == "t.op"
    assert plain.metadata == {"m": 1, "operad.remote": {"instance": "a", "operationId": "t.op", "via": ["x"]}}
    assert operation_of(offer(), "peer").id == "peer.t.op"


@pytest.mark.parametrize(
    "change",
    [{"title": "x"}, {"description": "x"}, {"version": "9"}, {"deprecated": True}, {"tags": ("x",)},
     {"idempotent": True}, {"type": "mutation"}, {"access_control": AccessControl(required_scopes=("s",))}],
)  # fmt: skip
def test_what_a_peer_lists_otherwise_is_not_the_same(change):
    assert offer().is_same(offer())
    assert not offer().is_same(offer(**change))
    assert not offer().is_same(offer("b"))
    assert not offer().is_same(offer(via=("x",)))


def test_of_two_that_agree_the_one_at_first_hand_is_named(caplog):
    near, far = offer("near", ("x",), title="n"), offer("far", ("x", "y"), title="f")
    assert stricter(near, far) is near
    assert stricter(far, near) is near
    other = offer("other", ("z",), title="o")
    assert stricter(near, other) is near
    assert caplog.text == ""


@pytest.mark.parametrize(("one", "other", "kind", "idempotent"), TABLES["kinds of two peers"])
def test_where_two_disagree_what_allows_less_counts(one, other, kind, idempotent, caplog):
    found = stricter(offer("a", **one), offer("b", **other))
    assert (found.spec.type.value, found.spec.idempotent, found.instance) == (kind, idempotent, "a")
    assert "a and b list t.op differently; the requirements of both apply" in caplog.text


@pytest.mark.parametrize("requirements", TABLES["requirements of two peers"])
def test_two_requirements_are_both_met(requirements):
    one, other, expected = (AccessControl(**fields) for fields in requirements)
    found = stricter(offer("a", access_control=one), offer("b", access_control=other))
    assert found.spec.access_control == expected


# --- bounds on lines ------------------------------------------------------------------------------


def lines_of(caplog):
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_one_peer_has_twenty_lines_and_one_more_each_second(clock, caplog):
    made = Reports(logging.getLogger("operad.calls"))
    for _ in range(21):
        made.warn("eve", "x")
    assert len(lines_of(caplog)) == 20
    made.warn("bob", "of another one")
    assert lines_of(caplog) == ["of another one"]
    clock.now += 0.5
    made.warn("eve", "x")
    assert lines_of(caplog) == []
    clock.now += 0.5
    made.warn("eve", "x")
    assert lines_of(caplog) == ["x (and 2 more like it)"]
    made.warn("eve", "x")
    clock.now += 1_000
    made.warn("eve", "y")
    assert lines_of(caplog) == ["y (and 1 more like it)"]
    for _ in range(30):
        made.warn("eve", "z")
    assert len(lines_of(caplog)) == 19, "what is not used does not add up"
    assert made.count == 0
    made.refuse("bob", "w")
    assert made.count == 1


def test_all_peers_have_two_hundred_lines_and_ten_more_each_second(clock, caplog):
    made = Reports(logging.getLogger("operad.calls"))
    for number in range(201):
        made.warn(str(number), "x")
    assert len(lines_of(caplog)) == 200
    made.warn("200", "x")
    clock.now += 0.1
    made.warn("200", "x")
    assert lines_of(caplog) == ["x (and 2 more like it)"]
    made.warn("201", "x")
    assert lines_of(caplog) == []


# --- closing and opening --------------------------------------------------------------------------


async def test_a_map_whose_closing_is_cancelled_closes_its_link(monkeypatch):
    calls = PendingRequestMap(InProcessTransport())
    await calls.open()
    link, waits = calls._link, asyncio.Event()

    async def settle(requests):
        waits.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(PendingRequests, "settle", settle)
    closing = asyncio.create_task(calls.aclose())
    await waits.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(LinkDownError):
        await link.send("all:x", {"type": "x", "id": "", "payload": {}})


async def test_a_handler_whose_addresses_are_refused_is_closed_and_can_be_opened_again():
    bus, refused = InProcessTransport(), []

    class Refusing:
        capabilities = bus.capabilities

        async def open(self, on_event, on_link):
            link = await bus.open(on_event, on_link)
            if not refused:
                refused.append(link)

                async def register(topic, group=None):
                    raise TransportError("taken")

                link.register = register
            return link

    handler = CallHandler(registry_of(op=("query", echo)), Refusing())
    with pytest.raises(TransportError, match="taken"):
        await handler.open()
    assert (handler.link, handler.serving) == (None, 0)
    with pytest.raises(LinkDownError):
        await refused[0].send("all:x", {"type": "x", "id": "", "payload": {}})
    async with handler, PendingRequestMap(bus) as calls:
        assert (await calls.call("t.op", 5)).data == 5

"""The calling side step by step: single calls, the map as a whole, offers of peers, bounds on lines and bytes."""

import asyncio
import logging
import time
from functools import partial
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
from operad.transports import Capabilities, LinkDownError, TransportError
from operad_calls import CallSettings
from operad_calls.calling.flow import Arrivals
from operad_calls.calling.pending import PendingRequests
from operad_calls.calling.single import call_once
from operad_calls.federation.offers import Offer
from operad_calls.protocol import encode
from operad_calls.reports import Reports, printable
from operad_calls.requests import CallRequest, Pending
from plugins.calls.tests.parts import offer_of, operation_of, registry_of, stricter

BROKER = Capabilities(detects_no_responders=True)
INSIDE = Capabilities(same_process=True, detects_peer_loss=True)


class Wire:
    """A link that keeps what is sent."""

    inbox = "inbox:me"

    def __init__(self):
        self.sent, self.target, self.error, self.hold = [], None, None, None

    async def send(self, to, event):
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.sent.append((to, event["type"], dict(event["payload"])))
        if self.hold is not None:
            await self.hold.wait()
        return self.target


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


class Side:
    """The calling side with single calls alone."""

    def __init__(self, capabilities=BROKER, **settings):
        self.requests = PendingRequests(SimpleNamespace(capabilities=capabilities), CallSettings(**settings))
        self.requests.start()
        self.link = self.requests.link = Wire()
        self.singles = SimpleNamespace(call=partial(call_once, self.requests))

    async def begun(self, seconds=30.0, input=None):
        said = CallRequest("t.op", input)
        said.limit = (time.time() + seconds) * 1000
        task = asyncio.ensure_future(self.singles.call(said))
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

    def told(self, type_):
        return [(to, payload) for to, kind, payload in self.link.sent if kind == type_]


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


@pytest.mark.parametrize(
    ("type_", "payload", "code", "message", "answered"),
    [
        ("call.error", {"code": "BROKEN", "message": "m"}, "BROKEN", "m", True),
        ("call.error", {"code": "OVERLOADED", "message": "m"}, "OVERLOADED", "m", False),
        ("call.aborted", {}, "ABORTED", '"t.op" was aborted by its handler', True),
        ("call.completed", {}, "EXECUTION_ERROR", 'the subscription "t.op" ended without an item', True),
        ("call.responded", {"output": 5}, "SERIALIZATION_ERROR", None, True),
    ],
)
async def test_each_way_in_which_a_call_fails(type_, payload, code, message, answered):
    side = Side()
    one, task = await side.begun()
    one.on_event(type_, payload)
    with pytest.raises(CallError) as caught:
        await task
    assert caught.value.code == code
    assert message is None or caught.value.message == message
    assert (side.requests.table, bool(side.requests.answered)) == ({}, answered)
    if type_ == "call.completed":
        assert caught.value.details == {"message": message}


async def test_a_call_that_the_transport_does_not_take_in_time_ends():
    side = Side()
    side.link.hold = asyncio.Event()
    one, task = await side.begun_within(0.02)
    with pytest.raises(CallError) as caught:
        await task
    assert (caught.value.code, task.cancelling(), one.expired) == (ErrorCode.TIMEOUT, 0, True)
    assert side.requests.table == {}


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
        side.link.sent.clear()
        one.on_event("call.credit", payload)
        await settle()
        return [payload["totalBytes"] for _, payload in side.told("call.credit")]

    before = one.granted
    assert await asked(replyTo=5, wantsBytes=90_000) == []
    assert one.target is None
    assert await asked(replyTo="inbox:worker") == []
    assert one.target == "inbox:worker"
    assert await asked(replyTo="inbox:worker", wantsBytes=10) == [before]
    assert await asked(replyTo="inbox:worker", wantsBytes=True) == []
    assert await asked(replyTo="inbox:worker", wantsBytes=before) == [before]
    assert await asked(replyTo="inbox:worker", wantsBytes=90_000) == [90_000]
    assert await asked(replyTo="inbox:worker", wantsBytes=80_000) == [90_000]
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


async def echo(input, context):
    return input


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


async def test_a_call_can_be_aborted_by_its_id_and_nothing_else_can():
    bus = InProcessTransport()
    begun = asyncio.Event()

    async def slow(input, context):
        begun.set()
        await asyncio.sleep(60)

    async with CallHandler(registry_of(slow=("query", slow)), bus) as handler, PendingRequestMap(bus) as calls:
        task = asyncio.ensure_future(calls.call("t.slow"))
        await begun.wait()
        (request_id,) = calls._requests.table
        await calls.abort(request_id)
        with pytest.raises(CallError, match=r'"t\.slow" was aborted') as caught:
            await task
        assert caught.value.code == ErrorCode.ABORTED
        await settle()
        assert (handler.active, calls.pending) == (0, 0)
        with pytest.raises(LookupError, match=f'no request "{request_id}" is in flight on this link'):
            await calls.abort(request_id)
        with pytest.raises(RuntimeError, match=r"make the map with PendingRequestMap\(…, on_request=…\)"):
            await calls.serve("t.op")


async def test_a_call_that_names_an_identity_is_signed_unless_it_is_already():
    bus = InProcessTransport()
    signed, seen = [], []
    ann = Identity(id="ann", scopes=frozenset())

    def verify(payload, delivery):
        seen.append(payload.get("delegation"))

    def sign(operation_id, identity):
        signed.append((operation_id, identity.id))
        return f"jws{len(signed)}"

    registry = registry_of(echo=("query", echo))
    async with CallHandler(registry, bus, identity=verify), PendingRequestMap(bus, sign=sign) as calls:
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


def test_the_way_of_an_offer_holds_names_alone():
    assert offer_of("a", {**spec().to_wire(), "via": ["x", 5]}).via == ("x",)
    assert offer_of("a", {**spec().to_wire(), "via": "xy"}).via == ()
    assert offer_of("a", spec().to_wire()).via == ()


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


def needs(*scopes, **more):
    return {"access_control": AccessControl(required_scopes=scopes, **more)}


def test_of_two_that_agree_the_one_at_first_hand_is_named(caplog):
    near, far = offer("near", ("x",), title="n"), offer("far", ("x", "y"), title="f")
    assert stricter(near, far) is near
    assert stricter(far, near) is near
    other = offer("other", ("z",), title="o")
    assert stricter(near, other) is near
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("one", "other", "kind", "idempotent"),
    [
        ({"type": "query"}, {"type": "mutation"}, "mutation", False),
        ({"type": "mutation"}, {"type": "query"}, "mutation", False),
        ({"type": "subscription"}, {"type": "query"}, "subscription", False),
        ({"type": "query"}, {"type": "subscription"}, "query", False),
        ({"type": "mutation", "idempotent": True}, {"type": "mutation"}, "mutation", False),
        ({"type": "mutation", "idempotent": True}, {"type": "query", "idempotent": True}, "mutation", True),
    ],
)
def test_where_two_disagree_what_allows_less_counts(one, other, kind, idempotent, caplog):
    found = stricter(offer("a", **one), offer("b", **other))
    assert (found.spec.type.value, found.spec.idempotent, found.instance) == (kind, idempotent, "a")
    assert "a and b list t.op differently; the requirements of both apply" in caplog.text


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (needs("a"), needs("b"), AccessControl(required_scopes=("a", "b"))),
        (needs("a"), needs(), AccessControl(required_scopes=("a",))),
        (needs(required_scopes_any=("a", "b")), needs(required_scopes_any=("b", "c")),
         AccessControl(required_scopes_any=("b",))),
        (needs(required_scopes_any=("a",)), needs(required_scopes_any=("b",)),
         AccessControl(required_scopes=("a", "b"))),
        (needs(required_scopes_any=("a", "b")), needs("x", required_scopes_any=("b", "a")),
         AccessControl(required_scopes=("x",), required_scopes_any=("a", "b"))),
        (needs(), needs(required_scopes_any=("a",)), AccessControl(required_scopes_any=("a",))),
        (needs(resource_type="r", resource_action="get"), needs("s"),
         AccessControl(required_scopes=("s",), resource_type="r", resource_action="get")),
        (needs("s"), needs(resource_type="r", resource_action="get"),
         AccessControl(required_scopes=("s",), resource_type="r", resource_action="get")),
        (needs(resource_type="r", resource_action="get", resource_id_from="id"),
         needs(resource_type="r", resource_action="put", resource_id_from="id"),
         AccessControl(resource_type="operad.conflict", resource_action="get")),
        (needs("x", resource_type="r", resource_action="get"), needs(resource_type="r", resource_action="get"),
         AccessControl(required_scopes=("x",), resource_type="r", resource_action="get")),
    ],
)  # fmt: skip
def test_two_requirements_are_both_met(one, other, expected):
    assert stricter(offer("a", **one), offer("b", **other)).spec.access_control == expected


# --- bounds on lines and bytes --------------------------------------------------------------------


def lines_of(caplog):
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_one_peer_has_twenty_lines_and_one_more_each_second(clock, caplog):
    made = Reports(logging.getLogger("operad.calls"))
    for _ in range(21):
        made.warn("eve", "x")
    assert len(lines_of(caplog)) == 20
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


def test_the_text_of_somebody_else_is_cut_after_its_bound():
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 200 + "…"
    assert printable("ab", 2) == "ab"
    assert printable("a\tb") == "a\\x09b"


def wanting(size, granted=0):
    one = Pending("t.op", "1")
    one.wants, one.granted = size, granted
    return one


@pytest.mark.parametrize(
    ("size", "waiting", "most", "share"),
    [(8_388_608, 0, 65_536, 65_536), (131_072, 0, 65_536, 65_536), (131_070, 0, 65_536, 65_535),
     (8_388_608, 127, 65_536, 32_768), (4_096, 1, 65_536, 1_024), (4_100, 1, 65_536, 1_025), (100, 9, 65_536, 1_024),
     (100, 0, 500, 500), (2_000, 0, 1_000, 1_000)],
)  # fmt: skip
def test_the_share_of_bytes_that_may_come_unasked(size, waiting, most, share):
    assert Arrivals(size, lambda one: None).unasked(waiting, most) == share


def test_what_is_granted_and_arrives_frees_the_window_to_the_byte():
    told = []
    window = Arrivals(100, told.append)
    first, second, third = wanting(60), wanting(40), wanting(1)
    assert window.ask(first)
    assert window.ask(second), "the window is full and not more"
    assert not window.ask(third)
    assert (window.in_flight, first.reserved, first.granted) == (100, 60, 60)
    window.arrived(first, 0)
    assert window.in_flight == 100
    window.arrived(first, 1)
    assert (window.in_flight, first.reserved, third.granted) == (100, 59, 1)
    assert told == [first, second, third]
    window.arrived(first, 99)
    assert (first.reserved, window.in_flight) == (0, 41)
    window.ended(second)
    window.ended(second)
    assert (window.in_flight, second.reserved) == (1, 0)


def test_who_wants_no_more_than_it_has_is_answered_without_a_word():
    told = []
    window = Arrivals(100, told.append)
    assert window.ask(wanting(50, 50))
    assert window.ask(wanting(50, 60))
    assert (told, window.in_flight) == ([], 0)


# --- taps -----------------------------------------------------------------------------------------


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


async def test_a_deadline_that_a_transport_took_for_its_own_cancellation_counts():
    side = Side()
    swallowed = []

    async def send(to, event):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.append(to)

    side.link.send = send
    said = CallRequest("t.op", 1)
    said.limit = (time.time() + 0.02) * 1000

    async def call():
        with pytest.raises(CallError) as caught:
            await side.singles.call(said)
        assert (caught.value.code, swallowed) == (ErrorCode.TIMEOUT, ["op:t.op"])
        await asyncio.sleep(0)  # the task itself is not cancelled any more
        return asyncio.current_task().cancelling()

    assert await asyncio.create_task(call()) == 0


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

"""The serving side step by step: who asks, what is listed, which addresses are registered, how answers leave."""

import asyncio
import gc
import itertools
import logging
import time
from types import SimpleNamespace

import pytest

from operad import (
    AccessControl,
    CallError,
    ErrorCode,
    Identity,
    InProcessTransport,
    OperationContext,
    OperationRegistry,
    OperationSpec,
)
from operad.transports import (
    Capabilities,
    Delivery,
    LinkDownError,
    NoRespondersError,
    PayloadTooLargeError,
    TransportError,
)
from operad_calls.protocol import encode
from operad_calls.serving import answers, following
from operad_calls.serving.active import ActiveRequest
from operad_calls.serving.answers import Answers, responded
from operad_calls.serving.following import Following
from operad_calls.serving.identity import identity_rule
from operad_calls.serving.listing import Listing
from operad_testing import HeldResources, assert_nothing_pending
from plugins.calls.tests.parts import (
    TABLES,
    Heard,
    Wire,
    Wired,
    echo,
    error_of,
    event,
    registry_of,
    settle,
    until,
    with_caller,
)


def describe(listing, input, identity=None):
    return listing.shared["operad.describe"](input, OperationContext(identity=identity))


def test_a_request_that_names_no_identity_has_none_whoever_sent_it():
    verify = identity_rule("delegate", SimpleNamespace(capabilities=Capabilities()))
    assert verify({}, Delivery(identity=Identity(id="bob", scopes=frozenset()))) is None


# --- what is listed -------------------------------------------------------------------------------


def listing_of(count=3, **more):
    registry = registry_of(**{f"n{number:04}": ("query", echo, more) for number in range(count)})
    listing = Listing(registry, lambda spec: True, "me")
    listing.registry = registry
    return listing


def listed(listing, identity=None, **input):
    found = listing.shared["operad.list"](input, OperationContext(identity=identity))
    return [row["id"] for row in found["operations"]], found.get("nextCursor")


def test_a_listing_comes_in_pages():
    listing = listing_of(5)
    assert listed(listing, limit=2) == (["t.n0000", "t.n0001"], "t.n0001")
    assert listed(listing, limit=2, cursor="t.n0001") == (["t.n0002", "t.n0003"], "t.n0003")
    assert listed(listing, limit=2, cursor="t.n0003") == (["t.n0004"], None)
    assert listed(listing, limit=5)[1] is None
    assert listed(listing, limit=1, cursor="t.n0003") == (["t.n0004"], None)
    assert listed(listing, cursor="zzz") == ([], None)
    assert listing.shared["operad.list"](None, OperationContext())["operations"][0]["id"] == "t.n0000"


def test_how_long_a_page_is():
    listing = listing_of(1_002)
    assert len(listed(listing)[0]) == 200
    assert len(listed(listing, limit=1_001)[0]) == 1_000
    assert listed(listing, limit=1_001)[1] == "t.n0999"


def test_who_may_not_call_an_operation_does_not_see_it():
    listing = listing_of(2, access_control=AccessControl(required_scopes=("s",)))
    may = Identity(id="may", scopes=frozenset({"s"}))
    assert listed(listing) == ([], None)
    assert len(listed(listing, may)[0]) == 2
    assert describe(listing, {"operationId": "t.n0000"}, may)["id"] == "t.n0000"
    with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
        describe(listing, {"operationId": "t.n0000"})


@pytest.mark.parametrize("input", [None, {}, {"operationId": 5}, []])
def test_what_is_to_be_described_is_named(input):
    with pytest.raises(CallError, match=r"operad\.describe: expected a string as operationId, got "):
        describe(listing_of(), input)


@pytest.mark.parametrize(
    ("metadata", "way"), [*TABLES["ways of operations"], ({"operad.remote": {"via": ("a",)}}, ["a"])]
)
def test_an_operation_of_peers_tells_its_way(metadata, way):
    spec = OperationSpec(namespace="t", name="op", type="query", metadata=metadata)
    assert Listing.way_of(spec) == tuple(way)
    listing = listing_of(0)
    listing.registry.register(spec, echo)
    (wire,) = listing.shared["operad.list"]({}, OperationContext())["operations"]
    assert wire.get("via") == ([*way, "me"] if metadata else None)
    assert "inputSchema" not in wire


async def test_the_shared_addresses_are_served_where_the_transport_lets_one(caplog):
    caplog.set_level(logging.DEBUG, "operad.calls")
    link = Wire()
    link.refuses = {"op:operad.list"}
    listing = listing_of()
    await listing.announce(link)
    assert link.registered == [("all:operad.discover", None), ("op:operad.describe", "operad")]
    assert "op:operad.list is not served here" in caplog.text
    assert listing.shared["operad.discover"]({}, OperationContext()) == {"instance": "me"}
    for name in ("operad.list", "operad.describe"):
        assert listing.shared[name] == listing.own[f"{name}.me"]


# --- which addresses are registered ---------------------------------------------------------------


class Side:
    """What follows a registry, on a link that keeps all, while the context is open."""

    def __init__(self, *names, stores=False):
        self.registry = OperationRegistry()
        for name in names:
            self.add(name)
        listing = Listing(self.registry, lambda spec: True, "me")
        self.following = Following(self.registry, listing, lambda spec: True, stores=stores)
        self.link = Wire()

    async def __aenter__(self):
        await self.following.start(self.link)
        self.link.told()
        return self

    async def __aexit__(self, *_):
        self.following.stop()

    def add(self, name, **more):
        self.registry.register(
            OperationSpec(namespace="t", name=name, **{"type": "query", **more}), echo, replace=True
        )

    def topics(self):
        """What was registered since the last time, but for the handler's own."""
        found, self.link.registered = self.link.registered, []
        return [topic for topic, _ in found if "operad." not in topic]

    def changes(self):
        return [row for row in self.link.told() if row[1] == "operad.changed"]


CHANGED = ("all:operad.changed", "operad.changed", {"instance": "me"})


async def test_what_is_stored_has_a_second_address_and_a_query_has_not():
    side = Side(stores=True)
    side.add("query", idempotent=True)
    side.add("twice", type="mutation", idempotent=True)
    side.add("once", type="mutation")
    async with side:
        assert sorted(side.topics()) == ["op:t.once", "op:t.query", "op:t.twice", "queue:t.twice"]
        side.add("once", type="mutation", idempotent=True)
        await settle()
        assert (side.link.gone, side.topics()) == (["op:t.once"], ["op:t.once", "queue:t.once"])


async def test_an_operation_of_which_one_address_is_refused_is_not_served():
    side = Side(stores=True)
    side.add("twice", type="mutation", idempotent=True)
    side.link.refuses = {"queue:t.twice"}
    with pytest.raises(TransportError, match="is taken"):
        await side.following.start(side.link)
    assert side.link.gone == ["op:t.twice"]
    assert "t.twice" not in side.following


@pytest.mark.parametrize("error", [TransportError("op:t.b is taken"), ZeroDivisionError("what nobody thought of")])
async def test_what_could_not_be_registered_is_tried_again(error, monkeypatch, caplog):
    monkeypatch.setattr(following, "RETRY", 0.01)
    async with Side("a") as side:
        register, faults = side.link.register, [error] * 3

        async def failing(*address):
            if faults:
                raise faults.pop()
            return await register(*address)

        monkeypatch.setattr(side.link, "register", failing)
        side.topics()
        side.add("b")
        await until(lambda: caplog.records)
        assert side.following.serving == 1
        await until(lambda: "t.b" in side.following.registered)
        assert (side.topics(), side.following.serving) == (["op:t.b"], 2)
    line = f"operations could not be registered; the next attempt is in 0.01 s: {error}"
    unexpected = None if isinstance(error, TransportError) else type(error)
    assert [(record.getMessage(), record.exc_info and record.exc_info[0]) for record in caplog.records] == [
        (line, unexpected)
    ] * 3


async def test_a_change_while_it_waits_to_try_again_tries_at_once():
    async with Side("a") as side:
        side.link.refuses = {"op:t.b"}
        side.add("b")
        await settle()
        side.link.refuses = set()
        side.add("c")
        await settle()
        assert {"t.b", "t.c"} <= set(side.following.registered)


async def test_when_it_ends_nothing_is_tried_again():
    async with Side("a") as side:
        side.link.refuses = {"op:t.b"}
        side.add("b")
        await settle()
    await side.following.refresh()
    assert "t.b" not in side.following.registered
    assert side.changes() == []
    await side.following.forget(side.link)
    assert (side.following.registered, side.following.serving, side.changes()) == ({}, 0, [CHANGED])


async def test_when_the_connection_is_back_who_follows_is_told_once():
    async with Side("a") as side:
        side.following.back()
        await settle()
        assert side.changes() == [CHANGED]
        await side.following.refresh()
        assert side.changes() == []


async def test_what_a_transport_refuses_after_a_break_is_not_served_until_it_does_not():
    async with Side("a", "b") as side:
        refused = [{"topic": "op:t.a"}, {"topic": "op:t.none"}, {"topic": 5}, "x", {}]
        side.following.on_registered({"refused": refused})
        assert side.following.serving == 1
        side.following.on_registered({"refused": []})
        assert side.following.serving == 2
        side.following.on_registered({"refused": [{"topic": "op:t.b"}]})
        side.following.on_registered({})
        assert side.following.serving == 2
        side.following.on_registered({"refused": [{"topic": "op:t.b"}]})
        side.registry.unregister("t.b")
        await settle()
        assert side.following.serving == 1


async def test_requests_may_come_before_the_transport_has_answered():
    side = Side("a")
    begun = asyncio.Event()

    async def register(topic, group=None):
        if topic == "op:t.a":
            assert "t.a" in side.following
            begun.set()
            raise TransportError("no")
        return await Wire.register(side.link, topic, group)

    side.link.register = register
    with pytest.raises(TransportError):
        await side.following.start(side.link)
    assert begun.is_set()
    assert "t.a" not in side.following


async def test_what_a_transport_refused_counts_again_for_a_handler_that_was_closed_and_opened():
    async with Side("a", "b") as side:
        side.following.on_registered({"refused": [{"topic": "op:t.a"}]})
        side.following.stop()
        await side.following.forget(side.link)
        await side.following.start(side.link)
        assert side.following.serving == 2


async def test_a_refused_address_is_reported_when_those_beside_it_are_registered():
    side = Side("a", "b")

    async def register(topic, group=None):
        if topic == "op:t.a":
            raise TransportError("op:t.a is taken")
        await settle()
        return await Wire.register(side.link, topic, group)

    side.link.register = register
    with pytest.raises(TransportError, match="taken"):
        await side.following.start(side.link)
    assert (side.topics(), "t.b" in side.following) == (["op:t.b"], True)
    side.add("c")
    await settle()
    assert side.topics() == [], "what could not be started follows no registry"


@pytest.mark.parametrize("held", [False, True])
async def test_when_it_ends_no_attempt_is_planned(held, caplog):
    before = HeldResources.now()
    async with Side("a") as side:

        async def unregister():
            try:
                await asyncio.sleep(60 if held else 0)
            except asyncio.CancelledError:
                await settle()  # closing waits for it
            raise TransportError("cut off")

        side.following.registered["t.a"][0].unregister = unregister
        side.registry.unregister("t.a")
        await settle()
    await side.following.forget(side.link)
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["cut off"]
    await assert_nothing_pending(before)


async def test_many_operations_are_registered_in_groups_of_500():
    side = Side(*(f"n{number:03}" for number in range(501)))
    under_way, most = 0, 0

    async def register(topic, group=None):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await Wire.register(side.link, topic, group)

    side.link.register = register
    async with side:
        assert (side.topics(), most) == ([f"op:t.n{number:03}" for number in range(501)], 500)


# --- how answers leave ----------------------------------------------------------------------------


def served_of(**payload):
    return ActiveRequest(("inbox:a", "1"), "t.op", payload, Delivery())


def way():
    made = Answers()
    made.start(Wire())
    return made


def answer_of(request, data="x" * 50):
    return responded(request, {"data": data, "meta": {"source": "local"}})


async def test_an_answer_within_the_room_goes_at_once_and_an_item_says_the_sum():
    back = way()
    answer = answer_of(served_of())
    size = len(encode(answer))
    single = served_of(creditBytes=size)
    await back.send(single, dict(answer))
    assert "sentBytes" not in back.link.told()[0][2]
    stream = served_of(credit=5, creditBytes=2 * size)
    for number in (1, 2):
        await back.send(stream, answer_of(stream))
        assert back.link.told()[0][2]["sentBytes"] == stream.sent_bytes == number * size


async def test_an_answer_beyond_the_room_asks_for_it_and_waits(monkeypatch):
    monkeypatch.setattr(answers, "_AGAIN", 60.0)
    back, one = way(), served_of(creditBytes=10)
    answer = answer_of(one)
    size = len(encode(answer))
    task = asyncio.ensure_future(back.send(one, answer))
    await settle()
    assert back.link.told() == [
        ("inbox:a", "call.credit", {"requestId": "1", "total": 0, "replyTo": "inbox:me", "wantsBytes": size})
    ]
    one.granted = size
    one.waiter.set_result(None)
    await task
    assert [row[1] for row in back.link.told()] == ["call.responded"]
    assert (one.waiter, one.sent_bytes) == (None, size)


async def test_a_peer_that_answers_no_question_gets_its_answer_after_a_while(monkeypatch):
    clock = itertools.count()  # a second each time that somebody looks
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time))
    monkeypatch.setattr(answers, "_PATIENCE", 3)
    monkeypatch.setattr(answers, "_AGAIN", 0.01)
    back, one = way(), served_of(creditBytes=10)
    await asyncio.wait_for(back.send(one, answer_of(one)), 30)
    kinds = [row[1] for row in back.link.told()]
    assert kinds[-1] == "call.responded"
    assert kinds.count("call.credit") == 3
    assert (one.granted, one.sent_bytes) == (None, 0)


async def test_a_peer_that_has_answered_once_is_waited_for_until_the_deadline(monkeypatch):
    monkeypatch.setattr(answers, "_PATIENCE", 0.0)
    monkeypatch.setattr(answers, "_AGAIN", 0.005)
    back = way()
    for heard in (True, False):
        one = served_of(creditBytes=10)
        one.heard, one.deadline = heard, time.time() * 1000 + 30
        error = await error_of(back.send(one, answer_of(one)))
        assert (error.code, error.details) == (ErrorCode.TIMEOUT, {"deadline": one.deadline})


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CallError("X", "why"), "X", "why"),
        (PayloadTooLargeError("9 of 5"), "PAYLOAD_TOO_LARGE", 'the response of "t.op" is too large: 9 of 5'),
        (LinkDownError("gone"), None, None),
    ],
)
@pytest.mark.parametrize("room", [None, 10**6])
async def test_what_cannot_be_sent_becomes_an_error_that_can(error, code, message, room, caplog):
    caplog.set_level(logging.DEBUG, "operad.calls")
    back, one = way(), served_of(**({} if room is None else {"creditBytes": room}))
    back.link.errors = [error]
    await back.end(one, answer_of(one))
    found = [(row[1], row[2]["code"], row[2]["message"]) for row in back.link.told()]
    assert found == ([] if code is None else [("call.error", code, message)])
    assert ("the response to 1 was not sent: gone" in caplog.text) is (code is None)


@pytest.mark.parametrize(
    ("error", "message", "details"),
    [
        (None, "why" * 500, {"a": 1}),
        (CallError("SERIALIZATION_ERROR", "no"), repr("why" * 500), None),
        (PayloadTooLargeError("no"), ("why" * 500)[:1_000], None),
        (LinkDownError("no"), None, None),
    ],
)
async def test_of_an_error_as_much_is_sent_as_can_be(error, message, details, caplog):
    caplog.set_level(logging.DEBUG, "operad.calls")
    back = way()
    back.link.errors = [error]
    await back.error("inbox:a", "1", CallError("X", "why" * 500, {"a": 1}))
    found = [(row[2]["code"], row[2]["message"], row[2].get("details")) for row in back.link.told()]
    assert found == ([] if message is None else [("X", message, details)])
    lost = ["an error for 1 was not sent: no"] * (message is None)
    assert caplog.messages == lost
    back.link.errors = [error, LinkDownError("no")]
    await back.error("inbox:a", "1", CallError("X", "why", {"a": 1}))
    assert caplog.messages[len(lost) :] == (lost or ([] if error is None else ["not sent: no"]))
    wire, back.link = back.link, None
    wire.told()
    await back.error("inbox:a", "1", CallError("X", "why"))
    one = served_of(credit=5)
    await back.send(one, answer_of(one))
    await back.send_item(one, 5)
    await back.notice(one)
    assert (wire.sent, one.sent, one.noticed) == ([], 0, False), "a handler that was closed sends nothing"


# --- the bus of one process -----------------------------------------------------------------------


class Ear:
    """A link of a bus, and what it hears."""

    def __init__(self):
        self.heard, self.states = [], []

    async def open(self, bus):
        self.link = await bus.open(
            lambda event, delivery: self.heard.append((event, delivery)),
            lambda state, epoch: self.states.append((state, epoch)),
        )
        return self

    def took(self):
        found, self.heard = self.heard, []
        return found


async def ears(bus, count):
    return [await Ear().open(bus) for _ in range(count)]


async def test_the_rest_of_a_bus_learns_who_has_left():
    bus = InProcessTransport()
    a, b = await ears(bus, 2)
    await a.link.register("op:t.op")
    await a.link.close()
    await a.link.close()
    assert (a.states, b.states) == ([("up", 1), ("down", 1)], [("up", 1)])
    assert b.took() == [(event("link.lost", peer=a.link.inbox), Delivery())]
    for act in (a.link.send("op:t.op", event()), a.link.register("op:t.op")):
        with pytest.raises(LinkDownError, match="the link is closed"):
            await act
    with pytest.raises(NoRespondersError, match="is gone"):
        await b.link.send(a.link.inbox, event())
    assert await b.link.send(b.link.inbox, event()) == b.link.inbox


async def test_a_link_keeps_the_deliveries_of_the_last_4_096_addresses():
    a, b = await ears(InProcessTransport(), 2)
    topics = [f"op:t.n{number}" for number in range(4_097)]
    for topic in topics:
        await b.link.register(topic)
        await a.link.send(topic, event())
    again = (topics[1], topics[0])  # the second one was forgotten for the last address
    for topic in again:
        await a.link.send(topic, event())
    *first, one, other = [delivery for _, delivery in b.took()]
    assert [one is first[1], other is first[0]] == [True, False]
    assert [one.to, other.to] == [*again]


async def test_a_strict_bus_hands_over_copies_no_larger_than_allowed():
    sent = event(a=[1])
    size = len(encode(sent))
    (ear,) = await ears(InProcessTransport(strict=True, max_payload=size), 1)
    await ear.link.send(ear.link.inbox, sent)
    ((heard, _),) = ear.took()
    assert heard == sent
    assert heard["payload"] is not sent["payload"]
    with pytest.raises(
        PayloadTooLargeError, match=f"the event has {size + 1} bytes; max_payload of the transport is {size}"
    ):
        await ear.link.send(ear.link.inbox, event(a=[11]))
    (plain,) = await ears(InProcessTransport(), 1)
    await plain.link.send(plain.link.inbox, sent)
    assert plain.took()[0][0] is sent
    with pytest.raises(ValueError, match="max_payload requires strict=True"):
        InProcessTransport(max_payload=5)
    assert InProcessTransport().capabilities == Capabilities(
        balances=True, detects_no_responders=True, detects_peer_loss=True, same_process=True
    )


# --- what becomes of a request --------------------------------------------------------------------


def items_of(count):
    async def items(input, context):
        for number in range(count):
            yield number

    return ("subscription", items)


async def test_a_single_answer_to_who_gives_credit_is_a_stream_of_one():
    async with with_caller(registry_of(echo=("query", echo))) as (_, caller):
        await caller.request("t.echo", "1", 5, credit=2)
        await caller.request("operad.list", "2", credit=2)
        await caller.request("t.echo", "3", 5)
        one, listing, single = await caller.wait_for("call.responded", 3)
        assert (one["output"].data, one["seq"], listing["seq"], "seq" in single) == (5, 0, 0, False)
        assert [row["id"] for row in listing["output"].data["operations"]] == ["t.echo"]
        assert caller.of("call.completed") == [{"requestId": "1", "count": 1}, {"requestId": "2", "count": 1}]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PayloadTooLargeError("9 of 5"), "PAYLOAD_TOO_LARGE", 'the response of "t.n" is too large: 9 of 5'),
        (LinkDownError("gone"), "UNAVAILABLE", '"t.n": gone'),
    ],
)
async def test_an_item_that_cannot_be_sent_ends_its_stream_with_the_reason(error, code, message):
    async with with_caller(registry_of(n=items_of(3))) as (handler, caller):
        send, failed = handler.link.send, []

        async def once(to, sent):
            if sent["type"] == "call.responded" and not failed:
                failed.append(1)
                raise error
            return await send(to, sent)

        handler.link.send = once
        await caller.request("t.n", "1", credit=9)
        (told,) = await caller.wait_for("call.error")
        assert (told["code"], told["message"], len(caller.events)) == (code, message, 1)


@pytest.mark.parametrize(("credit", "breath"), [(None, 8), (1_000, 256)])
async def test_a_stream_that_never_waits_lets_others_run_now_and_then(credit, breath):
    turns = []

    async def numbers(input, context):
        for number in range(3 * breath):
            turns.append(number)
            yield number

    async with with_caller(registry_of(n=("subscription", numbers))) as (_, caller):
        await caller.request("t.n", "1", **({} if credit is None else {"credit": credit}))
        seen = []
        for _ in range(20):
            await asyncio.sleep(0)
            if turns and len(turns) not in seen:
                seen.append(len(turns))
        assert seen[:3] == [breath, 2 * breath, 3 * breath]
        await caller.wait_for("call.responded", 3 * breath)


def ask_for(heard, caller, operation_id, request_id):
    """Let a handler have a request, although no address of it is served here."""
    given = {"requestId": request_id, "replyTo": caller.link.inbox, "operationId": operation_id, "input": 5}
    heard.on_event(event("call.requested", **given), Delivery(caller.link.inbox))


async def test_what_is_not_served_here_is_not_found_and_what_was_told_is_forgotten():
    heard = Heard()
    async with with_caller(registry_of(echo=("query", echo)), heard) as (_, caller):

        async def refuse(count):
            for number in range(count):
                ask_for(heard, caller, "t.none", str(number))
            assert {one["code"] for one in await caller.wait_for("call.error", count)} == {"OPERATION_NOT_FOUND"}
            caller.events.clear()
            await settle()
            gc.collect()
            return sum(isinstance(one, asyncio.Task) for one in gc.get_objects())

        before = await refuse(1)
        assert await refuse(100) < before + 50


async def test_a_request_that_comes_when_all_is_drained_was_not_begun():
    begun, heard = asyncio.Event(), Heard()

    async def slow(input, context):
        begun.set()
        await asyncio.sleep(60)

    registry = registry_of(slow=("query", slow))
    async with with_caller(registry, heard, drain_timeout=0.05) as (handler, caller):
        await caller.request("t.slow", "1")
        await begun.wait()
        closing = asyncio.ensure_future(handler.aclose())
        await settle()
        ask_for(heard, caller, "t.slow", "2")
        await closing
        told = {error["requestId"]: error["message"] for error in await caller.wait_for("call.error", 2)}
    assert told == {"1": '"t.slow": the handler was shut down', "2": '"t.slow": the handler is shutting down'}


async def test_credit_for_what_is_not_here_is_answered_where_nobody_tells_of_losses():
    """A handler that was restarted tells a consumer that its stream is gone."""
    async with with_caller(registry_of(echo=("query", echo)), Wired()) as (handler, caller):
        to, inbox = handler.link.inbox, caller.link.inbox
        for odd in ({"requestId": 9, "replyTo": inbox}, {"requestId": "9"}):
            await caller.send(to, "call.credit", total=3, **odd)
        await caller.send(to, "call.credit", requestId="9", total=3, replyTo=inbox)
        (error,) = await caller.wait_for("call.error")
        assert (error["requestId"], error["code"], len(caller.events)) == ("9", "UNAVAILABLE", 1)
        assert error["message"] == "the handler does not have this stream; it may have been restarted"


async def test_a_peer_that_gave_room_before_is_waited_for_until_the_deadline(monkeypatch):
    monkeypatch.setattr(answers, "_AGAIN", 60.0)
    back, one, other = way(), served_of(creditBytes=10), served_of(creditBytes=10)
    sending = asyncio.ensure_future(back.send(one, answer_of(one)))
    await settle()
    one.granted = 10**6
    one.waiter.set_result(None)
    await sending
    monkeypatch.setattr(answers, "_PATIENCE", 0.0)
    other.deadline = time.time() * 1000 + 30
    assert (await error_of(back.send(other, answer_of(other)))).code == ErrorCode.TIMEOUT


async def test_a_peer_that_ignores_requests_for_room_gets_one_answer_at_a_time(monkeypatch):
    monkeypatch.setattr(answers, "_PATIENCE", 0.0)
    back, held, begun = way(), asyncio.Event(), []

    async def send(to, event):
        if event["type"] == "call.responded":
            begun.append(to)
            await held.wait()

    back.link.send = send
    sending = [
        asyncio.ensure_future(back.send(one, answer_of(one)))
        for one in (served_of(creditBytes=9), served_of(creditBytes=9))
    ]
    await settle()
    assert len(begun) == 1
    held.set()
    await asyncio.gather(*sending)


async def test_where_losses_are_reported_credit_for_what_is_not_here_gets_no_reply():
    async with with_caller(registry_of(), Wired(detects_peer_loss=True)) as (handler, caller):
        await caller.send(handler.link.inbox, "call.credit", requestId="9", total=3, replyTo=caller.link.inbox)
        await settle()
        assert caller.events == []


async def test_a_handler_that_waits_for_credit_reports_it_to_observers_of_its_call():
    reported, registry = [], registry_of(n=items_of(2))
    registry.observe(reported=lambda call, report: reported.append(report))
    async with with_caller(registry) as (handler, caller):
        await caller.request("t.n", "1", credit=1)
        await until(lambda: reported)
        assert len(caller.of("call.responded")) == 1
        await caller.send(handler.link.inbox, "call.credit", requestId="1", total=2, replyTo=caller.link.inbox)
        await caller.wait_for("call.responded", 2)
        await settle()
    assert {(one.kind, one.message) for one in reported} == {
        ("stall", "the consumer has given no credit for more items")
    }


async def test_room_that_is_given_as_it_is_asked_for_is_used_at_once(monkeypatch):
    back, one = way(), served_of(creditBytes=10)
    send = back.link.send

    async def gives(to, event):
        await send(to, event)
        one.granted = event["payload"].get("wantsBytes", one.granted)

    back.link.send = gives
    answer = answer_of(one)
    monkeypatch.setattr(answers, "_AGAIN", 60.0)
    sending = asyncio.ensure_future(back.send(one, answer))
    await settle()
    assert sending.done(), "it waits for nothing more"
    assert [row[1] for row in back.link.told()] == ["call.credit", "call.responded"]
    assert one.sent_bytes == one.granted == len(encode(answer))

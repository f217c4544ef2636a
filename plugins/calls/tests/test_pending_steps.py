"""The requests that a call map has under way: admission, what follows a request, strays and losses; questions to
everybody, and calls that are made again."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from operad import CallError, ErrorCode, Identity, local_envelope
from operad.transports import (
    Capabilities,
    Delivery,
    LinkDownError,
    NoRespondersError,
    PayloadTooLargeError,
    TransportError,
)
from operad_calls import CallSettings
from operad_calls.calling import broadcasts, pending
from operad_calls.calling.broadcasts import Broadcast, broadcast
from operad_calls.calling.pending import PendingRequests
from operad_calls.calling.stream import Stream
from operad_calls.protocol import call_error
from operad_calls.requests import (
    CallRequest,
    Pending,
    lost_error,
    not_begun_error,
    overloaded_error,
    retrieve,
    timeout_error,
)
from plugins.calls.tests.parts import BROKER, HUB, INSIDE, TABLES, Wire, error_of, settle, until


def side(capabilities=BROKER, **settings):
    made = PendingRequests(SimpleNamespace(capabilities=capabilities), CallSettings(**settings))
    made.start()
    made.link = Wire()
    return made


class Waiting(Pending):
    """A request that keeps the error with which it ends."""

    __slots__ = ("error",)

    def __init__(self, request_id="1", operation_id="t.op", target=None):
        super().__init__(operation_id, request_id)
        self.target = target
        self.error = None

    def fail(self, error):
        self.error = error


def waits(requests, *names, target=None):
    made = [Waiting(name, target=target) for name in names]
    requests.table.update({one.request_id: one for one in made})
    return made


# --- what a call says of itself -------------------------------------------------------------------


def payload_of(reply_to="inbox:me", now=1.0, **more):
    event = CallRequest("t.op", **{"input": {"a": 1}, **more}).event("7", reply_to, now)
    assert (event["type"], event["id"]) == ("call.requested", "")
    return event["payload"]


def test_a_request_says_what_is_known_and_nothing_else():
    assert payload_of() == {"requestId": "7", "operationId": "t.op", "input": {"a": 1}, "replyTo": "inbox:me"}
    assert payload_of(None, input=None) == {"requestId": "7", "operationId": "t.op", "input": {}}
    assert payload_of(input=0)["input"] == 0
    ann = Identity(id="ann", scopes=frozenset({"s"}))
    assert payload_of(
        limit=2_000.4, credit=3, identity=ann, parent_request_id="6", traceparent="00-1", tracestate="a=1",
        idempotency_key="k", delegation="jws",
    ) == {
        **payload_of(), "deadline": 2_001, "timeoutMs": 1_001, "credit": 3, "identity": ann.to_wire(),
        "parentRequestId": "6", "traceparent": "00-1", "tracestate": "a=1", "idempotencyKey": "k", "delegation": "jws",
    }  # fmt: skip


@pytest.mark.parametrize(("limit", "left"), [(1_000.0, 0), (999.0, 0), (1_000.5, 1), (0.0, 0)])
def test_a_request_that_has_no_time_left_says_so(limit, left):
    assert payload_of(limit=limit)["timeoutMs"] == left


@pytest.mark.parametrize(
    ("error", "code", "message", "details", "ran"),
    [
        (timeout_error("t.op", 5.0), "TIMEOUT", '"t.op" did not respond in time', {"deadline": 5.0}, None),
        (lost_error("t.op", "why"), "UNAVAILABLE", '"t.op": why', {"operationId": "t.op", "sent": True}, None),
        (not_begun_error("t.op", "why"), "UNAVAILABLE", '"t.op": why', {"operationId": "t.op", "sent": False}, False),
        (overloaded_error("too many", "max_x", 3), "OVERLOADED", "too many (max_x); retry later", {"limit": "max_x", "value": 3},
         False),
        (call_error({"code": "OVERLOADED", "message": "m"}), "OVERLOADED", "m", None, False),
        (call_error({"code": "BROKEN", "message": "m"}), "BROKEN", "m", None, None),
    ],
)  # fmt: skip
def test_each_error_of_a_request_says_whether_it_may_have_run(error, code, message, details, ran):
    assert (error.code, error.message, error.details, error.ran) == (code, message, details, ran)


async def test_an_error_that_nobody_awaits_is_marked_as_seen():
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: told.append(context))
    for marked in (False, True):
        future = loop.create_future()
        future.set_exception(CallError("X", ""))
        if marked:
            retrieve(future)
        del future
        assert len(told) == 1, "the first one alone"


async def test_memory_for_large_messages_is_kept(monkeypatch):
    kept = []
    monkeypatch.setattr(pending, "keep_memory", lambda: kept.append(1))
    side(INSIDE)
    assert kept == [], "within a process nothing is copied"
    side(BROKER)
    assert kept == [1]


async def test_a_map_that_belongs_to_another_loop_waits_for_its_own_link():
    table = side()
    table.up.set()
    table.start()
    assert not table.up.is_set()


# --- admission ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "counted", "routes", "bytes_"),
    [
        (BROKER, False, False, True),
        (HUB, False, True, True),
        (INSIDE, True, False, False),
        (Capabilities(authenticates_peer=True), True, False, True),
    ],
)
async def test_what_a_transport_makes_of_requests(capabilities, counted, routes, bytes_):
    requests = side(capabilities)
    first, second = requests.new_id(), requests.new_id()
    if counted:
        prefix, _, number = first.rpartition("-")
        assert (len(prefix), number, second) == (16, "1", f"{prefix}-2")
    else:
        assert len(first) == 32
        assert first[:8] != second[:8]
    assert (requests.routes, requests.counts_bytes) == (routes, bytes_)
    event = requests.event(CallRequest("t.op", {}), "1", requests.link, 0.0)
    assert event["payload"].get("replyTo") == (None if routes else "inbox:me")


async def test_the_epoch_and_the_bounds_begin_at_nothing():
    requests = side()
    assert (requests.epoch, requests.up_since, requests.late, requests.up.is_set()) == (0, 0.0, 0, False)
    assert requests.envelope(local_envelope(1, "t.op")).data == 1
    size, (one, other) = CallSettings().link_bytes, (Waiting("1"), Waiting("2"))
    assert (requests.departures.take(one, size), requests.departures.take(other, 1)) == (True, False)
    requests.departures.leave(one)
    one.wants, other.wants = size, 1
    assert (requests.arrivals.ask(one), requests.arrivals.ask(other)) == (True, False)


# --- ends -----------------------------------------------------------------------------------------


async def test_a_request_that_ends_gives_back_what_it_held():
    requests = side(link_bytes=100)
    one, other = waits(requests, "1", "2")
    one.wants, other.wants = 90, 60
    assert requests.arrivals.ask(one)
    assert not requests.arrivals.ask(other)
    requests.departures.take(one, 50)
    requests.end(one)
    await requests.settle()
    assert (other.granted, requests.arrivals.in_flight, one.outgoing) == (60, 60, 0)
    assert list(requests.table) == ["2"]
    waiting = Waiting("3")
    requests.table["3"] = waiting
    waiting.wants = 90
    assert not requests.arrivals.ask(waiting)
    requests.end(waiting)
    requests.end(other)
    assert waiting.granted == 0, "room is for those who are there"


async def test_only_a_request_that_is_there_is_dropped():
    requests = side()
    one, _ = waits(requests, "1", "2")
    requests.departures.take(one, 50)
    assert requests.drop(one) is True
    assert one.outgoing == 0
    assert requests.drop(one) is False
    requests.departures.take(one, 50)
    assert requests.drop(one) is False
    assert one.outgoing == 0, "it had ended while it waited to be sent"
    assert requests.drop(Waiting("2")) is False, "another one of that name"


async def test_the_last_10_000_operations_that_answered_are_remembered():
    requests = side()
    for number in (*range(10_001), 1):
        requests.has_answered(Waiting(operation_id=f"t.{number}"))
    assert (len(requests.answered), next(iter(requests.answered))) == (10_000, "t.1")


# --- aborts ---------------------------------------------------------------------------------------


async def test_an_abort_goes_where_the_handler_is_or_waits_until_it_tells():
    requests = side()
    requests.abort(Waiting("1", target="inbox:a"))
    requests.abort(Waiting("2"))
    await requests.settle()
    sent = [("inbox:a", "call.aborted", {"requestId": "1", "replyTo": "inbox:me"})]
    assert requests.link.sent == sent
    assert list(requests.orphans) == ["1", "2"]
    requests.on_stray("call.credit", {"requestId": "1", "replyTo": "inbox:a"}, Delivery())
    await requests.settle()
    assert requests.link.sent == sent * 2, "the first one may have come before the request"


@pytest.mark.parametrize(("target", "sent"), [("inbox:a", 1), (None, 0)], ids=["sent", "never sent"])
async def test_an_abort_is_sent_once_where_it_cannot_come_before_its_request(target, sent):
    requests = side(HUB)
    requests.abort(Waiting("1", target=target))
    await requests.settle()
    assert (len(requests.link.sent), requests.orphans) == (sent, {})


@pytest.mark.parametrize(("type_", "payload", "late", "told", "kept"), TABLES["strays"])
async def test_what_comes_for_a_request_that_ended(type_, payload, late, told, kept):
    requests = side()
    requests.abort(Waiting("1"))
    requests.on_stray(type_, payload, Delivery())
    await requests.settle()
    sent = [("inbox:a", "call.aborted", {"requestId": "1", "replyTo": "inbox:me"})]
    assert (requests.late, requests.link.sent, list(requests.orphans)) == (late, sent * told, ["1"] * kept)


async def test_for_how_long_a_handler_may_tell_where_it_is(monkeypatch):
    now = SimpleNamespace(at=100.0)
    by_hand = SimpleNamespace(time=lambda: now.at, monotonic=lambda: now.at)
    monkeypatch.setattr(pending, "time", by_hand)
    requests = side(timeout=5.0)
    requests.abort(Waiting("1"))
    now.at = 104.0
    requests.abort(Waiting("2"))
    assert requests.orphans == {"1": 105_000.0, "2": 109_000.0}
    now.at = 104.999
    requests.abort(Waiting("3"))
    assert list(requests.orphans) == ["1", "2", "3"]
    now.at = 105.0
    requests.abort(Waiting("4"))
    assert list(requests.orphans) == ["2", "3", "4"]


async def test_no_more_than_10_000_of_them_are_remembered():
    requests = side()
    for number in range(10_001):
        requests.abort(Waiting(str(number)))
    assert (len(requests.orphans), next(iter(requests.orphans))) == (10_000, "1")


@pytest.mark.parametrize(("capabilities", "more"), [(BROKER, {"totalBytes": 7}), (INSIDE, {})])
async def test_credit_tells_items_and_where_they_are_counted_bytes(capabilities, more):
    requests = side(capabilities)
    link, one = requests.link, Stream(requests, "t.op", "1", 4)
    one.granted = 7
    await requests.send_credit(one)
    assert link.sent == [], "nobody knows where to"
    one.target = "inbox:a"
    await requests.send_credit(one)
    requests.link = None
    await requests.send_credit(one)
    assert link.told("call.credit") == [("inbox:a", {"requestId": "1", "total": 4, "replyTo": "inbox:me", **more})]


async def test_what_cannot_be_told_may_be_lost(caplog):
    caplog.set_level(logging.DEBUG, "operad.calls")
    requests = side()
    link, requests.link.errors = requests.link, [LinkDownError("gone")]
    for requests.link in (link, None):
        requests.abort(Waiting("1", target="inbox:a"))
        await requests.settle()
    assert caplog.messages == ["a call.aborted was not sent: gone"]


async def test_what_takes_too_long_in_the_background_is_ended(monkeypatch):
    monkeypatch.setattr(pending, "_CLOSING", 0.01)
    requests = side()
    ended = []

    async def work(seconds, name):
        try:
            await asyncio.sleep(seconds)
            ended.append(name)
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise

    requests.spawn(work(0, "quick"))
    requests.spawn(work(60, "slow"))
    await requests.settle()
    assert ended == ["quick", "slow cancelled"]
    await asyncio.sleep(0)
    await requests.settle()


# --- losses ---------------------------------------------------------------------------------------


async def test_a_lost_connection_ends_all_but_what_a_broker_stores(monkeypatch):
    requests = side()
    requests.on_link("up", 3)
    assert (requests.epoch, requests.up.is_set()) == (3, True)
    assert requests.up_since > 0
    one, stored = waits(requests, "1", "2")
    stored.stored = True
    requests.on_link("down", 3)
    assert not requests.up.is_set()
    assert list(requests.table) == ["2"]
    assert (one.error.code, stored.error) == ("UNAVAILABLE", None)
    assert one.error.message == '"t.op": the connection was lost during the call'


async def test_a_lost_peer_ends_what_it_had_where_the_transport_tells():
    requests = side(HUB)
    one, other = *waits(requests, "1", target="a"), *waits(requests, "2", target="b")
    requests.on_stray("link.lost", {"peer": "a"}, Delivery())
    assert list(requests.table) == ["2"]
    assert one.error.message == '"t.op": its handler was lost during the call'
    assert other.error is None
    broker = side(BROKER)
    (kept,) = waits(broker, "1", target="a")
    broker.on_stray("link.lost", {"peer": "a"}, Delivery())
    assert kept.error is None


@pytest.mark.parametrize(
    ("capabilities", "error", "code", "message", "sent"),
    [
        (BROKER, NoRespondersError("x"), "NO_RESPONDERS", 'no peer serves "t.op"', {}),
        (HUB, NoRespondersError("x"), "OPERATION_NOT_FOUND", 'operation "t.op" not found', {}),
        (BROKER, PayloadTooLargeError("9 of 5"), "PAYLOAD_TOO_LARGE", 'the request for "t.op" is too large: 9 of 5',
         {"sent": False}),
        (BROKER, TransportError("x"), "UNAVAILABLE", '"t.op" could not be sent: x', {"sent": False}),
    ],
)  # fmt: skip
async def test_what_a_transport_does_not_take_did_not_run(capabilities, error, code, message, sent):
    failure = side(capabilities).not_sent(error, "t.op")
    assert (failure.code, failure.message, failure.ran) == (code, message, False)
    assert failure.details == {"operationId": "t.op", **sent}


# --- questions ------------------------------------------------------------------------------------


def replied(data):
    return {"output": local_envelope(data, "t.op")}


async def asking(requests, wait=30.0):
    task = asyncio.ensure_future(broadcast(requests, "topic", "t.op", {"a": 1}, wait))
    await settle(3)
    return task, next((one for one in requests.table.values() if isinstance(one, Broadcast)), None)


async def test_a_question_is_over_when_all_whom_it_reached_have_answered_or_refused():
    requests = side()
    task, asked = await asking(requests)
    ((to, _, payload),) = requests.link.sent
    assert (to, payload["operationId"], payload["input"]) == ("all:topic", "t.op", {"a": 1})
    assert 20_000 < payload["timeoutMs"] <= 30_000
    asked.on_event("call.responded", replied(1))
    asked.on_event("call.completed", {"count": 3})
    asked.on_event("call.error", {"code": "X"})
    await asyncio.sleep(0)
    assert not task.done()
    asked.on_event("call.responded", replied(2))
    assert await task == [1, 2]
    await requests.settle()
    assert (requests.table, requests.orphans, len(requests.link.sent)) == ({}, {}, 1)


@pytest.mark.parametrize("count", ["1", True, None, 1.0])
async def test_a_number_that_is_none_ends_no_question(count):
    requests = side()
    task, asked = await asking(requests, 0.03)
    asked.on_event("call.completed", {"count": count})
    asked.on_event("call.responded", replied(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    assert await task == [1]


async def test_when_the_time_is_up_those_who_have_not_answered_are_told():
    requests = side()
    task, asked = await asking(requests, 0.01)
    assert await task == []
    await requests.settle()
    assert requests.link.sent[1:] == [
        ("all:topic", "call.aborted", {"requestId": asked.request_id, "replyTo": "inbox:me"})
    ]
    assert requests.table == {}


@pytest.mark.parametrize("answers", [[], [1]])
async def test_a_lost_connection_ends_a_question_with_what_has_come(answers):
    requests = side()
    task, asked = await asking(requests)
    for data in answers:
        asked.on_event("call.responded", replied(data))
    await asyncio.sleep(0)
    asked.fail(CallError("X", ""))
    assert await asyncio.wait_for(task, 30) == answers
    await requests.settle()
    assert (requests.table, len(requests.link.sent)) == ({}, 1)


async def test_an_answer_that_is_none_is_left_out(caplog):
    requests = side()
    task, asked = await asking(requests)
    asked.on_event("call.responded", {"output": 5})
    assert "a response to t.op is unusable" in caplog.text
    asked.on_event("call.completed", {"count": 0})
    assert await task == []


@pytest.mark.parametrize("how", ["all", "down", "time"])
async def test_late_answers_are_passed_on_until_all_came_or_the_link_or_the_time_is_over(how, monkeypatch):
    monkeypatch.setattr(broadcasts, "LATE", 0.1 if how == "time" else 60.0)
    requests, late = side(), []
    assert await broadcast(requests, "topic", "t.op", {}, 0.01, late.append) == []
    (asked,) = requests.lingering.values()
    assert requests.table == {}
    asked.on_event("call.responded", replied(1))
    assert late == [1]
    if how == "all":
        asked.on_event("call.completed", {"count": 1})
    elif how == "down":
        requests.on_link("down", 1)
    await until(lambda: not requests.lingering)
    await requests.settle()
    aborts = [(to, type_) for to, type_, _ in requests.link.sent if type_ == "call.aborted"]
    assert aborts == [("all:topic", "call.aborted")] * (how == "time")


async def test_a_question_that_reaches_nobody_has_no_answers_and_one_that_cannot_be_sent_fails():
    requests = side()
    requests.link.errors = [NoRespondersError("none"), LinkDownError("gone")]
    assert await broadcast(requests, "topic", "t.op", None, 5.0) == []
    error = await error_of(broadcast(requests, "topic", "t.op", None, 5.0))
    assert (error.code, error.ran) == (ErrorCode.UNAVAILABLE, False)
    await requests.settle()
    assert requests.table == {}

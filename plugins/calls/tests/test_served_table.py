"""The table of served requests, one rule after the other: who may have which request, and how each of them ends."""

import asyncio
import logging
import math
import time

import pytest

from operad import ErrorCode, Identity
from operad.transports import Delivery
from operad_calls import CallSettings
from operad_calls.serving.active import key_of
from operad_calls.serving.served import ServedRequests
from plugins.calls.tests.parts import BROKER, HUB, INSIDE, STORE, TABLES, Wire, until


class Recording(ServedRequests):
    """A table that keeps what it decides."""

    def __init__(self, capabilities, settings, repeatable=()):
        super().__init__(capabilities, settings)
        self.refused, self.ended, self.noticed, self.why = [], [], [], None
        self.repeatable = repeatable
        self.looks = 0

    def _on_sweep(self):
        self.looks += 1
        super()._on_sweep()

    def look(self):
        """Look through the table now, and not when it is time."""
        self.stop()
        self._on_sweep()

    def begin(self, request, payload, delivery):
        self.begun = request

    def cancel(self, request):
        self.ended.append((request.request_id, None))
        self.finish(request)

    def refusal(self, operation_id):
        return self.why

    def is_repeatable(self, operation_id):
        return operation_id in self.repeatable

    def notice(self, request):
        self.noticed.append(request)

    def fail(self, request, error):
        if self.ended and self.ended[-1][0] == request.request_id:
            self.ended[-1] = (request.request_id, error)
        else:
            self.refused.append((request.request_id, error))


class Table:
    """A table, and what it decides."""

    def __init__(self, capabilities=BROKER, *, repeatable=(), **settings):
        self.requests = Recording(capabilities, CallSettings(**settings), repeatable)
        self.look = self.requests.look
        self.refused, self.ended, self.noticed = self.requests.refused, self.requests.ended, self.requests.noticed

    def comes(self, type_, payload, delivery=None):
        return self.requests.on_event(type_, payload, delivery or Delivery())

    def take(self, request_id="1", peer="inbox:a", delivery=None, **payload):
        payload = {"requestId": request_id, "replyTo": peer, "operationId": "t.op", "input": {}, **payload}
        return self.requests.take(payload, delivery or Delivery())

    def refusal(self, *args, **payload):
        """The error with which a request is refused."""
        assert self.take(*args, **payload) is None
        return self.refused.pop()[1]


@pytest.fixture
async def started():
    """A function that makes tables which are looked through while the test runs."""
    made = []

    def make(*args, **settings):
        made.append(Table(*args, **settings))
        made[-1].requests.start(Wire())
        return made[-1]

    yield make
    for table in made:
        table.requests.stop()


# --- what is taken --------------------------------------------------------------------------------


def test_a_request_is_known_by_its_caller_and_its_id(clock):
    table = Table()
    one, other = table.take("1", "inbox:a"), table.take("1", "inbox:b")
    assert table.requests.active == {("inbox:a", "1"): one, ("inbox:b", "1"): other}
    assert (one.request_id, one.reply_to, one.operation_id, one.owner) == ("1", "inbox:a", "t.op", "inbox:a")
    assert (one.sent, one.sent_bytes, one.heard, one.is_over, one.is_asked, one.noticed) == (0, 0, *[False] * 4)
    assert one.deadline is None


@pytest.mark.parametrize(("payload", "peer", "key"), TABLES["keys of requests"])
def test_the_transport_says_who_asks_and_else_the_address_of_the_answer(payload, peer, key):
    assert key_of(payload, Delivery(peer)) == tuple(key)


@pytest.mark.parametrize("given", [{"request_id": ""}, {"peer": ""}, {"request_id": 7}])
def test_a_request_that_cannot_be_answered_is_acknowledged_and_dropped(clock, caplog, given):
    done = []
    table = Table()
    assert table.take(**given, delivery=Delivery(done=lambda: done.append(1))) is None
    assert table.take(**given) is None
    assert (done, table.requests.active, table.refused) == ([1], {}, [])
    assert caplog.messages[0] == "dropped a call of 't.op': no requestId or reply address"


def test_what_has_ended_is_not_run_again_where_a_transport_may_deliver_it_twice(clock):
    done = []
    table = Table(STORE)
    table.requests.finish(table.take("1", delivery=Delivery(done=lambda: done.append("first"))))
    assert table.take("1", delivery=Delivery(done=lambda: done.append("again"))) is None
    assert (done, table.refused) == (["first", "again"], [])
    live = Table(BROKER)
    live.requests.finish(live.take("1"))
    assert live.take("1") is not None, "elsewhere nothing comes twice"
    assert live.requests.recent == {}


async def test_how_long_an_ended_request_is_remembered(started, clock):
    """Until its deadline; without one for a minute."""
    table = started(STORE)
    table.requests.finish(table.take("soon", deadline=(clock.now + 5) * 1000))
    table.requests.finish(table.take("never"))
    assert table.requests.recent == {("inbox:a", "soon"): 1_005_000.0, ("inbox:a", "never"): 1_060_000.0}
    for seconds, left in ((5, ["soon", "never"]), (0.001, ["never"]), (60, [])):
        clock.now += seconds
        table.look()
        assert [key[1] for key in table.requests.recent] == left


def test_no_more_than_10_000_ended_requests_are_remembered(clock):
    table = Table(STORE)
    for number in range(10_001):
        table.requests.finish(table.take(str(number)))
    assert (len(table.requests.recent), next(iter(table.requests.recent))[1]) == (10_000, "1")


def test_a_table_tells_whether_an_event_was_for_it(clock, caplog):
    table = Table(HUB)
    fields = {"requestId": "1", "replyTo": "inbox:a", "operationId": "t.op", "input": {}}
    types = ("call.aborted", "call.requested", "call.requested", "call.responded", "call.aborted", "call.aborted")
    assert [table.comes(type_, fields) for type_ in types] == [False, True, True, False, True, False]
    assert table.comes("link.lost", {"peer": "inbox:b"}) is False
    assert caplog.messages[0] == "dropped a call of 't.op': its requestId is in use by another"
    assert table.ended == [("1", None)]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["op:t.other", "queue:t.other", "all:t.op", "inbox:x", "", "t.op", "xx:t.op"])
def test_a_request_that_comes_to_another_address_is_refused(clock, to):
    error = Table().refusal(delivery=Delivery(to=to))
    assert error.code == ErrorCode.OPERATION_NOT_FOUND
    assert f"cannot be called at {to!r}" in error.message


def test_one_caller_has_as_many_as_are_allowed_to_each(clock):
    table = Table(max_concurrent=10, max_concurrent_per_peer=2)
    first = table.take("1", "inbox:a")
    table.take("2", "inbox:a")
    error = table.refusal("3", "inbox:a")
    assert "2 requests of this caller are already in progress (max_concurrent_per_peer)" in error.message
    assert error.details == {"limit": "max_concurrent_per_peer", "value": 2}
    assert table.take("3", "inbox:b") is not None
    table.requests.finish(first)
    table.requests.finish(first)  # it counts once
    assert table.take("4", "inbox:a") is not None
    assert table.refusal("5", "inbox:a").code == ErrorCode.OVERLOADED


def test_an_identity_is_one_caller_however_many_links_it_has(clock):
    table = Table(max_concurrent_per_peer=2)
    ann = Identity(id="ann", scopes=frozenset())
    one = table.take("1", "inbox:a", Delivery(identity=ann))
    assert one.owner == "identity ann"
    table.take("2", "inbox:b", Delivery(identity=ann))
    assert table.refusal("3", "inbox:c", Delivery(identity=ann)).code == ErrorCode.OVERLOADED
    assert table.take("3", "inbox:c") is not None


def test_within_a_process_callers_are_counted_only_when_the_settings_say_so(clock):
    table = Table(INSIDE, max_concurrent=2)  # by default half of it, elsewhere
    assert table.take("1") is not None
    assert table.take("2") is not None
    assert table.refusal("3").details == {"limit": "max_concurrent", "value": 2}
    for one in list(table.requests.active.values()):
        table.requests.finish(one)
    said = Table(INSIDE, max_concurrent=2, max_concurrent_per_peer=1)
    assert said.take("1") is not None
    assert said.refusal("2").code == ErrorCode.OVERLOADED


# --- deadlines ------------------------------------------------------------------------------------


def test_on_a_live_link_the_duration_counts_and_not_the_clock_of_the_caller(clock):
    table = Table(INSIDE)
    assert table.take("1", timeoutMs=250, deadline=1).deadline == 1_000_250.0
    assert table.take("2", timeoutMs=1e10 - 1).deadline == 1_000_000.0 + 1e10 - 1


@pytest.mark.parametrize("timeout", [1e10, -1, None, "5", math.inf])
def test_what_is_no_duration_leaves_the_deadline(clock, timeout):
    assert Table(INSIDE).take(timeoutMs=timeout, deadline=1_000_700).deadline == 1_000_700.0
    assert Table(INSIDE).take(timeoutMs=timeout).deadline is None


@pytest.mark.parametrize("deadline", [1_000_000.0 + 1e10, 10**400, "soon", None, math.inf, math.nan])
def test_a_deadline_that_no_clock_reaches_is_none(clock, deadline):
    assert Table(STORE).take(deadline=deadline).deadline is None


@pytest.mark.parametrize(("deadline", "told"), [(1_000_000, 1_000_000.0), (-(10**400), 0.0), (-5, 0.0), (7, 7.0)])
def test_what_comes_at_its_deadline_or_later_does_not_run(clock, deadline, told):
    error = Table(STORE).refusal(deadline=deadline)
    assert (error.code, error.message) == ("TIMEOUT", '"t.op": the request arrived after its deadline')
    assert error.details == {"deadline": told}


def test_a_duration_of_nothing_is_over_at_once(clock):
    assert Table(INSIDE).refusal(timeoutMs=0).code == ErrorCode.TIMEOUT
    assert Table(INSIDE).take(timeoutMs=0.5) is not None


# --- credit, notices ------------------------------------------------------------------------------


@pytest.mark.parametrize(("payload", "total", "granted"), TABLES["credit"])
def test_credit_that_is_none_is_no_credit(clock, payload, total, granted):
    one = Table().take(**payload)
    assert (one.total, one.granted) == (total, granted)
    assert one.renewed == (0.0 if total is None else clock.now)


@pytest.mark.parametrize(
    ("size", "large"), [(64 * 1024, False), (64 * 1024 + 1, True), (True, False), ("x", False)]
)
async def test_of_a_large_request_its_caller_learns_soon_that_it_is_here_and_once(started, size, large):
    table = started(HUB)
    one = table.take(sentBytes=size)
    other = table.take("2", sentBytes=size)
    assert (one.is_large, table.noticed) == (large, [])
    await asyncio.sleep(0.02)
    assert table.noticed == [one, other] * large
    table.look()
    table.requests.stop()
    assert table.noticed == [one, other] * large


async def test_the_answer_to_a_large_request_tells_that_it_came(started):
    table = started(HUB)
    table.requests.finish(table.take(sentBytes=1_000_000))
    table.take("stream", sentBytes=1_000_000, credit=2).sent = 1
    one = table.take("2", sentBytes=1_000_000)
    await asyncio.sleep(0.02)
    assert table.noticed == [one]


async def test_a_handler_that_closes_leaves_no_caller_of_a_large_request_without_a_word(started):
    """What is under way is finished then, and its caller may have others to send meanwhile."""
    table = started(HUB)
    table.requests.finish(table.take(sentBytes=1_000_000))
    one = table.take("2", sentBytes=1_000_000)
    table.requests.stop()
    assert table.noticed == [one]
    other = table.take("3", sentBytes=1_000_000)
    assert table.noticed == [one, other], "it came while the handler closes"
    await asyncio.sleep(0.02)
    assert table.noticed == [one, other]


async def test_credit_only_grows_and_wakes_who_waits(clock):
    table = Table()
    one = table.take(credit=2, creditBytes=100)

    def give(**payload):
        one.waiter = asyncio.get_running_loop().create_future()
        assert table.comes("call.credit", {"requestId": "1", "replyTo": "inbox:a", **payload}) is True
        return one.waiter.done(), one.total, one.granted, one.is_asked, one.heard

    clock.now += 1
    assert give(total=2) == (False, 2, 100, True, False)
    assert one.renewed == clock.now
    assert give(total=3) == (True, 3, 100, False, False)
    for odd in ({"total": 1}, {"total": True}, {"totalBytes": "x"}):
        assert give(**odd) == (False, 3, 100, True, False)
    assert give(totalBytes=100) == (False, 3, 100, True, True)
    assert give(totalBytes=101) == (True, 3, 101, True, True)
    assert table.comes("call.credit", {"requestId": "2", "replyTo": "inbox:a"}) is False
    plain = table.take("2")
    table.comes("call.credit", {"requestId": "2", "replyTo": "inbox:a", "total": 9, "totalBytes": 9})
    assert (plain.total, plain.granted, plain.heard) == (None, None, False)


# --- the look around ------------------------------------------------------------------------------


def test_the_loss_of_a_peer_ends_its_requests_where_the_transport_tells_of_it(clock):
    table = Table(HUB)
    for name, peer in (("1", "a"), ("2", "b"), ("3", "a")):
        table.take(name, peer)
    table.comes("link.lost", {"peer": "a"})
    assert table.ended == [("1", None), ("3", None)]
    table.requests.on_down()
    assert table.ended[2:] == [("2", None)]
    broker = Table(BROKER)
    broker.take("1", "a")
    broker.comes("link.lost", {"peer": "a"})
    broker.requests.on_down()
    assert broker.ended == []


@pytest.mark.parametrize(
    ("capabilities", "lease", "period"),
    [(BROKER, 30.0, 0.05), (HUB, 30.0, 0.25), (STORE, 30.0, 0.05), (BROKER, 0.1, 0.025), (HUB, 0.8, 0.2)],
)
def test_how_often_the_table_is_looked_through(capabilities, lease, period):
    assert Table(capabilities, lease=lease).requests.period == period


async def test_a_stream_whose_consumer_is_silent_for_longer_than_the_lease_ends(started, clock, caplog):
    caplog.set_level(logging.INFO, "operad.calls")
    table = started(HUB, lease=2.5)
    table.take("stream", credit=1)
    table.take("single")
    for seconds in (2.5, 0.01):
        assert table.ended == []
        clock.now += seconds
        table.look()
    ((name, error),) = table.ended
    assert (name, error.code) == ("stream", "ABORTED")
    assert error.message == '"t.op": its consumer gave no sign of life for 2.5 s'
    assert "ended a stream of t.op: its consumer gave no sign of life" in caplog.text
    assert [key[1] for key in table.requests.active] == ["single"]


async def test_of_a_loop_that_stood_still_no_consumer_counts_as_silent_before_its_signs_of_life_are_read(started):
    table = started(HUB, lease=0.2)
    table.take("stream", credit=1)
    time.sleep(0.4)
    async with asyncio.timeout(30):
        while not table.requests.looks:
            await asyncio.sleep(0)
    assert table.ended == []
    await until(lambda: table.ended)


async def test_on_a_broker_a_request_that_takes_long_says_once_where_it_is(started, clock):
    table = started(BROKER)
    stream, single, begun = table.take("stream", credit=1), table.take("single"), table.take("begun", credit=1)
    begun.sent = 1  # an item says it, too
    table.look()
    table.look()
    assert table.noticed == [stream, single]
    hub = started(HUB)
    hub.take("single")
    hub.look()
    assert hub.noticed == []


async def test_a_table_that_is_looked_through_in_time_did_not_stand_still(started, clock):
    table = started(BROKER)
    for _ in range(20):
        clock.now += 0.05
        table.look()
    assert table.take("1", timeoutMs=100).deadline == clock.now * 1000 + 100

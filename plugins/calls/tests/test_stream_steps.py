"""Subscriptions of a call map step by step: what each event does to a stream, and what the other side is told."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from operad import ErrorCode, local_envelope
from operad_calls import CallSettings
from operad_calls.calling import stream
from operad_calls.calling.pending import PendingRequests
from operad_calls.calling.stream import Streams
from operad_calls.protocol import encode
from operad_calls.requests import CallRequest
from operad_testing import HeldResources, assert_nothing_pending
from plugins.calls.tests.parts import BROKER, HUB, INSIDE, Wire, error_of, settle, until


class Beating(Streams):
    """Streams whose heart beats when a test says so, too."""

    beats = 0

    def _on_beat(self):
        self.beats += 1
        super()._on_beat()

    def beat(self):
        self.stop()
        self._on_beat()


class Side:
    """The calling side with streams alone."""

    def __init__(self, capabilities=BROKER, **settings):
        self.requests = PendingRequests(SimpleNamespace(capabilities=capabilities), CallSettings(**settings))
        self.requests.start()
        self.link = self.requests.link = Wire()
        self.streams = Beating(self.requests)
        self.beat, self.told = self.streams.beat, self.link.told

    def open(self, credit=4, timeout=None, **more):
        """A stream that has been asked for, and the task that reads its first item."""
        self.items = self.streams.items(
            CallRequest("t.op", **{"input": {}, "credit": credit, "timeout": timeout, **more}), None
        )
        return self.items

    async def begun(self, **arguments):
        """A stream of which nothing has come (``None``: its time was up before it was under way), its items and the task
        that waits for the first."""
        items = self.open(**arguments)
        first = asyncio.ensure_future(anext(items))
        await settle()
        (one,) = self.requests.table.values() or (None,)
        return one, items, first

    async def end(self, *tasks):
        """Leave nothing behind."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.items.aclose()
        self.streams.stop()
        await self.requests.settle()


@pytest.fixture
def now(monkeypatch):
    """The clock of streams, moved by hand."""
    made = SimpleNamespace(at=50.0)
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: made.at, time=lambda: 1_000.0))
    return made


def item(number, **more):
    return {"output": local_envelope(number, "t.op"), "seq": number, **more}


def unnumbered(number):
    return {"output": local_envelope(number, "t.op")}


def responded(one, *payloads):
    for payload in payloads:
        one.on_event("call.responded", payload)


async def rooms(side):
    """The room that the handler was told of since the last time."""
    await settle()
    return [payload["totalBytes"] for _, payload in side.told("call.credit")]


# --- the request ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "bound"), [(1, 1_024), (512, 1_024), (513, 1_026)])
async def test_how_many_unread_items_are_kept_of_who_ignores_credit(window, bound):
    side = Side()
    one, _, first = await side.begun(credit=window)
    assert one.bound == bound
    responded(one, *map(item, range(bound)))
    assert (len(one.items), one.end) == (bound, None)
    responded(one, item(bound))
    assert one.end.code == ErrorCode.SLOW_CONSUMER
    assert one.end.message == f'"t.op" ignored credit and sent {bound} items that were not read'
    assert one.end.details == {"limit": bound}
    assert side.requests.table == {}
    await side.end(first)


@pytest.mark.parametrize("options", [{"timeout": 0.01}, {"timeout": 50, "limit": 1.0}])
async def test_a_request_that_is_not_taken_in_time_ends(options):
    side = Side()
    side.link.hold = asyncio.Event()
    error = await error_of(anext(side.open(**options)))
    assert (error.code, side.requests.table) == (ErrorCode.TIMEOUT, {})
    assert error.details["deadline"] == options.get("limit", error.details["deadline"])
    await side.end()


# --- items ----------------------------------------------------------------------------------------


async def test_an_address_that_is_none_is_no_target():
    side = Side()
    one, _, first = await side.begun()
    responded(one, item(0, replyTo=5))
    assert one.target is None
    await side.end(first)


async def test_of_items_without_numbers_the_first_may_be_all_there_is(now):
    side = Side(lease=30.0)
    one, _, first = await side.begun()
    responded(one, unnumbered("a"))
    assert (one.lone, one.unnumbered, one.next_seq) == (50.0, True, 0)
    now.at = 80.0
    side.beat()
    assert one.end is None
    now.at = 80.01
    side.beat()
    assert one.end is True
    assert (await first).data == "a"
    await side.end()


# --- credit ---------------------------------------------------------------------------------------


async def test_what_was_read_of_a_stream_that_has_ended_gives_no_credit():
    side = Side(INSIDE)
    side.link.target = "inbox:worker"
    one, items, first = await side.begun(credit=1)
    responded(one, item(0))
    one.on_event("call.completed", {"count": 1})
    assert (await first).data == 0
    with pytest.raises(StopAsyncIteration):
        await anext(items)
    assert side.told("call.credit") == side.told("call.aborted") == []
    await side.end()


async def test_room_is_told_when_half_of_the_window_of_bytes_is_read():
    side = Side(credit_bytes=2_000)
    side.link.target = "inbox:worker"
    one, items, first = await side.begun(credit=64)
    for number, sent in enumerate((999, 1_000, 1_001, 2_000)):
        responded(one, item(number, sentBytes=sent))
    assert (one.arrived, list(one.sizes)) == (2_000, [999, 1_000, 1_001, 2_000])
    assert (await first).data == 0
    assert (one.read, side.told("call.credit")) == (999, [])
    await anext(items)
    ((_, payload),) = side.told("call.credit")
    assert (payload["totalBytes"], payload["total"], one.granted) == (3_000, 66, 3_000)
    await anext(items)
    assert side.told("call.credit") == []
    await anext(items)
    assert one.granted == 4_000
    assert not one.sizes
    await side.end()


async def test_sizes_that_do_not_grow_or_are_none_change_nothing():
    side = Side(credit_bytes=2_000)
    one, _, first = await side.begun()
    for number, sent in enumerate((500, 400, "x", None, True)):
        responded(one, item(number, sentBytes=sent))
    assert (one.arrived, list(one.sizes)) == (500, [500] * 5)
    await side.end(first)


def wants(one, size, reply_to="inbox:worker"):
    payload = {"replyTo": reply_to} if size is None else {"replyTo": reply_to, "wantsBytes": size}
    one.on_event("call.credit", payload)


async def test_a_handler_that_says_where_it_is_is_known_from_then_on():
    side = Side()
    one, _, first = await side.begun()
    one.on_event("call.credit", {"replyTo": 5})
    one.on_event("news", {"replyTo": "inbox:news"})
    assert (one.target, one.heard) == (None, None)
    wants(one, None)
    assert one.target == "inbox:worker"
    assert one.heard is not None
    wants(one, None, "inbox:other")
    assert one.target == "inbox:worker"
    await settle()
    assert side.told("call.credit") == [], "who asks for nothing is told nothing"
    await side.end(first)


async def test_a_handler_that_asks_for_room_is_always_heard():
    side = Side(credit_bytes=2_000)
    one, _, first = await side.begun()

    async def asked(size):
        wants(one, size)
        return await rooms(side)

    assert await asked(1_000) == [2_000]
    assert (one.wants, one.granted) == (1_000, 2_000)
    assert await asked(2_000) == [2_000]
    assert await asked(5) == [2_000]
    assert one.wants == 2_000, "what it wanted once it wants still"
    assert await asked(True) == []
    await side.end(first)


async def test_what_fits_in_the_window_of_what_was_read_is_granted_at_once():
    side = Side(credit_bytes=2_000)
    one, _, first = await side.begun()
    responded(one, item(0, sentBytes=900))
    await first
    side.told("call.credit")
    wants(one, 2_900)
    assert await rooms(side) == [2_900]
    assert (one.granted, side.requests.arrivals.in_flight) == (2_900, 0)
    await side.end()


async def test_an_item_larger_than_the_window_comes_when_all_before_it_is_read():
    side = Side(credit_bytes=2_000)
    one, items, first = await side.begun(credit=64)
    responded(one, item(0, sentBytes=100), item(1, sentBytes=200))
    wants(one, 9_000)
    assert await rooms(side) == [2_000], "heard, and not granted"
    await first
    assert await rooms(side) == []
    await anext(items)
    assert await rooms(side) == [9_000]
    assert (one.granted, side.requests.arrivals.in_flight) == (9_000, 7_000)
    responded(one, item(2, sentBytes=9_000))
    assert side.requests.arrivals.in_flight == 0
    await side.end()


async def test_what_is_wanted_is_granted_while_the_items_before_it_are_read():
    side = Side(credit_bytes=2_000)
    one, items, first = await side.begun()
    responded(one, *(item(number, sentBytes=300 * (number + 1)) for number in range(3)))
    wants(one, 2_500)
    await rooms(side)
    await first
    assert await rooms(side) == []
    await anext(items)
    assert await rooms(side) == [2_600]
    await side.end()


@pytest.mark.parametrize(
    ("word", "payload"), [("call.credit", {"replyTo": "inbox:worker"}), ("call.responded", item(0))]
)
async def test_the_first_word_of_a_handler_frees_the_way_of_a_large_request(word, payload):
    side = Side(link_bytes=100)
    one, _, first = await side.begun()
    assert side.requests.departures.take(one, 70_000)
    one.on_event(word, payload)
    assert one.outgoing == 0
    await side.end(first)


# --- ends -----------------------------------------------------------------------------------------


async def test_only_the_first_item_shows_that_somebody_serves_it():
    side = Side()
    one, _, first = await side.begun()
    one.next_seq = 1
    responded(one, item(1))
    assert side.requests.answered == {}
    one.next_seq = 0
    responded(one, item(0))
    assert side.requests.answered == {"t.op": None}
    await side.end(first)


@pytest.mark.parametrize(("size", "large"), [(64 * 1024, False), (64 * 1024 + 1, True)])
async def test_a_request_above_64_kib_waits_for_its_turn_and_one_of_64_does_not(size, large):
    side = Side()
    probe = side.requests.event(CallRequest("t.op", "", credit=1), "x" * 32, side.link, 0.0)
    probe["payload"]["creditBytes"] = CallSettings().credit_bytes
    one, _, first = await side.begun(credit=1, input="x" * (size - len(encode(probe))))
    ((_, payload),) = side.told("call.requested")
    assert ("sentBytes" in payload, one.outgoing > 0) == (large, large)
    await side.end(first)


async def test_what_is_wanted_to_the_byte():
    side = Side(credit_bytes=2_000)
    one, items, first = await side.begun(credit=64)
    responded(one, *(item(number, sentBytes=100 * (number + 1)) for number in range(3)))
    wants(one, 2_100)
    await settle()
    await first  # which reads 100 bytes: now there is room for it
    assert one.granted == 2_100
    assert {payload["totalBytes"] for _, payload in side.told("call.credit")} <= {2_000, 2_100}
    await anext(items)
    assert (one.granted, side.told("call.credit")) == (2_100, [])
    await side.end()


@pytest.mark.parametrize(
    ("granted", "wanted", "arrived", "read", "told", "after"),
    [
        (100, 0, 50, 49, False, 100),
        (100, 0, 50, 50, True, 150),
        (100, 0, 60, 60, True, 160),
        (100, 150, 80, 49, False, 100),
        (100, 150, 80, 50, True, 150),
        (100, 100, 80, 50, True, 150),
        (100, 500, 80, 79, False, 100),
        (100, 500, 80, 80, False, 500),
    ],
)
async def test_when_a_handler_is_told_of_what_was_read(granted, wanted, arrived, read, told, after):
    side = Side(credit_bytes=100)
    one, _, first = await side.begun(credit=64)
    one.granted, one.wants, one.arrived = granted, wanted, arrived
    assert one.has_read(read) is told
    assert one.granted == after
    await side.end(first)


async def test_each_item_has_its_own_time_and_the_deadline_is_of_all():
    for seconds in (0.03, 1.0, 5.0):
        side = Side()
        limit = (time.time() + seconds) * 1000
        one, items, first = await side.begun(timeout=30.0, limit=limit)
        if one is not None:  # on a busy machine its time may be up before
            break
        await side.end(first)
    responded(one, item(0))
    assert (await first).data == 0
    error = await error_of(anext(items))
    assert (error.code, error.details) == (ErrorCode.TIMEOUT, {"deadline": limit})
    await side.end()


# --- the lease ------------------------------------------------------------------------------------


async def test_a_handler_that_promised_a_sign_of_life_and_gives_none_is_lost(now):
    side = Side(lease=30.0)
    one, _, first = await side.begun()
    wants(one, None)
    now.at = 100.0
    responded(one, item(0))
    assert one.heard == 100.0
    now.at = 130.0
    side.beat()
    assert one.end is None
    now.at = 130.1
    side.beat()
    assert (one.end.code, one.end.message) == ("UNAVAILABLE", '"t.op": its handler gave no sign of life for 30 s')
    assert side.requests.table == {}
    await settle()
    assert [to for to, _ in side.told("call.aborted")] == ["inbox:worker"]
    await side.end(first)


@pytest.mark.parametrize(
    ("capabilities", "word", "lost"),
    [
        (BROKER, None, True),
        (BROKER, item, False),
        (BROKER, unnumbered, False),  # who sends it may know no signs of life
        (HUB, None, False),
        (INSIDE, None, False),
    ],
)
async def test_a_stream_without_a_word_is_lost_where_nobody_tells_of_lost_handlers(now, capabilities, word, lost):
    side = Side(capabilities, lease=30.0)
    one, _, first = await side.begun()
    now.at = 80.0
    side.beat()
    assert one.end is None
    if word is not None:
        responded(one, word(0), word(1))
    now.at = 80.1
    side.beat()
    assert (one.end is not None) is lost
    if lost:
        assert (one.end.code, one.end.details["sent"]) == ("UNAVAILABLE", True)
        assert list(side.requests.orphans) == [one.request_id], "if it says later that it has it, it is told"
    await side.end(first)


async def test_of_a_loop_that_stood_still_no_handler_counts_as_silent_before_its_signs_of_life_are_read():
    side = Side(lease=0.2)
    one, _, first = await side.begun()
    wants(one, None)
    time.sleep(0.4)
    async with asyncio.timeout(30):
        while not side.streams.beats:
            await asyncio.sleep(0)
        assert one.end is None
        while one.end is None:
            await asyncio.sleep(0.01)
    await side.end(first)


async def test_each_beat_renews_the_credit_of_streams_and_one_renewal_runs_at_once():
    side = Side(HUB, lease=60.0)
    side.link.target = "inbox:worker"
    one, _, first = await side.begun()
    for _ in range(3):
        side.beat()
    await settle()
    assert [payload["total"] for _, payload in side.told("call.credit")] == [4]
    side.beat()
    await settle()
    assert len(side.told("call.credit")) == 1
    one.finish(True)
    side.beat()
    await settle()
    assert side.told("call.credit") == [], "what has ended needs none"
    await side.end(first)


@pytest.mark.parametrize(("capabilities", "target"), [(BROKER, "inbox:other"), (HUB, "inbox:worker")])
async def test_credit_goes_to_who_says_that_it_has_the_stream_where_a_broker_gave_it_to_another_one(
    capabilities, target
):
    """One that is gone: to it the broker gave it first."""
    side = Side(capabilities, lease=60.0)
    side.link.target = "inbox:worker"
    one, _, first = await side.begun()
    wants(one, None, "inbox:other")
    side.beat()
    await settle()
    assert [to for to, _ in side.told("call.credit")] == [target]
    await side.end(first)


@pytest.mark.parametrize("word", ["notice", "item", "original item"])
async def test_no_credit_overtakes_the_request_of_a_stream_of_which_nobody_has_said_a_word(word):
    """As on Redis, where they take different ways: a handler that stood still would know no such stream."""
    side = Side(BROKER, lease=60.0)
    side.link.target = "inbox:worker"
    one, _, first = await side.begun()
    side.beat()
    await settle()
    assert side.told("call.credit") == []
    if word == "notice":
        wants(one, None)
    else:
        responded(one, item(0) if word == "item" else unnumbered(0))
    await settle()
    side.beat()
    await settle()
    assert [to for to, _ in side.told("call.credit")] == ["inbox:worker"]
    await side.end(first)


async def test_the_heart_beats_three_times_a_lease_and_only_while_there_is_a_stream():
    side = Side(lease=60.0)
    loop, pauses = side.requests.loop, []
    before = HeldResources.now()
    one, _, first = await side.begun()
    side.requests.loop = SimpleNamespace(
        time=loop.time,
        create_task=loop.create_task,
        call_later=lambda seconds, beat: pauses.append(seconds) or loop.call_later(0.001, beat),
    )
    side.beat()
    await until(lambda: side.streams.beats >= 3)
    assert set(pauses) == {20.0}
    side.requests.end(one)
    side.beat()
    one.finish(True)
    await asyncio.gather(first, return_exceptions=True)
    await assert_nothing_pending(before)

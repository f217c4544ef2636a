"""Subscriptions of a call map step by step: what each event does to a stream, and what the other side is told."""

import asyncio
import math
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
from plugins.calls.tests.parts import BROKER, HUB, INSIDE, TABLES, Wire, error_of, settle, until


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
    """The calling side with one stream: what is known of it (``None`` before it is under way), its items, and the task
    that reads the first one."""

    one = None

    def __init__(self, capabilities, settings, wire, request):
        self.requests = PendingRequests(SimpleNamespace(capabilities=capabilities), CallSettings(**settings))
        self.requests.start()
        self.requests.link = wire
        self.streams = Beating(self.requests)
        self.told = wire.told
        self.items = self.streams.items(CallRequest("t.op", **request), None)

    async def open(self):
        self.first = asyncio.ensure_future(anext(self.items))
        await settle()
        (self.one,) = self.requests.table.values() or (None,)
        return self

    async def beat(self):
        self.streams.beat()
        await settle()

    async def rooms(self):
        """The room that the handler was told of since the last time."""
        await settle()
        return [payload["totalBytes"] for _, payload in self.told("call.credit")]

    async def end(self):
        self.first.cancel()
        await asyncio.gather(self.first, return_exceptions=True)
        await self.items.aclose()
        self.streams.stop()
        await self.requests.settle()


@pytest.fixture
async def stream_of():
    """A function that asks for a stream; nothing of it stays behind."""
    sides = []

    async def made(
        capabilities=BROKER,
        *,
        target=None,
        hold=None,
        credit=4,
        timeout=None,
        limit=math.inf,
        input="",
        **settings,
    ):
        request = {"input": input, "credit": credit, "timeout": timeout, "limit": limit}
        sides.append(Side(capabilities, settings, Wire(target, hold), request))
        return await sides[-1].open()

    yield made
    for side in sides:
        await side.end()


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


def wants(one, size, reply_to="inbox:worker"):
    payload = {"replyTo": reply_to} if size is None else {"replyTo": reply_to, "wantsBytes": size}
    one.on_event("call.credit", payload)


# --- the request ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "bound"), [(1, 1_024), (512, 1_024), (513, 1_026)])
async def test_how_many_unread_items_are_kept_of_who_ignores_credit(stream_of, window, bound):
    side = await stream_of(credit=window)
    one = side.one
    responded(one, *map(item, range(bound)))
    assert (one.bound, len(one.items), one.end) == (bound, bound, None)
    responded(one, item(bound))
    message = f'"t.op" ignored credit and sent {bound} items that were not read'
    assert (one.end.code, one.end.message, one.end.details) == ("SLOW_CONSUMER", message, {"limit": bound})
    assert (side.requests.table, list(side.requests.orphans)) == ({}, [one.request_id])


@pytest.mark.parametrize("options", [{"timeout": 0.01}, {"timeout": 50, "limit": 1.0}])
async def test_a_request_that_is_not_taken_in_time_ends(stream_of, options):
    side = await stream_of(hold=asyncio.Event(), **options)
    error = await error_of(side.first)
    assert (error.code, side.requests.table) == (ErrorCode.TIMEOUT, {})
    assert error.details["deadline"] == options.get("limit", error.details["deadline"])


async def test_a_consumer_that_waits_for_an_item_does_nothing_meanwhile(stream_of, now, monkeypatch):
    looks = []
    monkeypatch.setattr(stream.time, "time", lambda: looks.append(1) or 1.7e9)
    await stream_of(timeout=50.0)
    looks.clear()
    await settle()
    assert looks == []


# --- items ----------------------------------------------------------------------------------------


async def test_the_first_address_that_is_one_is_the_target(stream_of):
    one = (await stream_of()).one
    for number, (address, target) in enumerate(((5, None), ("inbox:a", "inbox:a"), ("inbox:b", "inbox:a"))):
        responded(one, item(number, replyTo=address))
        assert one.target == target


async def test_of_items_without_numbers_the_first_may_be_all_there_is(stream_of, now):
    side = await stream_of(lease=30.0)
    one = side.one
    responded(one, unnumbered("a"))
    assert (one.lone, one.unnumbered, one.next_seq) == (50.0, True, 0)
    for now.at, end in ((80.0, None), (80.01, True)):
        await side.beat()
        assert one.end is end
    assert (await side.first).data == "a"
    assert list(side.requests.orphans) == [one.request_id], "were it a stream after all, it would go on"


# --- credit ---------------------------------------------------------------------------------------


async def test_what_was_read_of_a_stream_that_has_ended_gives_no_credit(stream_of):
    side = await stream_of(INSIDE, target="inbox:worker", credit=1)
    responded(side.one, item(0))
    side.one.on_event("call.completed", {"count": 1})
    assert (await side.first).data == 0
    with pytest.raises(StopAsyncIteration):
        await anext(side.items)
    assert side.told("call.credit") == side.told("call.aborted") == []


async def test_room_is_told_when_half_of_the_window_of_bytes_is_read(stream_of):
    side = await stream_of(target="inbox:worker", credit=64, credit_bytes=2_000)
    one = side.one
    for number, sent in enumerate((999, 1_000, 1_001, 2_000)):
        responded(one, item(number, sentBytes=sent))
    assert (one.arrived, list(one.sizes)) == (2_000, [999, 1_000, 1_001, 2_000])
    assert (await side.first).data == 0
    assert (one.read, side.told("call.credit")) == (999, [])
    await anext(side.items)
    ((_, payload),) = side.told("call.credit")
    assert (payload["totalBytes"], payload["total"], one.granted) == (3_000, 66, 3_000)
    await anext(side.items)
    assert side.told("call.credit") == []
    await anext(side.items)
    assert (one.granted, list(one.sizes)) == (4_000, [])


async def test_sizes_that_do_not_grow_or_are_none_change_nothing(stream_of):
    one = (await stream_of(credit_bytes=2_000)).one
    for number, sent in enumerate((500, 400, "x", None, True)):
        responded(one, item(number, sentBytes=sent))
    assert (one.arrived, list(one.sizes)) == (500, [500] * 5)


async def test_a_handler_that_says_where_it_is_is_known_from_then_on(stream_of):
    side = await stream_of()
    one = side.one
    one.on_event("call.credit", {"replyTo": 5})
    one.on_event("news", {"replyTo": "inbox:news"})
    assert (one.target, one.heard) == (None, None)
    for address in ("inbox:worker", "inbox:other"):
        wants(one, None, address)
        assert (one.target, one.heard is None) == ("inbox:worker", False)
    await settle()
    assert side.told("call.credit") == [], "who asks for nothing is told nothing"


async def test_a_handler_that_asks_for_room_is_always_heard(stream_of):
    side = await stream_of(credit_bytes=2_000)
    one = side.one
    for size, told, wanted in (
        (1_000, [2_000], 1_000),
        (2_000, [2_000], 2_000),
        (5, [2_000], 2_000),
        (True, [], 2_000),
    ):
        wants(one, size)
        assert (await side.rooms(), one.wants, one.granted) == (told, wanted, 2_000)


async def test_what_fits_in_the_window_of_what_was_read_is_granted_at_once(stream_of):
    side = await stream_of(credit_bytes=2_000)
    responded(side.one, item(0, sentBytes=900))
    await side.first
    side.told("call.credit")
    wants(side.one, 2_900)
    assert await side.rooms() == [2_900]
    assert (side.one.granted, side.requests.arrivals.in_flight) == (2_900, 0)


async def test_an_item_larger_than_the_window_comes_when_all_before_it_is_read(stream_of):
    side = await stream_of(credit=64, credit_bytes=2_000)
    one = side.one
    responded(one, item(0, sentBytes=100), item(1, sentBytes=200))
    wants(one, 9_000)
    assert await side.rooms() == [2_000], "heard, and not granted"
    await side.first
    assert await side.rooms() == []
    await anext(side.items)
    assert await side.rooms() == [9_000]
    assert (one.granted, side.requests.arrivals.in_flight) == (9_000, 7_000)
    responded(one, item(2, sentBytes=9_000))
    assert side.requests.arrivals.in_flight == 0


async def test_what_is_wanted_is_granted_while_the_items_before_it_are_read(stream_of):
    side = await stream_of(credit_bytes=2_000)
    responded(side.one, *(item(number, sentBytes=300 * (number + 1)) for number in range(3)))
    wants(side.one, 2_500)
    await side.rooms()
    await side.first
    assert await side.rooms() == []
    await anext(side.items)
    assert await side.rooms() == [2_600]


@pytest.mark.parametrize(
    ("word", "payload"), [("call.credit", {"replyTo": "inbox:worker"}), ("call.responded", item(0))]
)
async def test_the_first_word_of_a_handler_frees_the_way_of_a_large_request(stream_of, word, payload):
    side = await stream_of(link_bytes=100)
    assert side.requests.departures.take(side.one, 70_000)
    side.one.on_event(word, payload)
    assert side.one.outgoing == 0


# --- ends -----------------------------------------------------------------------------------------


async def test_only_the_first_item_shows_that_somebody_serves_it(stream_of):
    side = await stream_of()
    for number, answered in ((1, {}), (0, {"t.op": None})):
        side.one.next_seq = number
        responded(side.one, item(number))
        assert side.requests.answered == answered


@pytest.mark.parametrize(("size", "large"), [(64 * 1024, False), (64 * 1024 + 1, True)])
async def test_a_request_above_64_kib_waits_for_its_turn_and_one_of_64_does_not(stream_of, size, large):
    probe = (await stream_of(credit=1)).told("call.requested")[0][1]
    unsaid = encode({"type": "call.requested", "id": "", "payload": probe})
    side = await stream_of(credit=1, input="x" * (size - len(unsaid)))
    ((_, payload),) = side.told("call.requested")
    assert ("sentBytes" in payload, side.one.outgoing > 0) == (large, large)


async def test_what_is_wanted_to_the_byte(stream_of):
    side = await stream_of(credit=64, credit_bytes=2_000)
    responded(side.one, *(item(number, sentBytes=100 * (number + 1)) for number in range(3)))
    wants(side.one, 2_100)
    await settle()
    await side.first  # which reads 100 bytes: now there is room for it
    assert (side.one.granted, {*await side.rooms()} <= {2_000, 2_100}) == (2_100, True)
    await anext(side.items)
    assert (side.one.granted, side.told("call.credit")) == (2_100, [])


@pytest.mark.parametrize(("wanted", "arrived", "read", "told", "after"), TABLES["bytes that were read"])
async def test_when_a_handler_is_told_of_what_was_read(stream_of, wanted, arrived, read, told, after):
    one = (await stream_of(credit=64, credit_bytes=100)).one
    one.granted, one.wants, one.arrived = 100, wanted, arrived
    assert (one.has_read(read), one.granted) == (told, after)


async def test_each_item_has_its_own_time_and_the_deadline_is_of_all(stream_of):
    for seconds in (0.03, 1.0, 5.0):
        limit = (time.time() + seconds) * 1000
        side = await stream_of(timeout=30.0, limit=limit)
        if side.one is not None:  # on a busy machine its time may be up before
            break
    responded(side.one, item(0))
    assert (await side.first).data == 0
    error = await error_of(anext(side.items))
    assert (error.code, error.details) == (ErrorCode.TIMEOUT, {"deadline": limit})


# --- the lease ------------------------------------------------------------------------------------


async def test_a_handler_that_promised_a_sign_of_life_and_gives_none_is_lost(stream_of, now):
    side = await stream_of(lease=30.0)
    one = side.one
    wants(one, None)
    now.at = 100.0
    responded(one, item(0))
    assert one.heard == 100.0
    now.at = 130.0
    await side.beat()
    assert one.end is None
    now.at = 130.1
    await side.beat()
    assert (one.end.code, one.end.message) == ("UNAVAILABLE", '"t.op": its handler gave no sign of life for 30 s')
    assert side.requests.table == {}
    assert [to for to, _ in side.told("call.aborted")] == ["inbox:worker"]


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
async def test_a_stream_without_a_word_is_lost_where_nobody_tells_of_lost_handlers(
    stream_of, now, capabilities, word, lost
):
    side = await stream_of(capabilities, lease=30.0)
    one, now.at = side.one, 80.0
    await side.beat()
    assert one.end is None
    if word is not None:
        responded(one, word(0), word(1))
    now.at = 80.1
    await side.beat()
    assert (one.end is not None) is lost
    if lost:
        assert (one.end.code, one.end.details["sent"]) == ("UNAVAILABLE", True)
        assert list(side.requests.orphans) == [one.request_id], "if it says later that it has it, it is told"


async def test_of_a_loop_that_stood_still_no_handler_counts_as_silent_before_its_signs_of_life_are_read(stream_of):
    side = await stream_of(lease=0.2)
    wants(side.one, None)
    time.sleep(0.4)
    async with asyncio.timeout(30):
        while not side.streams.beats:
            await asyncio.sleep(0)
    assert side.one.end is None
    await until(lambda: side.one.end)


async def test_each_beat_renews_the_credit_of_streams_and_one_renewal_runs_at_once(stream_of):
    side = await stream_of(HUB, target="inbox:worker", lease=60.0)
    side.streams.beat()
    side.streams.beat()
    for _ in range(2):
        await side.beat()
        assert [payload["total"] for _, payload in side.told("call.credit")] == [4]
    side.one.finish(True)
    await side.beat()
    assert side.told("call.credit") == [], "what has ended needs none"


@pytest.mark.parametrize(("capabilities", "target"), [(BROKER, "inbox:other"), (HUB, "inbox:worker")])
async def test_credit_goes_to_who_says_that_it_has_the_stream_where_a_broker_gave_it_to_another_one(
    stream_of, capabilities, target
):
    """One that is gone: to it the broker gave it first."""
    side = await stream_of(capabilities, target="inbox:worker", lease=60.0)
    wants(side.one, None, "inbox:other")
    await side.beat()
    assert [to for to, _ in side.told("call.credit")] == [target]


@pytest.mark.parametrize(
    "word",
    [lambda one: wants(one, None), lambda one: responded(one, item(0)), lambda one: responded(one, unnumbered(0))],
    ids=["notice", "item", "original item"],
)
async def test_no_credit_overtakes_the_request_of_a_stream_of_which_nobody_has_said_a_word(stream_of, word):
    """As on Redis, where they take different ways: a handler that stood still would know no such stream."""
    side = await stream_of(target="inbox:worker", lease=60.0)
    await side.beat()
    assert side.told("call.credit") == []
    word(side.one)
    await settle()
    await side.beat()
    assert [to for to, _ in side.told("call.credit")] == ["inbox:worker"]


async def test_the_heart_beats_three_times_a_lease_and_only_while_there_is_a_stream(stream_of):
    before = HeldResources.now()
    side = await stream_of(lease=60.0)
    loop, pauses = side.requests.loop, []
    side.requests.loop = SimpleNamespace(
        time=loop.time,
        create_task=loop.create_task,
        call_later=lambda seconds, beat: pauses.append(seconds) or loop.call_later(0.001, beat),
    )
    side.streams.beat()
    await until(lambda: side.streams.beats >= 3)
    assert set(pauses) == {20.0}
    side.requests.end(side.one)
    side.streams.beat()
    side.one.finish(True)
    await asyncio.gather(side.first, return_exceptions=True)
    await assert_nothing_pending(before)

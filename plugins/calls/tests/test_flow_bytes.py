"""Flow in bytes: what may be on its way to one link, and what a stalled reader holds up: its own stream alone."""
# what is opened first and closed last is the point of many of these tests

import asyncio

import pytest

from operad import ErrorCode
from operad_calls import CallSettings
from operad_calls.calling import flow
from operad_calls.calling.flow import Arrivals, Departures
from operad_calls.protocol import Encoded, decode, encode, with_sent_bytes
from operad_calls.requests import Pending
from operad_calls.serving import answers
from operad_calls.tapping import tap
from plugins.calls.tests.parts import (
    TABLES,
    LinkOver,
    Wired,
    both,
    cancel,
    echo,
    error_of,
    registry_of,
    reply,
    with_caller,
    with_server,
)

MIB = 1024 * 1024


async def settle():
    """Let what is on its way arrive: a busy machine stands still for longer than one pause."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def large(input, context):
    return "x" * input["size"]


async def larges(input, context):
    for _ in range(input["count"]):
        yield "x" * input["size"]


def waiting(*wants):
    made = []
    for number, size in enumerate(wants):
        pending = Pending("t.op", str(number))
        pending.wants = size
        made.append(pending)
    return made


def test_what_is_asked_for_is_granted_in_the_order_of_asking_within_the_window():
    told = []
    arrivals = Arrivals(100, told.append)
    one, two, three = waiting(60, 60, 10)
    assert arrivals.ask(one)
    assert not arrivals.ask(two)
    assert not arrivals.ask(three), "a small one does not pass by one that asked before"
    assert (arrivals.in_flight, [item.granted for item in (one, two, three)]) == (60, [60, 0, 0])
    arrivals.arrived(one, 60)
    assert told == [one, two, three]
    assert arrivals.in_flight == 70
    arrivals.ended(two)
    arrivals.ended(three)
    assert arrivals.in_flight == 0


def test_one_that_is_larger_than_the_window_goes_alone():
    arrivals = Arrivals(100, lambda pending: None)
    huge, small = waiting(1_000, 1)
    assert arrivals.ask(huge)
    assert not arrivals.ask(small)
    arrivals.ended(huge)
    assert small.granted == 1


@pytest.mark.parametrize(("size", "most", "shares"), TABLES["shares of a window"])
def test_the_share_of_bytes_that_may_come_unasked(size, most, shares):
    """A few calls may have a megabyte each; those of many together stay in the order of the window."""
    arrivals = Arrivals(size, lambda pending: None)
    assert {others: arrivals.unasked(int(others), most) for others in shares} == shares


async def test_a_megabyte_costs_no_question_and_more_than_that_one():
    seen = []
    async with both(registry_of(large=("query", large)), tap(Wired(), seen.append)) as (_, calls):
        for size, questions in ((1_000_000, 0), (2_000_000, 1)):
            assert len((await calls.call("t.large", {"size": size})).data) == size
            asked = [one for one in seen if one.direction == "in" and "wantsBytes" in one.event["payload"]]
            assert len(asked) == questions


async def test_large_requests_leave_one_after_the_other():
    departures = Departures(100)
    first, second, third = waiting(0, 0, 0)
    await departures.enter(first, 80)
    tasks = [asyncio.create_task(departures.enter(item, 60)) for item in (second, third)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    tasks[0].cancel()
    departures.leave(first)
    departures.leave(first)
    await asyncio.wait(tasks)
    assert (tasks[0].cancelled(), third.outgoing) == (True, 60)
    departures.leave(third)
    await departures.enter(first, 1_000)


async def test_a_stream_that_nobody_reads_holds_up_no_other_call():
    """What has come and is not read is its own affair: a call within the loop over large items gets its answer."""
    registry = registry_of(large=("query", large), larges=("subscription", larges))
    settings = CallSettings(link_bytes=500_000, credit_bytes=10_000)
    async with both(registry, Wired(), settings=settings) as (_, calls):
        count = 0
        async with asyncio.timeout(30):
            async for envelope in calls.subscribe("t.larges", {"size": 400_000, "count": 5}):
                assert len(envelope.data) == 400_000
                assert len((await calls.call("t.large", {"size": 400_000})).data) == 400_000
                count += 1
        assert count == 5


async def test_a_large_request_waits_until_the_one_before_has_arrived_and_a_small_one_does_not():
    async with with_server(Wired(), settings=CallSettings(link_bytes=500_000)) as (calls, server):
        tasks = [asyncio.create_task(calls.call("t.op", size)) for size in ("x" * 400_000, "y" * 400_000, "small")]
        first, small = await server.wait_for("call.requested", 2)
        assert (first["input"][0], small["input"]) == ("x", "small")
        assert (first["sentBytes"] > 400_000, "sentBytes" in small) == (True, False)
        await reply(server, first, "call.credit", total=0, replyTo=server.link.inbox)
        *_, second = await server.wait_for("call.requested", 3)
        assert second["input"][0] == "y"
        await cancel(*tasks)


@pytest.mark.parametrize(("total", "asked"), [(8, 1), (9, 0)])
async def test_a_consumer_that_asks_whether_anybody_is_there_gets_an_answer(total, asked):
    """Where the transport tells of losses, only who renews credit without giving any has asked."""

    async def wait(input, context):
        await asyncio.sleep(60)
        yield 1

    registry, wired = registry_of(wait=("subscription", wait)), Wired(detects_peer_loss=True)
    async with with_caller(registry, wired, drain_timeout=0.1) as (_, caller):
        await caller.request("t.wait", "1", credit=8)
        await caller.send("op:t.wait", "call.credit", requestId="1", total=total, replyTo=caller.link.inbox)
        await settle()
        assert len(caller.of("call.credit")) == asked
        await caller.send("op:t.wait", "call.aborted", requestId="1", replyTo=caller.link.inbox)


def test_an_event_is_encoded_once_unless_its_link_changes_it():
    event = {"type": "call.responded", "id": "", "payload": {"requestId": "1", "output": {"data": 1}}}
    made = Encoded(event, encode(event))
    assert encode(made) is made.data
    made["payload"]["replyTo"] = "inbox:x"
    assert decode(encode(made))["payload"]["replyTo"] == "inbox:x"
    text = encode({**event, "payload": {"requestId": "1"}})
    counted = with_sent_bytes({**event, "payload": {"requestId": "1"}}, text, 77)
    assert type(counted) is Encoded
    assert decode(encode(counted))["payload"] == {"requestId": "1", "sentBytes": 77}


def test_what_is_granted_and_arrives_frees_the_window_to_the_byte():
    told = []
    window = Arrivals(100, told.append)
    first, second, third = waiting(60, 40, 1)
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


@pytest.mark.parametrize("granted", [50, 60])
def test_who_wants_no_more_than_it_has_is_answered_without_a_word(granted):
    told = []
    window, (one,) = Arrivals(100, told.append), waiting(50)
    one.granted = granted
    assert window.ask(one)
    assert (told, window.in_flight) == ([], 0)


def test_who_asks_for_more_needs_room_for_what_is_more() -> None:
    arrivals = Arrivals(100, lambda pending: None)
    (other, more) = waiting(80, 60)
    more.granted = 50
    assert arrivals.ask(other)
    assert arrivals.ask(more)
    assert arrivals.in_flight == 90


async def test_a_handler_that_waits_for_room_says_so_to_who_observes_its_call():
    reported, registry = [], registry_of(larges=("subscription", larges))
    registry.observe(reported=lambda call, report: reported.append(report))
    async with with_caller(registry, Wired()) as (_, caller):
        await caller.request("t.larges", "1", {"size": 5_000, "count": 1}, credit=5, creditBytes=10)
        (question, *_) = await caller.wait_for("call.credit")
        await caller.send(question["replyTo"], "call.aborted", requestId="1", replyTo=caller.link.inbox)
        await settle()
    assert [(report.kind, report.unit) for report in reported] == [("stall", "By")]


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
    async with with_caller(registry, Wired(["link.lost"])) as (_, caller):
        await caller.request("t.stream" if "credit" in payload else "t.call", "1", sentBytes=70_000, **payload)
        await caller.wait_for("call.credit")
        await asyncio.sleep(0.03)
        (notice,) = await caller.wait_for("call.credit")
        await caller.send(notice["replyTo"], "call.aborted", requestId="1", replyTo=caller.link.inbox)


class Silent(Wired):
    """The same, with somebody who takes the requests for ``t.silent`` and says nothing."""

    async def open(self, on_event, on_link):
        mute = await self.bus.open(lambda event, delivery: None, lambda state, epoch: None)
        await mute.register("op:t.silent", "operad")
        return await super().open(on_event, on_link)


BIG = "x" * 90_000
ONE_AT_A_TIME = CallSettings(link_bytes=100_000)


async def test_a_large_subscription_that_nobody_answers_does_not_hold_up_large_requests_for_ever(monkeypatch):
    monkeypatch.setattr(flow, "_PATIENCE", 0.02)
    async with both(registry_of(echo=("query", echo)), Silent(), settings=ONE_AT_A_TIME) as (_, calls):
        stream = calls.subscribe("t.silent", BIG)
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert (await calls.call("t.echo", BIG, timeout=5)).data == BIG
        await cancel(first)
        await stream.aclose()
        assert (await calls.call("t.echo", BIG, timeout=5)).data == BIG


@pytest.mark.parametrize("how", ["aborted", "down", "closed"])
async def test_a_large_request_that_ends_before_its_turn_ends_at_once_and_is_never_sent(how):
    ran = []

    async def post(input, context):
        ran.append(input)

    async def items(input, context):
        ran.append(input)
        yield 1

    registry = registry_of(post=("mutation", post), items=("subscription", items))
    async with both(registry, Silent(), settings=ONE_AT_A_TIME) as (_, calls):
        ahead = asyncio.create_task(calls.call("t.silent", BIG))
        await asyncio.sleep(0)
        stream = calls.subscribe("t.items", BIG)
        waiting = [asyncio.create_task(calls.call("t.post", BIG)), asyncio.ensure_future(anext(stream))]
        await asyncio.sleep(0)
        requests = calls._requests
        assert [pending.operation_id for pending in requests.departures.waiting] == ["t.post", "t.items"]
        if how == "aborted":
            for pending in list(requests.departures.waiting):
                await calls.abort(pending.request_id)
        elif how == "down":
            calls._on_link("down", 1)
        else:
            await calls.aclose()
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
        told = {(error.code, error.ran) for error in ended}
        assert told == {(ErrorCode.UNAVAILABLE, False) if how == "down" else (ErrorCode.ABORTED, None)}
        await cancel(ahead)
        assert requests.departures.waiting == {}
        await settle()
    assert ran == []


class Waiting(LinkOver):
    """A link whose socket takes a turn of the event loop."""

    async def send(self, to, event):
        await asyncio.sleep(0)
        await super().send(to, event)


class Slow(Wired):
    """The same with such links."""

    async def open(self, on_event, on_link):
        return Waiting(await super().open(on_event, on_link))


@pytest.mark.parametrize("taken_back", [False, True])
@pytest.mark.parametrize("size", [10, 100_000])
async def test_an_operation_that_cancels_its_own_task_at_its_end_is_answered_all_the_same(size, taken_back):
    def cancel():
        asyncio.current_task().cancel()
        if taken_back:
            asyncio.current_task().uncancel()

    async def one(input, context):
        cancel()
        return "x" * size

    async def fails(input, context):
        cancel()
        raise ValueError("no")

    async def items(input, context):
        yield "x" * size
        cancel()

    registry = registry_of(one=("query", one), fails=("query", fails), items=("subscription", items))
    async with both(registry, Slow()) as (handler, calls):
        assert (await calls.call("t.one", timeout=5)).data == "x" * size
        assert (await error_of(calls.call("t.fails", timeout=5))).code == ErrorCode.EXECUTION_ERROR
        assert [len(item.data) async for item in calls.subscribe("t.items", timeout=5)] == [size]
        assert handler.active == 0

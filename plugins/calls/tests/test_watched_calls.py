"""What observers of a call map see, what a call carries for a trace, and how old a request is that was held."""

import asyncio
import time

import pytest

from operad import CallError, CallHandler, ErrorCode, Identity, InProcessTransport, PendingRequestMap
from operad.transports import Delivery, LinkDownError
from operad_calls.serving.served import _both
from operad_testing import HeldResources, assert_nothing_pending, make_plugin, plugins_of
from plugins.calls.tests.parts import BROKER, INSIDE, STORE, both, numbers, registry_of, reply, with_server
from plugins.calls.tests.test_served_table import Table

ANN = Identity(id="ann", scopes=frozenset())


async def echo(input, context):
    return {name: context.metadata.get(name) for name in ("traceparent", "tracestate", "baggage")}


async def test_an_observer_of_a_map_sees_calls_and_streams_until_it_stops():
    rows, registry = [], registry_of(echo=("query", echo), n=("subscription", numbers))
    async with both(registry) as (_, calls):
        stop = calls.observe(lambda call: rows.append(call), lambda call, outcome: rows.append(outcome))
        await calls.call("t.echo", 1, identity=ANN, parent_request_id="p")
        record, outcome = rows
        assert (record.operation_id, record.parent_request_id, record.identity_id) == ("t.echo", "p", "ann")
        assert (record.type, record.is_stream, record.is_outgoing, outcome.items, outcome.error) == (
            None, False, True, 1, None,
        )  # fmt: skip
        assert abs(record.started - time.time() * 1000) < 60_000
        rows.clear()
        stream = calls.subscribe("t.n", {"to": 3})
        assert rows == [], "it begins when it is first read"
        assert [one.data async for one in stream] == [0, 1, 2]
        assert (rows[0].is_stream, rows[0].identity_id, rows[1].items) == (True, None, 3)
        rows.clear()
        with pytest.raises(CallError):
            await calls.call("t.none")
        assert (rows[1].items, rows[1].error.code) == (0, ErrorCode.OPERATION_NOT_FOUND)
        rows.clear()
        async with calls.subscribe("t.n", {"to": 3}) as stream:
            assert (await anext(stream)).data == 0
        assert rows[1].items == 1
        rows.clear()
        stop()
        stop()
        await calls.call("t.echo", 1)
        assert rows == []


async def test_what_an_observer_is_told_is_the_id_of_the_request():
    rows, seen = [], []

    async def who(input, context):
        seen.append(context.request_id)

    async with both(registry_of(who=("query", who))) as (_, calls):
        calls.observe(lambda call: rows.append(call.request_id))
        await calls.call("t.who")
        async for _ in calls.subscribe("t.who"):
            pass
    assert rows == seen
    assert len(set(seen)) == 2


async def test_each_attempt_of_an_observed_call_has_its_own_id():
    async with with_server() as (calls, server):
        calls.observe(lambda call: None)
        calling = asyncio.ensure_future(calls.call("t.op", retry=True))
        (first,) = await server.wait_for("call.requested")
        await reply(server, first, "call.error", code="UNAVAILABLE", message="")
        _, second = await server.wait_for("call.requested", 2)
        await reply(server, second)
        await calling
        assert first["requestId"] != second["requestId"]


async def test_a_map_that_is_closed_leaves_no_timer_of_streams_and_questions():
    before = HeldResources.now()
    async with both(registry_of(n=("subscription", numbers))) as (handler, calls):
        await handler.link.register("all:quiet")
        assert await calls.ask_all("quiet", "t.quiet", wait=0.0, late=lambda data: None) == []
        async with calls.subscribe("t.n", {"to": 3}) as items:
            await anext(items)
    await assert_nothing_pending(before)


async def test_a_map_that_was_opened_at_the_second_attempt_tells_observers_once():
    bus, rows, fails = InProcessTransport(), [], [True]

    class Unreachable:
        capabilities = bus.capabilities

        async def open(self, on_event, on_link):
            if fails:
                fails.clear()
                raise LinkDownError("nobody answers")
            return await bus.open(on_event, on_link)

    plugins = plugins_of(make_plugin("watching", operad_call_started=lambda call: rows.append(call.operation_id)))
    calls = PendingRequestMap(Unreachable(), plugins=plugins)
    async with CallHandler(registry_of(echo=("query", echo)), bus):
        with pytest.raises(LinkDownError):
            await calls.open()
        async with calls:
            await calls.call("t.echo")
    assert rows == ["t.echo"]


async def test_the_context_of_a_trace_goes_with_a_call():
    async with both(registry_of(echo=("query", echo))) as (_, calls):
        given = {"traceparent": "00-1", "tracestate": "a=1", "baggage": "b=2"}
        assert (await calls.call("t.echo", 1, **given)).data == given
        assert [one.data async for one in calls.subscribe("t.echo", 1, **given)] == [given]
        only = {"traceparent": None, "tracestate": None, "baggage": "b=2"}
        assert (await calls.call("t.echo", 1, baggage="b=2")).data == only
        calls.observe(lambda call: None)
        assert (await calls.call("t.echo", 1, **given)).data == given
        assert (await calls.call("t.echo", 1, baggage="b=2")).data == only


def test_two_deliveries_of_one_request_are_acknowledged_by_its_end(clock):
    done = []
    table = Table(STORE)
    one = table.take("1", delivery=Delivery(done=lambda: done.append("first")))
    assert table.take("1", delivery=Delivery(done=lambda: done.append("second"))) is None
    assert table.take("1") is None
    assert done == []
    table.requests.finish(one)
    assert done == ["first", "second"]
    assert _both(None, None) is None
    assert _both(None, done.clear) == _both(done.clear, None) == done.clear


@pytest.mark.parametrize(
    ("capabilities", "held", "timeout", "left"),
    [
        (BROKER, None, 500, 500),
        (BROKER, 200, 500, 300),
        (BROKER, 0, 500, 500),
        (STORE, 200, 500, 300),
        (STORE, None, 500, 900),
        (INSIDE, 200, 500, 300),
    ],
)
def test_a_request_that_a_transport_held_has_so_much_less_time(clock, capabilities, held, timeout, left):
    """Unless it was stored, and nothing tells for how long: then its deadline counts."""
    now = clock.now * 1000
    one = Table(capabilities).take(timeoutMs=timeout, deadline=now + 900, delivery=Delivery(held=held))
    assert one.deadline == now + left


def test_one_that_was_held_past_its_deadline_was_not_begun_unless_it_came_before(clock):
    error = Table(STORE).refusal(timeoutMs=500, delivery=Delivery(held=500))
    assert (error.code, error.ran) == ("UNAVAILABLE", False)
    assert error.message == '"t.op": the request arrived 0.5 s late, after its deadline'
    again = Table(STORE, repeatable=("t.op",)).refusal(
        timeoutMs=500, delivery=Delivery(held=500, redelivered=True)
    )
    assert (again.code, again.message) == ("TIMEOUT", '"t.op": the request arrived after its deadline')


def test_an_instance_has_an_id_that_nobody_guesses():
    bus = InProcessTransport()
    first, second = CallHandler(registry_of(), bus), CallHandler(registry_of(), bus)
    assert len(first.instance) == len(second.instance) == 16
    assert first.instance != second.instance


@pytest.mark.parametrize("awake", [False, True])
async def test_observers_that_say_that_they_are_idle_are_told_of_no_call_until_they_are_not(awake):
    rows, idle = [], [True]

    def told(call):
        rows.append(call.operation_id)

    vars(told)["is_idle"] = lambda: idle[0]
    async with both(registry_of(echo=("query", echo)), plugins=plugins_of()) as (_, calls):
        calls.observe(told)
        if awake:
            calls.observe(lambda call: None)  # which does not say
        await calls.call("t.echo")
        assert rows == ["t.echo"] * awake
        idle[0] = False
        await calls.call("t.echo")
        assert rows == ["t.echo"] * (1 + awake)

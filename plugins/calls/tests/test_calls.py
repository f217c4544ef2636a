"""The call map and the call handler: the holes of the original protocol that the conformance kit does not see."""

import asyncio
import gc
import time
import weakref
from contextvars import ContextVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operad import (
    CallError,
    CallHandler,
    ErrorCode,
    InProcessTransport,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    subscribe,
)
from operad.transports import LinkDownError, TransportError
from operad_calls import CallSettings
from operad_testing import Participant
from plugins.calls.tests.parts import (
    ANSWER,
    TABLES,
    Flapping,
    Lone,
    Wired,
    both,
    cancel,
    echo,
    error_of,
    numbers,
    registry_of,
    reply,
    settle,
    until,
    waiting,
    with_caller,
    with_server,
)

# --- the calling side --------------------------------------------------------------------------------


async def test_the_number_of_pending_calls_is_bounded():
    async with both(registry_of(wait=("query", waiting)), max_pending=2) as (_, calls):
        tasks = [asyncio.create_task(calls.call("t.wait")) for _ in range(2)]
        await asyncio.sleep(0)
        error = await error_of(calls.call("t.wait"))
        assert (error.code, error.details) == (ErrorCode.OVERLOADED, {"limit": "max_pending", "value": 2})
        assert (await error_of(anext(calls.subscribe("t.wait")))).code == ErrorCode.OVERLOADED
        await cancel(*tasks)
        assert calls.pending == 0


async def test_a_call_without_a_timeout_has_the_maps():
    """Nothing waits for ever: the map's own timeout bounds every single call."""
    async with both(registry_of(wait=("query", waiting)), timeout=0.05) as (_, calls):
        assert (await error_of(calls.call("t.wait"))).code == ErrorCode.TIMEOUT
        soon = time.time() * 1000 + 50
        assert (await error_of(calls.call("t.wait", timeout=60, deadline=soon))).code == ErrorCode.TIMEOUT
        past = await error_of(calls.call("t.wait", deadline=1.0))
        assert (past.code, past.details) == (ErrorCode.TIMEOUT, {"deadline": 1.0})


@pytest.mark.parametrize(
    ("options", "seconds", "credit"),
    [
        pytest.param({}, 30, 64, id="by default"),
        pytest.param({"settings": CallSettings(timeout=90.0, credit=3), "credit": 5}, 90, 5, id="an option first"),
    ],
)
async def test_the_bounds_of_a_map_go_along_with_its_requests(options, seconds, credit):
    async with with_server(**options) as (calls, server):
        tasks = [asyncio.create_task(calls.call("t.op")), asyncio.create_task(anext(calls.subscribe("t.op")))]
        single, stream = await server.wait_for("call.requested", 2)
        assert (seconds - 10) * 1_000 < single["timeoutMs"] <= seconds * 1_000
        assert abs(single["deadline"] - time.time() * 1000 - single["timeoutMs"]) < 5_000
        assert (stream["credit"], "timeoutMs" in stream) == (credit, False)
        await cancel(*tasks)


async def test_a_map_calls_nothing_before_it_is_open_and_after_it_is_closed():
    calls = PendingRequestMap(InProcessTransport())
    assert "not open" in (await error_of(calls.call("t.op"))).message
    async with calls:
        with pytest.raises(RuntimeError, match="already open"):
            await calls.open()
    await calls.aclose()
    assert (await error_of(calls.call("t.op"))).code == ErrorCode.UNAVAILABLE


@pytest.mark.parametrize("retry", [True, False])
async def test_after_the_loss_of_its_handler_a_call_that_may_be_repeated_goes_to_the_next_one(retry):
    transport = InProcessTransport()
    async with with_server(transport) as (calls, first):
        task = asyncio.create_task(calls.call("t.op", {"a": 1}, retry=retry, timeout=5))
        await first.wait_for("call.requested")
        async with CallHandler(registry_of(op=("query", echo)), transport):
            await first.link.close()
            if retry:
                assert (await task).data == {"a": 1}
                return
            error = await error_of(task)
            assert (error.code, error.details) == ("UNAVAILABLE", {"operationId": "t.op", "sent": True})


@pytest.mark.parametrize("error", [LinkDownError("cut"), TransportError("odd")])
async def test_what_was_not_sent_says_so(error):
    async def refuse():
        raise error

    async with PendingRequestMap(Lone(refuse)) as calls:
        failed = await error_of(calls.call("t.op"))
        assert (failed.code, failed.details) == ("UNAVAILABLE", {"operationId": "t.op", "sent": False})
        assert (await error_of(anext(calls.subscribe("t.op")))).details == failed.details
        assert calls.pending == 0


@pytest.mark.parametrize("output", [None, 1, {}, {"data": 1}, {"data": 1, "meta": {"source": 7}}])
async def test_an_answer_that_is_no_envelope_fails_the_call(output):
    async with with_server() as (calls, server):
        call = asyncio.create_task(error_of(calls.call("t.op")))
        stream = asyncio.create_task(error_of(anext(calls.subscribe("t.op"))))
        for request in await server.wait_for("call.requested", 2):
            await reply(server, request, output=output)
        assert (await call).code == (await stream).code == ErrorCode.SERIALIZATION_ERROR
        assert len(await server.wait_for("call.aborted")) == 1  # of the stream, which would go on


# --- streams -----------------------------------------------------------------------------------------


async def stream_of(server, calls, items, *ending, **options):
    """What a subscriber sees of a stream that is served by hand."""
    reading = asyncio.create_task(collect(calls.subscribe("t.op", **options)))
    (request,) = await server.wait_for("call.requested")
    for seq in items:
        await reply(server, request, output={**ANSWER, "data": seq}, seq=seq)
    for type_, fields in ending:
        await reply(server, request, type_, **fields)
    async with asyncio.timeout(30):
        return await reading


async def collect(subscription):
    seen = []
    try:
        async for envelope in subscription:
            seen.append(envelope.data)  # noqa: PERF401  # what came before an error counts
    except CallError as error:
        seen.append(error.code)
    return seen


@pytest.mark.parametrize(("items", "ending", "expected"), TABLES["streams"])
async def test_the_items_of_a_stream_are_counted(items, ending, expected):
    """A lost item is ``DATA_LOSS``, one that comes twice is dropped, and the end is the end."""
    async with with_server() as (calls, server):
        assert await stream_of(server, calls, items, ending) == expected
        assert calls.pending == 0


async def test_what_comes_after_the_end_of_a_stream_is_dropped():
    async with with_server() as (calls, server):
        endings = (("call.completed", {"count": 1}), ("call.error", {"code": "X", "message": ""}))
        assert await stream_of(server, calls, [0], *endings) == [0]
        assert calls.late == 1


async def test_credit_is_renewed_when_half_of_it_is_used():
    """Neither for each item, nor so late that the producer has to wait."""
    async with with_server() as (calls, server):
        stream = calls.subscribe("t.op", credit=8)
        reading = asyncio.create_task(anext(stream))
        (request,) = await server.wait_for("call.requested")
        for seq in range(8):
            await reply(server, request, seq=seq)
        await reading
        totals = [len(server.of("call.credit"))]
        for _ in range(7):
            await anext(stream)
            totals.append(len(server.of("call.credit")))
        assert totals == [0, 0, 0, 1, 1, 1, 1, 2]
        assert [credit["total"] for credit in server.of("call.credit")] == [12, 16]
        await stream.aclose()


async def test_the_timeout_of_a_subscription_bounds_the_silence():
    """Each wait for an item has its own bound; the whole has none."""

    async def slow(input, context):
        for number in range(4):
            await asyncio.sleep(0.05)
            yield number
        await asyncio.sleep(60)

    async with both(registry_of(slow=("subscription", slow))) as (handler, calls):
        for seconds in (0.15, 1.0, 5.0):
            seen = await collect(subscribe(calls, "t.slow", timeout=seconds))
            if len(seen) == 5:  # on a busy machine one item may take long
                break
        assert seen == [0, 1, 2, 3, ErrorCode.TIMEOUT]
        await until(lambda: not handler.active)


# --- the serving side ----------------------------------------------------------------------------------


def later(name):
    return OperationSpec(namespace="t", name=name, type="query")


async def test_what_is_registered_later_is_served():
    """A handler follows its registry at once, in both directions."""
    registry = registry_of(one=("query", echo))
    async with both(registry) as (_, calls):
        registry.register(later("two"), echo)
        registry.unregister("t.one")
        await settle(20)
        assert (await calls.call("t.two", {"a": 1})).data == {"a": 1}
        assert (await error_of(calls.call("t.one"))).code == ErrorCode.OPERATION_NOT_FOUND
        registry.register_spec(later("three"))
        await settle(20)
        assert (await error_of(calls.call("t.three"))).code == ErrorCode.OPERATION_NOT_FOUND
        registry.register_handler("t.three", echo)
        await settle(20)
        assert (await calls.call("t.three", {"a": 3})).data == {"a": 3}


async def test_what_is_registered_while_the_handler_follows_is_served():
    """A change during the registration of another one is not overlooked."""
    registry = registry_of(one=("query", echo))
    async with both(registry) as (_, calls):
        for number in range(8):
            registry.register(later(f"n{number}"), echo)
            await asyncio.sleep(0)
        await settle(20)
        for number in range(8):
            assert (await calls.call(f"t.n{number}", {"n": number})).data == {"n": number}


async def test_many_changes_in_one_turn_are_followed_together():
    transport, registry = InProcessTransport(), registry_of(one=("query", echo))
    async with both(registry, transport) as (_, calls), Participant.open(transport) as other:
        await other.link.register("all:operad.changed")
        for number in range(1_000):
            registry.register(later(f"n{number}"), echo)
        await settle(20)
        assert len(other.of("operad.changed")) == 1
        assert (await calls.call("t.n999", {"a": 1})).data == {"a": 1}


async def test_a_registry_does_not_hold_the_handlers_that_follow_it():
    registry = registry_of(one=("query", echo))
    handler = CallHandler(registry, InProcessTransport())
    async with handler:
        await settle(20)
    gone = weakref.ref(handler)
    del handler
    await settle(20)
    gc.collect()
    assert gone() is None


async def test_only_chosen_operations_are_served():
    """What the application does not offer cannot be called, not even by who knows its name."""
    transport, registry = InProcessTransport(), registry_of(open=("query", echo), private=("query", echo))
    chosen = {"operations": lambda spec: spec.name == "open"}
    async with both(registry, transport, chosen) as (handler, calls), Participant.open(transport) as peer:
        assert (await calls.call("t.open", {"a": 1})).data == {"a": 1}
        assert (await error_of(calls.call("t.private"))).code == ErrorCode.OPERATION_NOT_FOUND
        request = {"requestId": "1", "operationId": "t.private", "input": {}, "replyTo": peer.link.inbox}
        await peer.send(handler.link.inbox, "call.requested", **request)
        assert (await peer.wait_for("call.error"))[0]["code"] == ErrorCode.OPERATION_NOT_FOUND


@pytest.mark.parametrize(
    "identity", ["root", 1, [], {"scopes": []}, {"id": 1, "scopes": []}, {"id": "a", "scopes": "x"}]
)
async def test_a_malformed_identity_is_refused(identity):
    """A claim that cannot be read is no anonymous caller."""
    async with with_caller(registry_of(echo=("query", echo))) as (_, peer):
        await peer.request("t.echo", "1", identity=identity)
        (error,) = await peer.wait_for("call.error")
        assert error["code"] == ErrorCode.ACCESS_DENIED
        assert "the identity in the request is not valid: " in error["message"]


async def test_a_verifier_that_fails_refuses_and_keeps_its_secrets():
    """Whatever a verifier raises, the operation does not run, and the caller does not see the message."""

    def verify(payload, delivery):
        raise RuntimeError("the key is 12345")

    options = {"identity": verify, "mask_errors": True}
    async with both(registry_of(echo=("query", echo)), handling=options) as (_, calls):
        error = await error_of(calls.call("t.echo"))
        assert error.code == ErrorCode.EXECUTION_ERROR
        assert "12345" not in repr(error.to_wire())


async def verified(answer):
    return answer


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("answer", ["root", {"id": "root", "scopes": []}, 5])
async def test_a_verifier_that_names_no_identity_refuses(answer, later):
    """What is no identity would be none of those that an operation asks of its caller."""

    def verify(payload, delivery):
        return verified(answer) if later else answer

    async with both(registry_of(echo=("query", echo)), handling={"identity": verify}) as (_, calls):
        error = await error_of(calls.call("t.echo"))
        assert "identity: expected an Identity or None from the verifier, got" in error.message


async def test_a_verifier_has_the_time_of_the_request():
    async with with_caller(registry_of(echo=("query", echo)), identity=waiting) as (handler, peer):
        await peer.request("t.echo", "1", timeoutMs=50)
        assert (await peer.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
        assert handler.active == 0


async def test_a_verifier_whose_time_is_up_before_it_begins_is_not_left_behind():
    """As where the process stood still; a coroutine that nobody awaits warns of itself."""
    begun = []

    async def verify():
        begun.append(True)

    def late(payload, delivery):
        time.sleep(0.02)
        return verify()

    async with with_caller(registry_of(echo=("query", echo)), identity=late) as (_, peer):
        await peer.request("t.echo", "1", timeoutMs=10)
        assert (await peer.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
    gc.collect()
    assert begun == []


async def test_the_log_has_an_error_that_stays_here_once_with_its_operation_and_reference(caplog):

    async def fails(data, context):
        raise ValueError("the key is 12345")

    async with both(registry_of(fails=("query", fails)), handling={"mask_errors": True}) as (_, calls):
        error = await error_of(calls.call("t.fails"))
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    line = f"operation 't.fails' raised ValueError: the key is 12345 (request {error.details['reference']})"
    assert record.getMessage() == line
    assert record.exc_info


@pytest.mark.parametrize("identity", ["ann", {"id": "ann", "scopes": []}, 5])
async def test_what_a_caller_gives_for_an_identity_has_to_be_one(identity):
    async with PendingRequestMap(InProcessTransport()) as calls:
        for made in (calls.call("t.echo", identity=identity), anext(calls.subscribe("t.echo", identity=identity))):
            error = await error_of(made)
            assert error.code == "VALIDATION_ERROR"
            assert "identity: expected an Identity, got" in error.message
        assert calls.pending == 0


async def test_an_unknown_identity_rule_is_refused():
    with pytest.raises(ValueError, match="delegate"):
        CallHandler(OperationRegistry(), InProcessTransport(), identity="peers")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
types = st.sampled_from(
    ["call.requested", "call.responded", "call.error", "call.aborted", "call.completed", "call.credit", "x"]
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "requestId": st.sampled_from(["1", "2"]) | junk,
        "operationId": st.sampled_from(["t.echo", "t.numbers", "operad.list"]) | junk,
        "input": st.just({"to": 3}) | junk,
        "output": st.just(ANSWER) | junk,
        "credit": st.integers(-2, 5) | junk,
        "total": st.integers(-2, 9) | junk,
        "seq": st.integers(-1, 4) | junk,
        "count": st.integers(-1, 4) | junk,
        "deadline": junk,
        "timeoutMs": st.integers(-5, 500) | junk,
        "identity": junk,
        "replyTo": junk,
        "code": junk,
        "message": junk,
        "details": junk,
        "parentRequestId": junk,
        "traceparent": junk,
    },
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(types, fields), max_size=12))
def test_no_event_of_a_peer_breaks_either_side(events):
    """Whatever a peer sends, both sides go on serving, and nothing is left pending."""

    async def body():
        transport = InProcessTransport()
        registry = registry_of(echo=("query", echo), numbers=("subscription", numbers))
        async with CallHandler(registry, transport, lease=0.05) as handler:
            async with PendingRequestMap(transport) as calls, Participant.open(transport) as peer:
                for type_, payload in events:
                    for to in (handler.link.inbox, calls.link.inbox):
                        await peer.send(to, type_, **payload)
                assert (await calls.call("t.echo", {"a": 1})).data == {"a": 1}
                assert [item.data async for item in calls.subscribe("t.numbers", {"to": 3})] == [0, 1, 2]
            await until(lambda: not handler.active)

    asyncio.run(body())


async def test_a_handler_says_how_many_operations_it_serves():
    """What has no handler is not served, nor counted; nor are the handler's own operations."""
    registry = registry_of(echo=("query", echo))
    registry.register_spec(OperationSpec(namespace="t", name="bare", type="query"))
    async with CallHandler(registry, InProcessTransport()) as handler:
        assert handler.serving == 1
    assert handler.serving == 0


async def test_an_error_that_has_no_wire_form_still_ends_its_call():
    """What of it cannot be said is left out; its code arrives, and nobody waits."""

    async def fail(input, context):
        raise CallError("GARBLED", "half a character: \ud800", {"so": "are the details: \ud800"})

    async with both(registry_of(fail=("query", fail)), InProcessTransport(strict=True)) as (_, calls):
        assert (await error_of(calls.call("t.fail"))).code == "GARBLED"
        assert (await error_of(anext(calls.subscribe("t.fail")))).code == "GARBLED"


word = ContextVar("word", default="")


async def test_a_context_variable_of_one_request_is_not_seen_by_the_next():
    seen = []

    async def work(input, context):
        seen.append(word.get())
        word.set("of a request")

    async with both(registry_of(work=("query", work)), Wired()) as (_, calls):
        await asyncio.gather(*(calls.call("t.work") for _ in range(3)))
    assert seen == ["", "", ""]


async def test_a_request_that_is_given_up_cancels_no_other():
    ended, go = [], asyncio.Event()

    async def wait(input, context):
        try:
            await go.wait()
        except asyncio.CancelledError:
            ended.append(f"{input['name']} cancelled")
            raise
        ended.append(input["name"])

    async with both(registry_of(wait=("query", wait)), Wired()) as (handler, calls):
        one, two = (asyncio.create_task(calls.call("t.wait", {"name": name})) for name in ("one", "two"))
        await until(lambda: handler.active == 2)
        one.cancel()
        await until(lambda: ended)
        go.set()
        await two
    assert ended == ["one cancelled", "two"]


# --- both sides ------------------------------------------------------------------------------------------


async def test_forgeries_are_dropped_and_logged(caplog):
    transport = InProcessTransport()
    async with with_server(transport) as (calls, server), Participant.open(transport) as forger:
        task = asyncio.create_task(calls.call("t.op"))
        (request,) = await server.wait_for("call.requested")
        await reply(forger, request)
        assert "does not serve" in caplog.text
        await reply(server, request)
        assert (await task).data == 1


async def test_one_item_may_be_on_its_way_and_none_may_not() -> None:
    async with both(registry_of(op=("subscription", numbers))) as (_, calls):
        assert [item.data async for item in calls.subscribe("t.op", {"to": 3}, credit=1)] == [0, 1, 2]
        with pytest.raises(ValueError, match="credit: expected an integer of at least 1, got 0"):
            [item async for item in calls.subscribe("t.op", {"to": 3}, credit=0)]


async def test_the_log_tells_of_a_lost_connection_but_not_of_one_that_is_drained(caplog) -> None:
    transport = Flapping()
    async with CallHandler(registry_of(wait=("query", waiting)), transport, drain_timeout=0.05) as handler:
        transport.flap()
        lost, back = caplog.messages
        assert ("was lost" in lost, "is back; operations served: 1" in back) == (True, True)
        async with Participant.open(transport.bus) as caller:
            await caller.request("t.wait", "1")
            closing = asyncio.create_task(handler.aclose())
            await asyncio.sleep(0)
            transport.flap()
            await closing
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("authenticates", [True, False])
async def test_ids_of_requests_cannot_be_guessed_where_that_protects_the_answers(authenticates) -> None:
    """A peer that sees one id must not know the next one, unless the transport says who sends."""
    transport = Flapping(authenticates_peer=authenticates)
    async with PendingRequestMap(transport) as calls, Participant.open(transport.bus) as server:
        await server.link.register("op:t.op")
        tasks = [asyncio.create_task(calls.call("t.op")) for _ in range(2)]
        ids = [request["requestId"] for request in await server.wait_for("call.requested", 2)]
        assert (ids[0][:16] == ids[1][:16]) is authenticates
        await cancel(*tasks)


@pytest.mark.parametrize("input", [{"cursor": 7}, {"limit": 0}, {"limit": "all"}, {"cursor": None, "limit": 5}])
async def test_a_page_that_cannot_be_asked_for_is_refused(input) -> None:
    async with both(registry_of(op=("query", echo))) as (_, calls):
        assert (await error_of(calls.call("operad.list", input))).code == ErrorCode.VALIDATION_ERROR
        assert len((await calls.call("operad.list", {"limit": 1})).data["operations"]) == 1


async def test_a_handler_tells_a_consumer_that_it_took_for_gone_and_waits_for_its_own_end():
    """If the consumer is there after all, it learns that its stream has ended."""
    cleaned = []

    async def endless(input, context):
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            cleaned.append(input)

    registry = registry_of(endless=("subscription", endless))
    async with with_caller(registry, lease=0.05, drain_timeout=0.05) as (_, consumer):
        await consumer.request("t.endless", "1", {"n": 1}, credit=5)
        (error,) = await consumer.wait_for("call.error")
        assert (error["requestId"], error["code"]) == ("1", ErrorCode.ABORTED)
        assert "gave no sign of life for 0.05 s" in error["message"]
        await consumer.request("t.endless", "2", {"n": 2}, credit=5)
        await consumer.wait_for("call.responded", 2)
    assert cleaned == [{"n": 1}, {"n": 2}]


async def test_a_call_that_is_aborted_by_its_map_is_over_on_both_sides_at_once():
    async with with_server() as (calls, server):
        task = asyncio.create_task(calls.call("t.op"))
        (request,) = await server.wait_for("call.requested")
        await calls.abort(request["requestId"])
        assert calls.pending == 0
        await server.wait_for("call.aborted")
        error = await error_of(task)
        assert (error.code, error.message) == (ErrorCode.ABORTED, '"t.op" was aborted')
        assert len(server.of("call.aborted")) == 1


async def test_a_subscription_may_have_a_deadline():
    async with both(registry_of(numbers=("subscription", numbers))) as (_, calls):
        past = await error_of(anext(calls.subscribe("t.numbers", {"to": 3}, deadline=1.0)))
        assert past.code == ErrorCode.TIMEOUT
        soon = calls.subscribe("t.numbers", {"to": 3}, deadline=(time.time() + 60) * 1000)
        assert [item.data async for item in soon] == [0, 1, 2]


def test_a_handler_can_be_opened_in_one_loop_after_another_and_refreshed_at_any_time():
    registry, transport = registry_of(echo=("query", echo)), InProcessTransport()
    handler = CallHandler(registry, transport)

    async def serve(name):
        await handler.refresh()
        async with handler, PendingRequestMap(transport) as calls:
            registry.register(OperationSpec(namespace="t", name=name, type="query"), echo)
            await asyncio.gather(handler.refresh(), handler.refresh())
            assert (await calls.call(f"t.{name}", name)).data == name

    for name in ("one", "two"):
        asyncio.run(serve(name))

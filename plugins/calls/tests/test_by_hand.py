"""Requests that an application serves by hand: their ends, deadlines and streams."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from operad import ErrorCode, Identity, InProcessTransport, PendingRequestMap, local_envelope
from operad.transports import LinkDownError
from operad_calls.serving import served
from operad_testing import Participant
from plugins.calls.tests.parts import Flapping, Wired, altered, cancel, error_of, settle

ITEM = local_envelope(1, "t.op")


class Hand(PendingRequestMap):
    """A call map that serves ``t.op`` by hand, and keeps what it is asked."""

    def __init__(self, transport, **options):
        self.requests = asyncio.Queue()
        super().__init__(transport, on_request=self.requests.put_nowait, **options)

    async def asked(self):
        async with asyncio.timeout(30):
            return await self.requests.get()

    async def asked_by(self, peer, request_id="1", input=None, **payload):
        """The request of a peer, as it comes here."""
        await peer.request("t.op", request_id, input, **payload)
        return await self.asked()


@asynccontextmanager
async def both(transport=None, other=None, **options):
    """A server, and a peer that speaks the protocol by itself."""
    transport = transport or InProcessTransport(strict=True)
    async with Hand(transport, **options) as server, Participant.open(other or transport) as peer:
        await server.serve("t.op")
        yield server, peer


@asynccontextmanager
async def called():
    """A server, and a call map."""
    transport = InProcessTransport(strict=True)
    async with Hand(transport) as server, PendingRequestMap(transport) as calls:
        await server.serve("t.op")
        yield server, calls


ENDS = {
    "call.responded": lambda server, name: server.respond(name, ITEM),
    "call.error": lambda server, name: server.emit_error(name, "X"),
    "call.aborted": lambda server, name: server.abort(name),
    "call.completed": Hand.complete,
}


async def assert_unknown(server, name):
    """Assert that no end can be sent for a request."""
    for end in ENDS.values():
        with pytest.raises(LookupError, match="no request"):
            await end(server, name)


@pytest.mark.parametrize("type_", [*ENDS][:3])
async def test_a_request_ends_once(type_):
    async with both() as (server, peer):
        name = (await server.asked_by(peer)).request_id
        await ENDS[type_](server, name)
        await peer.wait_for(type_)
        await assert_unknown(server, name)
        assert [event["type"] for event, _ in peer.events] == [type_]


async def test_a_stream_ends_once():
    async with both() as (server, peer):
        name = (await server.asked_by(peer, credit=5)).request_id
        await server.respond(name, ITEM)
        await server.complete(name)
        assert (await peer.wait_for("call.completed"))[0]["count"] == 1
        await assert_unknown(server, name)


@pytest.mark.parametrize(
    "value", [None, 5, "data", {"data": 1}, {"meta": {"source": "x"}}, {"data": 1, "meta": {}}]
)
async def test_what_is_no_envelope_is_refused_and_the_request_stays(value):
    async with both() as (server, peer):
        name = (await server.asked_by(peer)).request_id
        with pytest.raises(TypeError, match="expected a response envelope, got"):
            await server.respond(name, value)
        await server.respond(name, {"data": 7, "meta": {"source": "x"}})
        assert (await peer.wait_for("call.responded"))[0]["output"]["data"] == 7


async def test_a_request_without_a_deadline_ends_at_the_default_one_and_a_stream_has_none():
    async with both(timeout=0.1) as (server, peer):
        before, without = time.time() * 1000, {"timeoutMs": 1e300, "deadline": None}
        single = await server.asked_by(peer, "single", **without)
        assert before + 100 <= single.deadline <= time.time() * 1000 + 100
        assert (await peer.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT
        await assert_unknown(server, single.request_id)
        stream = await server.asked_by(peer, "stream", credit=5, **without)
        assert stream.deadline is None, "a stream has a lease instead"


async def test_an_item_waits_for_credit_until_the_stream_is_over():
    async with both() as (server, peer):
        name = (await server.asked_by(peer, credit=1)).request_id
        await server.respond(name, ITEM)
        waiting = [asyncio.create_task(server.respond(name, ITEM)) for _ in range(2)]
        await peer.send("op:t.op", "call.credit", requestId="1", total=2, replyTo=peer.link.inbox)
        assert [payload["seq"] for payload in await peer.wait_for("call.responded", 2)] == [0, 1]
        await waiting[0]
        assert not waiting[1].done()
        await peer.send("op:t.op", "call.aborted", requestId="1", replyTo=peer.link.inbox)
        with pytest.raises(LookupError, match="no request"):
            await waiting[1]
        assert len(peer.of("call.responded")) == 2


async def test_on_a_broker_a_stream_is_acknowledged_before_its_first_item():
    async with both(Wired()) as (server, peer):
        name = (await server.asked_by(peer, credit=5)).request_id
        for _ in range(2):
            await server.respond(name, ITEM)
        await peer.wait_for("call.responded", 2)
        events = [event for event, _ in peer.events]
        assert [event["type"] for event in events] == ["call.credit", "call.responded", "call.responded"]
        assert events[0]["payload"]["replyTo"] == server.link.inbox


async def test_between_processes_a_failure_of_on_request_is_masked(caplog):
    def refuse(request):
        raise ValueError("the password is 1234")

    transport = Wired()
    async with PendingRequestMap(transport, on_request=refuse) as server, Participant.open(transport) as peer:
        await server.serve("t.op")
        await peer.request("t.op", "1")
        (error,) = await peer.wait_for("call.error")
    assert error["code"] == "EXECUTION_ERROR"
    assert "1234" not in error["message"]


@pytest.mark.parametrize("credit", [{}, {"credit": 2}])
async def test_an_answer_by_hand_that_is_too_large_is_an_error_on_both_sides(credit):
    async with both(InProcessTransport(strict=True, max_payload=1_000)) as (server, peer):
        name = (await server.asked_by(peer, **credit)).request_id
        failure = await error_of(server.respond(name, local_envelope("x" * 1_000, "t.op")))
        (error,) = await peer.wait_for("call.error")
        assert (error["code"], error["message"]) == (failure.code, failure.message)
        assert (failure.code, len(peer.events)) == (ErrorCode.PAYLOAD_TOO_LARGE, 1)
        await assert_unknown(server, name)


@pytest.mark.parametrize("answers", [False, True])
async def test_a_request_that_could_not_be_taken_is_over_unless_it_was_answered_before(caplog, answers):
    names, transport = [], InProcessTransport(strict=True)

    def refuse(request):
        names.append(request.request_id)
        if answers:
            with pytest.raises(StopIteration):  # within one process nothing waits
                server.respond(names[0], ITEM).send(None)
        raise ValueError("no room")

    server = PendingRequestMap(transport, on_request=refuse)
    async with server, Participant.open(transport) as peer:
        await server.serve("t.op")
        await peer.request("t.op", "1")
        if answers:
            assert (await peer.wait_for("call.responded"))[0]["output"]["data"] == 1
        else:
            (error,) = await peer.wait_for("call.error")
            assert (error["code"], error["message"]) == ("EXECUTION_ERROR", "ValueError: no room")
        await settle()
        assert len(peer.events) == 1
        assert "on_request failed for t.op" in caplog.text
        await assert_unknown(server, names[0])


class Unspoken(InProcessTransport):
    """Does not report that a link closes, as links over a broker."""

    async def open(self, on_event, on_link):
        return await super().open(on_event, lambda state, epoch: None)


async def test_what_was_not_ended_is_forgotten_when_the_map_closes():
    async with both(Unspoken(strict=True)) as (server, peer):
        name = (await server.asked_by(peer)).request_id
        await server.aclose()
        with pytest.raises(LookupError, match="no request"):
            await server.respond(name, ITEM)
        await server.open()
        await assert_unknown(server, name)


async def test_requests_can_be_served_by_hand():
    async with called() as (server, calls):
        task = asyncio.create_task(calls.call("t.op", {"a": 1}, identity=Identity("alice")))
        request = await server.asked()
        assert (request.operation_id, request.input, request.identity) == ("t.op", {"a": 1}, None)
        assert not request.is_subscription
        await server.respond(request.request_id, ITEM)
        assert (await task).data == 1

        task = asyncio.create_task(error_of(calls.call("t.op")))
        await server.emit_error((await server.asked()).request_id, "X", "no", {"a": object})
        assert (await task).code == "X"

        async def items():
            return [item.data async for item in calls.subscribe("t.op", credit=2)]

        task = asyncio.create_task(items())
        request = await server.asked()
        assert request.is_subscription
        for number in range(10):
            await server.respond(request.request_id, local_envelope(number, "t.op"))
        await server.complete(request.request_id)
        assert await task == list(range(10))

        task = asyncio.create_task(calls.call("t.op"))
        request = await server.asked()
        await cancel(task)
        await settle()
        await assert_unknown(server, request.request_id)  # the caller has left


async def test_requests_of_one_id_that_are_served_by_hand_are_kept_apart():
    """Two callers chose the same id: each gets its own answer, under the id that it chose."""
    transport = InProcessTransport(strict=True)
    async with both(transport) as (server, one), Participant.open(transport) as two:
        requests = [await server.asked_by(peer, "the id", whose) for peer, whose in ((one, "one"), (two, "two"))]
        for request in requests:
            await server.respond(request.request_id, local_envelope(request.input, "t.op"))
        for peer, whose in ((one, "one"), (two, "two")):
            (answer,) = await peer.wait_for("call.responded")
            assert (answer["requestId"], answer["output"]["data"]) == ("the id", whose)


async def test_what_cannot_be_sent_by_hand_ends_the_request():
    """A caller is told even when the answer has no wire form."""
    async with called() as (server, calls):
        task = asyncio.create_task(error_of(calls.call("t.op")))
        await error_of(server.respond((await server.asked()).request_id, local_envelope({1, 2}, "t.op")))
        assert (await task).code == ErrorCode.SERIALIZATION_ERROR


async def test_a_map_that_takes_no_requests_answers_none():
    async with PendingRequestMap(InProcessTransport()) as calls:
        for end in ENDS.values():
            with pytest.raises(LookupError):
                await end(calls, "1")
        with pytest.raises(RuntimeError, match="on_request"):
            await calls.serve("t.op")


async def test_a_request_that_is_served_by_hand_ends_with_its_link():
    """Where the loss of the link tells callers of the loss of their requests, and only when it is lost."""
    transport = Flapping(detects_peer_loss=True)
    async with both(transport, transport.bus) as (server, caller):
        first = await server.asked_by(caller, "1")
        transport.states[0]("up", 1)
        await server.respond(first.request_id, ITEM)
        second = await server.asked_by(caller, "2")
        transport.flap()
        await assert_unknown(server, second.request_id)


async def test_what_is_served_by_hand_waits_for_room_too():
    async with both(Wired()) as (server, caller):
        request = await server.asked_by(caller, creditBytes=10)
        answering = asyncio.create_task(server.respond(request.request_id, local_envelope("x" * 5_000, "t.op")))
        question = (await caller.wait_for("call.credit"))[-1]
        assert question["wantsBytes"] > 5_000
        await caller.send(question["replyTo"], "call.aborted", requestId="1", replyTo=caller.link.inbox)
        assert "no longer waits" in (await error_of(answering)).message


async def test_what_is_served_by_hand_answers_no_credit_of_a_single_call(monkeypatch):
    monkeypatch.setattr(served, "_NOTICE_AFTER", 60.0)  # or a busy machine gives notice of it
    async with both(Wired()) as (server, caller):
        await server.asked_by(caller)
        for name in ("1", "of nobody"):
            room = {"requestId": name, "totalBytes": 10, "replyTo": caller.link.inbox}
            await caller.send("op:t.op", "call.credit", **room)
        await settle()
        assert caller.of("call.credit") == []
        await server.respond("1", ITEM)
        assert len(await caller.wait_for("call.responded")) == 1


@pytest.mark.parametrize("error", [None, LinkDownError("cut")])
async def test_an_answer_by_hand_that_does_not_leave_ends_its_request(error):
    """Cancelled while it waits for the socket, or cut: the request holds no place of its caller any more."""

    def jam(link):
        send = link.send

        async def jammed(to, event):
            if event["type"] != "call.responded":
                return await send(to, event)
            if error is not None:
                raise error
            return await asyncio.Event().wait()

        link.send = jammed

    transport = altered(jam, Wired())
    async with both(transport, transport.bus) as (server, caller):
        name = (await server.asked_by(caller)).request_id
        answering = asyncio.create_task(server.respond(name, ITEM))
        await asyncio.wait({answering}, timeout=0.01 if error is None else 30)
        answering.cancel()
        (end,) = await asyncio.gather(answering, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError if error is None else LinkDownError)
        await assert_unknown(server, name)

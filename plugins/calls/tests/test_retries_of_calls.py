"""Calls that are made again: what did not run, what may run twice, and nothing else."""

import asyncio

import pytest

from operad import CallHandler, ErrorCode, Identity, PendingRequestMap
from operad.transports import Capabilities, LinkDownError, NoRespondersError
from operad_calls import InProcessTransport
from operad_calls.calling import retries
from operad_testing import Participant
from plugins.calls.tests.parts import ANSWER, cancel, error_of, registry_of, reply, with_server


class Flaky:
    """A transport whose links refuse the first sends, each with the next of the given errors."""

    def __init__(self, *errors):
        self.bus = InProcessTransport()
        self.capabilities = Capabilities(detects_no_responders=True)
        self.errors = list(errors)
        self.sends = 0

    async def open(self, on_event, on_link):
        self.on_link = on_link
        link = await self.bus.open(on_event, on_link)
        send = link.send

        async def failing(to, event):
            if to.startswith("op:"):
                self.sends += 1
                if self.errors:
                    raise self.errors.pop(0)
            return await send(to, event)

        link.send = failing
        return link


async def answer(input, context):
    return "done"


def serving(transport, **handlers):
    return CallHandler(registry_of(**handlers), transport.bus)


async def test_the_pauses_double_up_to_two_seconds(monkeypatch):
    longest = []
    monkeypatch.setattr(retries.random, "uniform", lambda low, high: longest.append((low, high)) or 0.0)
    transport = Flaky(*[LinkDownError("cut") for _ in range(8)])
    async with serving(transport, op=("query", answer)), PendingRequestMap(transport) as calls:
        assert (await calls.call("t.op", retry="unsent")).data == "done"
    assert longest == [(0.0, pause) for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0)]


@pytest.mark.parametrize("retry", ["unsent", "safe", True])
async def test_what_was_not_sent_is_called_again_whatever_it_is(retry):
    transport = Flaky(LinkDownError("cut"), LinkDownError("cut"))
    async with serving(transport, op=("mutation", answer)), PendingRequestMap(transport) as calls:
        assert (await calls.call("t.op", retry=retry)).data == "done"
        assert transport.sends == 3


async def test_without_it_nothing_is_called_again():
    transport = Flaky(LinkDownError("cut"))
    async with serving(transport, op=("query", answer)), PendingRequestMap(transport) as calls:
        error = await error_of(calls.call("t.op"))
        assert (error.code, error.ran, transport.sends) == (ErrorCode.UNAVAILABLE, False, 1)


async def test_an_overloaded_handler_is_asked_again_later():
    async with with_server(Flaky()) as (calls, server):
        task = asyncio.create_task(calls.call("t.op", retry="unsent"))
        (request,) = await server.wait_for("call.requested")
        await reply(server, request, "call.error", code="OVERLOADED", message="")
        await reply(server, (await server.wait_for("call.requested", 2))[1])
        assert (await task).data == 1


async def lost_once(calls, server, **options):
    """What becomes of a call whose first handler is lost."""
    task = asyncio.create_task(calls.call("t.op", timeout=5, **options))
    (request,) = await server.wait_for("call.requested")
    await reply(server, request, "call.error", code="UNAVAILABLE", message="", details={"sent": True})
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(
    ("type_", "idempotent", "again"),
    [("query", False, True), ("mutation", True, True), ("mutation", False, False), (None, False, False)],
)
async def test_what_may_have_run_is_called_again_where_those_who_serve_it_say_so(type_, idempotent, again):
    """They are asked once for each operation; what nobody describes is taken for a mutation."""
    async with with_server(Flaky()) as (calls, server):
        if type_ is not None:
            await server.link.register("op:operad.describe")
        task = await lost_once(calls, server, retry="safe")
        if type_ is not None:
            asked = (await server.wait_for("call.requested", 2))[1]
            assert asked["operationId"] == "operad.describe"
            assert asked["input"] == {"operationId": "t.op"}
            spec = {"id": "t.op", "type": type_, "idempotent": idempotent}
            await reply(server, asked, output={**ANSWER, "data": spec})
        if again:
            await reply(server, (await server.wait_for("call.requested", 3))[2])
            assert (await task).data == 1
        else:
            assert (await error_of(task)).details["sent"] is True
            assert len(server.of("call.requested")) == (1 if type_ is None else 2)


async def test_unsent_does_not_repeat_what_may_have_run():
    async with with_server(Flaky()) as (calls, server):
        await server.link.register("op:operad.describe")
        error = await error_of(await lost_once(calls, server, retry="unsent"))
        assert (error.code, error.ran) == (ErrorCode.UNAVAILABLE, None)
        assert len(server.of("call.requested")) == 1, "not even whether it may run twice is asked"


@pytest.mark.parametrize("retry", ["unsent", "safe", True])
async def test_that_nobody_serves_an_operation_is_final_if_it_never_answered(retry):
    """A misspelt id fails at once."""
    transport = Flaky()
    async with PendingRequestMap(transport) as calls:
        error = await error_of(calls.call("t.oops", retry=retry))
        assert (error.code, error.ran, transport.sends) == (ErrorCode.NO_RESPONDERS, False, 1)


async def test_an_operation_that_has_answered_may_be_back_in_a_moment():
    """Workers that restart are away for a moment."""
    transport = Flaky()
    async with PendingRequestMap(transport) as calls:
        async with serving(transport, op=("mutation", answer)):
            await calls.call("t.op")
        task = asyncio.create_task(calls.call("t.op", retry="unsent"))
        await asyncio.sleep(0.02)
        assert not task.done()
        async with serving(transport, op=("mutation", answer)):
            assert (await task).data == "done"


async def test_after_a_break_those_who_serve_may_be_back_in_a_moment():
    """Of all that a hub or broker carries, the caller may be the first one to be back."""
    transport = Flaky(NoRespondersError("nobody yet"), NoRespondersError("nobody yet"))
    async with serving(transport, op=("mutation", answer)), PendingRequestMap(transport) as calls:
        transport.on_link("down", 1)
        transport.on_link("up", 2)
        assert (await calls.call("t.op", retry="unsent")).data == "done"


async def test_that_the_last_attempt_did_not_run_is_not_the_whole_truth(monkeypatch):
    """What may have run in an earlier attempt is not reported as what did not run."""
    monkeypatch.setattr(retries, "_ABSENT", 0.1)
    transport = Flaky()
    async with PendingRequestMap(transport) as calls:
        async with Participant.open(transport.bus) as server:
            await server.link.register("op:t.op")
            task = await lost_once(calls, server, retry=True)
        error = await error_of(task)
        assert (error.code, error.ran, error.details["sent"]) == (ErrorCode.UNAVAILABLE, None, True)


async def test_a_call_that_waits_for_the_link_ends_at_its_deadline():
    transport = Flaky(*[LinkDownError("cut") for _ in range(50)])
    async with PendingRequestMap(transport) as calls:
        transport.on_link("down", 1)
        for seconds in (0.2, 2.0, 10.0):
            error = await error_of(calls.call("t.op", retry="unsent", timeout=seconds))
            if transport.sends:  # on a busy machine its time may be up before
                break
        assert (error.code, error.ran) == (ErrorCode.UNAVAILABLE, False)
        assert transport.sends == 1


async def test_an_unknown_word_for_retry_is_refused():
    async with PendingRequestMap(InProcessTransport()) as calls:
        with pytest.raises(ValueError, match="unsent"):
            await calls.call("t.op", retry="always")


async def test_a_delegation_is_signed_anew_for_each_attempt():
    """It counts once: the one of the attempt that was lost is used up."""
    transport, signed = Flaky(LinkDownError("cut")), []

    def sign(operation_id, identity):
        signed.append(f"{identity.id} {operation_id} {len(signed)}")
        return signed[-1]

    async with PendingRequestMap(transport, sign=sign) as calls, Participant.open(transport.bus) as server:
        await server.link.register("op:t.op")
        task = asyncio.create_task(calls.call("t.op", identity=Identity("alice"), retry="unsent"))
        (request,) = await server.wait_for("call.requested")
        assert request["delegation"] == "alice t.op 1"
        await cancel(task)

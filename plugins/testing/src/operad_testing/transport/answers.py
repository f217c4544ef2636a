"""The part of the transport suite about calls, the handlers that receive them, and their results."""

from __future__ import annotations

import asyncio
import math
import time

from operad import OperationRegistry
from operad.errors import ErrorCode
from operad_calls import CallHandler, protocol
from operad_testing._examples import skip
from operad_testing.transport.participant import (
    Kit,
    Served,
    TransportSuite,
    data_of,
    error_of,
    unguessable,
    with_kit,
)


class Answers(TransportSuite):
    """Tests of calls with one response."""

    @with_kit
    async def test_answers_find_their_calls(self, kit: Kit) -> None:
        """Each of many concurrent calls receives its own response, also if responses arrive out of order."""
        async with kit.serving(), kit.calling() as calls:
            delays = [((number * 7) % 10) / 1000 for number in range(100)]
            made = (calls.call("kit.echo", {"value": n, "delay": d}) for n, d in enumerate(delays))
            assert [envelope.data for envelope in await asyncio.gather(*made)] == list(range(100))
            assert calls.pending == 0

    @with_kit
    async def test_values_arrive_unchanged(self, kit: Kit) -> None:
        """JSON values of every type come back as they were sent, in an envelope that names the operation."""
        value = {"text": "grüße \u2028 \U0001f41f \x00", "numbers": [0, -1, 1.5, 2**53 + 1, 10**30], "none": None}
        async with kit.serving(), kit.calling() as calls:
            envelope = await calls.call("kit.echo", {"value": value})
            assert envelope.data == value
            assert envelope.meta.operation_id == "kit.echo"
            assert (await calls.call("kit.echo")).data is None

    @with_kit
    async def test_errors_arrive_with_code_and_details(self, kit: Kit) -> None:
        """A `CallError` arrives unchanged. Messages of other exceptions are masked, unless within one process."""
        async with kit.serving(), kit.calling() as calls:
            error = await error_of(calls.call("kit.fail", {"declared": True}))
            assert (error.code, error.message) == ("LOST_SHOE", "there is one shoe only")
            assert error.details == {"shoes": 1}
            error = await error_of(calls.call("kit.fail"))
            assert error.code == ErrorCode.EXECUTION_ERROR
            assert ("the secret" in error.message) is kit.capabilities.same_process

    @with_kit
    async def test_details_of_an_error_are_any_json_value(self, kit: Kit) -> None:
        """The details of an error can be any JSON value, and arrive unchanged, for calls and for streams."""
        async with kit.serving(), kit.calling() as calls:
            for details in ([1, {"a": None}], "a text", 0, 1.5, False, 10**30, {}, {"a": [1]}):
                error = await error_of(calls.call("kit.fail", {"declared": True, "details": details}))
                assert (error.code, error.details) == ("LOST_SHOE", details)
                input = {"to": 0, "then": "fail", "details": details}
                error = await error_of(anext(calls.subscribe("kit.count", input)))
                assert (error.code, error.details) == ("BROKEN", details)

    @with_kit
    async def test_an_answer_of_an_unknown_kind_passes(self, kit: Kit) -> None:
        """A result whose metadata the caller cannot read is accepted: the metadata arrive as they were sent."""
        async with kit.serving(), kit.calling() as calls:
            answers = [await calls.call("kit.pigeon"), await anext(calls.subscribe("kit.pigeons"))]
            for envelope in answers:
                assert (envelope.data, envelope.meta.source) == ("coo", "pigeon")
                assert envelope.to_wire()["meta"] == {"source": "pigeon", "grams": 420}

    @with_kit
    async def test_that_nothing_ran_is_not_said_for_another_call(self, kit: Kit) -> None:
        """If a handler raises a code for "nothing ran", the caller gets ``EXECUTION_ERROR`` with the cause."""
        async with kit.serving(), kit.calling() as calls:
            for code in ("NO_RESPONDERS", "OPERATION_NOT_FOUND", "OVERLOADED", "UNAVAILABLE"):
                error = await error_of(calls.call("kit.blames", {"code": code}))
                assert (error.code, error.ran) == (ErrorCode.EXECUTION_ERROR, None)
                cause = {"code": code, "message": "of another call", "details": {"sent": False}}
                assert error.details["cause"] == cause

    @with_kit
    async def test_any_operation_id_can_be_called(self, kit: Kit) -> None:
        """Ids with dots, wildcards, slashes, other scripts and great length are valid addresses."""
        ids = (
            "kit.a.b",
            "kit.a.*",
            "kit.>",
            "kit.*",
            "kit.pulls/{id}?x=1#y",
            "kit.größe",
            "kit.操作",
            "kit." + "n" * 400,
        )
        async with kit.serving(extra=ids), kit.calling() as calls:
            assert [(await calls.call(operation_id)).data for operation_id in ids] == list(ids)

    @with_kit
    async def test_the_context_crosses(self, kit: Kit) -> None:
        """The handler receives the parent, the deadline and the trace of a call."""
        async with kit.serving(), kit.calling() as calls:
            deadline = time.time() * 1000 + 60_000
            trace = {"traceparent": "t", "tracestate": "s", "baggage": "k=" + "é%C3%A9," * 500}
            seen = await calls.call("kit.context", parent_request_id="p", deadline=deadline, **trace)  # type: ignore[arg-type]  # three texts, by name
            assert (seen.data["parent"], seen.data["trace"]) == ("p", trace)
            assert abs(seen.data["deadline"] - deadline) < 5_000
            # Baggage is also sent without a trace.
            alone = await calls.call("kit.context", baggage="k=v", deadline=deadline)
            assert alone.data["trace"] == {"baggage": "k=v"}

    @with_kit
    async def test_nobody_serves(self, kit: Kit) -> None:
        """If the transport detects operations without a server, calls of such an operation fail immediately."""
        if not kit.capabilities.detects_no_responders:
            skip("the transport does not detect operations without a server")
        knows = kit.capabilities.detects_peer_loss
        expected = ErrorCode.OPERATION_NOT_FOUND if knows else ErrorCode.NO_RESPONDERS
        async with kit.serving(), kit.calling() as calls:
            for ending in (calls.call("kit.unknown", timeout=60), anext(calls.subscribe("kit.unknown"))):
                error = await error_of(ending)
                assert error.code == expected, f"got {error.code}"
                assert error.ran is False, "nothing ran, and the transport knows"
                assert error.details is not None
                assert error.details["operationId"] == "kit.unknown"
            assert calls.pending == 0

    @with_kit
    async def test_each_request_runs_once(self, kit: Kit) -> None:
        """Each request reaches one of several handlers. If the transport balances, every handler gets requests."""
        one, two = Served(), Served()
        async with kit.serving(one), kit.serving(two), kit.calling() as calls:
            names = [f"job {number}" for number in range(200)]
            await asyncio.gather(*(calls.call("kit.work", {"name": name}) for name in names))
            assert sorted(one.runs + two.runs) == sorted(names)
            if kit.capabilities.balances:
                assert one.runs
                assert two.runs

    @with_kit
    async def test_handlers_of_other_operations_stay_silent(self, kit: Kit) -> None:
        """A handler that does not serve an operation sends no response for it."""
        other = CallHandler(OperationRegistry(), kit.transport)
        async with other, kit.serving(extra=("other.one",)), kit.calling() as calls:
            results = [(await calls.call("other.one")).data for _ in range(10)]
            assert results == ["other.one"] * 10

    @with_kit
    async def test_a_request_id_belongs_to_its_caller(self, kit: Kit) -> None:
        """Two callers that choose the same request id both receive their own response."""
        async with kit.serving(), kit.participant() as one, kit.participant() as two:
            await one.request("kit.echo", "the-id", {"value": "one", "delay": 0.05})
            await two.request("kit.echo", "the-id", {"value": "two", "delay": 0.05})
            assert data_of((await one.wait_for(protocol.RESPONDED))[0]) == "one"
            assert data_of((await two.wait_for(protocol.RESPONDED))[0]) == "two"
            assert one.of(protocol.RESPONDED)[0]["requestId"] == "the-id"
            assert two.of(protocol.RESPONDED)[0]["requestId"] == "the-id"

    @with_kit
    async def test_a_request_that_comes_twice_runs_once(self, kit: Kit) -> None:
        """A request that the same caller sends twice while it runs is run once and has one response."""
        async with kit.serving(), kit.participant() as caller:
            await caller.request("kit.wait", "twice")
            await caller.request("kit.wait", "twice")
            await kit.served.until(lambda: kit.served.started >= 1)
            await caller.request("kit.echo", "after", {"value": 1})
            await caller.wait_for(protocol.RESPONDED)
            kit.served.gate.set()
            await caller.wait_for(protocol.RESPONDED, 2)
            assert kit.served.started == 1

    @with_kit
    async def test_everybody_gets_what_is_for_all(self, kit: Kit) -> None:
        """An event sent to a topic reaches all links that registered it, and no others."""
        async with kit.participant() as one, kit.participant() as two, kit.participant() as three:
            await one.link.register("all:news")
            registration = await two.link.register("all:news")
            await three.link.register("all:other")
            await three.send("all:news", "news", number=1)
            assert await one.wait_for("news") == [{"number": 1}]
            assert await two.wait_for("news") == [{"number": 1}]
            await registration.unregister()
            await registration.unregister()
            await three.send("all:news", "news", number=2)
            assert await one.wait_for("news", 2) == [{"number": 1}, {"number": 2}]
            assert len(two.of("news")) == 1
            assert not three.of("news")

    @with_kit
    async def test_an_inbox_cannot_be_guessed(self, kit: Kit) -> None:
        """The addresses of some links do not reveal the address of another link."""
        async with kit.participant() as one, kit.participant() as two, kit.participant() as three:
            inboxes = [peer.link.inbox for peer in (one, two, three)]
            assert all(inbox.startswith("inbox:") for inbox in inboxes), f"got {inboxes}"
            unguessable(inboxes)

    @with_kit
    async def test_what_has_no_json_form_is_an_error(self, kit: Kit) -> None:
        """If JSON cannot represent an input or result, its call alone fails, with ``SERIALIZATION_ERROR``."""
        async with kit.serving(), kit.calling() as calls:
            if not await kit.encodes(calls):
                skip("events are handed over without encoding")
            for what in ("nan", "set", "key", "bytes"):
                error = await error_of(calls.call("kit.unencodable", {"what": what}, timeout=60))
                assert error.code == ErrorCode.SERIALIZATION_ERROR
            error = await error_of(calls.call("kit.echo", {"value": math.inf}))
            assert error.code == ErrorCode.SERIALIZATION_ERROR
            assert (await calls.call("kit.echo", {"value": 1})).data == 1
            assert calls.pending == 0

    @with_kit
    async def test_what_is_too_large_is_an_error(self, kit: Kit) -> None:
        """If a request, result or item is too large, its call alone fails, with ``PAYLOAD_TOO_LARGE``."""
        limit = kit.capabilities.max_payload
        if limit is None:
            skip("the transport has no limit")
        async with kit.serving() as handler, kit.calling() as calls:
            error = await error_of(calls.call("kit.big", {"size": limit + 1}, timeout=60))
            assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
            for size in (limit + 1, limit + 10 * 2**20):  # that is more than may be on its way at all
                error = await error_of(anext(calls.subscribe("kit.bigs", {"size": size}, timeout=30)))
                assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
            error = await error_of(calls.call("kit.echo", {"value": "x" * (limit + 1)}, timeout=60))
            assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
            large = "x" * (limit - 4_096)
            assert (await calls.call("kit.big", {"size": len(large)})).data == large
            await kit.served.until(lambda: handler.active == 0)
            assert calls.pending == 0

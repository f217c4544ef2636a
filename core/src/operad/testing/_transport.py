"""Conformance of transports: what the call protocol needs of one, shown through the call protocol."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import combinations
from typing import Any, ClassVar

import attrs

from operad import protocol
from operad.access import AccessControl, Identity
from operad.calls import CallHandler, PendingRequestMap
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec
from operad.registry.registry import OperationRegistry
from operad.testing._examples import skip
from operad.testing._running import run
from operad.transports import Capabilities, Delivery, Event, Link, LinkState, Transport, TransportError

SOON = 10.0
"""Seconds within which something has to happen that should happen at once: a bound, not a measurement."""


class Participant:
    """A raw link that keeps what it received: a peer that speaks the events by hand."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, Delivery]] = []
        self.states: list[LinkState] = []
        self.epochs: list[int] = []
        self.link: Link
        self._changed = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, transport: Transport) -> AsyncIterator[Participant]:
        """A participant on a transport."""
        made = cls()
        made.link = await transport.open(made.on_event, made.on_link)
        try:
            yield made
        finally:
            await made.link.close()

    def on_event(self, event: Event, delivery: Delivery) -> None:
        """What a link calls."""
        self.events.append((event, delivery))
        if event["type"] == protocol.REQUESTED and delivery.done is not None:
            delivery.done()
        self._changed.set()

    def on_link(self, state: LinkState, epoch: int) -> None:
        """What a link calls."""
        self.states.append(state)
        self.epochs.append(epoch)

    def of(self, type_: str) -> list[dict[str, Any]]:
        """The payloads of all events of a type, in the order of arrival."""
        return [event["payload"] for event, _ in self.events if event["type"] == type_]

    async def wait_for(self, type_: str, count: int = 1) -> list[dict[str, Any]]:
        """The payloads of the events of a type, once there are as many."""
        async with asyncio.timeout(SOON):
            while len(self.of(type_)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(type_)

    async def send(self, to: str, type_: str, **payload: Any) -> str | None:
        """Send an event."""
        return await self.link.send(to, {"type": type_, "id": "", "payload": payload})

    async def request(self, operation_id: str, request_id: str, input: Any = None, **payload: Any) -> str:
        """Send a request; answers where what follows it goes."""
        values: dict[str, Any] = {
            "input": {} if input is None else input,
            "replyTo": self.link.inbox,
            "timeoutMs": 20_000,
            **payload,
        }
        values.setdefault("deadline", math.ceil(time.time() * 1000 + values["timeoutMs"]))
        to = f"op:{operation_id}"
        follow = await self.send(to, protocol.REQUESTED, requestId=request_id, operationId=operation_id, **values)
        return follow or ""


@attrs.define(eq=False)
class Served:
    """What the operations of the kit saw."""

    runs: list[str] = attrs.field(factory=list)
    """What `kit.work` was given, in order."""
    started: int = 0
    ended: int = 0
    """How many waits and streams were left, in whatever way."""
    yielded: int = 0
    gate: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(SOON):
            while not condition():  # noqa: ASYNC110  # conditions of all kinds, some of other processes
                await asyncio.sleep(0.005)


@attrs.frozen
class PigeonMeta:
    """Metadata of a kind that no plugin declares."""

    source: ClassVar[str] = "pigeon"

    grams: int


def kit_registry(served: Served, extra: tuple[str, ...] = ()) -> OperationRegistry:  # noqa: C901  # a list of small handlers
    """The operations that the kit calls.

    Args:
        served: where they write what they saw.
        extra: ids of further operations, which answer their own id.
    """
    registry = OperationRegistry()

    def add(name: str, type: str, handler: Callable[..., Any], **spec: Any) -> None:
        registry.register(OperationSpec(namespace="kit", name=name, type=type, **spec), handler)

    async def echo(input: Any, context: OperationContext) -> Any:
        await asyncio.sleep(input.get("delay", 0))
        return input.get("value")

    async def work(input: Any, context: OperationContext) -> Any:
        served.runs.append(input["name"])
        await asyncio.sleep(0)
        return input["name"]

    async def wait(input: Any, context: OperationContext) -> str:
        served.started += 1
        try:
            await served.gate.wait()
        finally:
            served.ended += 1
        return "waited"

    async def nested(input: Any, context: OperationContext) -> Any:
        return (await context.env.kit.wait({})).data

    async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
        served.started += 1
        try:
            for number in range(input["to"]):
                served.yielded += 1
                yield number
            if input.get("then") == "fail":
                raise CallError("BROKEN", "it broke", input.get("details", {"after": input["to"]}))
            if input.get("then") == "wait":
                await served.gate.wait()
        finally:
            served.ended += 1

    async def fail(input: Any, context: OperationContext) -> None:
        if input.get("declared"):
            raise CallError("LOST_SHOE", "there is one shoe only", input.get("details", {"shoes": 1}))
        raise ValueError("the secret is 42")

    async def whoami(input: Any, context: OperationContext) -> Any:
        return None if context.identity is None else context.identity.id

    async def context_of(input: Any, context: OperationContext) -> Any:
        return {
            "parent": context.parent_request_id,
            "deadline": context.deadline,
            "trace": context.metadata.get("traceparent"),
        }

    async def unencodable(input: Any, context: OperationContext) -> Any:
        return {"nan": math.nan, "set": {1}, "key": {1: 2}, "bytes": [b"x"]}[input["what"]]

    async def big(input: Any, context: OperationContext) -> Any:
        return "x" * input["size"]

    async def bigs(input: Any, context: OperationContext) -> AsyncIterator[str]:
        yield "x" * input["size"]

    async def blames(input: Any, context: OperationContext) -> Any:
        raise CallError(input["code"], "of another call", {"sent": False})

    async def pigeon(input: Any, context: OperationContext) -> ResponseEnvelope[str]:
        return ResponseEnvelope("coo", PigeonMeta(grams=420))

    async def pigeons(input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[str]]:
        yield ResponseEnvelope("coo", PigeonMeta(grams=420))

    add("blames", "mutation", blames)
    add("pigeon", "mutation", pigeon)
    add("pigeons", "subscription", pigeons)
    add("echo", "query", echo)
    add("work", "mutation", work)
    add("wait", "query", wait)
    add("nested", "query", nested)
    add("count", "subscription", count)
    add("fail", "mutation", fail)
    add("whoami", "query", whoami)
    add("context", "query", context_of)
    add("guarded", "query", whoami, access_control=AccessControl(required_scopes=["kit"]))
    add("unencodable", "query", unencodable)
    add("big", "query", big)
    add("bigs", "subscription", bigs)
    for operation_id in extra:
        namespace, _, name = operation_id.partition(".")

        async def own_id(input: Any, context: OperationContext, answer: str = operation_id) -> str:
            return answer

        registry.register(OperationSpec(namespace=namespace, name=name, type="query"), own_id)
    return registry


class TransportConformance:
    """What every transport keeps to.

    ::

        class TestPigeons(TransportConformance):
            @asynccontextmanager
            async def transport(self):
                async with pigeon_loft() as loft:
                    yield PigeonTransport(loft.url)

    The tests are plain functions that run an event loop of their own: they need no pytest plugin.
    """

    def transport(self) -> AbstractAsyncContextManager[Transport]:
        """A transport to a bus, hub or broker (or a part of one) that only this test uses."""
        raise NotImplementedError

    def authenticated(self, transport: Transport, identity: Identity) -> Transport:
        """A transport to the same hub whose links are authenticated as ``identity``.

        Needed where `Capabilities.authenticates_peer` is declared; such an identity is asked for under the ids
        ``alice`` (with the scope ``kit``) and ``bob`` (without).
        """
        raise NotImplementedError

    async def sever(self, transport: Transport) -> None:
        """Cut all connections of the transport's links at once, without a farewell, so that they can come back.

        Leave it out where links cannot be cut.
        """
        raise NotImplementedError

    # --- answers ---------------------------------------------------------------------------------

    def test_answers_find_their_calls(self) -> None:
        """Of many calls at once, answered out of order, each gets its own answer."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                delays = [((number * 7) % 10) / 1000 for number in range(100)]
                made = (calls.call("kit.echo", {"value": n, "delay": d}) for n, d in enumerate(delays))
                assert [envelope.data for envelope in await asyncio.gather(*made)] == list(range(100))
                assert calls.pending == 0

        self._run(body)

    def test_values_arrive_unchanged(self) -> None:
        """JSON values of every type come back as they were sent, in an envelope of the handler's kind."""
        value = {"text": "grüße \u2028 \U0001f41f \x00", "numbers": [0, -1, 1.5, 2**53 + 1, 10**30], "none": None}

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                envelope = await calls.call("kit.echo", {"value": value})
                assert envelope.data == value
                assert envelope.meta.operation_id == "kit.echo"
                assert (await calls.call("kit.echo")).data is None

        self._run(body)

    def test_errors_arrive_with_code_and_details(self) -> None:
        """A `CallError` crosses as it is; the message of any other exception stays behind a network edge."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                error = await _error(calls.call("kit.fail", {"declared": True}))
                assert (error.code, error.message) == ("LOST_SHOE", "there is one shoe only")
                assert error.details == {"shoes": 1}
                error = await _error(calls.call("kit.fail"))
                assert error.code == ErrorCode.EXECUTION_ERROR
                assert ("the secret" in error.message) is kit.capabilities.same_process

        self._run(body)

    def test_details_of_an_error_are_any_json_value(self) -> None:
        """Details arrive as they were given: a list, a text, a number, false; of a call and of a stream."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                for details in ([1, {"a": None}], "a text", 0, 1.5, False, 10**30, {}, {"a": [1]}):
                    error = await _error(calls.call("kit.fail", {"declared": True, "details": details}))
                    assert (error.code, error.details) == ("LOST_SHOE", details)
                    input = {"to": 0, "then": "fail", "details": details}
                    error = await _error(anext(calls.subscribe("kit.count", input)))
                    assert (error.code, error.details) == ("BROKEN", details)

        self._run(body)

    def test_an_answer_of_an_unknown_kind_passes(self) -> None:
        """What was done is not refused for metadata that nobody here can read: they arrive as they were sent."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                answers = [await calls.call("kit.pigeon"), await anext(calls.subscribe("kit.pigeons"))]
                for envelope in answers:
                    assert (envelope.data, envelope.meta.source) == ("coo", "pigeon")
                    assert envelope.to_wire()["meta"] == {"source": "pigeon", "grams": 420}

        self._run(body)

    def test_that_nothing_ran_is_not_said_for_another_call(self) -> None:
        """A handler that ran and failed in a nested call does not let a code out that says that it did not run."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                for code in ("NO_RESPONDERS", "OPERATION_NOT_FOUND", "OVERLOADED", "UNAVAILABLE"):
                    error = await _error(calls.call("kit.blames", {"code": code}))
                    assert (error.code, error.ran) == (ErrorCode.EXECUTION_ERROR, None)
                    cause = {"code": code, "message": "of another call", "details": {"sent": False}}
                    assert error.details["cause"] == cause

        self._run(body)

    def test_any_operation_id_can_be_called(self) -> None:
        """Ids with dots, wildcards, slashes, other scripts and great length are addresses like any other."""
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

        async def body(kit: _Kit) -> None:
            async with kit.serving(extra=ids), kit.calling() as calls:
                assert [(await calls.call(operation_id)).data for operation_id in ids] == list(ids)

        self._run(body)

    def test_the_context_crosses(self) -> None:
        """Parent, deadline and trace of a call are known to its handler."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                deadline = time.time() * 1000 + 60_000
                seen = await calls.call("kit.context", parent_request_id="p", traceparent="t", deadline=deadline)
                assert (seen.data["parent"], seen.data["trace"]) == ("p", "t")
                assert abs(seen.data["deadline"] - deadline) < 5_000

        self._run(body)

    # --- who gets a request ------------------------------------------------------------------------

    def test_nobody_serves(self) -> None:
        """A call that nobody serves ends at once, where the transport can tell."""

        async def body(kit: _Kit) -> None:
            if not kit.capabilities.detects_no_responders:
                skip("the transport does not detect that nobody serves an operation")
            knows = kit.capabilities.detects_peer_loss
            expected = ErrorCode.OPERATION_NOT_FOUND if knows else ErrorCode.NO_RESPONDERS
            async with kit.serving(), kit.calling() as calls:
                for ending in (calls.call("kit.unknown", timeout=60), anext(calls.subscribe("kit.unknown"))):
                    error = await _error(ending)
                    assert error.code == expected, f"got {error.code}"
                    assert error.ran is False, "nothing ran, and the transport knows"
                    assert error.details is not None
                    assert error.details["operationId"] == "kit.unknown"
                assert calls.pending == 0

        self._run(body)

    def test_each_request_runs_once(self) -> None:
        """With several handlers of an operation each request goes to one of them, and all get their share."""

        async def body(kit: _Kit) -> None:
            one, two = Served(), Served()
            async with kit.serving(one), kit.serving(two), kit.calling() as calls:
                names = [f"job {number}" for number in range(200)]
                await asyncio.gather(*(calls.call("kit.work", {"name": name}) for name in names))
                assert sorted(one.runs + two.runs) == sorted(names)
                if kit.capabilities.balances:
                    assert one.runs
                    assert two.runs

        self._run(body)

    def test_handlers_of_other_operations_stay_silent(self) -> None:
        """A handler that does not serve an operation does not answer for it."""

        async def body(kit: _Kit) -> None:
            other = CallHandler(OperationRegistry(), kit.transport)
            async with other, kit.serving(extra=("other.one",)), kit.calling() as calls:
                results = [(await calls.call("other.one")).data for _ in range(10)]
                assert results == ["other.one"] * 10

        self._run(body)

    def test_a_request_id_belongs_to_its_caller(self) -> None:
        """Two callers that choose the same request id both get their own answer."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.participant() as one, kit.participant() as two:
                await one.request("kit.echo", "the-id", {"value": "one", "delay": 0.05})
                await two.request("kit.echo", "the-id", {"value": "two", "delay": 0.05})
                assert _data((await one.wait_for(protocol.RESPONDED))[0]) == "one"
                assert _data((await two.wait_for(protocol.RESPONDED))[0]) == "two"
                assert one.of(protocol.RESPONDED)[0]["requestId"] == "the-id"
                assert two.of(protocol.RESPONDED)[0]["requestId"] == "the-id"

        self._run(body)

    def test_a_request_that_comes_twice_runs_once(self) -> None:
        """The same request of the same caller, twice while it is under way, runs once and is answered once."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.participant() as caller:
                await caller.request("kit.wait", "twice")
                await caller.request("kit.wait", "twice")
                await kit.served.until(lambda: kit.served.started >= 1)
                await caller.request("kit.echo", "after", {"value": 1})
                await caller.wait_for(protocol.RESPONDED)
                kit.served.gate.set()
                await caller.wait_for(protocol.RESPONDED, 2)
                assert kit.served.started == 1

        self._run(body)

    def test_everybody_gets_what_is_for_all(self) -> None:
        """What is sent to a topic reaches all who registered it, and only those."""

        async def body(kit: _Kit) -> None:
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

        self._run(body)

    def test_an_inbox_cannot_be_guessed(self) -> None:
        """Whoever knows the addresses of some links knows nothing of another one's."""

        async def body(kit: _Kit) -> None:
            async with kit.participant() as one, kit.participant() as two, kit.participant() as three:
                inboxes = [peer.link.inbox for peer in (one, two, three)]
                assert all(inbox.startswith("inbox:") for inbox in inboxes), f"got {inboxes}"
                _unguessable(inboxes)

        self._run(body)

    # --- deadlines and cancellation ------------------------------------------------------------------

    def test_a_call_ends_at_its_deadline_on_both_sides(self) -> None:
        """The caller gets ``TIMEOUT`` with the deadline, and the handler is cancelled."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                error = await _error(calls.call("kit.wait", timeout=0.1))
                assert error.code == ErrorCode.TIMEOUT
                assert error.details is not None
                assert isinstance(error.details["deadline"], float)
                assert calls.pending == 0
                await kit.served.until(lambda: kit.served.ended == kit.served.started)

        self._run(body)

    def test_the_handler_keeps_the_deadline_by_itself(self) -> None:
        """A handler whose caller says nothing any more stops at the deadline of the request."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.participant() as caller:
                await caller.request("kit.wait", "late", timeoutMs=200)
                assert (await caller.wait_for(protocol.ERROR))[0]["code"] == ErrorCode.TIMEOUT
                assert (kit.served.started, kit.served.ended) == (1, 1)

        self._run(body)

    def test_cancelling_a_call_cancels_its_handler(self) -> None:
        """A cancelled caller ends its handler and what that handler has called."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                for operation_id in ("kit.wait", "kit.nested"):
                    before = kit.served.started
                    task = asyncio.create_task(calls.call(operation_id))
                    await kit.served.until(lambda before=before: kit.served.started == before + 1)  # type: ignore[misc]  # binds the loop's value
                    task.cancel()
                    await asyncio.wait({task})
                    assert task.cancelled()
                    await kit.served.until(lambda: kit.served.ended == kit.served.started)
                assert calls.pending == 0

        self._run(body)

    def test_closing_the_call_map_ends_its_calls(self) -> None:
        """Closing the calling side ends what is under way with ``ABORTED``, on both sides."""

        async def body(kit: _Kit) -> None:
            async with kit.serving() as handler:
                async with kit.calling() as calls:
                    task = asyncio.create_task(_error(calls.call("kit.wait")))
                    await kit.served.until(lambda: kit.served.started == 1)
                    await asyncio.sleep(0.2)  # a broker's handler tells where it is
                assert (await task).code == ErrorCode.ABORTED
                await kit.served.until(lambda: kit.served.ended == 1 and handler.active == 0)

        self._run(body)

    # --- streams ---------------------------------------------------------------------------------

    def test_a_stream_is_complete_and_in_order(self) -> None:
        """All items of a stream come, in order, and then its end; streams side by side do not mix."""

        async def body(kit: _Kit) -> None:
            async with kit.serving() as handler, kit.calling() as calls:

                async def read() -> list[Any]:
                    return [envelope.data async for envelope in calls.subscribe("kit.count", {"to": 500})]

                assert list(await asyncio.gather(read(), read(), read())) == [list(range(500))] * 3
                assert [item.data async for item in calls.subscribe("kit.count", {"to": 0})] == []
                assert [item.data async for item in calls.subscribe("kit.echo", {"value": 7})] == [7]
                await kit.served.until(lambda: handler.active == 0)
                assert calls.pending == 0

        self._run(body)

    def test_a_stream_that_fails_delivers_what_came_before(self) -> None:
        """The items before an error are read first, then the error is raised."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                stream = calls.subscribe("kit.count", {"to": 3, "then": "fail"})
                assert [(await anext(stream)).data for _ in range(3)] == [0, 1, 2]
                error = await _error(anext(stream))
                assert (error.code, error.details) == ("BROKEN", {"after": 3})

        self._run(body)

    def test_leaving_a_stream_closes_its_handler(self) -> None:
        """Leaving the loop, or closing the subscription, ends the handler's generator."""

        async def body(kit: _Kit) -> None:
            async with kit.serving() as handler, kit.calling() as calls:
                async for envelope in calls.subscribe("kit.count", {"to": 10**9}):
                    if envelope.data == 20:
                        break
                await kit.served.until(lambda: kit.served.ended == 1)
                async with calls.subscribe("kit.count", {"to": 1, "then": "wait"}) as stream:
                    await anext(stream)
                await kit.served.until(lambda: kit.served.ended == 2 and handler.active == 0)
                assert calls.pending == 0

        self._run(body)

    def test_calling_a_subscription_takes_one_item(self) -> None:
        """``call`` of a subscription answers its first item and leaves no handler running."""

        async def body(kit: _Kit) -> None:
            async with kit.serving() as handler, kit.calling() as calls:
                assert (await calls.call("kit.count", {"to": 10**9})).data == 0
                await kit.served.until(lambda: kit.served.ended == 1 and handler.active == 0)
                error = await _error(calls.call("kit.count", {"to": 0}))
                assert error.code == ErrorCode.EXECUTION_ERROR
                assert calls.pending == 0

        self._run(body)

    def test_a_slow_consumer_holds_its_producer_back(self) -> None:
        """No more items are made than the consumer gave credit for."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls, kit.calling() as others:
                async with calls.subscribe("kit.count", {"to": 10**9}, credit=8) as stream:
                    assert (await anext(stream)).data == 0
                    for _ in range(20):  # others are served meanwhile
                        assert (await others.call("kit.echo", {"value": 1})).data == 1
                    assert kit.served.yielded <= 9
                    for expected in range(1, 50):
                        assert (await anext(stream)).data == expected
                    assert kit.served.yielded <= 50 + 9
                await kit.served.until(lambda: kit.served.ended == 1)

        self._run(body)

    def test_credit_is_cumulative(self) -> None:
        """A handler sends what the credit allows, and more when the total grows; an old total changes nothing."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.participant() as caller:
                follow = await caller.request("kit.count", "s", {"to": 10}, credit=2)
                first = (await caller.wait_for(protocol.RESPONDED, 2))[0]
                follow = follow or first["replyTo"]
                inbox = caller.link.inbox
                await caller.send(follow, protocol.CREDIT, requestId="s", total=1, replyTo=inbox)
                await caller.request("kit.echo", "e", {"value": 1})
                await caller.wait_for(protocol.RESPONDED, 3)
                assert [item["seq"] for item in caller.of(protocol.RESPONDED) if "seq" in item] == [0, 1]
                await caller.send(follow, protocol.CREDIT, requestId="s", total=20, replyTo=inbox)
                assert (await caller.wait_for(protocol.COMPLETED))[0]["count"] == 10
                assert [item["seq"] for item in caller.of(protocol.RESPONDED) if "seq" in item] == list(range(10))

        self._run(body)

    def test_a_peer_without_credit_sees_the_end(self) -> None:
        """To a peer that knows the original events only, the end of a stream is completed, and then aborted."""

        async def body(kit: _Kit) -> None:
            async with kit.serving() as handler, kit.participant() as caller:
                await caller.request("kit.count", "s", {"to": 3})
                await caller.wait_for(protocol.ABORTED)
                kinds = [event["type"] for event, _ in caller.events if event["type"] != protocol.CREDIT]
                assert kinds == [protocol.RESPONDED] * 3 + [protocol.COMPLETED, protocol.ABORTED]
                await kit.served.until(lambda: handler.active == 0)

        self._run(body)

    def test_a_stream_whose_consumer_is_silent_ends(self) -> None:
        """Without a sign of life from its consumer a stream ends with its lease; with one it goes on."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(lease=0.6), kit.calling(lease=0.6) as calls, kit.participant() as caller:
                alive = calls.subscribe("kit.count", {"to": 1, "then": "wait"})
                await anext(alive)
                await caller.request("kit.count", "s", {"to": 1, "then": "wait"}, credit=4)
                await kit.served.until(lambda: kit.served.started == 2)
                await kit.served.until(lambda: kit.served.ended == 1)
                kit.served.gate.set()
                assert [item.data async for item in alive] == []

        self._run(body)

    # --- what must not be believed --------------------------------------------------------------------

    def test_a_forged_answer_is_dropped(self) -> None:
        """An answer counts only from the handler that has the request."""

        async def body(kit: _Kit) -> None:
            if not kit.authenticating:
                skip("on a broker the unguessable inbox and request id are the protection")
            async with kit.participant() as server, kit.calling() as calls, kit.participant() as forger:
                await server.link.register("op:kit.served", "operad")
                task = asyncio.create_task(calls.call("kit.served"))
                (request,) = await server.wait_for(protocol.REQUESTED)
                wrong = {
                    "data": "forged",
                    "meta": {"source": "local", "operationId": "kit.served", "timestamp": 0},
                }
                for reply in (
                    forger.send(
                        request["replyTo"], protocol.RESPONDED, requestId=request["requestId"], output=wrong
                    ),
                    forger.send(
                        request["replyTo"], protocol.ERROR, requestId=request["requestId"], code="X", message=""
                    ),
                    forger.send(request["replyTo"], protocol.ABORTED, requestId=request["requestId"]),
                ):
                    await _whatever(reply)
                await asyncio.sleep(0.05)
                assert not task.done()
                right = {**wrong, "data": "right"}
                await server.send(
                    request["replyTo"], protocol.RESPONDED, requestId=request["requestId"], output=right
                )
                assert (await task).data == "right"

        self._run(body)

    def test_a_forged_abort_is_dropped(self) -> None:
        """Only the caller of a request can abort it, or give it credit."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.participant() as caller, kit.participant() as forger:
                follow = await caller.request("kit.wait", "mine")
                await kit.served.until(lambda: kit.served.started == 1)
                if not follow:
                    follow = (await caller.wait_for(protocol.CREDIT))[0]["replyTo"]
                replies = [forger.link.inbox, *([caller.link.inbox] if kit.authenticating else [])]
                for reply_to in replies:
                    await _whatever(forger.send(follow, protocol.ABORTED, requestId="mine", replyTo=reply_to))
                await caller.request("kit.echo", "after", {"value": 1})
                await caller.wait_for(protocol.RESPONDED)
                assert kit.served.ended == 0
                kit.served.gate.set()
                assert (await caller.wait_for(protocol.RESPONDED, 2))[1]["requestId"] == "mine"

        self._run(body)

    def test_a_claimed_identity_is_not_believed(self) -> None:
        """Who a caller is comes from the transport; what the request claims counts only within one process."""

        async def body(kit: _Kit) -> None:
            alice = Identity("alice", ["kit"])
            async with kit.serving(), kit.calling() as calls:
                if kit.capabilities.same_process:
                    assert (await calls.call("kit.guarded", identity=alice)).data == "alice"
                else:
                    assert (
                        await _error(calls.call("kit.guarded", identity=alice))
                    ).code == ErrorCode.ACCESS_DENIED
                    assert (await calls.call("kit.whoami", identity=alice)).data is None
                assert (await _error(calls.call("kit.guarded"))).code == ErrorCode.ACCESS_DENIED

        self._run(body)

    def test_the_authenticated_identity_counts(self) -> None:
        """The identity that the transport authenticated reaches the handler, whatever the request claims."""

        async def body(kit: _Kit) -> None:
            if not kit.capabilities.authenticates_peer:
                skip("the transport authenticates no peers")
            alice, bob = Identity("alice", ["kit"]), Identity("bob")
            as_alice, as_bob = self.authenticated(kit.transport, alice), self.authenticated(kit.transport, bob)
            async with kit.serving(), PendingRequestMap(as_alice) as one, PendingRequestMap(as_bob) as two:
                assert (await one.call("kit.guarded", identity=bob)).data == "alice"
                assert (await two.call("kit.whoami", identity=alice)).data == "bob"
                error = await _error(two.call("kit.guarded", identity=alice))
                assert error.code == ErrorCode.ACCESS_DENIED

        self._run(body)

    def test_a_handler_may_verify_callers_itself(self) -> None:
        """A verifier decides who a caller is, or refuses it."""

        async def body(kit: _Kit) -> None:
            async def verify(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
                if payload.get("traceparent") != "token":
                    raise CallError(ErrorCode.ACCESS_DENIED, "no token")
                return Identity("verified", ["kit"])

            async with kit.serving(identity=verify), kit.calling() as calls:
                assert (await calls.call("kit.guarded", traceparent="token")).data == "verified"
                assert (await _error(calls.call("kit.whoami"))).code == ErrorCode.ACCESS_DENIED

        self._run(body)

    def test_a_request_cannot_be_guessed(self) -> None:
        """Where the sender of an answer is not known, the request's id protects it: it tells no other one."""

        async def body(kit: _Kit) -> None:
            if kit.authenticating:
                skip("the transport knows who sends an answer")
            async with kit.participant() as server, kit.calling() as calls:
                await server.link.register("op:kit.served", "operad")
                tasks = [asyncio.create_task(calls.call("kit.served")) for _ in range(3)]
                requests = await server.wait_for(protocol.REQUESTED, len(tasks))
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                _unguessable([request["requestId"] for request in requests])

        self._run(body)

    # --- what cannot be carried ------------------------------------------------------------------------

    def test_what_has_no_json_form_is_an_error(self) -> None:
        """An answer or input without a form in the strict profile fails its own call at once, and no other."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                if not await kit.encodes(calls):
                    skip("events are handed over without encoding")
                for what in ("nan", "set", "key", "bytes"):
                    error = await _error(calls.call("kit.unencodable", {"what": what}, timeout=60))
                    assert error.code == ErrorCode.SERIALIZATION_ERROR
                error = await _error(calls.call("kit.echo", {"value": math.inf}))
                assert error.code == ErrorCode.SERIALIZATION_ERROR
                assert (await calls.call("kit.echo", {"value": 1})).data == 1
                assert calls.pending == 0

        self._run(body)

    def test_what_is_too_large_is_an_error(self) -> None:
        """A request, answer or item above the limit fails its own call, at once, and nothing else."""

        async def body(kit: _Kit) -> None:
            limit = kit.capabilities.max_payload
            if limit is None:
                skip("the transport has no limit")
            async with kit.serving() as handler, kit.calling() as calls:
                error = await _error(calls.call("kit.big", {"size": limit + 1}, timeout=60))
                assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
                error = await _error(anext(calls.subscribe("kit.bigs", {"size": limit + 1})))
                assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
                error = await _error(calls.call("kit.echo", {"value": "x" * (limit + 1)}, timeout=60))
                assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
                large = "x" * (limit - 4_096)
                assert (await calls.call("kit.big", {"size": len(large)})).data == large
                await kit.served.until(lambda: handler.active == 0)
                assert calls.pending == 0

        self._run(body)

    def test_cancelling_one_that_waits_for_the_socket_ends_one(self) -> None:
        """Events that wait for one connection share nothing but the connection."""

        async def body(kit: _Kit) -> None:
            size = min((kit.capabilities.max_payload or 2**20) - 4_096, 2**20)
            async with kit.participant() as sender, kit.participant() as receiver:
                await receiver.link.register("all:news")
                tasks = []
                for number in range(32):
                    tasks.append(
                        asyncio.create_task(sender.send("all:news", "news", number=number, text="x" * size))
                    )
                    if not number % 8:
                        await asyncio.sleep(0)  # what is written by now fills the socket, for those that follow
                await asyncio.sleep(0)
                for task in tasks[::4]:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                others = [end for number, end in enumerate(ends) if number % 4]
                assert not any(isinstance(end, BaseException) for end in others), f"got {others}"
                await receiver.wait_for("news", len(others))

        self._run(body)

    # --- endings ---------------------------------------------------------------------------------

    def test_closing_a_handler_is_a_drain(self) -> None:
        """A handler that closes finishes what it has; requests then go to those who are left."""

        async def body(kit: _Kit) -> None:
            second = Served()
            async with kit.calling() as calls, kit.serving() as first:
                task = asyncio.create_task(calls.call("kit.wait"))
                await kit.served.until(lambda: kit.served.started == 1)
                async with kit.serving(second):
                    closing = asyncio.create_task(first.aclose())
                    await asyncio.sleep(0.1)
                    names = [f"job {number}" for number in range(20)]
                    done = await asyncio.gather(*(calls.call("kit.work", {"name": name}) for name in names))
                    assert [envelope.data for envelope in done] == names
                    assert sorted(second.runs) == sorted(names)
                    kit.served.gate.set()
                    assert (await task).data == "waited"
                    await closing

        self._run(body)

    def test_what_a_drain_cannot_finish_is_unavailable(self) -> None:
        """What is still under way when the drain is over ends with ``UNAVAILABLE``."""

        async def body(kit: _Kit) -> None:
            async with kit.calling() as calls:
                async with kit.serving(drain_timeout=0.1):
                    task = asyncio.create_task(_error(calls.call("kit.wait")))
                    await kit.served.until(lambda: kit.served.started == 1)
                assert (await task).code == ErrorCode.UNAVAILABLE
                assert kit.served.ended == 1

        self._run(body)

    def test_a_lost_handler_ends_its_calls(self) -> None:
        """When the connection of a handler goes, its callers know at once."""

        async def body(kit: _Kit) -> None:
            if not kit.capabilities.detects_peer_loss:
                skip("the transport does not detect the loss of peers: deadline and lease end such calls")
            async with kit.calling() as calls, kit.participant() as server:
                await server.link.register("op:kit.served", "operad")
                single = asyncio.create_task(_error(calls.call("kit.served", timeout=60)))
                stream = asyncio.create_task(_error(anext(calls.subscribe("kit.served"))))
                await server.wait_for(protocol.REQUESTED, 2)
                await server.link.close()
                assert (await single).code == ErrorCode.UNAVAILABLE
                assert (await stream).code == ErrorCode.UNAVAILABLE
                assert calls.pending == 0

        self._run(body)

    def test_a_lost_caller_ends_its_handlers(self) -> None:
        """When the connection of a caller goes, what runs for it is cancelled."""

        async def body(kit: _Kit) -> None:
            if not kit.capabilities.detects_peer_loss:
                skip("the transport does not detect the loss of peers: deadline and lease end such requests")
            async with kit.serving() as handler, kit.participant() as caller:
                await caller.request("kit.wait", "a")
                await caller.request("kit.count", "b", {"to": 1, "then": "wait"}, credit=8)
                await kit.served.until(lambda: kit.served.started == 2)
                await caller.link.close()
                await kit.served.until(lambda: kit.served.ended == 2 and handler.active == 0)

        self._run(body)

    def test_a_cut_connection_fails_calls_and_comes_back(self) -> None:
        """Calls on a lost connection end with ``UNAVAILABLE``; later everything is served again."""

        async def body(kit: _Kit) -> None:
            async with kit.serving(), kit.calling() as calls:
                assert (await calls.call("kit.echo", {"value": 1})).data == 1
                task = asyncio.create_task(_error(calls.call("kit.wait", timeout=60)))
                await kit.served.until(lambda: kit.served.started == 1)
                try:
                    await self.sever(kit.transport)
                except NotImplementedError:
                    task.cancel()
                    await asyncio.wait({task})
                    skip("links of this transport cannot be cut")
                assert (await task).code == ErrorCode.UNAVAILABLE
                kit.served.gate.set()
                async with asyncio.timeout(SOON):
                    while True:
                        try:
                            envelope = await calls.call("kit.echo", {"value": 2}, timeout=1.0)
                        except CallError:
                            await asyncio.sleep(0.05)
                        else:
                            break
                assert envelope.data == 2
                assert [item.data async for item in calls.subscribe("kit.count", {"to": 3})] == [0, 1, 2]

        self._run(body)

    def test_a_closed_link_sends_nothing(self) -> None:
        """After `Link.close`, which may be called twice, sending raises a `TransportError`."""

        async def body(kit: _Kit) -> None:
            async with kit.participant() as one, kit.participant() as two:
                await one.link.close()
                await one.link.close()
                try:
                    await one.send(two.link.inbox, "news", number=1)
                except TransportError:
                    pass
                else:
                    raise AssertionError("expected a TransportError")

        self._run(body)

    def _run(self, body: Callable[[_Kit], Any]) -> None:
        async def main() -> None:
            async with self.transport() as transport:
                kit = _Kit(transport)
                try:
                    await body(kit)
                finally:
                    kit.served.gate.set()

        run(main())


class _Kit:
    """One test's transport, and parts to open on it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.served = Served()

    @property
    def capabilities(self) -> Capabilities:
        return self.transport.capabilities

    @property
    def authenticating(self) -> bool:
        """Whether the sender of an event is beyond doubt."""
        return self.capabilities.same_process or self.capabilities.authenticates_peer

    def serving(self, served: Served | None = None, extra: tuple[str, ...] = (), **options: Any) -> CallHandler:
        registry = kit_registry(served or self.served, extra)
        return CallHandler(registry, self.transport, **options)

    def calling(self, **options: Any) -> PendingRequestMap:
        return PendingRequestMap(self.transport, **options)

    def participant(self) -> AbstractAsyncContextManager[Participant]:
        return Participant.open(self.transport)

    async def encodes(self, calls: PendingRequestMap) -> bool:
        """Whether events become JSON on their way: a tuple comes back as a list."""
        return isinstance((await calls.call("kit.echo", {"value": (1, 2)})).data, list)


async def _error(awaitable: Any) -> CallError:
    """The `CallError` that it raises."""
    try:
        result = await awaitable
    except CallError as error:
        return error
    raise AssertionError(f"expected a CallError, got {result!r}")


def _data(responded: dict[str, Any]) -> Any:
    """The data of an answer, handed over as an object or as JSON."""
    output = responded["output"]
    return output.data if isinstance(output, ResponseEnvelope) else output["data"]


def _unguessable(names: list[str]) -> None:
    """Fails where names differ by so little that one tells the others, as with a prefix and a counter."""
    for one, two in combinations(names, 2):
        differing = sum(a != b for a, b in zip(one, two, strict=False))
        assert differing >= 12, f"one of these can be guessed from the other: {one}, {two}"


async def _whatever(awaitable: Any) -> None:
    """A forged event may be refused when it is sent, or dropped where it comes."""
    with suppress(TransportError):
        await awaitable

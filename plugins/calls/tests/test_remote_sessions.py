"""`from_remote`: pages, changes, what is believed about whom, and what a peer that stands still holds up."""
# ruff: noqa: SIM117  # what is opened first and closed last is the point of many of these tests

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    ErrorCode,
    Identity,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    from_remote,
)
from operad_calls import CallSettings, InProcessTransport
from operad_calls.federation import remote
from operad_testing import HeldResources, Participant, assert_nothing_pending
from plugins.calls.tests.parts import ANSWER, Wired, error_of, registry_of, reply, until


async def answer(input, context):
    return "done"


def serving(*names, **spec):
    return registry_of(**dict.fromkeys(names, ("query", answer, spec)))


def here_of(session):
    registry = OperationRegistry()
    for operation in session.operations:
        registry.register(operation)
    return registry


def ids(session):
    return [operation.id for operation in session.operations]


class Peer:
    """An instance that is played by hand: lists what it is told to."""

    def __init__(self, link_owner, instance, specs):
        self.owner, self.instance, self.specs = link_owner, instance, specs
        self.describes = True

    async def run(self):
        for topic in (
            "all:operad.discover",
            *(f"op:operad.{name}.{self.instance}" for name in ("list", "describe")),
        ):
            await self.owner.link.register(topic)
        seen = 0
        while True:
            requests = await self.owner.wait_for("call.requested", seen + 1)
            for request in requests[seen:]:
                await self.reply(request)
            seen = len(requests)

    async def reply(self, request):
        operation_id = request["operationId"]
        if operation_id == "operad.discover":
            data = {"instance": self.instance}
        elif operation_id.startswith("operad.list."):
            data = {"operations": self.specs}
        elif not self.describes:
            return
        else:
            data = {**self.specs[0], "inputSchema": {}, "outputSchema": {}}
        await reply(self.owner, request, output={**ANSWER, "data": data})


def wire(name="op", type="query", **fields):
    spec = OperationSpec(namespace="t", name=name, type=type).to_wire(schemas=False)
    return {**spec, **fields}


@asynccontextmanager
async def playing(transport, instance, specs):
    async with Participant.open(transport) as participant:
        peer = Peer(participant, instance, specs)
        task = asyncio.create_task(peer.run())
        await asyncio.sleep(0)
        yield peer
        task.cancel()
        await asyncio.wait({task})


async def test_operations_come_and_go_with_their_peers():
    transport = InProcessTransport()
    registry = serving("one")
    async with await from_remote(transport, "there") as session:
        assert session.operations == ()
        async with CallHandler(registry, transport):
            await until(lambda: ids(session) == ["there.t.one"])
            registry.register(OperationSpec(namespace="t", name="two"), answer)
            await until(lambda: len(session.operations) == 2)
        await until(lambda: not session.operations)


async def test_a_peer_that_stands_still_holds_a_first_call_up_for_a_moment_only(monkeypatch):
    """Another instance describes what it lists, or the operation is called without its schemas."""
    monkeypatch.setattr(remote, "_DESCRIBING", 0.1)
    transport = InProcessTransport()
    registry = serving("one", input_schema={"type": "object"})
    async with CallHandler(registry, transport), playing(transport, "", [wire("one")]) as frozen:
        frozen.describes = False
        async with await from_remote(transport) as session:
            assert session.operations[0].spec.metadata["operad.remote"]["instance"] == ""
            assert (await here_of(session).execute("t.one", {}, timeout=5)).data == "done"
            await until(lambda: session.operations[0].spec.input_schema.raw == {"type": "object"})


@pytest.mark.parametrize("knows", [True, False], ids=["asked all", "of many"])
async def test_a_peer_that_was_busy_when_all_were_asked_is_taken_in_when_it_answers(knows):
    transport = InProcessTransport() if knows else Wired(["call.completed"])  # as on a broker
    async with CallHandler(serving("one"), transport), Participant.open(transport) as busy:
        await busy.link.register("all:operad.discover")
        async with await from_remote(transport, wait=0.05) as session:
            assert ids(session) == ["t.one"]
            peer = Peer(busy, "busy", [wire("two")])
            await busy.link.register("op:operad.list.busy")
            await peer.reply((await busy.wait_for("call.requested"))[0])
            await peer.reply((await busy.wait_for("call.requested", 2))[1])
            await until(lambda: ids(session) == ["t.one", "t.two"])


async def test_a_question_whose_late_answers_are_awaited_takes_no_calls_place_and_leaves_nothing():
    transport, before = InProcessTransport(), HeldResources.now()
    async with CallHandler(serving("one"), transport), Participant.open(transport) as busy:
        await busy.link.register("all:operad.discover")
        async with await from_remote(transport, wait=0.05, settings=CallSettings(max_pending=1)) as session:
            assert (await here_of(session).execute("t.one", {})).data == "done"
    await assert_nothing_pending(before)


async def test_what_waits_to_be_told_is_told_once(monkeypatch):
    """`describe` tells at once, what was put off goes along, and does not come again."""
    transport, told = InProcessTransport(), []
    clock, before = SimpleNamespace(now=100.0), HeldResources.now()
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(remote, "_SETTLE", 60.0)
    async with CallHandler(serving("a", "b"), transport):
        session = await from_remote(transport)
        session.on_change(told.append)
        here = here_of(session)
        await here.execute("t.a", {})
        await here.execute("t.b", {})
        assert len(told) == 1
        for _ in range(2):
            await session.describe("t.b")
            assert len(told) == 2
        await session.aclose()
    await assert_nothing_pending(before)


async def test_where_two_peers_disagree_what_allows_less_counts(caplog):
    """On a broker all of one bus trust each other; a request may come to any of them."""
    transport = InProcessTransport()
    loose = playing(transport, "a", [wire("op", "query")])
    strict = playing(transport, "b", [wire("op", "mutation", accessControl={"requiredScopes": ["s"]})])
    async with loose, strict, await from_remote(transport) as session:
        (operation,) = session.operations
        assert operation.spec.type == "mutation"
        assert operation.spec.access_control.required_scopes == ("s",)
    assert "differently" in caplog.text


async def test_operations_do_not_go_round_in_circles():
    """Two that offer what the other one offers keep nothing alive that nobody serves."""
    buses = InProcessTransport(), InProcessTransport()
    first, second = OperationRegistry(), OperationRegistry()
    handlers = CallHandler(first, buses[1], reexport=True), CallHandler(second, buses[0], reexport=True)
    async with CallHandler(serving("op"), buses[0]) as worker:
        async with await from_remote(buses[0]) as one, handlers[0], await from_remote(buses[1]) as two:
            (operation,) = one.operations
            first.register(operation)
            await until(lambda: two.operations)
            assert two.operations[0].spec.metadata["operad.remote"]["via"] == [handlers[0].instance]
            second.register(two.operations[0])
            async with handlers[1], PendingRequestMap(buses[0]) as calls:
                listing = await calls.call(f"operad.list.{handlers[1].instance}")
                assert listing.data["operations"][0]["via"] == [handlers[0].instance, handlers[1].instance]
                back = OperationRegistry()
                async with await from_remote(buses[0]) as three:
                    offered = list(three.operations)
                    back.register(offered[0])
                    assert handlers[0].instance not in offered[0].spec.metadata["operad.remote"]["via"]
            assert worker.serving == 1


async def test_an_operation_that_came_through_a_handler_is_not_offered_by_it_again():
    transport, other = InProcessTransport(), InProcessTransport()
    registry = OperationRegistry()
    handler = CallHandler(registry, other, reexport=True)
    specs = [wire("round", via=["somebody", handler.instance]), wire("straight", via=["somebody"])]
    async with playing(transport, "far", specs), await from_remote(transport) as session, handler:
        for operation in session.operations:
            registry.register(operation)
        await until(lambda: handler.serving == 1)
        async with PendingRequestMap(other) as calls:
            listed = (await calls.call("operad.list")).data["operations"]
            assert [item["id"] for item in listed] == ["t.straight"]


async def test_describing_many_operations_does_not_tell_of_all_of_them_each_time(monkeypatch):
    """Else the first use of each of 10,000 operations would take time with their square."""
    transport, told = InProcessTransport(), []
    names = [f"n{number}" for number in range(300)]
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def tell(operations):
        told.append(len(operations))
        clock.now += 0.05

    async with CallHandler(serving(*names), transport), await from_remote(transport) as session:
        session.on_change(tell)
        here = here_of(session)
        for name in names:
            await here.execute(f"t.{name}", {})
            clock.now += 0.001
        assert len(told) < 150


async def test_the_callers_identity_goes_along_signed():
    """A gateway's callers are not the gateway: the worker sees whom the gateway vouches for."""
    jwt = pytest.importorskip("jwt")
    assert jwt
    from operad_auth import DelegationSigner, JWTDelegation

    key = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTI", "alg": "HS256", "kid": "1"}
    transport = InProcessTransport(strict=True)
    registry = OperationRegistry()

    async def whoami(input, context):
        return None if context.identity is None else context.identity.id

    spec = OperationSpec(namespace="t", name="me", access_control=AccessControl(required_scopes=["read"]))
    registry.register(spec, whoami)
    verify = JWTDelegation(keys={"gateway": {"keys": [key]}}, algorithms=["HS256"])
    sign = DelegationSigner(key, "gateway", algorithm="HS256")
    async with CallHandler(registry, transport, identity=verify), PendingRequestMap(transport, sign=sign) as calls:
        alice = Identity("alice", ["read"])
        assert [(await calls.call("t.me", identity=alice)).data for _ in range(2)] == ["alice", "alice"]
        assert (await error_of(calls.call("t.me"))).code == ErrorCode.ACCESS_DENIED
        stolen = sign("t.me", alice)
        assert (await calls.call("t.me", delegation=stolen)).data == "alice"
        with pytest.raises(CallError, match="used before"):
            await calls.call("t.me", delegation=stolen)
        with pytest.raises(CallError, match="refused"):
            await calls.call("t.me", delegation=sign("t.other", alice))
    assert OperationContext().identity is None


async def test_a_session_whose_closing_is_cancelled_closes_its_map():
    transport = InProcessTransport()
    async with CallHandler(OperationRegistry(), transport):
        session = await from_remote(transport)

        async def stubborn():
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)

        session._describing["a.b"] = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert session._calls._link is None
        await asyncio.wait(session._describing.values())


async def test_peers_are_asked_again_after_a_change_that_could_not_be_taken_over(monkeypatch, caplog):
    transport, registry = InProcessTransport(), serving("a")
    monkeypatch.setattr(remote, "_SETTLE", 0.0)
    async with CallHandler(registry, transport), await from_remote(transport) as session:
        made, faults = remote.operation_of, [ZeroDivisionError("what nobody thought of")]

        def failing(*arguments):
            if faults:
                raise faults.pop()
            return made(*arguments)

        monkeypatch.setattr(remote, "operation_of", failing)
        registry.register(OperationSpec(namespace="t", name="b", type="query"), answer)
        await until(lambda: "could not be updated" in caplog.text)
        registry.register(OperationSpec(namespace="t", name="c", type="query"), answer)
        await until(lambda: len(session.operations) == 3)

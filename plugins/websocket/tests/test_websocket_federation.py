"""Registries that are federated over a hub: what one process serves is an operation in another."""
# ruff: noqa: SIM117  # what is opened first and closed last is the point of many of these tests

import asyncio
from functools import partial

import pytest

import operad
from operad import (
    CallHandler,
    ErrorCode,
    Identity,
    InProcessTransport,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
)
from operad_testing import Participant
from operad_websocket import Hub, WebSocketTransport, bearer_tokens
from plugins.websocket.tests.kit import add, calling, code_of, count, error_of, registry_of, reset, until

# However long these peers take for their turn: a hub tells how many there are, so that nothing waits longer.
from_remote = partial(operad.from_remote, wait=60.0)

TOKENS = {"worker": Identity("worker"), "reader": Identity("reader"), "admin": Identity("admin", ["admin"])}


def here_of(session):
    return registry_of(*session.operations)


async def test_what_peers_serve_becomes_operations_here():
    """Calls, streams, schemas and errors work as if the operations were local."""
    async with Hub(port=0) as hub, CallHandler(registry_of(add, count), WebSocketTransport(hub.url)):
        async with await from_remote(WebSocketTransport(hub.url), "far") as session:
            here = here_of(session)
            assert [spec.id for spec in here.specs()] == ["far.math.add", "far.math.count"]
            spec = here.get_spec("far.math.add")
            assert (spec.type, spec.description) == ("query", "Add two numbers.")
            assert spec.input_schema.is_unknown  # not asked for yet
            assert (await here.execute("far.math.add", {"a": 1, "b": 2})).data == 3
            described = {item.id: item.spec for item in session.operations}
            assert described["far.math.add"].input_schema.raw["required"] == ["a", "b"]
            assert described["far.math.count"].input_schema.is_unknown
            assert [item.data async for item in here.subscribe("far.math.count", {"to": 3})] == [0, 1, 2]
            wrong = here.execute("far.math.add", {"a": "one", "b": 2})
            assert await code_of(wrong) == ErrorCode.VALIDATION_ERROR


async def test_whoever_asks_for_schemas_gets_them_whatever_becomes_of_those_who_asked_first():
    """They are asked for once, for all who wait; who gives up does not leave the operation without them."""
    async with Hub(port=0) as hub, CallHandler(registry_of(add), WebSocketTransport(hub.url)):
        async with await from_remote(WebSocketTransport(hub.url)) as session:

            async def required():
                await session.describe("math.add")
                return session.operations[0].spec.input_schema.raw["required"]

            first, *others = [asyncio.create_task(required()) for _ in range(3)]
            await asyncio.sleep(0)
            first.cancel()
            assert await asyncio.gather(*others) == [["a", "b"], ["a", "b"]]
            assert first.cancelled()


async def test_a_session_that_closes_leaves_nobody_waiting_for_schemas():
    async with Hub(port=0) as hub, CallHandler(registry_of(add), WebSocketTransport(hub.url)):
        session = await from_remote(WebSocketTransport(hub.url))
        asking = asyncio.create_task(session.describe("math.add"))
        await asyncio.sleep(0)
        await session.aclose()
        await asking


async def test_only_what_the_own_identity_may_call_is_listed():
    async with Hub(bearer_tokens(TOKENS), port=0) as hub:
        async with CallHandler(registry_of(add, reset), WebSocketTransport(hub.url, token="worker")) as handler:
            for token, expected in (("reader", ["math.add"]), ("admin", ["math.add", "math.reset"])):
                async with await from_remote(WebSocketTransport(hub.url, token=token)) as session:
                    assert [item.id for item in session.operations] == expected
            async with calling(hub, token="reader") as calls:
                described = calls.call("operad.describe", {"operationId": "math.reset"})
                assert await code_of(described) == ErrorCode.OPERATION_NOT_FOUND
                listed = await calls.call(f"operad.list.{handler.instance}")
                assert [spec["id"] for spec in listed.data["operations"]] == ["math.add"]
            async with await from_remote(WebSocketTransport(hub.url, token="admin")) as session:
                here = here_of(session)  # the requirements came along: this process's callers are checked, too
                assert await code_of(here.execute("math.reset")) == ErrorCode.ACCESS_DENIED


async def test_a_long_list_comes_in_pages():
    names = [f"n{number:04}" for number in range(450)]
    registry = OperationRegistry()
    for name in names:
        registry.register(OperationSpec(namespace="many", name=name, type="query"), add.handler)
    transport = InProcessTransport(strict=True)
    async with CallHandler(registry, transport), PendingRequestMap(transport) as calls:
        page = (await calls.call("operad.list", {"limit": 2})).data
        assert [spec["id"] for spec in page["operations"]] == ["many.n0000", "many.n0001"]
        assert page["nextCursor"] == "many.n0001"
        assert "inputSchema" not in page["operations"][0]
        for bad in ({"limit": 0}, {"limit": "x"}, {"cursor": 1}):
            assert await code_of(calls.call("operad.list", bad)) == ErrorCode.VALIDATION_ERROR
        async with await from_remote(transport) as session:
            assert [item.spec.name for item in session.operations] == names


async def test_the_operations_follow_the_peers():
    async with Hub(port=0) as hub:
        transport = WebSocketTransport(hub.url)
        async with await from_remote(transport) as session:
            changes = []
            session.on_change(lambda operations: changes.append([item.id for item in operations]))
            assert list(session.operations) == []
            async with CallHandler(registry_of(add), transport) as one:
                await until(lambda: [item.id for item in session.operations] == ["math.add"])
                async with CallHandler(second := registry_of(count), transport) as two:
                    await until(lambda: len(session.operations) == 2)
                    assert one.instance != two.instance
                    second.unregister("math.count")
                    await until(lambda: len(session.operations) == 1)
            await until(lambda: not session.operations)  # the last one has left
            assert ["math.add", "math.count"] in changes


async def test_what_came_from_a_peer_is_not_served_on():
    """Two processes that federate each other do not send calls round in circles."""
    transport = InProcessTransport()
    async with CallHandler(registry_of(add), transport):
        async with await from_remote(transport) as session, PendingRequestMap(transport) as calls:
            async with CallHandler(here_of(session), transport) as second:
                assert (await calls.call(f"operad.list.{second.instance}")).data["operations"] == []
            async with CallHandler(here_of(session), InProcessTransport(), reexport=True) as third:
                assert third.serving == 1


@pytest.mark.parametrize(
    ("type_", "idempotent", "goes_on"),
    [("query", False, True), ("mutation", False, False), ("mutation", True, True)],
)
async def test_only_what_may_run_twice_goes_to_another_peer_when_its_own_is_lost(type_, idempotent, goes_on):
    """What was sent may have run: a mutation fails, unless it is declared idempotent; a query is asked again."""
    transport = InProcessTransport()

    first, second = OperationRegistry(), OperationRegistry()
    for registry, handler in ((first, lambda *_: asyncio.sleep(60)), (second, lambda *_: "from the second")):
        registry.register(OperationSpec(namespace="t", name="op", type=type_, idempotent=idempotent), handler)
    one = CallHandler(first, transport)
    await one.open()
    async with await from_remote(transport) as session:
        here = here_of(session)
        task = asyncio.create_task(here.execute("t.op"))
        await until(lambda: one.active)
        async with CallHandler(second, transport):
            await one.link.close()
            if goes_on:
                assert (await task).data == "from the second"
            else:
                error = await error_of(task)
                assert (error.code, error.details["sent"]) == (ErrorCode.UNAVAILABLE, True)
    await one.aclose()


async def test_a_peer_that_lists_nonsense_is_left_out(caplog):
    transport = InProcessTransport()

    async def answer(peer):
        seen = 0
        while True:
            requests = await peer.wait_for("call.requested", seen + 1)
            request, seen = requests[seen], seen + 1
            fine = {"namespace": "ok", "name": "fine", "id": "ok.fine"}
            data = {"operations": [{"namespace": "x y", "name": "z"}, 5, fine]}
            if request["operationId"] == "operad.discover":
                data = {"instance": "strange"}
            output = {"data": data, "meta": {"source": "local", "operationId": "x.y", "timestamp": 0}}
            await peer.send(request["replyTo"], "call.responded", requestId=request["requestId"], output=output)

    async with CallHandler(registry_of(add), transport), Participant.open(transport) as peer:
        await peer.link.register("all:operad.discover")
        await peer.link.register("op:operad.list.strange")
        answering = asyncio.create_task(answer(peer))
        async with await from_remote(transport) as session:
            assert [item.id for item in session.operations] == ["math.add", "ok.fine"]
        answering.cancel()
        await asyncio.wait({answering})
    assert "cannot be used" in caplog.text

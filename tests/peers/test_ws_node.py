"""A WebSocket client of another language that knows only the four original events gets along with a hub."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from operad import AccessControl, CallHandler, OperationRegistry, OperationSpec, operation
from operad_websocket import Hub, WebSocketTransport

CLIENT = Path(__file__).with_name("ws_four_events.mjs")


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

    @operation(namespace="math")
    async def count(to: int):
        state["streams"] += 1
        try:
            for number in range(to):
                yield number
        finally:
            state["streams"] -= 1

    async def wait(input, context):
        state["waiting"] += 1
        try:
            await asyncio.sleep(60)
        finally:
            state["waiting"] -= 1

    registry = OperationRegistry()
    for item in (add, fail, count):
        registry.register(item)
    registry.register(OperationSpec(namespace="math", name="wait", type="query"), wait)
    guard = AccessControl(required_scopes=["admin"])
    registry.register(OperationSpec(namespace="math", name="guarded", type="query", access_control=guard), wait)
    return registry


@pytest.mark.node
async def test_four_events_are_enough():
    """Such a client calls, gets errors, reads streams to their end, leaves them, and aborts."""
    command = node_command()
    state = {"streams": 0, "waiting": 0}
    async with Hub(port=0) as hub, CallHandler(served(state), WebSocketTransport(hub.url)) as handler:
        process = await asyncio.create_subprocess_exec(
            *command, str(CLIENT), hub.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), 60)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode == 0, err.decode()
        async with asyncio.timeout(10):
            while handler.active or hub.pending or any(state.values()):
                await asyncio.sleep(0.01)
    seen = json.loads(out)
    assert seen["call"]["output"]["data"] == 3
    assert seen["call"]["output"]["meta"]["source"] == "local"
    assert seen["error"]["code"] == "EXECUTION_ERROR"
    assert "hunter2" not in json.dumps(seen)
    assert seen["invalid"]["code"] == "VALIDATION_ERROR"
    assert seen["unknown"]["code"] == "OPERATION_NOT_FOUND"
    assert seen["unknown"]["details"] == {"operationId": "math.unknown"}
    assert [item["data"] for item in seen["stream"]["items"]] == [0, 1, 2, 3, 4]
    assert seen["stream"]["aborted"] is True
    assert [item["data"] for item in seen["left"]["items"]] == [0, 1, 2]
    assert seen["aborted"] == {"gaveUp": True}
    assert seen["guarded"]["code"] == "ACCESS_DENIED"
    assert seen["many"] == [2 * number for number in range(50)]
    assert seen["after"]["output"]["data"] == 42

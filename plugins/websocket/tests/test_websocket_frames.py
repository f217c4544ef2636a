"""A hub that checks each frame by the published schemas of the call protocol."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, from_remote
from operad.plugin import ConfigError
from operad_testing import Participant
from operad_websocket import Hub, WebSocketTransport

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
pytest.importorskip("fastjsonschema", reason="operad-websocket[check] brings it")


@asynccontextmanager
async def client(hub: Hub) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with aiohttp.ClientSession() as session, session.ws_connect(hub.url) as socket:
        yield socket


async def answer(socket: aiohttp.ClientWebSocketResponse, type_: str) -> dict[str, Any]:
    """The payload of the next frame, which has to be of this type."""
    event = json.loads((await socket.receive(timeout=10)).data)
    assert event["type"] == type_, event
    return {"frame": event.get("id"), **event["payload"]}


async def send(socket: aiohttp.ClientWebSocketResponse, type_: str, payload: Any, **more: Any) -> None:
    await socket.send_str(json.dumps({"type": type_, "id": "7", "payload": payload, **more}))


def registry() -> OperationRegistry:
    made = OperationRegistry()

    async def add(input: Any, context: Any) -> Any:
        return input["text"] * input["times"]

    async def fail(input: Any, context: Any) -> None:
        raise CallError("NO_LUCK", "not today", {"tries": 3})

    async def count(input: Any, context: Any) -> Any:
        for number in range(input["to"]):
            yield number

    for name, type_, handler in (
        ("add", "mutation", add),
        ("fail", "query", fail),
        ("count", "subscription", count),
    ):
        made.register(OperationSpec(namespace="a", name=name, type=type_), handler)
    return made


async def test_what_operad_itself_sends_is_right() -> None:
    async with Hub(port=0, check_frames=True) as hub:
        transport = WebSocketTransport(hub.url)
        served = registry()
        async with CallHandler(served, transport) as handler, PendingRequestMap(transport, credit=4) as calls:
            more: Any = {"idempotency_key": "k", "traceparent": "00-1", "parent_request_id": "p", "timeout": 20}
            for times in (1, 100_000, 1_000_000):  # larger ones are counted in bytes, and asked for
                small = await calls.call("a.add", {"text": "x", "times": times}, **more)
                large = await calls.call("a.add", {"text": "x" * times, "times": 1})
                assert small.data == large.data
            with pytest.raises(CallError, match="NO_LUCK"):
                await calls.call("a.fail")
            assert [item.data async for item in calls.subscribe("a.count", {"to": 50})] == list(range(50))
            async for _ in calls.subscribe("a.count", {"to": 1_000}):
                break
            served.register(OperationSpec(namespace="a", name="late"), lambda given, context: None)
            await handler.refresh()
            remote = await from_remote(transport)
            assert sorted(item.spec.id for item in remote.operations) == ["a.add", "a.count", "a.fail", "a.late"]
            await remote.aclose()
            async with Participant.open(transport) as other:
                registration = await other.link.register("op:b.c")
                await registration.unregister()
        assert (hub.switch.refused, hub.pending) == (0, 0)


@pytest.mark.parametrize(("type_", "payload", "reason"), TABLES["invalid frames"])
async def test_a_frame_that_does_not_fit_its_schema_is_refused(type_: str, payload: Any, reason: str) -> None:
    async with Hub(port=0, check_frames=True) as hub, client(hub) as socket:
        await send(socket, type_, payload)
        told = await answer(socket, "link.error")
        assert (told["frame"], told["code"]) == ("7", "VALIDATION_ERROR")
        assert told["message"].startswith(f"{type_}: ")
        assert reason in told["message"]
        assert hub.switch.refused == 1
        await send(socket, "unknown.to.operad", {"any": "thing"})
        await send(socket, "link.register", {"topics": ["op:a.b"]})
        assert (await answer(socket, "link.registered"))["topics"] == ["op:a.b"]
        assert hub.switch.refused == 1


async def test_a_request_that_does_not_fit_ends_at_once() -> None:
    request = {"requestId": "1", "operationId": "a.b"}
    async with Hub(port=0, check_frames=True) as hub, client(hub) as socket:
        await send(socket, "call.requested", request)
        assert "properties" in (await answer(socket, "link.error"))["message"]
        assert (await answer(socket, "call.error"))["code"] == "VALIDATION_ERROR"
        await socket.send_str("{")
        assert (await answer(socket, "link.error"))["code"] == "SERIALIZATION_ERROR"
    async with Hub(port=0) as hub, client(hub) as socket:  # which the switch itself does not need
        await send(socket, "call.requested", request)
        assert (await answer(socket, "call.error"))["code"] == "OPERATION_NOT_FOUND"


async def test_a_response_that_does_not_fit_fails_its_call() -> None:
    async with Hub(port=0, check_frames=True) as hub, client(hub) as socket:
        await send(socket, "link.register", {"topics": ["op:a.b"]})
        await answer(socket, "link.registered")
        async with PendingRequestMap(WebSocketTransport(hub.url)) as calls:
            call = asyncio.create_task(calls.call("a.b", timeout=30))
            asked = await answer(socket, "call.requested")
            await send(socket, "call.responded", {"requestId": asked["requestId"], "output": {"data": 5}})
            assert "output" in (await answer(socket, "link.error"))["message"]
            with pytest.raises(CallError, match="output") as caught:
                await call
        assert caught.value.code == "VALIDATION_ERROR"
        assert hub.pending == 0


def test_without_its_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastjsonschema", None)
    Hub(port=0)
    with pytest.raises(ConfigError, match=r"requires fastjsonschema.*pip install 'operad-websocket\[check\]'"):
        Hub(port=0, check_frames=True)


def test_the_package_is_imported_only_when_frames_are_checked() -> None:
    code = "import sys; from operad_websocket import Hub; Hub(); sys.exit('fastjsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

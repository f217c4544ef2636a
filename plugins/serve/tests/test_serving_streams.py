"""Operations over HTTP: time, cancellation, streams, and the end of a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from operad import OperationContext, OperationRegistry, OperationSpec, operation
from operad_serve import to_openapi
from plugins.serve.tests import front_door

ENVELOPE = "application/vnd.operad.envelope+json"


# --- time --------------------------------------------------------------------------------------------


Events = dict[str, asyncio.Event]


@pytest.fixture
def slow(registry: OperationRegistry) -> Events:
    """An operation and a subscription that wait until they are cancelled."""
    seen = {name: asyncio.Event() for name in ("started", "cancelled")}

    @operation(namespace="x", name="slow")
    async def slow() -> None:
        seen["started"].set()
        try:
            await asyncio.sleep(60)
        finally:
            seen["cancelled"].set()

    @operation(namespace="x", name="ticks", type="subscription")
    async def ticks() -> AsyncIterator[str]:
        try:
            yield "first"
            seen["started"].set()
            await asyncio.sleep(60)
        finally:
            seen["cancelled"].set()

    registry.register(slow)
    registry.register(ticks)
    return seen


async def test_the_deadline_that_a_client_asks_for_ends_the_call(call: Any, slow: Events) -> None:
    for seconds in ("0.05", "1", "5"):
        problem = await call.problem("POST", "/operations/x.slow", headers={"Operad-Timeout": seconds})
        assert (problem["status"], problem["code"]) == (504, "TIMEOUT")
        if slow["cancelled"].is_set():  # it had begun by then
            break
    assert slow["cancelled"].is_set()


@pytest.mark.parametrize("name", ["slow", "ticks"])
async def test_a_client_that_leaves_cancels_the_call(
    call: Any, slow: Events, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    request = asyncio.create_task(call("POST", f"/operations/x.{name}"))
    await slow["started"].wait()
    assert not slow["cancelled"].is_set()
    request.cancel()
    async with asyncio.timeout(5):
        await slow["cancelled"].wait()
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_client_that_leaves_after_its_call_cancels_nothing_and_the_next_one_is_noticed(
    registry: OperationRegistry, slow: Events
) -> None:
    async def stubborn(input: Any, context: OperationContext) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await context.env["x.slow"]()
        return "late"

    registry.register(OperationSpec(namespace="x", name="stubborn"), stubborn)
    app, left, sent = to_openapi(registry), asyncio.Event(), list[Any]()
    scope = {"type": "http", "method": "POST", "headers": [(b"host", b"127.0.0.1")], "server": ("127.0.0.1", 80)}

    async def ask(path: str) -> None:
        messages = [{"type": "http.request"}, {"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if not messages:
                await left.wait()
            return messages.pop() if messages else {"type": "http.disconnect"}

        await app({**scope, "path": f"/operations/{path}"}, receive, save)

    async def save(message: Any) -> None:
        sent.append(message)

    await ask("shop.count")
    last = sent[-1]
    assert last["more_body"] is False
    left.set()
    await asyncio.sleep(0.1)  # the timer of the server has stopped
    left.clear()
    asking = asyncio.create_task(ask("x.stubborn"))
    await slow["started"].wait()
    left.set()
    async with asyncio.timeout(5):
        await asking
    assert slow["cancelled"].is_set()
    assert sent[-1] is last  # no response


async def test_a_client_that_leaves_is_noticed_in_the_second_event_loop_as_well(
    registry: OperationRegistry, slow: Events
) -> None:
    app = to_openapi(registry)
    first = front_door.asked(app, "POST", "/operations/shop.add", b'{"a": 1}')
    await asyncio.to_thread(asyncio.run, first)
    async with front_door.client_of(app) as client:
        request = asyncio.create_task(client("POST", "/operations/x.slow"))
        await slow["started"].wait()
        request.cancel()
        async with asyncio.timeout(5):
            await slow["cancelled"].wait()


# --- streams -----------------------------------------------------------------------------------------


async def test_a_subscription_is_a_stream_of_events_with_ids_and_an_end_in_words(call: Any) -> None:
    for request in (("GET", "/operations/shop.count?n=2"), ("POST", "/operations/shop.count")):
        body = {"json": {"n": 2}} if request[0] == "POST" else {}
        response = await call(*request, **body)
        assert response.content_type == "text/event-stream"
        events = front_door.events(response.body)
        assert [(event.id, event.event, event.data) for event in events] == [
            ("1", "message", "0"),
            ("2", "message", "1"),
            ("2", "operad.end", '{"count":2}'),
        ]


async def test_a_stream_of_envelopes_is_one_of_events_too(call: Any) -> None:
    response = await call(
        "GET", "/operations/shop.count?n=1", headers={"Accept": f"text/event-stream, {ENVELOPE}"}
    )
    first = json.loads(front_door.events(response.body)[0].data)
    assert (first["data"], first["meta"]["source"]) == (0, "local")


async def test_a_stream_that_fails_says_so_and_one_that_fails_at_once_has_a_status(call: Any) -> None:
    response = await call("GET", "/operations/shop.breaks?n=1")
    *_, last = front_door.events(response.body)
    assert (response.status, last.event) == (200, "operad.error")
    assert json.loads(last.data)["code"] == "EXECUTION_ERROR"
    assert (await call.problem("GET", "/operations/shop.breaks?n=0"))["status"] == 500
    assert (await call.problem("POST", "/operations/shop.count", json={"n": "x"}))["status"] == 422


async def test_an_upstreams_events_keep_type_and_id_but_cannot_speak_for_the_server(
    registry: OperationRegistry, call: front_door.Client
) -> None:
    seen = []

    async def events(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        seen.append(context.metadata.get("lastEventId"))
        yield front_door.web_envelope({"x": 1}, event_type="order", last_event_id="a-7")
        yield front_door.web_envelope({"x": 2}, event_type="operad.error", last_event_id="evil\nevent: operad.end")

    registry.register(OperationSpec(namespace="x", name="events", type="subscription"), events)
    response = await call("POST", "/operations/x.events", headers={"Last-Event-ID": "a-6"})
    found = [(event.event, event.id) for event in front_door.events(response.body)]
    assert found == [("order", "a-7"), ("message", "2"), ("operad.end", "2")]
    assert seen == ["a-6"]


async def test_a_silent_stream_is_kept_open_by_comments(registry: OperationRegistry, slow: Events) -> None:
    app = to_openapi(registry, heartbeat=0.02)
    async with (
        front_door.client_of(app) as client,
        client.session.post(client.base + "/operations/x.ticks") as response,
    ):
        text = b""
        while b": still here" not in text:
            text += await response.content.readany()
        assert text.startswith(b'id: 1\ndata: "first"')


async def test_a_drain_ends_streams_in_words_lets_calls_finish_and_takes_no_new_one(
    registry: OperationRegistry, slow: Events
) -> None:
    release = asyncio.Event()

    @operation(namespace="x", name="finishing")
    async def finishing() -> str:
        slow["started"].set()
        await release.wait()
        return "done"

    registry.register(finishing)
    app = to_openapi(registry)
    async with front_door.client_of(app) as client:
        stream = asyncio.create_task(client("POST", "/operations/x.ticks"))
        await slow["started"].wait()
        slow["started"].clear()
        running = asyncio.create_task(client("POST", "/operations/x.finishing"))
        await slow["started"].wait()
        drained = asyncio.create_task(app.drain(5))
        *_, last = front_door.events((await stream).body)
        assert (last.event, json.loads(last.data)["code"]) == ("operad.error", "UNAVAILABLE")
        assert (await client.problem("POST", "/operations/shop.add", json={"a": 1}))["status"] == 503
        assert (await client("GET", "/health")).status == 503
        release.set()
        await drained
        assert (await running).json() == "done"


async def test_a_drain_that_takes_too_long_cancels_what_is_left_and_tells_its_client(
    registry: OperationRegistry, slow: Events
) -> None:
    app = to_openapi(registry)
    async with front_door.client_of(app) as client:
        running = asyncio.create_task(client("POST", "/operations/x.slow"))
        await slow["started"].wait()
        await app.drain(0.01)
        async with asyncio.timeout(5):
            await slow["cancelled"].wait()
        answer = await running
        assert (answer.status, answer.json()["code"]) == (503, "ABORTED")
        assert "Retry-After" not in answer.headers
        await app.drain(60)  # waits for nobody


async def test_a_drain_that_is_cut_short_cancels_what_it_waited_for(
    registry: OperationRegistry, slow: Events
) -> None:
    app = to_openapi(registry)
    async with front_door.client_of(app) as client:
        running = asyncio.create_task(client("POST", "/operations/x.slow"))
        await slow["started"].wait()
        draining = asyncio.create_task(app.drain(60))
        await asyncio.sleep(0)
        draining.cancel()
        async with asyncio.timeout(5):
            assert (await running).status == 503


async def test_no_more_streams_are_open_than_the_bound_allows(registry: OperationRegistry, slow: Events) -> None:
    app = to_openapi(registry, max_streams=1)
    async with (
        front_door.client_of(app) as client,
        client.session.post(client.base + "/operations/x.ticks") as first,
    ):
        assert first.status == 200
        problem = await client.problem("POST", "/operations/shop.count", json={})
        assert (problem["status"], problem["code"]) == (429, "OVERLOADED")
        assert problem["detail"].startswith("1 streams are open already")
    async with front_door.client_of(to_openapi(registry, max_streams=1)) as client:
        for _ in range(3):  # one after the other
            assert (await client("POST", "/operations/shop.count", json={})).status == 200


async def test_a_reader_that_stands_still_loses_its_stream(registry: OperationRegistry) -> None:
    closed = asyncio.Event()

    @operation(namespace="x", name="flood", type="subscription")
    async def flood() -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 100_000
        finally:
            closed.set()

    registry.register(flood)
    head = b"POST /operations/x.flood HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    async with (
        front_door.served(to_openapi(registry, write_timeout=0.1)) as base,
        front_door.connected(base, head),
    ):
        await closed.wait()


async def test_a_large_answer_waits_for_its_reader_in_parts_and_for_one_that_stands_still_not_for_ever(
    registry: OperationRegistry,
) -> None:
    size = 8_000_000

    @operation(namespace="x", name="large", type="query")
    async def large() -> str:
        return "x" * size

    registry.register(large)
    app = to_openapi(registry, write_timeout=0.2)
    ended = asyncio.Event()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        ended.set()

    async with front_door.client_of(to_openapi(registry)) as client:
        assert (await client("GET", "/operations/x.large")).json() == "x" * size
    head = b"GET /operations/x.large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with front_door.served(watched) as base, front_door.connected(base, head) as reader:
        await ended.wait()
        assert len(await reader.read()) < size


async def test_a_stream_that_never_waits_leaves_others_their_turn_and_ends_when_its_client_leaves(
    registry: OperationRegistry,
) -> None:
    items = 10_000
    reached = 0

    @operation(namespace="x", name="torrent", type="subscription")
    async def torrent() -> AsyncIterator[int]:
        nonlocal reached
        for reached in range(1, items + 1):
            yield reached

    registry.register(torrent)
    scope = {
        "type": "http", "method": "POST", "path": "/operations/x.torrent", "root_path": "", "query_string": b"",
        "headers": [],
    }  # fmt: skip
    requests = [{"type": "http.request", "body": b"", "more_body": False}]
    flows, left = asyncio.Event(), asyncio.Event()

    async def receive() -> Any:
        if requests:
            return requests.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        # The connection takes everything at once, as it does where the client reads as fast or has just left.
        flows.set()

    streaming = asyncio.create_task(to_openapi(registry)(scope, receive, send))
    await flows.wait()
    assert reached < items
    left.set()
    await streaming
    assert reached < items

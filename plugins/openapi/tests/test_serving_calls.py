"""Operations over HTTP: inputs, answers, errors, streams, cancellation."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, OperationContext, OperationRegistry, OperationSpec, load_plugins, operation
from operad_openapi import SSEParser, http_envelope, to_openapi


def helper(name: str) -> Any:
    """A module beside this one, which pytest's import mode does not make importable."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


front_door = helper("front_door")
PLUGINS = load_plugins(only=["openapi"])
ENVELOPE = "application/vnd.operad.envelope+json"


@pytest.fixture
async def registry() -> AsyncIterator[OperationRegistry]:
    async with OperationRegistry(PLUGINS) as made:
        for each in front_door.everything():
            made.register(each)
        made.register(front_door.SLASHED, front_door.who)
        yield made


@pytest.fixture
async def call(registry: OperationRegistry) -> AsyncIterator[Any]:
    async with front_door.client_of(to_openapi(registry)) as client:
        yield client


# --- inputs and answers ------------------------------------------------------------------------------


async def test_a_post_answers_the_data_and_headers_tell_where_they_came_from(call: Any) -> None:
    response = await call("POST", "/operations/shop.add", json={"a": 1})
    assert (response.status, response.json()) == (200, 3)
    assert response.headers["Operad-Source"] == "local"
    assert json.loads(response.headers["Operad-Meta"])["operationId"] == "shop.add"
    assert response.headers["Operad-Request-Id"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_client_that_asks_for_the_envelope_gets_it(call: Any) -> None:
    response = await call("POST", "/operations/shop.add", json={"a": 1}, headers={"Accept": ENVELOPE})
    envelope = response.json()
    assert envelope["data"] == 3
    assert envelope["meta"]["source"] == "local"


async def test_a_query_with_flat_input_is_called_by_get(call: Any) -> None:
    assert (await call("GET", "/operations/shop.add?a=40")).json() == 42
    path = '/operations/shop.find?names=a&names=1&ratio=1e0&text=null&on=true&where={"x":1}'
    answer = (await call("GET", path.replace('"', "%22"))).json()
    assert answer == {"names": ["a", "1"], "ratio": 1.0, "text": "null", "on": True, "where": {"x": 1}}
    answer = (await call("GET", "/operations/shop.find?names=&ratio=null")).json()
    assert (answer["names"], answer["ratio"]) == ([""], None)


@pytest.mark.parametrize("text", ["x", "1.5", "+1", "0x1", " 1", "01", "NaN", "1e999", "true", "", "9" * 5000])
async def test_a_query_string_is_decoded_and_never_cast(call: Any, text: str) -> None:
    problem = await call.problem("GET", f"/operations/shop.add?a={text.replace(' ', '%20').replace('+', '%2B')}")
    assert (problem["status"], problem["code"]) == (422, "VALIDATION_ERROR")


async def test_a_mutation_is_not_called_by_get(call: Any) -> None:
    response = await call("GET", "/operations/shop.order")
    assert (response.status, response.headers["Allow"]) == (405, "POST")
    response = await call("DELETE", "/operations/shop.add")
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD, POST")
    response = await call("OPTIONS", "/operations/shop.add")
    assert (response.status, response.headers["Allow"]) == (204, "GET, HEAD, POST")


async def test_an_id_stands_in_the_path_with_all_but_slashes_encoded(call: Any) -> None:
    assert (await call("POST", "/operations/gh.pulls/create%3F%25%C3%A9")).status == 200
    assert (await call("POST", "/operations/gh.pulls%2Fcreate%3F%25%C3%A9")).status == 200


@pytest.mark.parametrize(
    "path", ["/operations/", "/operations/shop.nope", "/operations/a//b", "/nowhere", "/operations"]
)
async def test_what_is_not_there_is_404(call: Any, path: str) -> None:
    assert (await call.problem("POST", path))["status"] == 404


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {"Content-Type": "application/json"}, 400),
        (b'{"a": 1, "a": 2}', {"Content-Type": "application/json"}, 400),
        (b"\xff", {"Content-Type": "application/json"}, 400),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400),
        (b'{"a": NaN}', {"Content-Type": "application/json"}, 400),
        (b'{"a": 1}', {"Content-Type": "text/plain"}, 415),
        (b"[]", {"Content-Type": "application/json"}, 422),
        (b"null", {"Content-Type": "application/json"}, 422),
        (b'{"a": 99999999999999999999999}', {"Content-Type": "application/json; charset=utf-8"}, 200),
        (b'{"a": 1}', {"Content-Type": "application/json", "Operad-Timeout": "soon"}, 400),
        (b'{"a": 1}', {"Content-Type": "application/json", "Operad-Timeout": "-1"}, 400),
        (b'{"a": 1}', {"Content-Type": "application/json", "Operad-Timeout": "1.5"}, 200),
    ],
)
async def test_a_body_is_json_of_the_strict_profile(
    call: Any, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert (await call("POST", "/operations/shop.add", data=body, headers=headers)).status == status


async def test_a_body_beyond_the_bound_is_413_whether_its_size_is_declared_or_not(
    registry: OperationRegistry,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    async with front_door.client_of(to_openapi(registry, max_body=1_000)) as client:
        for body in (b" " * 2_000, chunks()):
            problem = await client.problem("POST", "/operations/shop.add", data=body)
            assert (problem["status"], problem["code"]) == (413, "PAYLOAD_TOO_LARGE")


async def test_binary_data_are_sent_as_they_are_and_cannot_run_as_a_page(call: Any) -> None:
    response = await call("GET", "/operations/shop.picture")
    assert (response.body, response.content_type) == (b"\x89PNG", "image/png")
    assert response.headers["Operad-Source"] == "http"
    assert json.loads(response.headers["Operad-Meta"])["statusCode"] == 200
    assert "sandbox" in response.headers["Content-Security-Policy"]
    response = await call("GET", "/operations/shop.picture", headers={"Accept": ENVELOPE})
    envelope = response.json()
    assert (envelope["data"], envelope["meta"]["encoding"]) == ("iVBORw==", "base64")


async def test_metadata_that_do_not_fit_into_a_header_are_left_to_the_envelope(
    registry: OperationRegistry,
) -> None:
    async def large(input: Any, context: OperationContext) -> Any:
        return http_envelope(1, url="http://x/" + "é" * 5_000, method="GET")

    registry.register(OperationSpec(namespace="x", name="large"), large)
    async with front_door.client_of(to_openapi(registry)) as client:
        response = await client("POST", "/operations/x.large")
        meta = json.loads(response.headers["Operad-Meta"])
        assert (meta["method"], "url" in meta) == ("GET", False)


# --- errors ------------------------------------------------------------------------------------------


async def test_a_declared_error_has_its_status_code_and_details(call: Any) -> None:
    problem = await call.problem("POST", "/operations/shop.buy")
    assert (problem["status"], problem["code"], problem["details"]) == (409, "SOLD_OUT", {"left": 0})


@pytest.mark.parametrize(("upstream", "status"), [(404, 404), (429, 429), (302, 502), (500, 502), (503, 502)])
async def test_an_upstreams_4xx_keeps_its_status_and_all_else_is_502(
    call: Any, upstream: int, status: int
) -> None:
    problem = await call.problem("POST", "/operations/shop.upstream", json={"status": upstream})
    assert (problem["status"], problem["details"]["statusCode"]) == (status, upstream)


async def test_what_an_exception_says_stays_in_the_log(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    problem = await call.problem("POST", "/operations/shop.crash")
    assert problem["status"] == 500
    assert "hunter2" not in json.dumps(problem)
    assert "hunter2" in caplog.text
    assert problem["details"]["reference"] in caplog.text


async def test_the_table_of_statuses() -> None:
    from operad_openapi._serving.problems import problem_of

    table = {
        "OPERATION_NOT_FOUND": 404, "VALIDATION_ERROR": 422, "TIMEOUT": 504, "OVERLOADED": 429, "UNAVAILABLE": 503,
        "NO_RESPONDERS": 503, "PAYLOAD_TOO_LARGE": 413, "EXECUTION_ERROR": 500, "OTHER": 500,
    }  # fmt: skip
    for code, status in table.items():
        assert problem_of(CallError(code, "x"), (), has_identity=True).status == status
    assert problem_of(CallError("ACCESS_DENIED", "x"), (), has_identity=True).status == 403
    denied = problem_of(CallError("ACCESS_DENIED", "x"), (), has_identity=False)
    assert (denied.status, dict(denied.headers)[b"www-authenticate"]) == (401, b"Bearer")


async def test_an_answer_that_json_cannot_hold_is_an_error(registry: OperationRegistry) -> None:
    async def nan(input: Any, context: OperationContext) -> Any:
        return {"x": float("nan")}

    registry.register(OperationSpec(namespace="x", name="nan"), nan)
    async with front_door.client_of(to_openapi(registry)) as client:
        problem = await client.problem("POST", "/operations/x.nan")
        assert (problem["status"], problem["code"]) == (500, "SERIALIZATION_ERROR")


async def test_an_envelope_that_stands_for_an_error_is_502_and_200_as_an_envelope() -> None:
    async with OperationRegistry(load_plugins(only=["openapi", "mcp"])) as registry:
        from operad_mcp import mcp_envelope

        async def failing(input: Any, context: OperationContext) -> Any:
            return mcp_envelope([{"type": "text", "text": "no"}], is_error=True)

        registry.register(OperationSpec(namespace="x", name="failing"), failing)
        async with front_door.client_of(to_openapi(registry)) as client:
            problem = await client.problem("POST", "/operations/x.failing")
            assert (problem["status"], problem["code"]) == (502, "EXECUTION_ERROR")
            assert problem["details"]["data"] == [{"type": "text", "text": "no"}]
            response = await client("POST", "/operations/x.failing", headers={"Accept": ENVELOPE})
            assert (response.status, response.json()["meta"]["isError"]) == (
                200,
                True,
            )


# --- time --------------------------------------------------------------------------------------------


@pytest.fixture
def slow(registry: OperationRegistry) -> dict[str, asyncio.Event]:
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


async def test_the_deadline_that_a_client_asks_for_ends_the_call(
    call: Any, slow: dict[str, asyncio.Event]
) -> None:
    problem = await call.problem("POST", "/operations/x.slow", headers={"Operad-Timeout": "0.05"})
    assert (problem["status"], problem["code"]) == (504, "TIMEOUT")
    assert slow["cancelled"].is_set()


@pytest.mark.parametrize("name", ["slow", "ticks"])
async def test_a_client_that_leaves_cancels_the_call(
    call: Any, slow: dict[str, asyncio.Event], name: str, caplog: pytest.LogCaptureFixture
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


async def test_a_client_that_leaves_is_noticed_in_the_second_event_loop_as_well(
    registry: OperationRegistry, slow: dict[str, asyncio.Event]
) -> None:
    app = to_openapi(registry)
    scope = {
        "type": "http", "method": "POST", "path": "/operations/shop.add", "root_path": "", "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"a": 1}', "more_body": False}

    async def send(message: Any) -> None: ...

    def other_loop() -> None:
        asyncio.run(app(scope, receive, send))

    await asyncio.to_thread(other_loop)
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
        events = SSEParser().feed(response.body)
        assert [(event.id, event.event, event.data) for event in events] == [
            ("1", "message", "0"),
            ("2", "message", "1"),
            ("2", "operad.end", '{"count":2}'),
        ]


async def test_a_stream_of_envelopes_is_one_of_events_too(call: Any) -> None:
    response = await call(
        "GET", "/operations/shop.count?n=1", headers={"Accept": f"text/event-stream, {ENVELOPE}"}
    )
    first = json.loads(SSEParser().feed(response.body)[0].data)
    assert (first["data"], first["meta"]["source"]) == (0, "local")


async def test_a_stream_that_fails_says_so_and_one_that_fails_at_once_has_a_status(call: Any) -> None:
    response = await call("GET", "/operations/shop.breaks?n=1")
    *_, last = SSEParser().feed(response.body)
    assert (response.status, last.event) == (200, "operad.error")
    assert json.loads(last.data)["code"] == "EXECUTION_ERROR"
    assert (await call.problem("GET", "/operations/shop.breaks?n=0"))["status"] == 500
    assert (await call.problem("POST", "/operations/shop.count", json={"n": "x"}))["status"] == 422


async def test_an_upstreams_events_keep_type_and_id_but_cannot_speak_for_the_server(
    registry: OperationRegistry,
) -> None:
    seen = []

    async def events(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        seen.append(context.metadata.get("lastEventId"))
        yield http_envelope({"x": 1}, event_type="order", last_event_id="a-7")
        yield http_envelope({"x": 2}, event_type="operad.error", last_event_id="evil\nevent: operad.end")

    registry.register(OperationSpec(namespace="x", name="events", type="subscription"), events)
    async with front_door.client_of(to_openapi(registry)) as client:
        response = await client("POST", "/operations/x.events", headers={"Last-Event-ID": "a-6"})
        found = [(event.event, event.id) for event in SSEParser().feed(response.body)]
    assert found == [("order", "a-7"), ("message", "2"), ("operad.end", "2")]
    assert seen == ["a-6"]


async def test_a_silent_stream_is_kept_open_by_comments(
    registry: OperationRegistry, slow: dict[str, asyncio.Event]
) -> None:
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
    registry: OperationRegistry, slow: dict[str, asyncio.Event]
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
        *_, last = SSEParser().feed((await stream).body)
        assert (last.event, json.loads(last.data)["code"]) == ("operad.error", "UNAVAILABLE")
        assert (await client.problem("POST", "/operations/shop.add", json={"a": 1}))["status"] == 503
        assert (await client("GET", "/health")).status == 503
        release.set()
        await drained
        assert (await running).json() == "done"


async def test_a_drain_that_takes_too_long_cancels_what_is_left(
    registry: OperationRegistry, slow: dict[str, asyncio.Event]
) -> None:
    app = to_openapi(registry)
    async with front_door.client_of(app) as client:
        running = asyncio.create_task(client("POST", "/operations/x.slow"))
        await slow["started"].wait()
        await app.drain(0.01)
        async with asyncio.timeout(5):
            await slow["cancelled"].wait()
        await asyncio.wait([running])
        if running.exception() is None:
            assert running.result().status >= 500


async def test_no_more_streams_are_open_than_the_bound_allows(
    registry: OperationRegistry, slow: dict[str, asyncio.Event]
) -> None:
    app = to_openapi(registry, max_streams=1)
    async with (
        front_door.client_of(app) as client,
        client.session.post(client.base + "/operations/x.ticks"),
    ):
        problem = await client.problem("POST", "/operations/shop.count", json={})
        assert (problem["status"], problem["code"]) == (429, "OVERLOADED")


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
    async with front_door.served(to_openapi(registry, write_timeout=0.1)) as base:
        host, port = base.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1_000)
        writer.write(f"POST /operations/x.flood HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n".encode())
        async with asyncio.timeout(10):
            await closed.wait()
        writer.close()


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


async def test_a_body_that_does_not_come_is_408(registry: OperationRegistry) -> None:
    async with front_door.served(to_openapi(registry, body_timeout=0.05)) as base:
        host, port = base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST /operations/shop.add HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()

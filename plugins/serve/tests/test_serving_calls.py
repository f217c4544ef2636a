"""Operations over HTTP: inputs, answers, errors."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from yarl import URL

from operad import AccessControl, CallError, OperationContext, OperationRegistry, OperationSpec, operation
from operad_auth import StaticTokens
from operad_serve import to_openapi
from operad_serve.api.responses import data_response, wants_envelope
from operad_serve.asgi import ClientGoneError, Exchange
from operad_serve.problems import Problem
from plugins.serve.tests import front_door
from plugins.serve.tests.front_door import TABLES

ENVELOPE = "application/vnd.operad.envelope+json"


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


async def test_an_id_stands_in_the_path_with_all_but_slashes_encoded(call: Any) -> None:
    assert (await call("POST", "/operations/gh.pulls/create%3F%25%C3%A9")).status == 200
    assert (await call("POST", "/operations/gh.pulls%2Fcreate%3F%25%C3%A9")).status == 200


@pytest.mark.parametrize(
    "path", ["/operations/", "/operations/shop.nope", "/operations/a//b", "/nowhere", "/operations"]
)
async def test_what_is_not_there_is_404(call: Any, path: str) -> None:
    assert (await call.problem("POST", path))["status"] == 404


@pytest.mark.parametrize(("body", "headers", "status"), [*TABLES["bodies"], ("[" * 100_000, {}, 400)])
async def test_a_body_is_json_of_the_strict_profile(
    call: Any, body: str, headers: dict[str, str], status: int
) -> None:
    options = {"data": body.encode("latin-1"), "headers": {"Content-Type": "application/json", **headers}}
    assert (await call("POST", "/operations/shop.add", **options)).status == status


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


MIB = 1024 * 1024
TOO_LARGE = {
    "its whole body": (f"content-length: {8 * MIB}", b" " * 8 * MIB),
    "its whole body in a chunk": ("transfer-encoding: chunked", b"800000\r\n%s\r\n0\r\n\r\n" % (b" " * 8 * MIB)),
    "no body before it may": ("content-length: 2000\r\nexpect: 100-continue", b""),
    "nothing of far too much": (f"content-length: {1_001 + 16 * MIB}", b""),
}


@pytest.mark.parametrize("sent", sorted(TOO_LARGE))
async def test_a_client_of_a_too_large_body_reads_413_if_it_first_sends(
    registry: OperationRegistry, sent: str
) -> None:
    lines, body = TOO_LARGE[sent]
    head = f"POST /operations/shop.add HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{lines}"

    def ask(port: Any) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(f"{head}\r\n\r\n".encode() + body)
            return client.recv(1_000)

    async with front_door.served(to_openapi(registry, max_body=1_000)) as url:
        for _ in range(3):
            assert b" 413 " in await asyncio.to_thread(ask, URL(url).port)


async def test_binary_data_are_sent_as_they_are_and_cannot_run_as_a_page(call: Any) -> None:
    response = await call("GET", "/operations/shop.picture")
    assert (response.body, response.content_type) == (b"\x89PNG", "image/png")
    assert response.headers["Operad-Source"] == "web"
    assert json.loads(response.headers["Operad-Meta"])["statusCode"] == 200
    assert "sandbox" in response.headers["Content-Security-Policy"]
    response = await call("GET", "/operations/shop.picture", headers={"Accept": ENVELOPE})
    envelope = response.json()
    assert (envelope["data"], envelope["meta"]["encoding"]) == ("iVBORw==", "base64")


async def test_metadata_that_do_not_fit_into_a_header_are_left_to_the_envelope(
    registry: OperationRegistry, call: front_door.Client
) -> None:
    async def large(input: Any, context: OperationContext) -> Any:
        return front_door.web_envelope(1, event_type="é" * 5_000)

    registry.register(OperationSpec(namespace="x", name="large"), large)
    response = await call("POST", "/operations/x.large")
    meta = json.loads(response.headers["Operad-Meta"])
    assert (meta["statusCode"], "eventType" in meta) == (200, False)


@pytest.mark.parametrize("begun", [b"", b'{"a"'], ids=["nothing", "a part"])
async def test_a_body_that_does_not_come_is_408(registry: OperationRegistry, begun: bytes) -> None:
    head = b"POST /operations/shop.add HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    async with (
        front_door.served(to_openapi(registry, body_timeout=0.05)) as base,
        front_door.connected(base, head + begun) as reader,
    ):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")


async def test_an_error_says_what_the_request_should_be(
    registry: OperationRegistry, call: front_door.Client
) -> None:
    nested = {"type": "object", "required": ["a"], "properties": {"a": {"type": "object"}}}
    registry.register(OperationSpec(namespace="x", name="nested", type="query", input_schema=nested), failing([]))
    for method, path, headers, status, text, header in TABLES["errors of requests"]:
        sent = {"Content-Type": "application/json", **headers}
        answer = await call(method, path, data=None if method == "GET" else b"{}", headers=sent)
        assert (answer.status, bool(re.search(text, answer.json()["detail"]))) == (status, True), answer.body
        assert answer.headers.get(header[0]) == header[1]
        assert re.fullmatch(r"[0-9a-f]{16}-[0-9]+", answer.json()["requestId"])


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


async def test_an_answer_that_json_cannot_hold_is_an_error(
    registry: OperationRegistry, call: front_door.Client
) -> None:
    async def nan(input: Any, context: OperationContext) -> Any:
        return {"x": float("nan")}

    registry.register(OperationSpec(namespace="x", name="nan"), nan)
    problem = await call.problem("POST", "/operations/x.nan")
    assert (problem["status"], problem["code"]) == (500, "SERIALIZATION_ERROR")


async def test_an_envelope_that_stands_for_an_error_is_502_and_200_as_an_envelope(
    registry: OperationRegistry, call: front_door.Client
) -> None:
    async def failing(input: Any, context: OperationContext) -> Any:
        return front_door.web_envelope([{"type": "text", "text": "no"}], is_error=True)

    registry.register(OperationSpec(namespace="x", name="failing"), failing)
    problem = await call.problem("POST", "/operations/x.failing")
    assert (problem["status"], problem["code"]) == (502, "EXECUTION_ERROR")
    assert problem["details"]["data"] == [{"type": "text", "text": "no"}]
    response = await call("POST", "/operations/x.failing", headers={"Accept": ENVELOPE})
    assert (response.status, response.json()["meta"]["isError"]) == (200, True)


@operation(namespace="shop")
async def outside(context: OperationContext) -> None:
    """It calls another operation, whose upstream fails."""
    try:
        await context.env["shop.lost"]({})
    except CallError as error:
        details = {"message": str(error), "cause": error.to_wire()}
        raise CallError("EXECUTION_ERROR", str(error), details) from error


@operation(namespace="shop", type="query")
async def remote() -> Any:
    """A result of an upstream."""
    return front_door.web_envelope(1, status_code=200, url="http://10.0.0.3:9009/items", method="GET")


def failing(error: list[Any]) -> Any:
    async def fail(input: Any, context: OperationContext) -> None:
        raise CallError(*error)

    return fail


@pytest.fixture
async def upstream() -> AsyncIterator[OperationRegistry]:
    async with OperationRegistry(front_door.plugins()) as made:
        for each in (outside, remote):
            made.register(each)
        for name, error, _, _ in TABLES["errors of upstreams"]:
            made.register(OperationSpec(namespace="shop", name=name), failing(error))
        yield made


@pytest.mark.parametrize(("name", "error", "detail", "details"), TABLES["errors of upstreams"])
async def test_callers_see_no_address_and_no_header_of_an_upstream(
    upstream: OperationRegistry, name: str, error: Any, detail: str, details: Any
) -> None:
    async with front_door.client_of(to_openapi(upstream)) as client:
        problem = await client.problem("POST", f"/operations/shop.{name}")
        assert (problem["detail"], problem.get("details") or None) == (detail, details)


async def test_errors_of_nested_calls_and_metadata_keep_the_upstream_inside_too(
    upstream: OperationRegistry,
) -> None:
    async with front_door.client_of(to_openapi(upstream)) as client:
        text = (await client("POST", "/operations/shop.outside")).body
        assert b"10.0.0.3" not in text
        assert b"x-internal-node" not in text
        assert b'"statusCode":404' in text
        answer = await client("POST", "/operations/shop.remote")
        assert json.loads(answer.headers["Operad-Meta"])["statusCode"] == 200
        assert "10.0.0.3" not in answer.headers["Operad-Meta"]
        answer = await client("POST", "/operations/shop.remote", headers={"Accept": ENVELOPE})
        assert answer.json()["meta"] == {"source": "web", "statusCode": 200, "contentType": "", "isError": False}


async def test_an_upstream_is_exposed_if_that_is_configured(upstream: OperationRegistry) -> None:
    async with front_door.client_of(to_openapi(upstream, expose_upstream=True)) as client:
        problem = await client.problem("POST", "/operations/shop.lost")
        assert problem["detail"].startswith("GET http://10.0.0.3:9009/items/99")
        assert problem["details"]["headers"] == {"x-internal-node": "n7"}
        answer = await client("POST", "/operations/shop.remote", headers={"Accept": ENVELOPE})
        assert answer.json()["meta"]["url"] == "http://10.0.0.3:9009/items"


async def test_a_failing_call_is_one_line_in_the_log_with_the_request_id(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    async with front_door.client_of(to_openapi(registry)) as client:
        problem = await client.problem("POST", "/operations/shop.crash")
    (record,) = [record for record in caplog.records if "shop.crash" in record.getMessage()]
    assert problem["requestId"] == problem["details"]["reference"]
    assert f"(request {problem['requestId']})" in record.getMessage()
    assert record.exc_info is not None


# --- one request in this process -----------------------------------------------------------------------


def exchange(sizes: list[int | None], server: Any = ("127.0.0.1", 1), **headers: str) -> Exchange:
    """A request whose body comes in parts of sizes; None for a client that leaves."""
    messages = [
        {"type": "http.disconnect"}
        if size is None
        else {"type": "http.request", "body": b"%d" % number * size, "more_body": number < len(sizes)}
        for number, size in enumerate(sizes, 1)
    ]
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "headers": named, "server": server}

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None: ...

    return Exchange(scope, receive, send, "/")


@pytest.mark.parametrize(("sizes", "headers", "outcome"), TABLES["sizes of bodies"])
async def test_a_body_is_read_up_to_its_bound_and_a_part_of_what_is_beyond(
    sizes: list[int | None], headers: dict[str, str], outcome: Any
) -> None:
    reading = exchange(sizes, **headers).body(10, 5)
    if isinstance(outcome, str):
        assert await reading == outcome.encode()
    elif outcome is None:
        with pytest.raises(ClientGoneError):
            await reading
    else:
        with pytest.raises(Problem) as caught:
            await reading
        assert (caught.value.status, caught.value.headers) == (outcome, ((b"connection", b"close"),))


@pytest.mark.parametrize(("server", "headers", "is_local"), TABLES["local requests"])
def test_a_request_is_local_under_a_name_of_this_machine_and_through_no_proxy(
    server: Any, headers: dict[str, str], is_local: bool
) -> None:
    assert exchange([], server, **headers).is_local is is_local


async def test_a_large_answer_is_sent_in_parts(registry: OperationRegistry) -> None:
    sizes: list[int] = []

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def sized(message: Any) -> None:
            sizes.append(len(message.get("body", b"")))
            await send(message)

        await app(scope, receive, sized)

    async def large(input: Any, context: OperationContext) -> str:
        return "x" * (256 * 1024 - 2 + input["more"])

    registry.register(OperationSpec(namespace="x", name="large"), large)
    app = to_openapi(registry)
    for more, parts in (
        (0, [262_144]),
        (1, [262_144, 1]),
        (262_144, [262_144] * 2),
        (262_145, [262_144] * 2 + [1]),
    ):
        body = json.dumps({"more": more}).encode()
        answer = await front_door.asked(watched, "POST", "/operations/x.large", body)
        assert (sizes.pop(0), sizes[:]) == (0, parts)
        sizes.clear()
        assert len(answer.json()) == 256 * 1024 - 2 + more
        assert answer.headers["content-length"] == str(256 * 1024 + more)


@pytest.mark.parametrize(("headers", "options", "seconds"), TABLES["deadlines"])
async def test_a_call_has_the_deadline_that_its_client_asks_for_up_to_a_bound(
    registry: OperationRegistry, headers: dict[str, str], options: dict[str, Any], seconds: int | None
) -> None:
    async def seen(input: Any, context: OperationContext) -> Any:
        return None if context.deadline is None else round((context.deadline / 1000 - time.time()) / 30)

    async def items(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        yield await seen(input, context)

    registry.register(OperationSpec(namespace="x", name="seen"), seen)
    registry.register(OperationSpec(namespace="x", name="items", type="subscription"), items)
    app = to_openapi(registry, **options)
    answer = await front_door.asked(app, "POST", "/operations/x.seen", **headers)
    assert answer.json() == (None if seconds is None else round(seconds / 30))
    stream = front_door.events((await front_door.asked(app, "POST", "/operations/x.items", **headers)).body)
    assert json.loads(stream[0].data) == (round(seconds / 30) if headers and seconds else None)


@pytest.mark.parametrize(("id", "seen"), TABLES["last events"])
async def test_handlers_see_the_trace_and_the_last_event_of_a_request(
    registry: OperationRegistry, id: str, seen: str | None
) -> None:
    async def metadata(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        yield dict(context.metadata)

    registry.register(OperationSpec(namespace="x", name="metadata", type="subscription"), metadata)
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "v=1"}
    for headers in ({}, trace, {"baggage": "k=v"}):
        answer = await front_door.asked(
            to_openapi(registry), "POST", "/operations/x.metadata", last_event_id=id, **headers
        )
        found = json.loads(front_door.events(answer.body)[0].data)
        assert found.pop("lastEventId", None) == seen
        assert found == headers


@pytest.mark.parametrize(
    ("meta", "data", "expected"), [*TABLES["items of upstreams"], ({}, b"\xff", ["1", "message", '"/w=="'])]
)
async def test_an_item_has_the_type_and_the_id_of_its_upstream_if_they_fit_into_a_line(
    registry: OperationRegistry, meta: dict[str, Any], data: Any, expected: Any
) -> None:
    async def items(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        yield front_door.web_envelope(data, **meta)

    registry.register(OperationSpec(namespace="x", name="items", type="subscription"), items)
    answer = await front_door.asked(to_openapi(registry), "POST", "/operations/x.items")
    assert (answer.headers["operad-source"], answer.headers.get("operad-meta")) == ("web", None)
    first, last = front_door.events(answer.body)
    assert list(first) == expected
    assert (last.event, last.data) == ("operad.end", '{"count":1}')


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (ENVELOPE, True),
        (f"text/html, {ENVELOPE}", True),
        (f"application/json, {ENVELOPE}", False),
        ("*/*", False),
        (None, False),
    ],
)
def test_the_envelope_is_for_clients_that_name_its_type_alone(accept: str | None, wanted: bool) -> None:
    assert wants_envelope(accept) is wanted


@pytest.mark.parametrize(("declared", "sent"), TABLES["content types"])
def test_binary_data_have_a_content_type_that_is_one(declared: Any, sent: str) -> None:
    body, content_type, _ = data_response(front_door.web_envelope(b"x", content_type=declared))
    assert (body, content_type.decode()) == (b"x", sent)


async def test_metadata_of_local_calls_are_sent_up_to_a_bound(registry: OperationRegistry) -> None:
    async def same(input: Any, context: OperationContext) -> Any:
        return input

    length = 3_000
    for is_sent in (True, True, False):
        name = "n" * length
        registry.register(OperationSpec(namespace="x", name=name), same)
        answer = await front_door.asked(to_openapi(registry), "POST", f"/operations/x.{name}")
        assert (answer.status, answer.headers["operad-source"]) == (200, "local")
        assert ("operad-meta" in answer.headers) is is_sent
        length += 4_096 - len(answer.headers.get("operad-meta", "")) or 1


def test_metadata_of_upstreams_are_sent_up_to_a_bound() -> None:
    def meta(length: int) -> bytes:
        return dict(data_response(front_door.web_envelope(1, event_type="x" * length))[2])[b"operad-meta"]

    assert max(len(meta(length)) for length in range(4_000, 4_096)) == 4_095


async def test_a_denied_call_is_401_without_an_identity_and_403_with_one(registry: OperationRegistry) -> None:
    async def deny(input: Any, context: OperationContext) -> Any:
        raise CallError("ACCESS_DENIED", "not you")

    async def denied(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        raise CallError("ACCESS_DENIED", "not you")
        yield

    registry.register(OperationSpec(namespace="x", name="deny"), deny)
    registry.register(OperationSpec(namespace="x", name="denied", type="subscription"), denied)
    access = AccessControl(required_scopes_any=("a", "b"))
    registry.register(OperationSpec(namespace="x", name="scoped", access_control=access), deny)
    app = to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS), anonymous=True)
    joe = {"authorization": "Bearer joe-token-123456"}
    for name in ("deny", "denied", "scoped"):
        for headers, status in (({}, 401), (joe, 403)):
            answer = await front_door.asked(app, "POST", f"/operations/x.{name}", **headers)
            assert (answer.status, answer.json()["code"]) == (status, "ACCESS_DENIED")
    assert answer.json()["details"] == {"requiredScopes": ["a", "b"]}
    assert 'scope="a b"' in answer.headers["www-authenticate"]


async def test_a_request_whose_task_is_cancelled_ends_without_a_response(registry: OperationRegistry) -> None:
    started = asyncio.Event()

    async def wait(input: Any, context: OperationContext) -> None:
        started.set()
        await asyncio.Event().wait()

    registry.register(OperationSpec(namespace="x", name="wait"), wait)
    asking = asyncio.create_task(front_door.asked(to_openapi(registry), "POST", "/operations/x.wait"))
    await started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

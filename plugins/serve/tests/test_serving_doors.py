"""Who comes in, and what whom is shown: hosts, origins, credentials, the explorer's own requests, mounts."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from operad import CallError, ConfigError, Identity, OperationContext, OperationRegistry, OperationSpec
from operad_auth import Credentials, StaticTokens
from operad_serve import to_openapi
from operad_serve.api.places import place_of
from operad_serve.asgi import run_lifespan
from operad_testing import hostile_schemas
from plugins.serve.tests import front_door
from plugins.serve.tests.front_door import TABLES

ROOT = {"Authorization": "Bearer root-token-123456"}
JOE = {"Authorization": "Bearer joe-token-123456"}


@pytest.mark.parametrize(("headers", "status"), TABLES["hosts"])
async def test_on_a_loopback_address_other_names_and_other_pages_are_refused(
    registry: OperationRegistry, headers: dict[str, str], status: int
) -> None:
    async with front_door.client_of(to_openapi(registry, allowed_hosts=["gate.example"])) as client:
        for path in ("/health", "/operations/shop.add?a=1", "/", "/openapi.json"):
            assert (await client("GET", path, headers=headers)).status == status


async def test_pages_of_an_allowed_origin_may_read_and_no_others(registry: OperationRegistry) -> None:
    async with front_door.client_of(to_openapi(registry, allowed_origins=["https://app.example"])) as client:
        allowed = {"Origin": "https://app.example"}
        answer = await client("OPTIONS", "/operations/shop.order", headers=allowed)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        headers = answer.headers["Access-Control-Allow-Headers"].split(", ")
        assert {"Authorization", "Idempotency-Key", "traceparent", "tracestate", "baggage"} <= set(headers)
        answer = await client("GET", "/operations/shop.add?a=1", headers=allowed)
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "https://app.example")
    async with front_door.client_of(to_openapi(registry)) as client:
        answer = await client("GET", "/operations/shop.add?a=1")
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_without_the_scope_nothing_of_an_operation_is_seen_described_or_called(
    registry: OperationRegistry,
) -> None:
    app = to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS), anonymous=True)
    async with front_door.client_of(app) as client:
        for headers, status, challenge in (({}, 401, "Bearer"), (JOE, 403, 'scope="admin"'), (ROOT, 200, "")):
            answer = await client("POST", "/operations/admin.secret", headers=headers)
            assert answer.status == status
            assert challenge in answer.headers.get("WWW-Authenticate", "")
            document = (await client("GET", "/openapi.json", headers=headers)).body
            assert (b"admin.secret" in document) is (status == 200)
            assert (b'"bearer"' in document) is True
        assert (await client("POST", "/operations/gh.pulls/create%3F%25%C3%A9", headers=JOE)).json()["id"] == "joe"
        wrong = {"Authorization": "Bearer nobody"}
        for path in ("/operations/shop.add?a=1", "/openapi.json", "/explorer/state"):
            answer = await client("GET", path, headers=wrong)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')
        assert (await client("GET", "/health", headers=wrong)).status == 200


async def test_secrets_are_in_no_log_answer_document_or_page(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "joe-token-123456"
    async with front_door.client_of(to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS))) as client:
        texts = []
        for method, path in (
            ("POST", "/operations/shop.crash"), ("POST", "/operations/nope.nope"), ("POST", "/operations/admin.secret"),
            ("GET", "/openapi.json"), ("GET", "/"), ("GET", "/explorer/state"), ("GET", "/explorer/trace/x"),
        ):  # fmt: skip
            answer = await client(method, path, headers=JOE)
            texts += [answer.body.decode(), str(answer.headers)]
    assert secret not in "".join(texts) + caplog.text


async def test_the_explorer_is_static_and_asks_nobody_else(registry: OperationRegistry) -> None:
    async with front_door.client_of(to_openapi(registry)) as client:
        page = await client("GET", "/")
        assert page.content_type == "text/html"
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        for name in ("app.js", "calls.js", "forms.js", "page.js", "style.css", "icon.svg"):
            answer = await client("GET", f"/explorer/{name}")
            assert answer.status == 200
            assert b"https://" not in answer.body
        for path in ("/explorer/../pages.py", "/explorer/%2e%2e/pages.py", "/explorer/secret.txt"):
            assert (await client("GET", path)).status == 404
    async with front_door.client_of(to_openapi(registry, explorer=False)) as client:
        assert [(await client("GET", path)).status for path in ("/", "/explorer/state")] == [404, 404]


@pytest.mark.parametrize(("method", "path", "status", "allow"), TABLES["methods"])
async def test_each_path_has_its_methods_and_head_is_get_without_a_body(
    registry: OperationRegistry, method: str, path: str, status: int, allow: str | None
) -> None:
    app = to_openapi(registry)
    answer = await front_door.asked(app, method, path)
    assert (answer.status, answer.headers.get("allow")) == (status, allow)
    assert {("x-content-type-options", "nosniff")} <= answer.headers.items()
    if method == "HEAD" and status == 200:
        whole = await front_door.asked(app, "GET", path)
        assert (answer.body, answer.headers["content-length"]) == (b"", str(len(whole.body)))
    if status == 204:
        assert answer.body == b""
        assert "content-length" not in answer.headers


async def test_a_preflight_needs_no_credentials_and_all_else_does(registry: OperationRegistry) -> None:
    origin = "https://app.example"
    app = to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS), allowed_origins=[origin])
    asks = {"origin": origin, "access_control_request_method": "POST"}
    answer = await front_door.asked(app, "OPTIONS", "/operations/shop.add", **asks)
    assert (answer.status, answer.headers["allow"]) == (204, "GET, POST, OPTIONS")
    assert answer.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert answer.headers["access-control-max-age"] == "600"
    assert answer.headers["vary"] == "Origin"
    for left_out in asks:
        some = {name: value for name, value in asks.items() if name != left_out}
        assert (await front_door.asked(app, "OPTIONS", "/operations/shop.add", **some)).status == 401
    answer = await front_door.asked(app, "POST", "/operations/shop.add", origin="https://app.example")
    assert "access-control-allow-methods" not in answer.headers
    assert "Operad-Meta" in answer.headers["access-control-expose-headers"]


async def test_the_explorers_address_ends_with_a_slash(registry: OperationRegistry) -> None:
    answer = await front_door.asked(to_openapi(registry), "GET", "/tools/gate", root="/tools/gate")
    assert (answer.status, answer.headers["location"]) == (307, "gate/")


async def test_a_websocket_is_closed_and_a_lifespan_drains_and_starts_again(registry: OperationRegistry) -> None:
    app = to_openapi(registry)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.next"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]
    await app({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent[1:]] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (await front_door.asked(app, "GET", "/health")).status == 503
    started = asyncio.create_task(app({"type": "lifespan"}, [receive, asyncio.Event().wait].pop, send))
    await asyncio.sleep(0)
    started.cancel()

    async def fail() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await run_lifespan(receive, send, fail, fail)
    assert sent[-1] == {"type": "lifespan.startup.failed", "message": "OSError: no disk"}


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (RuntimeError("the password is hunter2"), 401, "the credentials are not valid"),
        (CallError("ACCESS_DENIED", "expired"), 401, "the credentials are not valid"),
        (
            CallError("UNAVAILABLE", "no keys at https://u:p@x/"),
            503,
            "the caller cannot be authenticated now; try",
        ),
    ],
)
async def test_an_authenticator_that_fails_lets_nobody_in(
    registry: OperationRegistry, error: Exception, status: int, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    def authenticate(credentials: Credentials) -> None:
        raise error

    app = to_openapi(registry, authenticate=authenticate)
    answer = await front_door.asked(app, "POST", "/operations/shop.add", authorization="Bearer x")
    assert (answer.status, answer.json()["detail"].startswith(detail)) == (status, True)
    assert b"u:p@x" not in answer.body
    assert "hunter2" not in caplog.text
    assert (answer.headers.get("retry-after") == "5") is (status == 503)
    assert ("a caller cannot be authenticated: " in caplog.text) is (status == 503)


async def test_an_authenticator_sees_the_address_of_its_client(registry: OperationRegistry) -> None:
    peers: list[str | None] = []

    def authenticate(credentials: Credentials) -> Identity:
        peers.append(credentials.peer)
        return Identity("joe")

    app = to_openapi(registry, authenticate=authenticate)
    async with front_door.client_of(app) as client:
        assert (await client("GET", "/operations/shop.add?a=1")).status == 200
    assert (await front_door.asked(app, "GET", "/operations/shop.add", query=b"a=1")).status == 200
    assert peers == ["127.0.0.1", None]


async def test_the_files_of_the_explorer_need_no_token_and_its_data_do(registry: OperationRegistry) -> None:
    app = to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS))
    statuses = {
        path: (await front_door.asked(app, "GET", path)).status for path in TABLES["paths of the explorer"]
    }
    assert statuses == TABLES["paths of the explorer"]
    state = (await front_door.asked(app, "GET", "/explorer/state", authorization=JOE["Authorization"])).json()
    assert state == {
        "title": "operad", "guarded": True, "identity": "joe", "manages": False, "adminScope": "operad:admin",
        "operations": 11,
    }  # fmt: skip


async def test_a_response_that_fails_after_it_began_is_not_completed(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            raise OSError("broken pipe")

    scope = {"type": "http", "method": "GET", "path": "/health", "headers": [(b"host", b"127.0.0.1")]}
    with pytest.raises(OSError, match="broken pipe"):
        await to_openapi(registry)(scope, asyncio.sleep, send)
    assert sent == ["http.response.start", "http.response.body"]
    assert "GET '/health' failed" in caplog.text


async def test_a_failure_of_the_server_is_in_its_log_alone(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(operation_id: str) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(registry, "get_spec", broken)
    answer = await front_door.asked(to_openapi(registry), "POST", "/operations/shop.add")
    id = answer.headers["operad-request-id"]
    assert (answer.status, id in answer.json()["detail"]) == (500, True)
    assert b"hunter2" not in answer.body
    assert f"POST '/operations/shop.add' failed (request {id})" in caplog.text


async def test_plugins_and_sources_are_shown_and_reloaded_by_who_may_manage_them(
    registry: OperationRegistry,
) -> None:
    await registry.load("empty", namespace="api")
    ours = {"Operad-Explorer": "1"}
    async with front_door.client_of(to_openapi(registry)) as client:
        state = (await client("GET", "/explorer/state")).json()
        assert [source["name"] for source in state["sources"]] == ["api"]
        reloaded = (await client("POST", "/explorer/reload/api", headers=ours)).json()
        assert reloaded["sources"][0]["status"] == "loaded"
        assert (await client("POST", "/explorer/reload/api")).status == 400
        assert (await client("POST", "/explorer/reload/nope", headers=ours)).status == 409
    # Where callers are not authenticated, whoever comes from elsewhere is nobody here.
    async with front_door.client_of(to_openapi(registry, allowed_hosts=["gate.example"])) as client:
        for elsewhere in ({"Host": "gate.example"}, {"X-Forwarded-For": "192.0.2.7"}):
            assert "sources" not in (await client("GET", "/explorer/state", headers=elsewhere)).json()
            problem = await client.problem("POST", "/explorer/reload/api", headers={**ours, **elsewhere})
            assert (problem["status"], "only this machine may" in problem["detail"]) == (403, True)
    tokens = {**front_door.TOKENS, "admin-token-123456": Identity("adm", ["operad:admin"])}
    async with front_door.client_of(to_openapi(registry, authenticate=StaticTokens(tokens))) as client:
        for headers, status in (({}, 401), (ROOT, 403), ({"Authorization": "Bearer admin-token-123456"}, 200)):
            state = (await client("GET", "/explorer/state", headers=headers)).json()
            assert ("sources" in state) is (status == 200)
            assert (await client("POST", "/explorer/reload/api", headers={**ours, **headers})).status == status


async def test_a_call_tree_is_for_who_made_the_call_and_names_only_what_they_may_see(
    registry: OperationRegistry,
) -> None:
    observed = []

    async def outer(input: Any, context: OperationContext) -> Any:
        observed.append(context.is_observed)
        await context.progress(1, 2, "half\x00")
        return (await context.env["admin.secret"]()).data

    registry.register(OperationSpec(namespace="shop", name="outer"), outer)
    async with front_door.client_of(to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS))) as client:
        answer = await client("POST", "/operations/shop.outer", headers={**JOE, "Operad-Trace": "1"})
        id = answer.headers["Operad-Request-Id"]
        assert (await client("GET", f"/explorer/trace/{id}", headers=ROOT)).status == 404
        tree = (await client("GET", f"/explorer/trace/{id}", headers=JOE)).json()["call"]
        assert [tree["operationId"], *(child["operationId"] for child in tree["children"])] == ["shop.outer", None]
        (report,) = tree["reports"]
        assert report["atMs"] > 0
        assert {**report, "atMs": 0} == {
            "atMs": 0, "kind": "progress", "level": "info", "message": "half\\x00", "progress": 1, "total": 2,
            "unit": None,
        }  # fmt: skip
        id = (await client("POST", "/operations/shop.outer", headers=JOE)).headers["Operad-Request-Id"]
        assert (await client("GET", f"/explorer/trace/{id}", headers=JOE)).status == 404
    await registry.execute("shop.outer", context=OperationContext(trusted=True))
    assert observed == [True, False, False]


async def test_only_the_latest_trees_calls_and_reports_are_kept(registry: OperationRegistry) -> None:
    async def outer(input: Any, context: OperationContext) -> Any:
        for number in range(input.get("times", 1)):
            if number < 51:
                await context.progress(number)
                await context.log("info", f"{number}")
            await context.env["shop.add"]({"a": number})
        raise CallError("GONE", "no")

    registry.register(OperationSpec(namespace="shop", name="outer"), outer)
    app = to_openapi(registry)

    async def traced(body: bytes = b"{}") -> str:
        answer = await front_door.asked(app, "POST", "/operations/shop.outer", body, operad_trace="1")
        return answer.headers["operad-request-id"]

    async def tree(id: str) -> Any:
        answer = await front_door.asked(app, "GET", f"/explorer/trace/{id}")
        return answer.json() if answer.status == 200 else None

    ids = [await traced() for _ in range(64)] + [await traced(b'{"times": 1002}')]
    assert [await tree(id) is not None for id in ids] == [False] + [True] * 64
    found = await tree(ids[-1])
    call = found["call"]
    assert (found["leftOut"], call["error"], call["startMs"]) == (3, "GONE", 0)
    assert [(child["operationId"], child["error"]) for child in call["children"]] == [("shop.add", None)] * 999
    assert call["durationMs"] >= call["children"][-1]["durationMs"] > 0
    assert len(call["reports"]) == 100  # of 102
    reports = [[report[name] for name in ("kind", "progress", "message", "unit")] for report in call["reports"]]
    assert reports[:2] == [["progress", 1, None, None], ["log", None, "1", None]]


async def test_below_a_mount_everything_is_where_the_document_says(registry: OperationRegistry) -> None:
    host = Starlette(routes=[Mount("/gate", to_openapi(registry))])
    async with front_door.client_of(host) as client:
        document = (await client("GET", "/gate/openapi.json")).json()
        assert document["servers"] == [{"url": "/gate"}]
        assert (await client("GET", "/gate/operations/shop.add?a=1")).json() == 3
        assert (await client("GET", "/gate/health")).status == 200
        assert (await client("GET", "/gate/", allow_redirects=False)).status == 200


async def test_a_host_that_takes_its_mount_off_without_a_word_is_understood(registry: OperationRegistry) -> None:
    app: Any = to_openapi(registry)

    async def host(scope: Any, receive: Any, send: Any) -> None:
        """As Litestar 2 does it."""
        path = scope["path"].removeprefix("/gate") or "/"
        await app({**scope, "path": path if path.endswith("/") else f"{path}/"}, receive, send)

    async with front_door.client_of(host) as client:
        document = (await client("GET", "/gate/openapi.json")).json()
        assert document["servers"] == [{"url": "/gate"}]
        assert (await client("GET", "/gate/operations/shop.add?a=1")).json() == 3
        assert (await client("GET", "/gate/%6Fperations/shop%2Eadd?a=1")).json() == 3
        assert (await client("GET", "/gate/operations/shop.add/?a=1")).status == 404
        assert (await client("GET", "/gate/")).status == 200
        twice = (await client("GET", "/gate//openapi.json")).json()
        assert twice.get("status") == 404 or twice["servers"] == [{"url": "/"}]


@pytest.mark.parametrize(("scope", "place"), TABLES["places"])
def test_a_place_is_a_root_and_a_path_whatever_the_host_makes_of_them(scope: Any, place: list[str]) -> None:
    raw = {"raw_path": scope["raw_path"].encode()} if "raw_path" in scope else {}
    assert place_of({**scope, **raw}) == tuple(place)


async def test_the_server_of_the_plugin_serves_until_it_is_cancelled(registry: OperationRegistry) -> None:
    server = registry.plugins.server("openapi")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    task = asyncio.create_task(server.serve(registry, server.config_type(port=port)))
    async with aiohttp.ClientSession() as session, asyncio.timeout(10):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/health") as response:
                    assert response.status == 200
                    break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConfigError, match="callers are not authenticated"):
        await server.serve(registry, server.config_type(host="0.0.0.0"))


HOSTILE = hostile_schemas()


async def test_hostile_schemas_leave_the_document_whole_and_what_cannot_be_told_is_said_once(
    registry: OperationRegistry, call: front_door.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(input: Any, context: OperationContext) -> str:
        return "x"

    for name, schema in HOSTILE.items():
        errors = [{"code": "GONE", "description": "\ud800", "schema": schema, "httpStatus": 410}]
        words: dict[str, Any] = {"tags": ["\ud800"], "error_schemas": errors}
        spec = OperationSpec(namespace="bad", name=name, input_schema=schema, output_schema=schema, **words)
        registry.register(spec, answer)
    shared = {"$ref": "#/$defs/A", "$defs": {"A": HOSTILE["surrogate"]}}
    registry.register(OperationSpec(namespace="bad", name="shared", input_schema={"items": shared}), answer)
    caplog.set_level("WARNING", "operad.serve")
    for _ in range(2):
        paths = (await call("GET", "/openapi.json")).json()["paths"]
    told = {
        name: paths[f"/operations/bad.{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for name in HOSTILE
    }
    assert "/operations/shop.add" in paths
    assert told["digits"] == {"type": "object", "properties": {"a": {}}}
    assert list(told["surrogate"]["properties"]) == ["\\udc80"]
    assert told["unbuilt"] == {}
    (said,) = [one.getMessage() for one in caplog.records if "without its schemas" in one.getMessage()]
    assert said == "bad.unbuilt is described without its schemas: no such document"

"""A served registry over HTTP and on standard streams: who is let in, what is mounted where, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from opentelemetry import trace
from starlette.applications import Starlette
from starlette.routing import Mount, Route

import operad
from operad import AccessControl, ConfigError, Identity, OperationContext, OperationRegistry
from operad_auth import Credentials, JWTAuthenticator
from operad_mcp import to_mcp
from operad_mcp.server.sessions import SessionEvents
from operad_serve.asgi import Admission
from operad_testing import free_port
from plugins.mcp.tests.peers import MODES, Patch, Slow, listening, raw, reached, until, watched

TOKENS = {"w": Identity("writer", {"write", "admin"}), "r": Identity("reader")}
RESOURCE = {"resource_url": "https://gw.example/gw/mcp", "authorization_servers": ["https://as.example"]}
METADATA = "/.well-known/oauth-protected-resource/gw/mcp"


async def authenticate(credentials: Credentials) -> Identity | None:
    return TOKENS.get(credentials.bearer or "")


def registry() -> OperationRegistry:
    """Operations that return their caller's name: for all, for those who may write, and a resource for those."""

    async def who(input: Any, context: OperationContext) -> Any:
        return None if context.identity is None else context.identity.id

    made = raw(OperationRegistry(), "who", who)
    guard = AccessControl(required_scopes=("write",), required_scopes_any=("admin", "root"))
    uri = {"mcp": {"kind": "resource", "uri": "test://secret"}}
    raw(made, "write", who, access_control=guard)
    return raw(made, "secret", who, access_control=guard, metadata=uri)


def message(method: str, **params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


async def post(app: Any, body: Any, token: str | None = None, path: str = "/mcp", **headers: str) -> Any:
    named = body["params"].get("name") or body["params"].get("uri")
    sent = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "host": "127.0.0.1",
        "mcp-method": body["method"],
        **({"mcp-name": named} if named else {}),
        **({} if token is None else {"authorization": f"Bearer {token}"}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    async with asking(app) as client:
        return await client.post(path, json=body, headers=sent)


def asking(app: Any, base_url: str = "http://127.0.0.1") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=base_url)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", name=tool, arguments=arguments)


@asynccontextmanager
async def application(made: OperationRegistry | None = None, **options: Any) -> AsyncIterator[Any]:
    """The application of a registry: without one, the registry above for those who have a token."""
    if made is None:
        made, options = registry(), {"authenticate": authenticate, **options}
    app: Any = to_mcp(made, **options).asgi()
    try:
        yield app
    finally:
        await app.aclose()


def result(answer: Any) -> Any:
    """The result in a response."""
    return answer.json()["result"]


def text(answer: Any) -> Any:
    """The text of a tool's result in a response."""
    return result(answer)["content"][0]["text"]


# --- traces --------------------------------------------------------------------------------------------


async def test_a_handler_is_in_the_trace_of_its_client_though_nobody_here_traces() -> None:
    seen: list[int] = []

    async def span(input: Any, context: OperationContext) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    traced = call("m_span")
    traced["params"]["_meta"]["traceparent"] = f"00-{'4b' * 16}-{'ab' * 8}-01"
    async with application(raw(OperationRegistry(), "span", span)) as app:
        for body in (traced, call("m_span")):
            assert text(await post(app, body))
    assert seen == [int("4b" * 16, 16), 0]


SPANS = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from plugins.mcp.tests.test_mcp_serving_http import application, call, post

exporter = InMemorySpanExporter()

async def main():
    async with application(anonymous=True) as app:
        await post(app, call("m_who"))
        provider = TracerProvider()  # set up after the first request
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        await post(app, call("m_who"))

asyncio.run(main())
print([span.name for span in exporter.get_finished_spans()])
"""


async def test_where_somebody_traces_each_request_has_its_span() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SPANS, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "['tools/call m_who']"


async def test_a_result_says_who_made_it_beside_what_it_says_itself() -> None:
    async with application(anonymous=True) as app:
        for asked in (call("m_who"), call("m_who"), message("tools/list")):
            found = result(await post(app, asked))
            assert found["resultType"] == "complete"
            stamp = found["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert stamp == {"name": "operad", "version": "1.0.0"}


# --- who is let in -------------------------------------------------------------------------------------


async def test_a_token_says_who_calls_and_without_one_an_accepted_caller_is_anonymous() -> None:
    async with application(anonymous=True) as app:
        found = [text(await post(app, call("m_who"), token)) for token in (None, "r", "w")]
    assert found == ["null", "reader", "writer"]


async def test_a_handler_has_the_credential_of_its_caller() -> None:
    async def shown(input: Any, context: OperationContext) -> Any:
        return None if context.credentials is None else context.credentials.bearer

    made = raw(registry(), "shown", shown)
    async with application(made, authenticate=authenticate, anonymous=True) as app:
        assert [text(await post(app, call("m_shown"), token)) for token in ("w", None)] == ["w", "null"]


async def test_a_token_that_stands_for_nobody_is_401_whatever_is_asked() -> None:
    async with application() as app:
        answer = await post(app, call("m_who"), "wrong")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize(
    "asked", [call("m_write"), message("resources/read", uri="test://secret")], ids=["tool", "resource"]
)
async def test_a_guarded_operation_is_401_for_nobody_and_403_with_all_of_its_scopes_for_others(asked: Any) -> None:
    async with application(**RESOURCE, anonymous=True) as app:
        nobody, reader, writer = [await post(app, asked, token) for token in (None, "r", "w")]
    where = 'resource_metadata="https://gw.example/.well-known/oauth-protected-resource/gw/mcp"'
    scope = 'error="insufficient_scope", scope="write admin root"'
    assert [answer.status_code for answer in (nobody, reader, writer)] == [401, 403, 200]
    challenges = [answer.headers["www-authenticate"] for answer in (nobody, reader)]
    assert challenges == [f"Bearer {where}", f"Bearer {scope}, {where}"]
    assert "error" not in writer.json()


async def test_search_mode_answers_403_for_what_its_call_is_to_call() -> None:
    async with application(tools="search") as app:
        answer = await post(app, call("call", id="m.write"), "r")
        listed = await post(app, call("search", query="write"), "r")
    assert answer.status_code == 403
    assert "m.write" not in listed.text


async def test_where_an_authorization_server_is_named_every_request_needs_a_token() -> None:
    async with application(**RESOURCE) as app:
        assert (await post(app, message("tools/list"))).status_code == 401
        assert (await post(app, message("tools/list"), "r")).status_code == 200


async def test_a_resource_in_nobodys_listing_is_in_its_readers() -> None:
    async with application() as app:
        seen = [result(await post(app, message("resources/list"), token)) for token in ("r", "w")]
    assert [len(each["resources"]) for each in seen] == [0, 1]


async def test_every_list_and_reading_is_private_to_its_caller() -> None:
    async with application() as app:
        for asked in (
            message("tools/list"), message("resources/list"), message("prompts/list"),
            message("resources/templates/list"), message("resources/read", uri="test://secret"),
        ):  # fmt: skip
            found = result(await post(app, asked, "w"))
            assert (found["cacheScope"], found["ttlMs"]) == ("private", 0)


HANDSHAKE = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}  # fmt: skip
SLOW = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "m_slow"}}


async def opened(app: Any, token: str | None = None) -> str:
    """The id of a new session of the handshake generation."""
    answer = await post(app, HANDSHAKE, token, mcp_protocol_version="2025-11-25")
    assert answer.status_code == 200, answer.text
    session: str = answer.headers["mcp-session-id"]
    return session


async def ping(app: Any, session: str, token: str | None = None) -> int:
    """The status of a request of a session."""
    headers = {"mcp_protocol_version": "2025-11-25", "mcp_session_id": session}
    answer = await post(app, {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}, token, **headers)
    return int(answer.status_code)


async def test_when_there_are_too_many_sessions_the_one_that_was_idle_longest_ends() -> None:
    async with application(anonymous=True, max_sessions=3) as app:
        first, second, third = [await opened(app, token) for token in ("w", "r", None)]
        assert await ping(app, first, "w") == 200
        assert await ping(app, second, "w") == 404  # of another caller: nothing is known of it
        fourth = await opened(app, "w")
        assert await ping(app, second, "r") == 404
        found = [await ping(app, *each) for each in ((first, "w"), (third, None), (fourth, "w"))]
        assert found == [200, 200, 200]
        for _ in range(10):
            await opened(app)
        assert await ping(app, fourth, "w") == 404


async def test_sessions_that_open_at_the_same_time_each_make_room() -> None:
    async with application(anonymous=True, max_sessions=2) as app:
        idle = [await opened(app) for _ in range(2)]
        new = await asyncio.gather(*(opened(app) for _ in range(2)))
        assert [await ping(app, each) for each in (*idle, *new)] == [404, 404, 200, 200]


async def test_a_session_that_its_client_ended_costs_no_other_one() -> None:
    async with application(anonymous=True, max_sessions=2) as app:
        first, second = await opened(app), await opened(app)
        async with asking(app) as client:
            ended = await client.delete("/mcp", headers={"mcp-session-id": second})
        assert ended.status_code == 200
        await opened(app)
        assert await ping(app, first) == 200


async def test_the_last_256_events_of_a_session_are_sent_again_from_where_its_client_was() -> None:
    events, sent = SessionEvents(), list[tuple[Any, Any]]()

    async def send(event: Any) -> None:
        sent.append((event.event_id, event.message))

    ids = [await events.store_event("a" if number % 2 else "b", number or None) for number in range(8)]
    assert len(set(ids)) == 8
    for last, stream, following in ((3, "a", (5, 7)), (2, "b", (4, 6)), (7, "a", ())):
        sent.clear()
        assert await events.replay_events_after(ids[last], send) == stream
        assert sent == [(ids[each], each) for each in following]
    assert await events.replay_events_after("unknown", send) is None
    sent.clear()
    empty = await events.store_event("a", None)
    assert await events.replay_events_after(ids[5], send) == "a"
    assert sent == [(ids[7], 7)]  # an event without a message has only a place
    for number in range(256):
        await events.store_event("c", number)
    assert await events.replay_events_after(empty, send) is None


@pytest.mark.parametrize("poll_after", [None, 0.01])
async def test_a_client_resumes_a_stream_where_its_connection_broke(poll_after: float | None) -> None:
    slow = Slow()
    version = {"mcp-protocol-version": "2025-11-25", "accept": "application/json, text/event-stream"}
    options: Any = {"resumable": True, "poll_after": poll_after}
    async with (
        application(raw(OperationRegistry(), "slow", slow), **options) as app,
        listening(app) as url,
        httpx2.AsyncClient(base_url=url, headers=version) as client,
        asyncio.timeout(20),
    ):
        headers = {"mcp-session-id": (await client.post("/mcp", json=HANDSHAKE)).headers["mcp-session-id"]}
        async with client.stream("POST", "/mcp", json=SLOW, headers=headers) as broken:
            lines = broken.aiter_lines()
            seen = [line async for line in lines if line.startswith("id:")] if poll_after else [await anext(lines)]
            while not seen[0].startswith("id:"):
                seen = [await anext(lines)]
        slow.go.set()
        headers["last-event-id"] = seen[0].removeprefix("id: ")
        async with client.stream("GET", "/mcp", headers=headers) as again:
            line = await anext(line async for line in again.aiter_lines() if line.startswith("data: {"))
        answer = json.loads(line.removeprefix("data: "))
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (5, "done")


async def test_a_session_that_is_used_is_not_ended_for_another_one() -> None:
    slow = Slow()
    async with application(raw(registry(), "slow", slow), max_sessions=1) as app:
        session = await opened(app)
        headers = {"mcp_protocol_version": "2025-11-25", "mcp_session_id": session}
        calling = asyncio.ensure_future(post(app, SLOW, **headers))
        await slow.started.wait()
        refused = await post(app, HANDSHAKE, mcp_protocol_version="2025-11-25")
        slow.go.set()
        answer = await calling
        assert (refused.status_code, answer.status_code) == (503, 200)
        assert '"id":5' in answer.text
        await opened(app)
        assert await ping(app, session) == 404


async def test_a_request_with_two_credentials_is_refused() -> None:
    both = [("authorization", "Bearer r"), ("authorization", "Bearer w")]
    async with application() as app, asking(app) as client:
        answer = await client.post("/mcp", json=call("m_who"), headers=both)
    assert answer.status_code == 400
    assert "more than once" in answer.json()["detail"]


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_a_foreign_host_or_origin_is_refused_before_anything_runs(headers: dict[str, str]) -> None:
    async with application() as app:
        assert (await post(app, call("m_who"), "w", **headers)).status_code in (403, 421)
    async with application(allowed_hosts=["evil.example"], allowed_origins=["https://evil.example"]) as app:
        assert (await post(app, call("m_who"), "w", **headers)).status_code == 200


async def test_pages_of_an_allowed_origin_may_send_and_read_and_no_others() -> None:
    origin, allows = "https://app.example", "access-control-allow-"
    preflight = {
        "host": "127.0.0.1", "origin": origin, "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,mcp-session-id",
    }  # fmt: skip
    async with application(allowed_origins=[origin]) as app:
        async with asking(app) as client:
            asked = await client.request("OPTIONS", "/mcp", headers=preflight)
        assert (asked.status_code, asked.headers[f"{allows}origin"]) == (204, origin)
        assert "DELETE" in asked.headers[f"{allows}methods"]
        assert asked.headers[f"{allows}headers"] == "Authorization, *"
        for token, status in (("w", 200), (None, 401), ("x", 401)):
            answer = await post(app, call("m_who"), token, origin=origin)
            assert (answer.status_code, answer.headers["vary"]) == (status, "Origin")
            assert answer.headers[f"{allows}origin"] == origin
            assert answer.headers["access-control-expose-headers"] == "Mcp-Session-Id, WWW-Authenticate"
        local = await post(app, call("m_who"), "w")
        assert f"{allows}origin" not in local.headers
    async with application() as app, asking(app) as client:
        asked = await client.request("OPTIONS", "/mcp", headers=preflight)
        assert asked.status_code == 403
        assert f"{allows}origin" not in asked.headers


async def test_without_its_issuer_a_caller_cannot_be_decided_and_gets_503() -> None:
    with socket.socket() as taken:  # bound, and never listens: connections are refused
        taken.bind(("127.0.0.1", 0))
        issuer = f"http://127.0.0.1:{taken.getsockname()[1]}"
        caller = JWTAuthenticator(issuer, audience="mcp")
        async with application(authenticate=caller, anonymous=True) as app:
            claims = {"iss": issuer, "aud": "mcp", "sub": "ann", "exp": 4_000_000_000}
            token = jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "k"})
            answer = await post(app, call("m_who"), token)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.json()["code"] == "UNAVAILABLE"
            assert (await post(app, call("m_who"))).status_code == 200


async def test_a_host_and_an_origin_that_were_allowed_once_allow_no_others() -> None:
    async with application(anonymous=True) as app:
        for port in (0, 1, 2, 1):
            assert (await post(app, call("m_who"), host=f"localhost:{port}")).status_code == 200
        foreign = await post(app, call("m_who"), host="localhost:1", origin="http://evil.example")
        assert foreign.status_code == 403
        assert (await post(app, call("m_who"), host="evil.example")).status_code == 421


async def test_what_a_composition_of_servers_has_let_in_is_not_asked_again() -> None:
    def admitting(admission: Admission) -> Any:
        return lambda scope, receive, send: app({**scope, "operad": admission}, receive, send)

    async with application() as app:
        front = admitting(Admission(Identity("front", {"write", "root"})))
        assert text(await post(front, call("m_write"), host="gw.example")) == "front"
        assert (await post(admitting(Admission(is_refused=True)), call("m_who"))).status_code == 401


@pytest.mark.parametrize(
    "body", [[], "x", {"method": "tools/call", "params": {}}, {"method": "tools/call", "params": []}]
)
async def test_what_is_no_request_is_a_client_error(body: Any) -> None:
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    async with application() as app, asking(app) as client:
        assert 400 <= (await client.post("/mcp", json=body, headers=headers)).status_code < 500


async def test_a_body_above_the_limit_is_413() -> None:
    async with application(max_body=1_000) as app:
        assert (await post(app, call("m_who", text="x" * 2_000), "w")).status_code == 413


async def test_a_body_that_does_not_come_is_408_and_the_connection_is_closed() -> None:
    half = [{"type": "http.request", "body": b"{", "more_body": True}]
    sent: list[Any] = []

    async def receive() -> Any:
        return half.pop() if half else await asyncio.Future()

    async def send(part: Any) -> None:
        sent.append(part)

    async with application(anonymous=True, body_timeout=0.05) as app:
        headers = [(b"host", b"127.0.0.1"), (b"mcp-protocol-version", b"2026-07-28")]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "headers": headers}
        await app({**scope, "server": ("127.0.0.1", 1), "query_string": b""}, receive, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


# --- where it stands -----------------------------------------------------------------------------------


async def test_the_metadata_of_the_resource_are_where_rfc_9728_has_them() -> None:
    serving = to_mcp(registry(), **RESOURCE, scopes_supported=["write"], title="Gateway")
    expected = {
        "resource": "https://gw.example/gw/mcp", "authorization_servers": ["https://as.example"],
        "bearer_methods_supported": ["header"], "resource_name": "Gateway", "scopes_supported": ["write"],
    }  # fmt: skip
    host = Starlette(routes=[*serving.well_known_routes(), Mount("/gw", serving.asgi())])
    for app in (host, serving.asgi()):
        async with asking(app, "https://gw.example") as client:
            assert (await client.get(METADATA)).json() == expected


@pytest.mark.parametrize(("options", "status", "allowed"), [(RESOURCE, 405, "GET, HEAD"), ({}, 404, None)])
async def test_only_the_method_is_refused_on_the_path_of_the_metadata_if_there_is_metadata(
    options: dict[str, Any], status: int, allowed: str | None
) -> None:
    async with application(**options) as app, asking(app, "https://gw.example") as client:
        for method in ("POST", "DELETE"):
            answer = await client.request(method, METADATA)
            assert (answer.status_code, answer.headers.get("allow")) == (status, allowed)
        read = await client.head(METADATA)
    assert read.status_code == (404 if allowed is None else 200)


@pytest.mark.parametrize(
    ("kind", "place", "path"),
    [(Route, "/mcp", "/mcp"), (Mount, "/", "/mcp"), (Mount, "/gw", "/gw/mcp"), (Mount, "/gw", "/gw/")],
)
async def test_it_answers_where_it_is_mounted_without_redirect_and_without_a_lifespan(
    kind: Any, place: str, path: str
) -> None:
    async with application(anonymous=True) as app:
        host = Starlette(routes=[kind(place, app)])
        for _ in range(2):
            assert (await post(host, call("m_who"), path=path)).status_code == 200
        assert (await post(app, call("m_who"), path="/elsewhere")).status_code == 404


async def test_an_application_is_started_again_after_it_ended() -> None:
    async with application(anonymous=True) as app:
        for _ in range(2):
            async with listening(app) as url, Client(f"{url}/mcp") as session:
                assert len((await session.list_tools()).tools) == 1


async def test_a_drain_lets_calls_finish_and_takes_no_new_ones() -> None:
    slow = Slow()
    app: Any = to_mcp(raw(registry(), "slow", slow)).asgi()
    running = asyncio.ensure_future(post(app, call("m_slow")))
    await slow.started.wait()
    drain = asyncio.ensure_future(app.drain(5))
    await asyncio.sleep(0)
    assert (await post(app, call("m_who"))).status_code == 503
    slow.go.set()
    assert text(await running) == "done"
    await drain


async def test_the_server_of_the_plugin_listens_here_alone_and_ends_when_it_is_cancelled() -> None:
    server = operad.load_plugins(only=["operad-mcp"]).server("mcp")
    with pytest.raises(ConfigError, match="other machines can connect to 0.0.0.0"):
        await server.serve(registry(), server.config_type(listen="0.0.0.0:80"))
    port = free_port()
    serving = asyncio.ensure_future(server.serve(registry(), server.config_type(listen=f"127.0.0.1:{port}")))
    async with httpx2.AsyncClient(timeout=60) as client:
        await reached(port)
        assert (await client.get(f"http://127.0.0.1:{port}/elsewhere")).status_code == 404
        serving.cancel()
        await asyncio.wait([serving])
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_http_names_the_distribution_that_it_needs_and_the_rest_works_without(monkeypatch: Patch) -> None:
    monkeypatch.setattr("operad_mcp.serving.find_spec", lambda name: None)
    with pytest.raises(operad.PluginError, match=r"pip install 'operad-mcp\[serve\]'"):
        to_mcp(registry()).asgi()
    async with Client(to_mcp(registry()).server()) as client:
        assert len((await client.list_tools()).tools) == 1


@MODES
async def test_the_sdks_client_lists_calls_and_hears_progress_over_http(mode: str) -> None:
    heard = []

    async def steps(input: Any, context: OperationContext) -> Any:
        for step in (1, 1, 2):  # what does not grow is not reported
            await context.progress(step, 2)
        return "done"

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    app: Any = to_mcp(raw(registry(), "steps", steps)).asgi()
    async with listening(app) as url, Client(streamable_http_client(f"{url}/mcp"), mode=mode) as session:
        answer = await session.call_tool("m_steps", {}, progress_callback=progress)
    assert answer.content[0].text == "done"
    assert heard == [(1, 2), (2, 2)]


async def test_a_client_that_leaves_cancels_its_call() -> None:
    forever = Slow()
    app: Any = to_mcp(raw(registry(), "forever", forever)).asgi()
    async with listening(app) as url, asyncio.timeout(20):
        host, _, port = url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(call("m_forever")).encode()
        lines = [
            "POST /mcp HTTP/1.1", f"host: {host}:{port}", "content-type: application/json", f"content-length: {len(body)}",
            "accept: application/json, text/event-stream", "mcp-protocol-version: 2026-07-28",
            "mcp-method: tools/call", "mcp-name: m_forever",
        ]  # fmt: skip
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await forever.started.wait()
        writer.close()
        await forever.ended.wait()


# --- standard streams ----------------------------------------------------------------------------------

PROGRAM = """
import asyncio, os, subprocess, sys
from operad import OperationRegistry, OperationSpec
from operad_mcp import to_mcp
registry = OperationRegistry()

async def loud(input, context):
    print("printed by the handler")
    os.write(1, b"written to the descriptor")
    subprocess.run([sys.executable, "-c", "print('by a child')"])
    return [input, sys.stdin.read()]

registry.register(OperationSpec(namespace="m", name="loud"), loud)
asyncio.run(to_mcp(registry).stdio())
"""


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.long), "2026-07-28"])
async def test_on_standard_streams_nothing_but_the_protocol_is_written(mode: str, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    parameters = StdioServerParameters(command=sys.executable, args=["-c", PROGRAM], env=dict(os.environ))
    with errors.open("w") as file:
        async with Client(stdio_client(parameters, errlog=file), mode=mode) as session:
            answer = await session.call_tool("m_loud", {"a": 1})
    assert answer.content[0].text == '[{"a":1},""]'
    for said in ("printed by the handler", "written to the descriptor", "by a child"):
        assert said in errors.read_text()


async def test_the_end_of_stdin_ends_the_server_and_so_does_a_cancellation() -> None:
    async def start() -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdin=pipe, stdout=pipe)

    process = await start()
    output, _ = await process.communicate(b"not json\n")
    assert process.returncode == 0
    for line in output.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"
    process = await start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(message("server/discover")).encode() + b"\n")
    assert json.loads(await process.stdout.readline())["result"]["supportedVersions"] == ["2026-07-28"]
    process.send_signal(2)  # stdin stays open
    async with asyncio.timeout(20):
        await process.wait()
        await process.stdout.read()  # its end closes the pipe, and may come after the process'
    process.stdin.close()


def received(descriptor: int, found: bytearray) -> bytearray:
    """Add what has arrived, if anything has."""
    with contextlib.suppress(BlockingIOError):
        found += os.read(descriptor, 65_536)
    return found


async def test_standard_streams_are_the_protocols_while_they_are_served_and_as_before_afterwards(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def loud(input: Any, context: OperationContext) -> Any:
        print("printed by the handler")
        os.write(1, b"written to the descriptor\n")
        return [input, os.read(0, 1).decode()]

    own, stdout, replies = [os.dup(0), os.dup(1)], sys.stdout, bytearray()
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    os.dup2(theirs_in, 0)
    os.dup2(theirs_out, 1)
    os.set_blocking(ours_in, False)
    try:
        serving = asyncio.create_task(to_mcp(raw(OperationRegistry(), "loud", loud)).stdio())
        asked = json.dumps(call("m_loud", a=1)).encode()
        os.write(
            ours_out, asked + b"\n" + b"\xff not json\n" * 100 + asked.replace(b'"id": 1', b'"id": 2') + b"\n"
        )
        await until(lambda: received(ours_in, replies).count(b'"result"') == 2)
        os.close(ours_out)
        async with asyncio.timeout(20):
            await serving
        assert sys.stdout is stdout
        os.write(1, b"after")
        assert received(ours_in, replies).endswith(b"after")
        assert os.read(0, 1) == b""
    finally:
        os.dup2(own[0], 0)
        os.dup2(own[1], 1)
        for each in (*own, theirs_in, theirs_out, ours_in):
            os.close(each)
    assert replies.count(rb'"text":"[{\"a\":1},\"\"]"') == 2
    captured = capfd.readouterr()
    assert captured.err.count("printed by the handler\nwritten to the descriptor\n") == 2
    assert captured.out == ""


# --- resources that are watched --------------------------------------------------------------------------


async def test_a_change_of_a_resource_reaches_its_caller_and_no_other() -> None:
    changes = {"writer": asyncio.Event(), "other": asyncio.Event()}
    followed: list[str] = []

    async def subscribe(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        assert context.identity is not None
        followed.append(context.identity.id)
        await changes[context.identity.id].wait()
        yield {"uri": input["uri"]}

    made = watched(subscribe, access_control=AccessControl(required_scopes=("write",)))
    tokens = {**TOKENS, "o": Identity("other", {"write"})}

    async def caller(credentials: Credentials) -> Identity | None:
        return tokens.get(credentials.bearer or "")

    heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(token: str, url: str) -> None:
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as client,
            Client(streamable_http_client(f"{url}/mcp", http_client=client), mode="2026-07-28") as session,
            session.listen(resource_subscriptions=["up://x"], tools_list_changed=True) as events,
        ):
            heard.put_nowait(f"{token} listens")
            async for event in events:
                heard.put_nowait(f"{token} {type(event).__name__}")

    async with application(made, authenticate=caller) as app, asyncio.timeout(20), listening(app) as url:
        listeners = [asyncio.create_task(listen(token, url)) for token in tokens]
        for _ in tokens:
            await heard.get()
        assert sorted(followed) == ["other", "writer"]  # each with an identity of its own; the reader may not
        changes["writer"].set()
        assert (await heard.get()).startswith("w ResourceUpdated")
        raw(made, "new", None)  # all are told of the tools
        told = sorted([await heard.get() for _ in tokens])
        assert [one.split()[0] for one in told] == ["o", "r", "w"]
        assert not any("Resource" in one for one in told)
        for listener in listeners:
            listener.cancel()
        await asyncio.wait(listeners)


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_a_resource_whose_server_ended_the_subscription_is_followed_again_for_a_new_subscriber() -> None:
    followed, ended, ends = asyncio.Semaphore(0), asyncio.Semaphore(0), asyncio.Event()

    async def subscribe(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        followed.release()
        await ends.wait()
        ended.release()
        if not ends.is_set():
            yield input

    async with (
        asyncio.timeout(20),
        application(watched(subscribe)) as app,
        listening(app) as url,
        Client(streamable_http_client(f"{url}/mcp"), mode="legacy") as one,
        Client(streamable_http_client(f"{url}/mcp"), mode="legacy") as two,
    ):
        for client in (one, two):
            await client.subscribe_resource("up://x")
        await followed.acquire()
        ends.set()
        await ended.acquire()
        await one.list_tools()
        ends.clear()
        await one.unsubscribe_resource("up://x")
        await one.subscribe_resource("up://x")
        await followed.acquire()

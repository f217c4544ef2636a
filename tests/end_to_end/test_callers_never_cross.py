"""Two users with different credentials at the same APIs: whatever runs at once, nothing of one reaches the other."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
from aiohttp import web

from operad import CallError, Identity, OperationContext, OperationRegistry, OperationSpec, load_plugins, operation
from operad_auth import Credentials
from operad_mcp import to_mcp
from plugins.serve.tests.front_door import served
from tests.kit import front_door, listening, openapi, session_call, session_headers, tool_call

USERS = ("ann", "bob")
KEYS = {name: f"upstream-secret-of-{name}" for name in USERS}
TOKENS = {name: f"gateway-token-of-{name}" for name in USERS}
LIST = "upstream-secret-of-listing"
_ANY = {"200": {"description": "", "content": {"application/json": {"schema": {}}}}}
_N = [{"name": "n", "in": "query", "schema": {"type": "integer"}}]


def _get(name: str, **more: Any) -> Any:
    return {"get": {"operationId": name, "parameters": _N, "responses": _ANY, **more}}


DOCUMENT = openapi({
    **{f"/{name}": _get(name) for name in ("plain", "cached", "retried", "moved", "gone", "broken")},
    "/keyed": {"post": {"operationId": "keyed", "parameters": _N, "responses": _ANY}},
    "/items": _get("items", responses={"200": {"description": "", "content": {"text/event-stream": {}}}}),
})  # fmt: skip


@attrs.define
class World:
    """An API and an MCP server that keep what they were shown, and a gateway in front of them."""

    url: str = ""
    elsewhere: str = ""
    shown: dict[str, set[str | None]] = attrs.field(factory=lambda: defaultdict(set))
    """The credentials that the API was shown, by the number of the call."""
    foreign: list[str | None] = attrs.field(factory=list)
    """What the other origin was shown."""
    cookies: list[str | None] = attrs.field(factory=list)
    peers: set[Any] = attrs.field(factory=set)
    resumed: list[tuple[str | None, str | None]] = attrs.field(factory=list)
    sessions: dict[str, set[str | None]] = attrs.field(factory=lambda: defaultdict(set))
    failed: set[str] = attrs.field(factory=set)
    registry: OperationRegistry = None  # type: ignore[assignment]  # set when the world is made
    http: aiohttp.ClientSession = None  # type: ignore[assignment]  # the same
    log: list[str] = attrs.field(factory=list)

    # --- the API --------------------------------------------------------------------------------------

    async def api(self, request: web.Request) -> web.StreamResponse:
        name, n = request.path.strip("/"), request.query.get("n", "")
        token = request.headers.get("Authorization")
        self.shown[n].add(token)
        self.cookies.append(request.headers.get("Cookie"))
        self.peers.add(request.transport.get_extra_info("peername") if request.transport else None)
        await asyncio.sleep(random.random() / 1_000)
        if name == "items":
            return await self.stream(request, token)
        if name == "retried" and n not in self.failed:
            self.failed.add(n)
            return web.json_response({"for": token}, status=503, headers={"Retry-After": "0"})
        if name == "moved":
            raise web.HTTPFound(f"/plain?n={n}")
        if name == "gone":
            raise web.HTTPFound(f"{self.elsewhere}/plain?n={n}")
        if name == "broken":
            return web.json_response({"error": f"no such thing for {token}"}, status=404)
        response = web.json_response({"shown": token, "n": n})
        response.set_cookie("session", (token or "").replace(" ", "-"))
        return response

    async def stream(self, request: web.Request, token: str | None) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID")
        if last is not None:
            self.resumed.append((last, token))
        first = 0 if last is None else int(last.rpartition("-")[2]) + 1
        if first == 3:
            return web.Response(status=204)  # do not come back
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(first, 3):
            id = f"{(token or '').rpartition('-')[2]}-{number}"
            await response.write(f"retry: 1\nid: {id}\ndata: {json.dumps({'shown': token})}\n\n".encode())
            if number == 1 and last is None:
                assert request.transport is not None
                request.transport.close()  # breaks off
                return response
        return response

    async def other(self, request: web.Request) -> web.Response:
        self.foreign.append(request.headers.get("Authorization"))
        return web.json_response({"shown": request.headers.get("Authorization")})

    # --- the MCP server -------------------------------------------------------------------------------

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        if credentials.bearer is None:
            return None
        self.sessions[credentials.bearer].add(credentials.headers.get("mcp-session-id"))
        return Identity(credentials.bearer)

    # --- callers --------------------------------------------------------------------------------------

    async def over_http(self, user: str, id: str, n: int, **headers: str) -> str:
        """Call through the HTTP API; return the whole response."""
        given = {"authorization": f"Bearer {TOKENS[user]}", **headers}
        async with self.http.post(f"{self.url}/operations/{id}", json={"n": n}, headers=given) as response:
            return await response.text() + str(dict(response.headers))

    async def over_mcp(self, user: str, id: str, n: int) -> str:
        """Call through MCP; return the whole response."""
        request = tool_call(id.replace(".", "_"), {"n": n})
        request["headers"]["authorization"] = f"Bearer {TOKENS[user]}"
        async with self.http.post(f"{self.url}/mcp", **request) as response:
            return await response.text()


CONFIGURATION = """
[[credentials]]
name = "users"
type = "table"
entries = {entries}

[idempotency]
match = ["echo.keyed"]

[[rules]]
match = "echo.cached"
cache = "60s"

[sources.echo]
type = "openapi"
spec = "echo.json"
base_url = "{api}"
reconnect = true
retries = 3
auth = {{type = "caller", provider = "users"}}

[sources.peer]
type = "mcp"
url = "{mcp}"
mode = "legacy"
auth = {{type = "caller", provider = "users"}}
list_auth = {{token = "{listing}"}}
"""


@operation(namespace="up")
async def who(n: int = 0, context: OperationContext | None = None) -> dict[str, Any]:
    assert context is not None
    assert context.identity is not None
    return {"shown": context.identity.id, "n": str(n)}


@operation(namespace="up")
async def fail(n: int = 0, context: OperationContext | None = None) -> None:
    assert context is not None
    assert context.identity is not None
    raise CallError("EXECUTION_ERROR", f"no such thing for {context.identity.id}")


async def nested(input: Any, context: OperationContext) -> Any:
    first = (await context.env.echo.plain(n=input["n"])).data
    second = (await context.env["peer.up.who"](n=input["n"])).data
    return [first, second]


@pytest.fixture
async def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[World]:
    caplog.set_level(logging.DEBUG, "operad")
    world = World()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(listening(world.api))
        world.elsewhere = await stack.enter_async_context(listening(world.other))
        theirs = await stack.enter_async_context(OperationRegistry(load_plugins()))
        theirs.register(who)
        theirs.register(fail)
        app = to_mcp(theirs, authenticate=world.authenticate).asgi()
        mcp = await stack.enter_async_context(served(app, lifespan="on"))
        entries = "{" + ", ".join(f'{name} = "{key}"' for name, key in KEYS.items()) + "}"
        (tmp_path / "echo.json").write_text(json.dumps(DOCUMENT))
        (tmp_path / "operad.toml").write_text(
            CONFIGURATION.format(entries=entries, api=api, mcp=f"{mcp}/mcp", listing=LIST)
        )
        registry = OperationRegistry.from_config(tmp_path, load_plugins(), strict=True)
        world.registry = await stack.enter_async_context(registry)
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        registry.register(OperationSpec(namespace="own", name="nested", input_schema=schema), nested)
        world.url = await stack.enter_async_context(front_door(registry, TOKENS))
        # Shorter than the server's: a connection that it is about to close must not get another request.
        connector = aiohttp.TCPConnector(keepalive_timeout=1.0)
        session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        world.http = await stack.enter_async_context(session)
        yield world
    for record in caplog.records:  # of the gateway, of its clients, of its servers
        text = record.getMessage() + str(record.args) + str(record.exc_info)
        for secret in (*KEYS.values(), *TOKENS.values(), LIST):
            assert secret not in text, record


async def calls_of_both(world: World, id: str, count: int, by_mcp: bool = False) -> list[tuple[int, str, str]]:
    """Call an operation in turn as both users, all at once; check and return number, user and response of each."""
    send = world.over_mcp if by_mcp else world.over_http
    calls = [(n, USERS[n % 2]) for n in range(count)]
    texts = await asyncio.gather(*(send(user, id, n) for n, user in calls))
    found = [(*call, text) for call, text in zip(calls, texts, strict=True)]
    for n, user, text in found:
        check(world, user, n, text)
    return found


def other(user: str) -> str:
    return USERS[1 - USERS.index(user)]


def check(world: World, user: str, n: int, text: str) -> None:
    """The response and the requests of a call have nothing of the other user."""
    assert KEYS[other(user)] not in text, text
    assert TOKENS[other(user)] not in text, text
    assert TOKENS[user] not in text, text
    assert world.shown.get(str(n), set()) <= {f"Bearer {KEYS[user]}"}


async def storm(world: World, count: int, seed: int) -> None:
    schedule = random.Random(seed)
    ids = [f"echo.{name}" for name in ("plain", "retried", "moved", "gone", "broken", "keyed", "items")]
    ids += ["peer.up.who", "peer.up.fail", "own.nested"]
    queue = [(n, schedule.choice(USERS), schedule.choice(ids), schedule.random() < 0.5) for n in range(count)]
    waiting = iter(queue)

    async def caller() -> None:
        for n, user, id, by_mcp in waiting:
            text = await (world.over_mcp if by_mcp else world.over_http)(user, id, n)
            if id not in ("echo.gone",):
                assert KEYS[user] in text, (id, by_mcp, text)
            check(world, user, n, text)

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(caller())
    assert set(world.foreign) <= {None}
    assert set(world.cookies) == {None}
    sessions = [world.sessions[key] - {None} for key in (*KEYS.values(), LIST)]
    assert not sessions[0] & sessions[1]
    assert not (sessions[0] | sessions[1]) & sessions[2]
    assert world.sessions.keys() == {*KEYS.values(), LIST}


async def test_interleaved_calls_and_streams_never_cross(world: World) -> None:
    await storm(world, 250, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 4])
async def test_10_000_interleaved_calls_and_streams_never_cross(world: World, seed: int) -> None:
    await storm(world, 10_000, seed)


# --- one test for each known way --------------------------------------------------------------------------


async def test_the_cache_of_a_rule_returns_to_a_caller_its_own_result(world: World) -> None:
    found = {user: await world.over_http(user, "echo.cached", 1) for user in USERS}
    again = {user: await world.over_http(user, "echo.cached", 1) for user in USERS}
    for user in USERS:
        assert KEYS[user] in found[user]
        assert KEYS[user] in again[user]
        assert KEYS[other(user)] not in found[user] + again[user]
    assert len(world.cookies) == 2  # the second ones came from the cache


async def test_a_pooled_connection_carries_the_credential_of_each_call(world: World) -> None:
    for n in range(20):
        user = USERS[n % 2]
        check(world, user, n, await world.over_http(user, "echo.plain", n))
    assert len(world.peers) == 1


async def test_a_retry_carries_the_credential_of_its_own_call(world: World) -> None:
    for n, user, _ in await calls_of_both(world, "echo.retried", 40):
        assert world.shown[str(n)] == {f"Bearer {KEYS[user]}"}
    assert len(world.cookies) == 80


async def test_a_redirect_carries_a_credential_within_its_origin_alone(world: World) -> None:
    for n, user in enumerate(USERS):
        assert KEYS[user] in await world.over_http(user, "echo.moved", n)
        assert KEYS[user] not in await world.over_http(user, "echo.gone", n)
    assert world.foreign == [None, None]


async def test_the_same_idempotency_key_of_two_callers_means_two_calls(world: World) -> None:
    key = {"idempotency-key": "the-same"}
    texts = await asyncio.gather(*(world.over_http(user, "echo.keyed", 7, **key) for user in USERS * 5))
    for user, text in zip(USERS * 5, texts, strict=True):
        assert KEYS[user] in text
        assert KEYS[other(user)] not in text
    assert len(world.cookies) == 2


async def test_a_cookie_of_one_call_goes_with_no_other(world: World) -> None:
    for n, user in enumerate(USERS * 2):
        await world.over_http(user, "echo.plain", n)
    assert world.cookies == [None] * 4


@pytest.mark.parametrize("id", ["echo.broken", "peer.up.fail"])
@pytest.mark.parametrize("by_mcp", [True, False])
async def test_an_error_has_the_words_for_its_own_caller(world: World, id: str, by_mcp: bool) -> None:
    for _, _, text in await calls_of_both(world, id, 20, by_mcp):
        assert "no such thing for" in text


async def test_a_stream_that_broke_off_is_resumed_for_its_own_caller(world: World) -> None:
    async def read(user: str) -> None:
        context = OperationContext(identity=Identity(user))
        async with world.registry.subscribe("echo.items", {"n": USERS.index(user)}, context) as stream:
            found = []
            async for item in stream:
                found.append(item.data["shown"])
                if len(found) == 3:
                    break
        assert found == [f"Bearer {KEYS[user]}"] * 3

    await asyncio.gather(*(read(user) for user in USERS * 5))
    assert len(world.resumed) >= 10
    for last, token in world.resumed:
        assert last is not None
        assert last.partition("-")[0] == str(token).rpartition("-")[2]


@pytest.mark.parametrize("by_mcp", [True, False])
async def test_a_nested_call_carries_the_credential_of_the_first_caller(world: World, by_mcp: bool) -> None:
    for _, user, text in await calls_of_both(world, "own.nested", 20, by_mcp):
        assert KEYS[user] in text


async def test_an_mcp_session_is_used_for_its_own_caller_alone(world: World) -> None:
    await asyncio.gather(*(world.over_mcp(user, "peer.up.who", n) for n, user in enumerate(USERS * 10)))
    ann, bob = (world.sessions[KEYS[user]] - {None} for user in USERS)
    assert len(ann) == len(bob) == 1
    assert ann != bob


async def test_the_gateways_own_session_of_one_caller_serves_no_other(world: World) -> None:
    url = f"{world.url}/mcp"
    session = await session_headers(world.http, url, {"authorization": f"Bearer {TOKENS['ann']}"})

    async def send(user: str) -> tuple[int, str]:
        headers = {**session, "authorization": f"Bearer {TOKENS[user]}"}
        async with world.http.post(url, json=session_call("peer_up_who"), headers=headers) as response:
            return response.status, await response.text()

    assert KEYS["ann"] in (await send("ann"))[1]
    status, text = await send("bob")
    assert status == 404
    assert KEYS["ann"] not in text

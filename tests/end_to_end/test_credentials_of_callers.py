"""Each call of an API uses the credential of its own caller, whatever runs beside it."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web

from operad import (
    CallError,
    ConfigError,
    Identity,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    load_plugins,
)
from operad_auth import Credentials, StaticTokens
from operad_serve import to_openapi
from plugins.serve.tests.front_door import client_of
from tests.kit import front_door, listening, openapi, tool_call


def _get(name: str, content: Any, **more: Any) -> Any:
    return {"get": {"operationId": name, "responses": {"200": {"description": "", "content": content}}, **more}}


N = {"parameters": [{"name": "n", "in": "query", "schema": {"type": "integer"}}]}
DOCUMENT = openapi({
    "/who": _get("who", {"application/json": {"schema": {}}}, **N),
    "/away": _get("away", {}),
    "/items": _get("items", {"text/event-stream": {}}),
})  # fmt: skip


class API:
    """Echoes the credential of each request; exchanges tokens (RFC 8693)."""

    def __init__(self) -> None:
        self.exchanges: list[dict[str, str]] = []
        self.url = self.other = ""

    async def who(self, request: web.Request) -> web.Response:
        await asyncio.sleep(random.random() / 1_000)
        return web.json_response({"shown": request.headers.get("Authorization"), "n": request.query.get("n")})

    async def away(self, request: web.Request) -> web.Response:
        raise web.HTTPFound(f"{self.other}/who")

    async def items(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(3):
            await response.write(f"data: {request.headers.get('Authorization')}\n\n".encode())
        return response

    async def token(self, request: web.Request) -> web.Response:
        fields = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.exchanges.append(fields)
        if fields["subject_token"] == "bad":
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": f"new-{fields['subject_token']}", "expires_in": 3600})


@pytest.fixture
async def api() -> AsyncIterator[API]:
    api = API()
    routes = web.get("/who", api.who), web.get("/away", api.away), web.get("/items", api.items)
    async with listening(*routes, web.post("/token", api.token)) as api.url, listening(*routes) as api.other:
        yield api


TABLE = """
[[credentials]]
name = "users"
type = "table"
entries = {ann = "a1", bob = {type = "basic", username = "bob", password = "b2"}}
"""
SHOWN = {"ann": "Bearer a1", "bob": "Basic " + base64.b64encode(b"bob:b2").decode()}


@asynccontextmanager
async def loaded(api: API, folder: Path, credentials: str) -> AsyncIterator[OperationRegistry]:
    (folder / "operad.toml").write_text(
        f'{credentials}\n[sources.echo]\ntype = "openapi"\nspec = "echo.json"\nbase_url = "{api.url}"\n'
        'auth = {type = "caller", provider = "users"}\n'
    )
    (folder / "echo.json").write_text(json.dumps(DOCUMENT))
    async with OperationRegistry.from_config(folder, load_plugins(), strict=True) as registry:
        yield registry


async def refusal(api: API, folder: Path, credentials: str) -> Exception:
    """Return the error that a configuration ends with."""
    with pytest.raises(ExceptionGroup) as caught:
        async with loaded(api, folder, credentials):
            pass
    error: Exception = caught.value.exceptions[0]
    return error


def caller(name: str, token: str | None = None) -> OperationContext:
    shown = None if token is None else Credentials("bearer", token)
    return OperationContext(identity=Identity(name), credentials=shown)


async def test_interleaved_calls_and_streams_carry_the_credential_of_their_caller(
    api: API, tmp_path: Path
) -> None:
    tokens = StaticTokens({f"t-{name}": Identity(name) for name in SHOWN})
    async with (
        loaded(api, tmp_path, TABLE) as registry,
        client_of(to_openapi(registry, authenticate=tokens)) as http,
    ):

        async def over_http(name: str, n: int) -> None:
            headers = {"Authorization": f"Bearer t-{name}"}
            response = await http("GET", f"/operations/echo.who?n={n}", headers=headers)
            assert response.json() == {"shown": SHOWN[name], "n": str(n)}

        async def in_process(name: str, n: int) -> None:
            if n % 3:
                envelope = await registry.execute("echo.who", {"n": n}, caller(name))
                assert envelope.data == {"shown": SHOWN[name], "n": str(n)}
            else:
                items = [item.data async for item in registry.subscribe("echo.items", {}, caller(name))]
                assert items == [SHOWN[name]] * 3

        schedule = random.Random(7)
        calls = [schedule.choice((over_http, in_process))(schedule.choice(("ann", "bob")), n) for n in range(600)]
        await asyncio.gather(*calls)


async def test_a_caller_without_an_entry_is_denied_before_any_request(api: API, tmp_path: Path) -> None:
    async with loaded(api, tmp_path, TABLE) as registry:
        for context in (caller("eve"), OperationContext(), OperationContext(trusted=True)):
            with pytest.raises(CallError, match="ACCESS_DENIED"):
                await registry.execute("echo.who", {}, context)


async def test_a_nested_call_uses_the_credential_of_the_first_caller(api: API, tmp_path: Path) -> None:
    async def outer(input: Any, context: OperationContext) -> Any:
        return (await context.env.echo.who()).data["shown"]

    async with loaded(api, tmp_path, FORWARD.format(api.url)) as registry:
        registry.register(OperationSpec(namespace="own", name="outer"), outer)
        assert (await registry.execute("own.outer", {}, caller("ann", "mine"))).data == "Bearer mine"


FORWARD = '[[credentials]]\nname = "users"\ntype = "forward"\norigins = ["{}"]\n'


async def test_a_forwarded_token_goes_to_named_origins_only(api: API, tmp_path: Path) -> None:
    async with loaded(api, tmp_path, FORWARD.format(api.url)) as registry:
        assert (await registry.execute("echo.who", {}, caller("ann", "mine"))).data["shown"] == "Bearer mine"
        redirected = await registry.execute("echo.away", {}, caller("ann", "mine"))
        assert redirected.data["shown"] is None
        with pytest.raises(CallError, match="did not authenticate with a bearer token"):
            await registry.execute("echo.who", {}, caller("ann"))
    assert "may not be sent to" in str(await refusal(api, tmp_path, FORWARD.format("https://api.example.com")))


async def test_forward_is_refused_where_tokens_are_for_this_server_alone(api: API, tmp_path: Path) -> None:
    jwt = '[serve.jwt]\nissuer = "https://id.example.com"\naudience = "x"\n'
    assert isinstance(await refusal(api, tmp_path, FORWARD.format(api.url) + jwt), ConfigError)


async def test_a_token_is_exchanged_once_for_each_token_of_a_caller(api: API, tmp_path: Path) -> None:
    text = '[[credentials]]\nname = "users"\ntype = "exchange"\nclient_id = "gate"\nclient_secret = "s"\naudience = "echo"\n'
    async with loaded(api, tmp_path, f'{text}token_url = "{api.url}/token"\n') as registry:

        async def shown(name: str, token: str) -> Any:
            return (await registry.execute("echo.who", {}, caller(name, token))).data["shown"]

        found = await asyncio.gather(*(shown(*each) for each in (("ann", "a"), ("bob", "b")) * 20))
        with pytest.raises(CallError, match="cannot be exchanged"):
            await shown("eve", "bad")
    assert found == ["Bearer new-a", "Bearer new-b"] * 20
    assert sorted(fields["subject_token"] for fields in api.exchanges) == ["a", "b", "bad"]
    assert api.exchanges[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert api.exchanges[0]["audience"] == "echo"


async def test_the_token_of_each_request_is_used_over_http_and_mcp(api: API, tmp_path: Path) -> None:
    call, names = tool_call("echo_who"), ("ann", "bob")
    async with (
        loaded(api, tmp_path, FORWARD.format(api.url)) as registry,
        front_door(registry, {name: f"{name}-token-of-16" for name in names}) as url,
        aiohttp.ClientSession(headers=call["headers"]) as session,
    ):

        async def check(name: str, path: str, body: Any) -> None:
            token = f"Bearer {name}-token-of-16"
            async with session.post(f"{url}{path}", json=body, headers={"authorization": token}) as response:
                text = await response.text()
            assert token in text, text
            assert text.count("-token-of-16") == text.count(f"{name}-token-of-16")

        paths: list[tuple[str, Any]] = [("/operations/echo.who", {}), ("/mcp", call["json"])]
        await asyncio.gather(*(check(name, *path) for _ in range(20) for name in names for path in paths))


async def test_a_provider_that_does_not_exist_is_named(api: API, tmp_path: Path) -> None:
    error = await refusal(api, tmp_path, TABLE.replace("users", "user"))
    assert 'credentials: no provider has the name "users"; did you mean "user"?' in str(error)

"""A door with an authenticator refuses requests without credentials, unless it accepts anonymous ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    ErrorCode,
    Identity,
    OperationContext,
    OperationRegistry,
    PendingRequestMap,
    load_plugins,
    operation,
)
from operad.plugin import TransportError
from operad_auth import StaticTokens
from operad_mcp import to_mcp
from operad_serve import to_openapi
from operad_websocket import Hub, WebSocketTransport, bearer_tokens
from plugins.serve.tests import front_door
from tests import kit
from tests.kit import tool_call

TOKEN = "a-token-of-joe-12345"
JOE = {"Authorization": f"Bearer {TOKEN}"}
PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
ORIGINS = ["https://app.example"]
RESOURCE: dict[str, Any] = {
    "resource_url": "https://gw.example/mcp",
    "authorization_servers": ["https://as.example"],
}
META = "/.well-known/oauth-protected-resource/mcp"


@operation(namespace="shop", type="query")
async def who(context: OperationContext) -> str:
    """Return who calls."""
    return "anonymous" if context.identity is None else context.identity.id


@operation(namespace="shop", type="query", access_control=AccessControl(required_scopes=("admin",)))
async def secret() -> int:
    """Return a secret."""
    return 42


def registry() -> OperationRegistry:
    made = OperationRegistry(load_plugins(only=["serve", "mcp"]))
    for each in (who, secret):
        made.register(each)
    return made


def tokens() -> StaticTokens:
    return StaticTokens({TOKEN: Identity("joe")})


HTTP = [
    # method, path, status of an anonymous request where it is refused, and where it is accepted
    ("GET", "/operations/shop.who", 401, 200),
    ("POST", "/operations/shop.who", 401, 200),
    ("POST", "/operations/shop.secret", 401, 401),
    ("POST", "/operations/shop.missing", 401, 404),
    ("OPTIONS", "/operations/shop.who", 401, 204),
    ("GET", "/openapi.json", 401, 200),
    ("GET", "/explorer/state", 401, 200),
    ("GET", "/explorer/trace/x", 401, 404),
    ("POST", "/explorer/reload/x", 401, 401),
    ("GET", "/explorer/other.js", 401, 404),
    ("GET", "/health", 200, 200),
    ("GET", "/", 200, 200),
    ("GET", "/explorer/app.js", 200, 200),
    ("GET", "/explorer/style.css", 200, 200),
    ("GET", "/explorer/icon.svg", 200, 200),
]


@asynccontextmanager
async def http_alone(anonymous: bool) -> AsyncIterator[front_door.Client]:
    app = to_openapi(registry(), authenticate=tokens(), anonymous=anonymous, allowed_origins=ORIGINS)
    async with front_door.client_of(app) as client:
        yield client


@asynccontextmanager
async def together(anonymous: bool) -> AsyncIterator[front_door.Client]:
    """The HTTP API and MCP as `operad serve` has them."""
    options = {"anonymous": anonymous, "allowed_origins": ORIGINS}
    async with kit.front_door(registry(), {"joe": TOKEN}, **options) as url, aiohttp.ClientSession() as session:
        yield front_door.Client(session, url)


@pytest.mark.parametrize("opened", [http_alone, together])
@pytest.mark.parametrize("anonymous", [False, True])
async def test_over_http(opened: Any, anonymous: bool) -> None:
    async with opened(anonymous) as client:
        for method, path, refused, accepted in HTTP:
            answer = await client(method, path)
            assert answer.status == (accepted if anonymous else refused), (method, path)
            assert ("WWW-Authenticate" in answer.headers) is (answer.status == 401), (method, path)
        assert (await client("GET", "/operations/shop.who", headers=JOE)).json() == "joe"
        wrong = await client("GET", "/operations/shop.who", headers={"Authorization": "Bearer wrong"})
        assert (wrong.status, wrong.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')


@pytest.mark.parametrize("opened", [http_alone, together])
async def test_a_preflight_needs_no_credentials(opened: Any) -> None:
    async with opened(False) as client:
        for path in ("/operations/shop.who", "/operations/shop.secret", "/openapi.json"):
            answer = await client("OPTIONS", path, headers=PREFLIGHT)
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, ORIGINS[0])
        answer = await client("GET", "/operations/shop.who", headers={"Origin": ORIGINS[0]})
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, ORIGINS[0])


async def test_the_document_declares_which_operations_need_credentials() -> None:
    for anonymous, needing in ((False, ["shop.who"]), (True, [])):
        async with http_alone(anonymous) as client:
            paths = (await client("GET", "/openapi.json", headers=JOE)).json()["paths"]
        found = [item["post"]["operationId"] for item in paths.values() if item["post"].get("security")]
        assert found == needing


@asynccontextmanager
async def mcp_alone(anonymous: bool) -> AsyncIterator[front_door.Client]:
    app: Any = to_mcp(registry(), authenticate=tokens(), anonymous=anonymous).asgi()
    async with front_door.client_of(app) as client:
        try:
            yield client
        finally:
            await app.aclose()


@pytest.mark.parametrize("opened", [mcp_alone, together])
@pytest.mark.parametrize("anonymous", [False, True])
async def test_over_mcp(opened: Any, anonymous: bool) -> None:
    async with opened(anonymous) as client:
        answer = await client("POST", "/mcp", **tool_call("shop_who"))
        assert answer.status == (200 if anonymous else 401)
        assert ("WWW-Authenticate" in answer.headers) is not anonymous
        assert (b"anonymous" in answer.body) is anonymous
        listing = tool_call("shop_who")
        listing["json"] = {**listing["json"], "method": "tools/list", "params": {"_meta": {}}}
        if not anonymous:
            for method in ("GET", "POST", "DELETE"):
                assert (await client(method, "/mcp", **listing)).status == 401
        asked = tool_call("shop_who")
        asked["headers"] |= JOE
        assert b"joe" in (await client("POST", "/mcp", **asked)).body


async def test_metadata_of_the_resource_and_preflights_need_no_credentials_over_mcp() -> None:
    app: Any = to_mcp(registry(), authenticate=tokens(), allowed_origins=ORIGINS, **RESOURCE).asgi()
    async with front_door.client_of(app) as client:
        assert (await client("GET", META)).json()["authorization_servers"] == ["https://as.example"]
        refused = await client("POST", "/mcp", **tool_call("shop_who"))
        assert refused.status == 401
        assert f"https://gw.example{META}" in refused.headers["WWW-Authenticate"]
        assert (await client("OPTIONS", "/mcp", headers=PREFLIGHT)).status != 401
    await app.aclose()


async def test_one_server_of_a_front_door_may_accept_anonymous_requests_alone() -> None:
    door = kit.front_door(registry(), {"joe": TOKEN}, servers={"mcp": {"anonymous": True}})
    async with door as url, aiohttp.ClientSession() as session:
        client = front_door.Client(session, url)
        assert (await client("POST", "/mcp", **tool_call("shop_who"))).status == 200
        assert (await client("POST", "/operations/shop.who")).status == 401


async def test_without_an_authenticator_every_caller_is_anonymous() -> None:
    app: Any = to_mcp(registry()).asgi()
    async with front_door.client_of(app) as client:
        assert b"anonymous" in (await client("POST", "/mcp", **tool_call("shop_who"))).body
    await app.aclose()
    async with front_door.client_of(to_openapi(registry())) as client:
        assert (await client("GET", "/operations/shop.who")).json() == "anonymous"


@pytest.mark.parametrize(("identity", "name"), [(None, "anonymous"), (Identity("me"), "me")])
async def test_mcp_on_standard_streams_is_no_door(identity: Identity | None, name: str) -> None:
    from mcp import Client

    served = to_mcp(registry(), authenticate=tokens(), identity=identity)
    async with Client(served.server()) as client:
        assert name in str((await client.call_tool("shop_who", {})).content)


HUBS = [
    pytest.param(tokens(), id="of operad.auth"),
    pytest.param(bearer_tokens({TOKEN: Identity("joe")}), id="of the request"),
]


@pytest.mark.parametrize("authenticate", HUBS)
async def test_a_hub_refuses_connections_without_credentials(authenticate: Any) -> None:
    async with Hub(authenticate, port=0) as hub, aiohttp.ClientSession() as session:
        with pytest.raises(TransportError, match="401"):
            await PendingRequestMap(WebSocketTransport(hub.url)).open()
        client = front_door.Client(session, hub.url.replace("ws", "http", 1))
        for path, headers, status in (("/metrics", {}, 401), ("/metrics", JOE, 200), ("/health", {}, 200)):
            answer = await client("GET", path, headers=headers)
            assert (answer.status, "WWW-Authenticate" in answer.headers) == (status, status == 401)


@pytest.mark.parametrize("authenticate", HUBS)
async def test_anonymous_spokes_of_a_hub_that_accepts_them_call_and_serve_nothing(authenticate: Any) -> None:
    async with Hub(authenticate, port=0, anonymous=True) as hub:
        worker = CallHandler(registry(), WebSocketTransport(hub.url, token=TOKEN))
        async with worker, PendingRequestMap(WebSocketTransport(hub.url)) as calls:
            assert (await calls.call("shop.who")).data == "anonymous"
            with pytest.raises(CallError) as caught:
                await calls.call("shop.secret")
            assert caught.value.code == ErrorCode.ACCESS_DENIED
        for options in ({"token": "wrong"}, {"headers": {"Authorization": "Basic eDp5"}}):
            with pytest.raises(TransportError, match="401"):
                await PendingRequestMap(WebSocketTransport(hub.url, **options)).open()
        link = await WebSocketTransport(hub.url).open(lambda event, delivery: None, lambda state, epoch: None)
        try:
            with pytest.raises(TransportError, match="may not serve"):
                await link.register("op:shop.who")
        finally:
            await link.close()


@pytest.mark.parametrize(("anonymous", "accepted"), [("", False), ("anonymous = true", True)])
async def test_the_table_of_a_hub_says_whether_it_accepts_anonymous_spokes(
    anonymous: str, accepted: bool, tmp_path: Path
) -> None:
    (tmp_path / "operad.toml").write_text(
        f'[hub]\nlisten = "127.0.0.1:0"\n{anonymous}\n[[hub.tokens]]\ntoken = "{TOKEN}"\nid = "joe"\n'
    )
    async with kit.operad(tmp_path, "hub", until="hub on .*;") as (_, said), aiohttp.ClientSession() as session:
        answer = await front_door.Client(session, kit.url_in(said).replace("ws", "http", 1))("GET", "/metrics")
    assert answer.status == (200 if accepted else 401)


OPERATIONS = """
from operad import operation

@operation(namespace="shop", type="query")
async def who(context) -> str:
    return "anonymous" if context.identity is None else context.identity.id
"""


@asynccontextmanager
async def command(folder: Path, *arguments: str, more: str = "") -> AsyncIterator[tuple[str, str]]:
    """What `operad serve` prints at its start, and its URL."""
    (folder / "ops.py").write_text(OPERATIONS)
    (folder / "operad.toml").write_text(kit.LOCAL + more)
    serve = ("serve", "--http", "127.0.0.1:0", *arguments)
    async with kit.operad(folder, *serve, until="credentials .*\n", ANN_TOKEN=TOKEN) as (_, printed):
        yield printed, kit.url_in(printed)


async def who_calls(url: str, token: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        answer = await front_door.Client(session, url)("GET", "/operations/shop.who")
    return answer.json() if answer.status == 200 else answer.status


async def test_tokens_on_the_command_line_are_required_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text('another-token-123 = "bob"\n')
    flags = ("--token", "ann=${ANN_TOKEN}", "--token", "eve=token-of-eve", "--tokens", "tokens.toml")
    async with command(tmp_path, *flags) as (printed, url):
        assert "credentials    every operation requires them" in printed
        assert TOKEN not in printed
        found = [await who_calls(url, each) for each in ("", "wrong", TOKEN, "token-of-eve", "another-token-123")]
    assert found == [401, 401, "ann", "eve", "bob"]


async def test_the_command_prints_how_many_operations_require_no_credentials(tmp_path: Path) -> None:
    async with command(tmp_path) as (printed, url):
        assert "credentials    1 of 1 operations require none (no authenticator)" in printed
        assert await who_calls(url, "") == "anonymous"
    flags, more = ("--token", "ann=${ANN_TOKEN}"), "[serve]\nanonymous = true\n"
    async with command(tmp_path, *flags, more=more) as (printed, url):
        assert "credentials    1 of 1 operations require none (anonymous = true)" in printed
        assert [await who_calls(url, each) for each in ("", TOKEN)] == ["anonymous", "ann"]

"""Without its scope nothing of an operation is listed, described, searched, called or subscribed, at any door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from mcp import Client

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    ErrorCode,
    Identity,
    OperationRegistry,
    PendingRequestMap,
    load_plugins,
    operation,
)
from operad_auth import StaticTokens, TokenRecord
from operad_mcp import to_mcp
from operad_serve import to_openapi
from operad_websocket import Hub, WebSocketTransport, bearer_tokens
from plugins.serve.tests.front_door import client_of
from tests.kit import front_door, tool_call

GUARD = AccessControl(required_scopes=("admin",))
TOKENS = {"joe": Identity("joe"), "root": Identity("root", ["admin"]), "worker": Identity("worker")}


@operation(namespace="vault", type="query", access_control=GUARD)
async def secret() -> str:
    """The combination of the safe."""
    return "xyzzy"


@operation(namespace="vault", type="subscription", access_control=GUARD)
async def leaks() -> AsyncIterator[str]:
    """The combination, word by word."""
    for word in ("xyzzy", "plugh"):
        yield word


@operation(namespace="vault", type="query")
async def door() -> str:
    """What everybody sees."""
    return "closed"


def registry() -> OperationRegistry:
    made = OperationRegistry(load_plugins())
    for each in (secret, leaks, door):
        made.register(each)
    return made


@pytest.mark.parametrize("token", [None, "joe", "root"])
async def test_over_http(token: str | None) -> None:
    may = token == "root"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    app = to_openapi(registry(), authenticate=StaticTokens(TOKENS), anonymous=True)
    async with client_of(app) as client:
        text = (await client("GET", "/openapi.json", headers=headers)).body.decode()
        assert [name in text for name in ("vault.secret", "vault.leaks", "combination")] == [may] * 3
        for name in ("secret", "leaks"):
            answer = await client("POST", f"/operations/vault.{name}", headers=headers)
            assert answer.status == (200 if may else 403 if token else 401)
            assert (b"xyzzy" in answer.body) is may
        assert (await client("GET", "/operations/vault.door", headers=headers)).status == 200


@pytest.mark.parametrize("tools", ["all", "search"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("token", ["joe", "root"])
async def test_over_mcp(token: str, mode: str, tools: str) -> None:
    may = token == "root"
    served = to_mcp(registry(), identity=TOKENS[token], tools=tools)
    async with Client(served.server(), mode=mode) as session:
        texts = [str((await session.list_tools()).tools)]
        if tools == "search":
            found = await session.call_tool("search", {"query": "combination of the safe"})
            told = await session.call_tool("describe", {"id": "vault.secret"})
            texts = [json.dumps([found.structured_content, told.structured_content])]
            answers = [await session.call_tool("call", {"id": f"vault.{name}"}) for name in ("secret", "leaks")]
        else:
            answers = [await session.call_tool(f"vault_{name}", {}) for name in ("secret", "leaks")]
        assert ("combination" in texts[0]) is may
        assert [answer.is_error for answer in answers] == [not may] * 2
        assert all(("xyzzy" in str(answer.content)) is may for answer in answers)


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 401), ("joe", 403), ("root", 200)])
async def test_every_server_of_a_front_door_gets_the_caller_that_it_authenticated(
    token: str | None, status: int
) -> None:
    records = [
        TokenRecord(token=f"{name}-token-of-16", id=each.id, scopes=list(each.scopes))
        for name, each in TOKENS.items()
    ]
    headers = {"authorization": f"Bearer {token}-token-of-16"} if token else {}
    async with front_door(registry(), tokens=records) as url, aiohttp.ClientSession(headers=headers) as session:
        for path, request in (("operations/vault.secret", {}), ("mcp", tool_call("vault_secret"))):
            async with session.post(f"{url}/{path}", **request) as answer:
                assert (answer.status, "xyzzy" in await answer.text()) == (status, status == 200)


@pytest.mark.parametrize("token", ["joe", "root"])
async def test_over_the_call_protocol(token: str) -> None:
    may = token == "root"
    async with Hub(bearer_tokens(TOKENS), port=0) as hub:
        worker = CallHandler(registry(), WebSocketTransport(hub.url, token="worker"))
        async with worker, PendingRequestMap(WebSocketTransport(hub.url, token=token)) as calls:
            listed = json.dumps((await calls.call("operad.list")).data)
            assert [name in listed for name in ("vault.secret", "vault.leaks", "vault.door")] == [may, may, True]
            ends: list[object] = []
            for asked in ("operad.describe", "vault.secret"):
                given = {"operationId": "vault.secret"} if asked == "operad.describe" else {}
                try:
                    ends.append((await calls.call(asked, given)).data)
                except CallError as error:
                    ends.append(error.code)
            items: list[object] = []
            try:
                items = [item.data async for item in calls.subscribe("vault.leaks", {})]
            except CallError as error:
                ends.append(error.code)
    if may:
        assert ends[1] == "xyzzy"
        assert items == ["xyzzy", "plugh"]
    else:
        assert ends == [ErrorCode.OPERATION_NOT_FOUND, ErrorCode.ACCESS_DENIED, ErrorCode.ACCESS_DENIED]

"""Tokens that an authorization server is asked about: what is valid, what is kept, what happens if it is away."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError, Identity
from operad_auth import (
    Credentials,
    IntrospectionAuthenticator,
    IntrospectionOptions,
    StaticTokens,
    any_of,
    authenticator_from,
    introspection,
)

web = pytest.importorskip("aiohttp.web")
RawTestServer = pytest.importorskip("aiohttp.test_utils").RawTestServer

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
BASIC = "Basic " + base64.b64encode(b"gateway:s3cret").decode()
GOOD = {"active": True, "sub": "ann", "aud": "urn:gateway", "scope": "read write"}


class Server:
    """An introspection endpoint on this machine."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {"good": GOOD}
        self.status = 200
        self.gate: asyncio.Event | None = None

    async def handle(self, request: Any) -> Any:
        if request.method == "GET":
            return web.json_response({"issuer": self.url, "introspection_endpoint": self.url + "/introspect"})
        form = await request.post()
        self.asked.append(form["token"])
        if self.gate is not None:
            await self.gate.wait()
        if request.headers.get("Authorization") != BASIC:
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response(self.answers.get(form["token"], {"active": False}), status=self.status)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with RawTestServer(made.handle) as listening:
        made.url = f"http://127.0.0.1:{listening.port}"
        yield made


def asking(server: Server, **changed: Any) -> IntrospectionAuthenticator:
    values = {"issuer": server.url, "client_id": "gateway", "client_secret": "s3cret", "audience": "urn:gateway"}
    return IntrospectionOptions(**{**values, **changed}).authenticator()


def bearer(token: str) -> Credentials:
    return Credentials("bearer", token)


async def test_an_active_token_of_this_audience_is_valid(server: Server) -> None:
    identity = await asking(server, id_prefix="idp:")(bearer("good"))
    assert identity == Identity("idp:ann", ["read", "write"])
    assert await asking(server)(bearer("other")) is None
    assert await asking(server)(Credentials()) is None
    assert server.asked == ["good", "other"]


@pytest.mark.parametrize("changed", TABLES["responses that prove too little"])
async def test_a_response_that_does_not_prove_enough_is_refused(server: Server, changed: dict[str, Any]) -> None:
    server.answers["good"] = {**GOOD, **changed}
    assert await asking(server)(bearer("good")) is None


async def test_responses_are_kept_for_a_while_and_never_beyond_the_end_of_the_token(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticate = asking(server, cache_seconds=3600)
    for _ in range(3):
        assert await authenticate(bearer("good")) is not None
        assert await authenticate(bearer("bad")) is None
    assert server.asked == ["good", "bad"]
    now = time.time()
    server.answers["short"] = {**GOOD, "exp": now + 1_000}
    assert await authenticate(bearer("short")) is not None
    monkeypatch.setattr(time, "time", lambda: now + 1_001)
    assert await authenticate(bearer("short")) is None


async def test_a_revoked_token_is_refused_at_once_without_a_cache(server: Server) -> None:
    authenticate = asking(server, cache_seconds=0)
    assert await authenticate(bearer("good")) is not None
    server.answers.clear()
    assert await authenticate(bearer("good")) is None


async def test_the_responses_that_are_kept_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "MAX_KEPT", 2)
    authenticate = asking(server, cache_seconds=3600)
    for token in ("good", "a", "b", "good"):
        await authenticate(bearer(token))
    assert server.asked == ["good", "a", "b", "good"]


async def test_requests_about_one_token_at_the_same_time_are_one(server: Server) -> None:
    server.gate = asyncio.Event()
    authenticate = asking(server)
    first = asyncio.create_task(authenticate(bearer("good")))
    others = [asyncio.create_task(authenticate(bearer("good"))) for _ in range(5)]
    async with asyncio.timeout(30):
        while not server.asked:
            await asyncio.sleep(0.01)
    first.cancel()  # one that leaves does not end it for the others
    server.gate.set()
    assert [identity.id for identity in await asyncio.gather(*others) if identity] == ["ann"] * 5
    assert server.asked == ["good"]


@pytest.mark.parametrize("changed", [{"client_secret": "wrong"}, {"url": "http://127.0.0.1:9/"}])
async def test_a_token_is_not_accepted_if_the_server_cannot_be_asked(
    server: Server, changed: dict[str, str]
) -> None:
    with pytest.raises(CallError) as raised:
        await asking(server, **changed)(bearer("good"))
    assert raised.value.code == "UNAVAILABLE"
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("status", [201, 403, 500])
async def test_a_status_other_than_200_decides_nothing(server: Server, status: int) -> None:
    server.status = status
    with pytest.raises(CallError) as raised:
        await asking(server)(bearer("good"))
    assert raised.value.code == "UNAVAILABLE"


async def test_listed_tokens_are_known_without_asking(server: Server) -> None:
    authenticate = any_of(StaticTokens({"listed": "bob"}), asking(server))
    assert await authenticate(bearer("listed")) == Identity("bob")
    assert server.asked == []


@pytest.mark.parametrize(
    "changed",
    [{"audience": ""}, {"audience": []}, {"audience": [""]}, {"issuer": None}, {"issuer": "http://id.example"}],
)
def test_options_that_check_too_little_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        IntrospectionOptions(**{"issuer": "https://id.example", "client_id": "c", "audience": "a", **changed})


async def test_the_table_makes_an_authenticator(server: Server) -> None:
    options = IntrospectionOptions(
        issuer=server.url, client_id="gateway", client_secret="s3cret", audience=["urn:other", "urn:gateway"]
    )
    authenticate = authenticator_from(introspection=options)
    assert authenticate is not None
    assert (await authenticate(bearer("good"))) == Identity("ann", ["read", "write"])
    assert "s3cret" not in repr(options) + repr(authenticate)

"""Users connect their accounts in a browser: each call uses the token to which its own caller agreed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import attrs
import pytest
from aiohttp import web
from cryptography.fernet import Fernet

from operad import CallError, Identity, OperationContext, OperationRegistry, OperationSpec, load_plugins
from operad_auth.callers import CallerCredentials
from operad_auth.connecting import UserTokens, user_tokens
from operad_testing import free_port
from plugins.auth.tests.conftest import AuthorizationServer
from plugins.serve.tests.browser import Browser
from tests.kit import front_door, listening, openapi, session_call, session_headers, tool_call

ANY = {"responses": {"200": {"description": ""}}}
DOCUMENT = openapi({"/who": {"get": {"operationId": "who", **ANY}, "post": {"operationId": "make", **ANY}}})
TOKENS = {name: f"gateway-token-of-{name}" for name in ("ann", "bob")}


@attrs.define
class Place:
    """The gateway, the API behind it, and the authorization server of the API."""

    accounts: AuthorizationServer
    registry: OperationRegistry
    url: str
    refused: set[str]
    shown: list[str]
    folder: Path

    async def call(self, name: str) -> tuple[int, Any]:
        """A call over HTTP."""
        async with aiohttp.ClientSession() as session:
            headers = {"authorization": f"Bearer {TOKENS[name]}"}
            async with session.post(f"{self.url}/operations/echo.who", json={}, headers=headers) as response:
                return response.status, await response.json(content_type=None)

    async def link(self, name: str) -> str:
        """The link in the error of a call."""
        status, problem = await self.call(name)
        assert (status, problem["code"]) == (403, "AUTHORIZATION_REQUIRED")
        found: str = problem["details"]["url"]
        assert found in problem["detail"]
        return found

    async def link_of_a_foreign_browser(self, name: str, other: str) -> None:
        """Open the link of a user as another one."""
        users = user_tokens(self.registry)["users"]
        async with Browser() as browser:
            await browser.open(users.link(name))
            assert (await browser.send(TOKENS[other]))[0] is None

    async def connect(self, name: str) -> None:
        """All that a user does."""
        async with Browser() as browser:
            await browser.open(await self.link(name))
            url = await browser.agree(TOKENS[name])
            assert "is connected" in await browser.open(url)


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setenv("OPERAD_TOKEN_KEY", Fernet.generate_key().decode())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    accounts, refused, shown = AuthorizationServer(), set[str](), list[str]()

    async def who(request: web.Request) -> web.Response:
        shown.append(token := request.headers.get("Authorization", ""))
        status = 401 if token.removeprefix("Bearer ") in refused else 200
        return web.json_response({"shown": token}, status=status)

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with listening(who) as api, listening(accounts.handle) as accounts.issuer:
        (tmp_path / "echo.json").write_text(json.dumps(DOCUMENT))
        (tmp_path / "operad.toml").write_text(
            f'[[credentials]]\nname = "users"\ntype = "oauth"\nissuer = "{accounts.issuer}"\nclient_id = "cli"\n'
            f'scopes = ["read"]\npublic_url = "{url}"\n'
            '[idempotency]\n[sources.echo]\ntype = "openapi"\nspec = "echo.json"\n'
            f'base_url = "{api}"\nauth = {{type = "caller", provider = "users"}}\n'
        )
        async with (
            OperationRegistry.from_config(tmp_path, load_plugins(), strict=True) as registry,
            front_door(registry, TOKENS, port=port, access_log=True),
        ):
            yield Place(accounts, registry, url, refused, shown, tmp_path)


async def test_each_user_connects_once_and_calls_use_the_token_of_their_caller(place: Place) -> None:
    await place.connect("ann")
    status, ann = await place.call("ann")
    assert status == 200
    assert (await place.call("bob"))[0] == 403
    await place.connect("bob")
    _, bob = await place.call("bob")
    assert ann["shown"] != bob["shown"]
    assert (await place.call("ann"))[1] == ann
    asked = place.accounts.forms[0]
    assert asked["redirect_uri"] == f"{place.url}/connect/users/callback"
    assert asked["code_verifier"]


async def test_tokens_on_disk_are_encrypted_and_name_no_user(place: Place) -> None:
    await place.connect("ann")
    _, ann = await place.call("ann")
    token = ann["shown"].removeprefix("Bearer ")
    files = [file for file in (place.folder / "home").rglob("*") if file.is_file()]
    assert any(file.name == "tokens.json" for file in files)
    for file in files:
        content = file.read_text() + file.name
        assert token not in content
        assert "ann" not in content


async def test_a_gateway_without_a_key_refuses_to_keep_tokens(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPERAD_TOKEN_KEY")
    with pytest.raises(ExceptionGroup) as caught:
        await OperationRegistry.from_config(place.folder, load_plugins(), strict=True).__aenter__()
    assert "only if they are encrypted; set the environment variable OPERAD_TOKEN_KEY to a key" in str(
        caught.value.exceptions[0]
    )


async def test_a_token_of_the_store_is_no_link_and_a_login_is_no_link(place: Place) -> None:
    await place.connect("ann")
    entries = json.loads((place.folder / "home" / "operad" / "tokens.json").read_text())["entries"]
    users = user_tokens(place.registry)["users"]
    link = users.link("ann")
    _, login = await users.begin(parse_qs(urlsplit(link).query)["ticket"][0], "ann")
    async with Browser() as browser:
        for sealed in (*(entry["encrypted"] for entry in entries.values()), login):
            await browser.open(f"{place.url}/connect/users?ticket={sealed}")
            assert browser.status == 400


async def test_a_disconnected_account_is_revoked_and_asked_for_again(place: Place) -> None:
    await place.connect("ann")
    await place.connect("bob")
    async with Browser() as browser:
        await browser.open(f"{place.url}/disconnect/users")
        _, text = await browser.send(TOKENS["ann"])
        assert "users is disconnected" in text
    assert len(place.accounts.revoked) == 1
    assert (await place.call("ann"))[0] == 403
    assert (await place.call("bob"))[0] == 200


async def test_an_account_that_is_disconnected_in_one_process_is_soon_unknown_in_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.connect("ann")
    assert (await place.call("ann"))[0] == 200
    assert place.registry.configuration is not None
    (table,) = place.registry.configuration.array("credentials", CallerCredentials)
    await UserTokens(table).disconnect("ann")  # as another process does
    monkeypatch.setattr("operad_auth.connecting.FRESH", 0.0)
    assert (await place.call("ann"))[0] == 403


async def test_a_call_with_an_idempotency_key_may_be_made_again_after_the_user_has_connected(place: Place) -> None:
    ran: list[str] = []

    async def outer(input: Any, context: OperationContext) -> Any:
        ran.append("once")
        return (await context.env.echo.make()).data

    place.registry.register(OperationSpec(namespace="own", name="outer", type="mutation"), outer)

    def call(id: str) -> Any:
        context = OperationContext(identity=Identity("ann"), idempotency_key="the-key")
        return place.registry.execute(id, {}, context)

    for id in ("echo.make", "own.outer"):
        with pytest.raises(CallError, match="AUTHORIZATION_REQUIRED"):
            await call(id)
    await place.connect("ann")
    assert (await call("echo.make")).data["shown"]
    with pytest.raises(CallError, match="AUTHORIZATION_REQUIRED"):  # it ran: a new key runs it again
        await call("own.outer")
    assert ran == ["once"]


async def test_an_account_that_is_disconnected_during_a_renewal_stays_disconnected(place: Place) -> None:
    place.accounts.expires_in = 0
    await place.connect("ann")
    place.accounts.expires_in = 3600
    users = user_tokens(place.registry)["users"]
    renewing, going_on = asyncio.Event(), asyncio.Event()

    async def slow(form: Any) -> None:
        renewing.set()
        await going_on.wait()

    place.accounts.grants = slow  # type: ignore[method-assign]  # the server takes its time
    call = asyncio.create_task(place.call("ann"))
    await renewing.wait()
    ending = asyncio.create_task(users.disconnect("ann"))
    await asyncio.sleep(0.1)
    going_on.set()
    await asyncio.gather(call, ending)
    assert (await place.call("ann"))[0] == 403


async def test_an_expired_token_is_renewed_once_for_all_calls_of_its_user(place: Place) -> None:
    place.accounts.expires_in = 0
    await place.connect("ann")
    place.accounts.expires_in = 3600
    await place.connect("bob")
    before = place.accounts.seen["token"]
    found = await asyncio.gather(*(place.call("ann" if n % 2 else "bob") for n in range(20)))
    assert {status for status, _ in found} == {200}
    assert len({body["shown"] for _, body in found}) == 2
    assert place.accounts.seen["token"] == before + 1


async def test_a_token_that_the_api_refuses_is_renewed_for_its_own_caller(place: Place) -> None:
    await place.connect("ann")
    await place.connect("bob")
    (_, ann), (_, bob) = await place.call("ann"), await place.call("bob")
    place.refused.add(ann["shown"].removeprefix("Bearer "))
    status, renewed = await place.call("ann")
    assert status == 200
    assert renewed["shown"] not in (ann["shown"], bob["shown"])
    assert (await place.call("bob"))[1] == bob


async def test_a_login_that_the_server_ended_is_asked_for_again(place: Place) -> None:
    place.accounts.expires_in = 0
    await place.connect("ann")
    place.accounts.refresh_tokens.clear()
    await place.link("ann")


async def test_an_anonymous_caller_is_denied(place: Place) -> None:
    for context in (OperationContext(), OperationContext(trusted=True)):
        with pytest.raises(CallError, match="ACCESS_DENIED"):
            await place.registry.execute("echo.who", {}, context)
    with pytest.raises(CallError, match="AUTHORIZATION_REQUIRED"):
        await place.registry.execute("echo.who", {}, OperationContext(identity=Identity("eve")))


async def test_a_run_leaves_no_secret_in_logs_reprs_and_files(
    place: Place, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    place.accounts.expires_in = 0
    await place.connect("ann")
    place.accounts.expires_in = 3600
    await place.connect("bob")
    for name in (*TOKENS, *TOKENS):
        status, body = await place.call(name)
        assert status == 200
        place.refused.add(body["shown"].removeprefix("Bearer "))
    await place.link_of_a_foreign_browser("ann", "bob")
    async with Browser() as browser:
        await browser.open(f"{place.url}/disconnect/users")
        await browser.send(TOKENS["bob"])
    users = user_tokens(place.registry)["users"]
    forms = place.accounts.forms
    secrets = {*TOKENS.values(), os.environ["OPERAD_TOKEN_KEY"], *place.accounts.refresh_tokens}
    secrets |= {token.removeprefix("Bearer ") for token in place.shown}
    secrets |= {form[key] for form in forms for key in ("code", "code_verifier", "refresh_token") if key in form}
    assert len(secrets) >= 12
    told = [repr(each) for each in (users, *vars(users).values(), place.registry, place.registry.configuration)]
    told += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    told += capfd.readouterr()
    assert any("/connect/users" in line for line in told)  # the access log is among them
    files = [file for file in place.folder.rglob("*") if file.is_file()]
    told += [file.read_bytes().decode("latin-1") + file.name for file in files]
    assert any("encrypted" in text for text in told)
    assert [line for line in told if any(secret in line for secret in secrets)] == []


# --- MCP hosts ------------------------------------------------------------------------------------------


ANN = {"authorization": f"Bearer {TOKENS['ann']}"}


async def _rpc(http: aiohttp.ClientSession, place: Place, **request: Any) -> Any:
    async with http.post(f"{place.url}/mcp", **request) as response:
        text = await response.text()
        data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        return json.loads(data[-1] if data else text)


@pytest.mark.parametrize("opens", [True, False])
async def test_a_host_of_the_handshake_protocol_is_asked_to_open_the_link(place: Place, opens: bool) -> None:
    capabilities: dict[str, Any] = {"elicitation": {"url": {}}} if opens else {}
    async with aiohttp.ClientSession() as http:
        headers = await session_headers(http, f"{place.url}/mcp", ANN, **capabilities)
        answer = await _rpc(http, place, json=session_call("echo_who"), headers=headers)
    if opens:
        assert answer["error"]["code"] == -32042
        [asked] = answer["error"]["data"]["elicitations"]
        assert asked["mode"] == "url"
        assert asked["elicitationId"]
        url = asked["url"]
    else:
        assert answer["result"]["isError"] is True
        found = re.search(r"http://\S+", answer["result"]["content"][0]["text"])
        assert found is not None
        url = found[0].rstrip(";")
    assert user_tokens(place.registry)["users"].identity_of(parse_qs(urlsplit(url).query)["ticket"][0]) == "ann"


async def test_a_host_of_the_stateless_protocol_is_asked_once(place: Place) -> None:
    async with aiohttp.ClientSession(headers=ANN) as http:

        async def result(**more: Any) -> Any:
            request = tool_call("echo_who", capabilities={"elicitation": {"url": {}}}, **more)
            return (await _rpc(http, place, **request))["result"]

        first = await result()
        assert first["resultType"] == "input_required"
        [(key, asked)] = first["inputRequests"].items()
        assert asked["params"]["mode"] == "url"
        agreed = {"inputResponses": {key: {"action": "accept"}}, "requestState": first["requestState"]}
        assert (await result(**agreed))["isError"] is True
        await place.connect("ann")
        assert (await result(**agreed)).get("isError", False) is False

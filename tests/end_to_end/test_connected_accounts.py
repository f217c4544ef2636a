"""Users connect their accounts in a browser: each call uses the token to which its own caller agreed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import aiohttp
import attrs
import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from yarl import URL

from operad import CallError, Identity, OperationContext, OperationRegistry, OperationSpec, load_plugins
from operad_auth.callers import CallerCredentials
from operad_auth.connecting import UserTokens, user_tokens
from operad_serve.oauth.options import OAuthServerOptions
from plugins.auth.tests.conftest import AuthorizationServer
from plugins.serve.tests import oidc_server
from plugins.serve.tests.oidc_server import CLIENT, Provider
from tests.kit import free_port, front_door, listening, openapi, session_call, session_headers, tool_call

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


class Browser(AsyncExitStack):
    """Keeps cookies, sends forms with their origin, and shows where it was sent."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        jar = aiohttp.CookieJar(unsafe=True)
        self.session = await self.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        self.page, self.at, self.status = "", "", 0
        self.headers: Any = {}
        return self

    async def open(self, url: str) -> str:
        """Follow a link with all redirects; return the text of the page."""
        async with self.session.get(URL(url, encoded=True)) as response:
            self.page, self.at, self.status = await response.text(), str(response.url), response.status
            self.headers = response.headers
        return self.page

    async def send(self, token: str | None, login: str = "", **headers: str) -> Any:
        """Send the form of the page."""
        fields = re.findall(r'name="(ticket|proof)" value="([^"]*)"', self.page)
        form = {name: unescape(value) for name, value in fields} | ({"login": login} if login else {})
        parts = urlsplit(self.at)
        sent = {"origin": f"{parts.scheme}://{parts.netloc}", **headers}
        async with self.session.post(
            URL(self.at, encoded=True),
            data=form if token is None else {**form, "token": token},
            headers={name: value for name, value in sent.items() if value},
            allow_redirects=False,
        ) as response:
            self.status, text = response.status, await response.text()
            return response.headers.get("location"), text

    async def agree(self, token: str | None) -> str:
        """Send the form; return the URL of the authorization server."""
        url, text = await self.send(token)
        assert url is not None, text
        return str(url)


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    async with placed(tmp_path, monkeypatch) as made:
        yield made


@asynccontextmanager
async def placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: Provider | None = None
) -> AsyncIterator[Place]:
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
        oauth = None
        if login is not None:
            given = {"users": {"ann": [], "bob": []}, "store": str(tmp_path / "oauth.db"), **CLIENT}
            oauth = OAuthServerOptions(url=url, issuer=login.issuer, **given)
        options = {"oauth": oauth, "allowed_origins": ["https://app.example.com"], "access_log": True}
        async with (
            OperationRegistry.from_config(tmp_path, load_plugins(), strict=True) as registry,
            front_door(registry, TOKENS, port=port, **options),
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


async def test_the_link_of_another_user_connects_nothing(place: Place) -> None:
    """The attacker sends a link to a victim, whose account would belong to the attacker."""
    link = await place.link("ann")
    async with Browser() as victim:
        await victim.open(link)
        url, text = await victim.send(TOKENS["bob"])
        assert (victim.status, url) == (400, None)
        assert "made for another user" in text
    assert place.accounts.seen["authorize"] == 0
    async with Browser() as ann:  # the link was not used up
        await ann.open(link)
        assert await ann.agree(TOKENS["ann"])


async def test_a_login_that_another_browser_began_is_not_finished(place: Place) -> None:
    """The attacker begins, and sends the victim to the authorization server."""
    async with Browser() as attacker, Browser() as victim:
        await attacker.open(await place.link("ann"))
        page = await victim.open(await attacker.agree(TOKENS["ann"]))
        assert victim.status == 400
        assert "did not begin in this browser" in page
    assert place.accounts.seen["token"] == 0
    assert (await place.call("ann"))[0] == 403


async def test_the_code_of_another_login_is_not_accepted(place: Place) -> None:
    """The attacker agrees, and lets the victim's browser finish: the victim would use the attacker's account."""
    async with Browser() as attacker, Browser() as victim:
        await attacker.open(await place.link("ann"))
        url = await attacker.agree(TOKENS["ann"])
        async with attacker.session.get(URL(url, encoded=True), allow_redirects=False) as response:
            stolen = response.headers["location"]
        await victim.open(await place.link("bob"))
        await victim.agree(TOKENS["bob"])
        page = await victim.open(stolen)
        assert "belongs to another login" in page
    assert place.accounts.seen["token"] == 0


async def test_a_link_works_once_and_a_preview_does_not_use_it_up(place: Place) -> None:
    link = await place.link("ann")
    async with Browser() as browser:
        for _ in range(3):
            await browser.open(link)
        await browser.agree(TOKENS["ann"])
        url, text = await browser.send(TOKENS["ann"])
        assert (browser.status, url) == (400, None)
        assert "used already" in text


@pytest.mark.parametrize("ticket", ["", "x", "gAAAA" * 20, "x" * 10_000, "%00"])
async def test_a_link_that_this_server_did_not_make_is_refused(place: Place, ticket: str) -> None:
    async with Browser() as browser:
        page = await browser.open(f"{place.url}/connect/users?ticket={ticket}")
        assert browser.status == 400
        assert "has expired" in page


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


async def test_a_response_of_another_issuer_brings_no_code_to_anyone(place: Place) -> None:
    place.accounts.authorization_iss = "https://evil.example.com"
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        page = await browser.open(await browser.agree(TOKENS["ann"]))
        assert browser.status == 502
        assert "another authorization server" in page
    assert place.accounts.seen["token"] == 0


async def test_a_user_who_refuses_is_not_connected(place: Place) -> None:
    place.accounts.refuse = {"error": "access_denied", "error_description": "<b>no</b>"}
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        page = await browser.open(await browser.agree(TOKENS["ann"]))
        assert browser.status == 502
        assert "access_denied" in page
        assert "<b>no</b>" not in page
    assert (await place.call("ann"))[0] == 403


@pytest.mark.parametrize("origin", ["https://evil.example.com", "https://app.example.com", "null", ""])
async def test_a_form_of_another_page_is_refused(place: Place, origin: str) -> None:
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        url, _ = await browser.send(TOKENS["ann"], origin=origin)
        assert browser.status == 403
        assert url is None


async def test_a_wrong_token_in_the_form_is_refused(place: Place) -> None:
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        for token in ("wrong", "", None):
            url, _ = await browser.send(token)
            assert (browser.status, url) == (401, None)


@pytest.mark.parametrize(
    "path",
    [
        "connect/users//%0d%0aX-Evil:%201",
        "connect/users//more",
        "connect/users/callback/more",
        "disconnect/users/callback",
        "connect//users",
    ],
)
async def test_a_path_that_only_begins_as_that_of_a_page_is_unknown(place: Place, path: str) -> None:
    async with Browser() as browser:
        await browser.open(f"{place.url}/{path}")
        assert browser.status == 404
        await browser.open(f"{place.url}/connect/users/")
        assert browser.status == 400  # a page without a link


async def test_pages_run_no_script_and_cannot_be_framed(place: Place) -> None:
    async with Browser() as browser:
        page = await browser.open(await place.link("ann"))
        policy = browser.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert browser.headers["cache-control"] == "no-store"
        assert "ann" not in re.sub(r'value="[^"]*"', "", page)  # the link alone does not say whose it is


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


# --- logins of this server ------------------------------------------------------------------------------


async def _logged_in(browser: Browser, login: Provider, name: str) -> str:
    """Send the form with the button that logs in; return the page to which the browser comes back."""
    login.user = {"sub": name}
    url, text = await browser.send(None, login="1")
    assert url is not None, text
    return await browser.open(url)


@pytest.fixture
async def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Place, Provider]]:
    async with oidc_server.running() as login, placed(tmp_path, monkeypatch, login) as place:
        yield place, login


async def test_a_user_without_a_token_at_hand_logs_in_for_the_page(logins: tuple[Place, Provider]) -> None:
    place, login = logins
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        await _logged_in(browser, login, "ann")
        proven = browser.page, browser.at
        assert "is connected" in await browser.open(await browser.agree(None))
        browser.page, browser.at = proven  # a proof works once
        url, _ = await browser.send(None)
        assert (browser.status, url) == (401, None)
        await browser.open(f"{place.url}/disconnect/users")
        await _logged_in(browser, login, "ann")
        _, text = await browser.send(None)
        assert "is disconnected" in text
    assert (await place.call("ann"))[0] == 403


async def test_who_logged_in_as_another_user_cannot_go_on(logins: tuple[Place, Provider]) -> None:
    place, login = logins
    link = await place.link("ann")
    async with Browser() as victim:
        await victim.open(link)
        await _logged_in(victim, login, "bob")
        url, text = await victim.send(None)
        assert (victim.status, url) == (400, None)
        assert "made for another user" in text
        await victim.open(link)
        await _logged_in(victim, login, "eve")  # not in users
        assert victim.status == 400


async def test_the_proof_of_one_browser_is_none_in_another(logins: tuple[Place, Provider]) -> None:
    place, login = logins
    link = await place.link("ann")
    async with Browser() as ann, Browser() as attacker:
        await ann.open(link)
        await _logged_in(ann, login, "ann")
        await attacker.open(link)
        await _logged_in(attacker, login, "bob")
        attacker.page, attacker.at = ann.page, ann.at
        url, _ = await attacker.send(None)
        assert (attacker.status, url) == (401, None)
        assert await ann.agree(None)

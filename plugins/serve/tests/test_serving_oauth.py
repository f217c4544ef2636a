"""``[serve.oauth]``: logins of hosts through the front door, and what attackers try."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import os
import re
import secrets
import sqlite3
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import attrs
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from cryptography.fernet import Fernet

from operad import AccessControl, CallError, ConfigError, Identity, OperationContext, OperationRegistry, operation
from operad_auth import TokenRecord
from operad_serve import FrontDoor, Plan, ServeOptions
from operad_serve.oauth import store as limits
from operad_serve.oauth.documents import fetch_document
from operad_serve.oauth.options import OAuthServerOptions
from operad_testing import free_port
from plugins.serve.tests import front_door, oidc_server
from plugins.serve.tests.oidc_server import CLIENT, Provider

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

HOST = "http://127.0.0.1:7777/callback"
"""Where a host waits for its code. No test follows a redirect to it."""
VERIFIER = secrets.token_urlsafe(48)
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


@operation(namespace="shop", type="query", access_control=AccessControl(required_scopes=("read",)))
async def whoami(context: OperationContext) -> list[str]:
    """Return the caller and their scopes."""
    assert isinstance(context.identity, Identity)
    return [context.identity.id, *sorted(context.identity.scopes)]


class Browser:
    """A browser with its own cookies, which follows redirects except to hosts."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def get(self, url: str, **options: Any) -> tuple[int, str, Any]:
        async with self.session.get(url, allow_redirects=False, **options) as response:
            return response.status, await response.text(), response.headers

    async def post(self, url: str, form: dict[str, str], **options: Any) -> tuple[int, str, Any]:
        async with self.session.post(url, data=form, allow_redirects=False, **options) as response:
            return response.status, await response.text(), response.headers


def hidden(page: str) -> str:
    """Return the hidden field of a consent page."""
    found = re.search(r'name="login" value="([^"]+)"', page)
    assert found, page
    return html.unescape(found[1])


def sent(url: str) -> dict[str, str]:
    """Return the parameters of a redirect."""
    return dict(parse_qsl(urlsplit(url).query))


@attrs.define
class Gateway:
    """A front door with logins, and a host that uses it."""

    url: str
    provider: Provider
    session: aiohttp.ClientSession
    options: dict[str, Any]

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Browser]:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            yield Browser(session)

    async def form(self, path: str, **form: str) -> tuple[int, Any]:
        headers = {}
        if "basic" in form:
            headers["Authorization"] = form.pop("basic")
        async with self.session.post(f"{self.url}/oauth/{path}", data=form, headers=headers) as response:
            return response.status, await response.json()

    async def register(self, **metadata: Any) -> tuple[int, Any]:
        body = {"redirect_uris": [HOST], "token_endpoint_auth_method": "none", "client_name": "Host", **metadata}
        async with self.session.post(f"{self.url}/oauth/register", json=body) as response:
            return response.status, await response.json()

    async def client_id(self, **metadata: Any) -> str:
        status, client = await self.register(**metadata)
        assert status == 201, client
        return str(client["client_id"])

    def authorize_url(self, client_id: str, /, **changed: str | None) -> str:
        query: dict[str, str | None] = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": HOST,
            "state": "of-the-host",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "resource": f"{self.url}/mcp",
            **changed,
        }
        return f"{self.url}/oauth/authorize?{urlencode({k: v for k, v in query.items() if v is not None})}"

    async def to_provider(self, browser: Browser, client_id: str, **changed: str | None) -> str:
        """Agree, and return the URL of the provider."""
        status, page, _ = await browser.get(self.authorize_url(client_id, **changed))
        assert status == 200, page
        form = {"login": hidden(page), "answer": "allow"}
        status, text, headers = await browser.post(f"{self.url}/oauth/consent", form)
        assert status == 303, text
        return str(headers["Location"])

    async def back(self, browser: Browser, client_id: str, **changed: str | None) -> str:
        """Log in, and return the URL with which the provider sends the browser back here."""
        _, _, headers = await browser.get(await self.to_provider(browser, client_id, **changed))
        return str(headers["Location"])

    async def logged_in(self, browser: Browser, client_id: str, **changed: str | None) -> dict[str, str]:
        """Log in, and return what the host gets."""
        status, page, headers = await browser.get(await self.back(browser, client_id, **changed))
        assert status == 303, page
        assert headers["Location"].startswith(changed.get("redirect_uri") or HOST)
        return sent(headers["Location"])

    async def code(self, client_id: str) -> str:
        """Log in with a browser of its own, and return the code that the host gets."""
        async with self.browser() as browser:
            return (await self.logged_in(browser, client_id))["code"]

    async def redeem(self, client_id: str, code: str, **changed: str) -> tuple[int, Any]:
        form = {"grant_type": "authorization_code", "client_id": client_id, "code": code, "redirect_uri": HOST}
        return await self.form("token", **{**form, "code_verifier": VERIFIER, **changed})

    async def described(self, path: str = "") -> tuple[int, Any]:
        """Return the metadata of the server."""
        async with self.session.get(f"{self.url}/.well-known/oauth-authorization-server{path}") as response:
            return response.status, await response.json() if response.status == 200 else None

    async def tokens(self, client_id: str, **changed: str | None) -> dict[str, Any]:
        async with self.browser() as browser:
            answer = await self.logged_in(browser, client_id, **changed)
        status, tokens = await self.redeem(client_id, answer["code"])
        assert status == 200, tokens
        found: dict[str, Any] = tokens
        return found

    async def refresh(self, client_id: str, token: str, **more: str) -> tuple[int, Any]:
        return await self.form(
            "token", grant_type="refresh_token", client_id=client_id, refresh_token=token, **more
        )

    async def call(self, token: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(f"{self.url}/operations/shop.whoami", headers=headers) as response:
            return response.status, await response.json()


@asynccontextmanager
async def gateway(folder: Path, provider: Provider, port: int = 0, **options: Any) -> AsyncIterator[Gateway]:
    """Run a front door with logins at a provider."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    serve = {"tokens": options.pop("tokens", []), "anonymous": options.pop("anonymous", False)}
    values = {"issuer": provider.issuer, "users": {"ann": ["read", "write"]}, **CLIENT, **options}
    kept = {name: value for name, value in values.items() if value is not None}
    oauth = OAuthServerOptions(url=url, store=str(folder / "oauth.db"), **kept)
    plan = Plan(options=ServeOptions(oauth=oauth, **serve), http=("127.0.0.1", port), base_dir=folder)
    async with OperationRegistry(front_door.plugins()) as registry:
        registry.register(whoami)
        async with FrontDoor(registry, plan, asyncio.Event()).open(), aiohttp.ClientSession() as session:
            yield Gateway(url, provider, session, values)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with oidc_server.running() as made:
        yield made


@pytest.fixture
async def gate(tmp_path: Path, provider: Provider) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path, provider) as made:
        yield made


@pytest.fixture
async def browser(gate: Gateway) -> AsyncIterator[Browser]:
    async with gate.browser() as made:
        yield made


# --- what works ----------------------------------------------------------------------------------------


async def test_a_host_finds_the_server_registers_logs_in_and_calls(gate: Gateway) -> None:
    async with gate.session.get(f"{gate.url}/operations/shop.whoami") as response:
        challenge = response.headers["WWW-Authenticate"]
        assert response.status == 401
    resource = re.findall(r'resource_metadata="([^"]+)"', challenge)[0]
    async with gate.session.get(resource) as response:
        described = await response.json()
    assert (described["resource"], described["authorization_servers"]) == (gate.url, [gate.url])
    _, metadata = await gate.described()
    assert metadata["issuer"] == gate.url
    assert metadata["code_challenge_methods_supported"] == ["S256"]
    assert metadata["scopes_supported"] == ["read", "write"]
    tokens = await gate.tokens(await gate.client_id())
    assert tokens["token_type"] == "Bearer"
    assert tokens["scope"] == "read write"
    assert await gate.call(tokens["access_token"]) == (200, ["ann", "read", "write"])
    assert gate.provider.access_tokens[0] not in str(tokens)


async def test_the_host_gets_its_state_and_the_issuer_back(gate: Gateway) -> None:
    async with gate.browser() as browser:
        answer = await gate.logged_in(browser, await gate.client_id())
    assert answer["state"] == "of-the-host"
    assert answer["iss"] == gate.url


async def test_a_host_gets_no_more_than_it_asks_for_and_the_user_has(gate: Gateway) -> None:
    tokens = await gate.tokens(await gate.client_id(), scope="read admin")
    assert tokens["scope"] == "read"
    assert await gate.call(tokens["access_token"]) == (200, ["ann", "read"])


async def test_an_expired_access_token_is_refused_and_refreshed(tmp_path: Path, provider: Provider) -> None:
    async with gateway(tmp_path, provider, access_lifetime=0.2) as gate:
        client = await gate.client_id()
        tokens = await gate.tokens(client)
        async with asyncio.timeout(30):
            while (await gate.call(tokens["access_token"]))[0] != 401:
                await asyncio.sleep(0.02)
        status, renewed = await gate.refresh(client, tokens["refresh_token"])
        assert status == 200
        assert renewed["refresh_token"] != tokens["refresh_token"]
        assert renewed["access_token"] != tokens["access_token"]


async def test_each_refresh_renews_the_login_at_the_provider_until_the_account_is_closed(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERAD_TOKEN_KEY", Fernet.generate_key().decode())
    provider.has_refresh_tokens = True
    async with gateway(tmp_path, provider) as gate:
        client = await gate.client_id()
        tokens = await gate.tokens(client)
        for _ in range(2):
            status, tokens = await gate.refresh(client, tokens["refresh_token"])
            assert status == 200
        assert len(provider.refresh_tokens) == 3
        provider.refusal = 400, "invalid_client"  # a mistake of the configuration ends no login
        assert (await gate.refresh(client, tokens["refresh_token"]))[0] == 503
        provider.refusal = 400, "invalid_grant"
        status, answer = await gate.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (400, "invalid_grant")
        assert "the provider has ended the login" in answer["error_description"]
        assert (await gate.call(tokens["access_token"]))[0] == 401
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert not [token for token in provider.refresh_tokens if token.encode() in files]


@pytest.mark.parametrize("key", ["0" * 43 + "=", ""])
async def test_a_login_whose_key_is_gone_ends_with_its_next_refresh(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPERAD_TOKEN_KEY", Fernet.generate_key().decode())
    provider.has_refresh_tokens = True
    port = free_port()
    async with gateway(tmp_path, provider, port) as gate:
        client = await gate.client_id()
        tokens = await gate.tokens(client)
    monkeypatch.setenv("OPERAD_TOKEN_KEY", key)
    async with gateway(tmp_path, provider, port) as gate:
        assert (await gate.refresh(client, tokens["refresh_token"]))[1]["error"] == "invalid_grant"
    assert len(provider.refresh_tokens) == 1


async def test_without_a_key_no_token_of_the_provider_is_kept(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPERAD_TOKEN_KEY", raising=False)
    provider.has_refresh_tokens = True
    async with gateway(tmp_path, provider) as gate:
        client = await gate.client_id()
        tokens = await gate.tokens(client)
        assert (await gate.refresh(client, tokens["refresh_token"]))[0] == 200
    assert len(provider.refresh_tokens) == 1


async def test_a_refresh_token_that_comes_twice_ends_the_login(gate: Gateway) -> None:
    client = await gate.client_id()
    first = await gate.tokens(client)
    _, second = await gate.refresh(client, first["refresh_token"])
    assert (await gate.call(first["access_token"]))[0] == 200  # of calls that are running
    assert (await gate.refresh(client, first["refresh_token"]))[1]["error"] == "invalid_grant"
    assert (await gate.call(second["access_token"]))[0] == 401
    assert (await gate.refresh(client, second["refresh_token"]))[1]["error"] == "invalid_grant"


async def test_only_one_of_several_refreshes_at_the_same_time_gets_tokens(gate: Gateway) -> None:
    client = await gate.client_id()
    token = (await gate.tokens(client))["refresh_token"]
    outcomes = await asyncio.gather(*(gate.refresh(client, token) for _ in range(8)))
    assert [status for status, _ in outcomes].count(200) == 1


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_revoked_login_is_over_at_once(gate: Gateway, kind: str) -> None:
    client, other = await gate.client_id(), await gate.client_id()
    tokens = await gate.tokens(client)
    assert await gate.form("revoke", client_id=other, token=tokens[kind]) == (200, {})
    assert (await gate.call(tokens["access_token"]))[0] == 200
    assert await gate.form("revoke", client_id=client, token=tokens[kind]) == (200, {})
    assert (await gate.call(tokens["access_token"]))[0] == 401
    assert (await gate.refresh(client, tokens["refresh_token"]))[0] == 400
    assert await gate.form("revoke", client_id=client, token="unknown") == (200, {})


async def test_logins_and_clients_outlive_the_process_and_serve_several_processes(
    tmp_path: Path, provider: Provider
) -> None:
    port = free_port()
    async with gateway(tmp_path, provider, port) as gate:
        client = await gate.client_id()
        tokens = await gate.tokens(client)
    async with gateway(tmp_path, provider, port) as gate:
        assert (await gate.call(tokens["access_token"]))[0] == 200
        assert (await gate.refresh(client, tokens["refresh_token"]))[0] == 200


async def test_a_token_of_another_server_with_the_same_store_is_refused(
    tmp_path: Path, provider: Provider
) -> None:
    async with gateway(tmp_path, provider) as one, gateway(tmp_path, provider) as two:
        tokens = await one.tokens(await one.client_id())
        assert (await one.call(tokens["access_token"]))[0] == 200
        assert (await two.call(tokens["access_token"]))[0] == 401


async def test_metadata_are_at_the_path_of_the_issuer_alone(gate: Gateway) -> None:
    for path, status in (("", 200), ("/mcp", 404), ("/other", 404)):
        assert (await gate.described(path))[0] == status


async def test_a_user_who_is_removed_from_the_table_has_no_access(tmp_path: Path, provider: Provider) -> None:
    port = free_port()
    async with gateway(tmp_path, provider, port, users={"ann": ["read"]}) as gate:
        client = await gate.client_id()
        tokens = await gate.tokens(client)
    async with gateway(tmp_path, provider, port, users={"bob": ["read"]}) as gate:
        assert (await gate.call(tokens["access_token"]))[0] == 401
        assert (await gate.refresh(client, tokens["refresh_token"]))[1]["error"] == "invalid_grant"


async def test_a_user_who_is_not_in_the_table_gets_no_code(
    gate: Gateway, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "operad.serve")
    gate.provider.user = {"sub": "eve"}
    answer = await gate.logged_in(browser, await gate.client_id())
    assert answer["error"] == "access_denied"
    assert "code" not in answer
    assert "does not list the user 'eve'" in caplog.text


async def test_every_user_of_the_provider_may_log_in_if_the_table_says_so(
    tmp_path: Path, provider: Provider
) -> None:
    provider.user = {"sub": "eve"}
    async with gateway(tmp_path, provider, users={"*": ["read"]}, id_prefix="idp:") as gate:
        tokens = await gate.tokens(await gate.client_id())
        assert await gate.call(tokens["access_token"]) == (200, ["idp:eve", "read"])


async def test_a_provider_without_id_tokens_describes_the_user_at_an_address(
    tmp_path: Path, provider: Provider
) -> None:
    provider.user, provider.has_id_token = {"id": 4711, "login": "ann"}, False
    options = {f"{name}_url": f"{provider.issuer}/{name.removesuffix('ion')}" for name in ("token", "userinfo")}
    options["authorization_url"] = f"{provider.issuer}/authorize"
    users = {"github:4711": ["read"]}
    async with gateway(
        tmp_path, provider, issuer=None, id_claim="id", id_prefix="github:", users=users, **options
    ) as gate:
        tokens = await gate.tokens(await gate.client_id())
        assert await gate.call(tokens["access_token"]) == (200, ["github:4711", "read"])


async def test_an_email_address_must_be_verified(tmp_path: Path, provider: Provider) -> None:
    mail = "ann@example.com"
    async with gateway(tmp_path, provider, id_claim="email", users={mail: ["read"]}) as gate:
        client = await gate.client_id()
        for verified in (None, False, "true"):
            provider.user = {"sub": "1", "email": mail, "email_verified": verified}
            async with gate.browser() as browser:
                status, page, _ = await browser.get(await gate.back(browser, client))
            assert status == 400
            assert "not verified the email address" in page
        provider.user = {"sub": "1", "email": mail, "email_verified": True}
        assert await gate.call((await gate.tokens(client))["access_token"]) == (200, [mail, "read"])


async def test_an_id_with_characters_that_cannot_be_printed_is_refused(gate: Gateway, browser: Browser) -> None:
    client = await gate.client_id()
    gate.provider.user = {"sub": "ann\nbob"}
    status, page, _ = await browser.get(await gate.back(browser, client))
    assert (status, "that can be an id" in page) == (400, True)


async def test_a_user_must_have_the_configured_claims(tmp_path: Path, provider: Provider) -> None:
    claims = {"hd": "example.com", "groups": "staff"}
    async with gateway(tmp_path, provider, claims=claims) as gate:
        client = await gate.client_id()
        for user in ({}, {"hd": "example.com", "groups": ["guests"]}, {"hd": "evil.com", "groups": ["staff"]}):
            provider.user = {"sub": "ann", **user}
            async with gate.browser() as browser:
                assert (await browser.get(await gate.back(browser, client)))[0] == 400
        provider.user = {"sub": "ann", "hd": "example.com", "groups": ["guests", "staff"]}
        await gate.tokens(client)


async def test_a_client_with_a_secret_must_prove_itself(gate: Gateway) -> None:
    for method in ("client_secret_basic", "client_secret_post"):
        _, client = await gate.register(token_endpoint_auth_method=method)
        id, secret = client["client_id"], client["client_secret"]
        code = await gate.code(id)
        assert (await gate.redeem(id, code))[1]["error"] == "invalid_client"
        assert (await gate.redeem(id, code, client_secret="wrong"))[0] == 401
        basic = "Basic " + base64.b64encode(f"{id}:{secret}".encode()).decode()
        proof = {"basic": basic} if method == "client_secret_basic" else {"client_secret": secret}
        assert (await gate.redeem(id, code, **proof))[0] == 200


async def test_listed_tokens_are_valid_beside_logins(tmp_path: Path, provider: Provider) -> None:
    record = TokenRecord(token="bob-token-0123456789", id="bob", scopes=["read"])
    async with gateway(tmp_path, provider, tokens=[record]) as gate:
        assert await gate.call("bob-token-0123456789") == (200, ["bob", "read"])
        assert (await gate.call("operad_at_" + "0" * 32 + "x" * 43))[0] == 401


# --- the consent page ----------------------------------------------------------------------------------


async def test_the_consent_page_names_the_client_and_runs_nothing_of_it(gate: Gateway, browser: Browser) -> None:
    name = '<script>alert(1)</script>"\u202e'
    client = await gate.client_id(client_name=name, redirect_uris=["https://evil.example/cb"])
    status, page, headers = await browser.get(
        gate.authorize_url(client, redirect_uri="https://evil.example/cb", scope="read")
    )
    assert status == 200
    assert "<script>" not in page
    assert "\u202e" not in page
    assert "evil.example" in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


async def test_nothing_goes_to_the_provider_before_the_user_agrees(gate: Gateway) -> None:
    async with gate.browser() as browser:
        _, page, _ = await browser.get(gate.authorize_url(await gate.client_id()))
        form = {"login": hidden(page), "answer": "deny"}
        _, _, headers = await browser.post(f"{gate.url}/oauth/consent", form)
    answer = sent(headers["Location"])
    assert (answer["error"], answer["state"], answer["iss"]) == ("access_denied", "of-the-host", gate.url)
    assert gate.provider.queries == []


async def test_two_tabs_of_a_browser_log_in_at_the_same_time(gate: Gateway, browser: Browser) -> None:
    client = await gate.client_id()
    one = await gate.to_provider(browser, client, state="one")
    two = await gate.to_provider(browser, client, state="two")
    for url, state in ((two, "two"), (one, "one")):
        _, _, headers = await browser.get(url)
        _, _, headers = await browser.get(headers["Location"])
        answer = sent(headers["Location"])
        assert answer["state"] == state
        assert (await gate.redeem(client, answer["code"]))[0] == 200


async def test_an_answer_to_the_consent_page_of_another_browser_is_refused(gate: Gateway) -> None:
    client = await gate.client_id()
    async with gate.browser() as attacker, gate.browser() as victim:
        _, page, _ = await attacker.get(gate.authorize_url(client))
        await victim.get(gate.authorize_url(client))  # the victim has a cookie of its own
        form = {"login": hidden(page), "answer": "allow"}
        assert (await victim.post(f"{gate.url}/oauth/consent", form))[0] == 400
        status, _, _ = await attacker.post(f"{gate.url}/oauth/consent", form)
        assert status == 303  # the victim's attempt has not used it up
        assert (await attacker.post(f"{gate.url}/oauth/consent", form))[0] == 400  # but the answer has


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_an_answer_from_a_page_of_another_origin_is_refused(gate: Gateway, origin: str) -> None:
    async with gate.browser() as browser:
        _, page, _ = await browser.get(gate.authorize_url(await gate.client_id()))
        form = {"login": hidden(page), "answer": "allow"}
        status, _, _ = await browser.post(f"{gate.url}/oauth/consent", form, headers={"Origin": origin})
        assert status in (400, 403)
        status, _, _ = await browser.post(f"{gate.url}/oauth/consent", form, headers={"Origin": gate.url})
        assert status == 303


# --- the provider's response ---------------------------------------------------------------------------


async def test_a_stolen_state_is_worthless_in_another_browser(gate: Gateway) -> None:
    client = await gate.client_id()
    async with gate.browser() as victim, gate.browser() as thief:
        back = await gate.back(victim, client)
        status, page, _ = await thief.get(back)
        assert status == 400
        assert "not started in this browser" in page
        await thief.get(gate.authorize_url(client))  # with a cookie of its own, too
        assert (await thief.get(back))[0] == 400
        assert (await victim.get(back))[0] == 303
        assert (await victim.get(back))[0] == 400  # once


async def test_a_code_of_the_provider_from_another_login_is_refused(gate: Gateway) -> None:
    """Code injection: PKCE towards the provider binds its code to the login."""
    client = await gate.client_id()
    async with gate.browser() as attacker, gate.browser() as victim:
        stolen = sent(await gate.back(attacker, client))["code"]
        mine = sent(await gate.back(victim, client))
        url = f"{gate.url}/oauth/callback?{urlencode({**mine, 'code': stolen})}"
        assert (await victim.get(url))[0] == 400


@pytest.mark.parametrize("issuer", ["https://evil.example", None])
async def test_a_response_of_another_issuer_is_refused(
    gate: Gateway, browser: Browser, issuer: str | None
) -> None:
    client = await gate.client_id()
    right = sent(await gate.back(browser, client))
    wrong = {name: value for name, value in {**right, "iss": issuer}.items() if value is not None}
    status, page, _ = await browser.get(f"{gate.url}/oauth/callback?{urlencode(wrong)}")
    assert status == 400
    assert f"in the response of the provider, got {'no iss' if issuer is None else f'iss {issuer}'}." in page


WRONG_ID_TOKENS = TABLES["wrong ID tokens"]


async def test_a_wrong_id_token_is_refused(gate: Gateway, browser: Browser) -> None:
    client = await gate.client_id()
    for claims in WRONG_ID_TOKENS:
        gate.provider.claims = claims
        status, _, headers = await browser.get(await gate.back(browser, client))
        assert status == 400, claims
        assert "Location" not in headers


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_an_id_token_without_a_signature_of_the_provider_is_refused(
    gate: Gateway, browser: Browser, algorithm: str
) -> None:
    gate.provider.algorithm = algorithm
    assert (await browser.get(await gate.back(browser, await gate.client_id())))[0] == 400


async def test_an_error_of_the_provider_ends_the_login(
    gate: Gateway, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "operad.serve")
    client = await gate.client_id()
    for error, told in (
        ("access_denied", "access_denied"),
        ("login_required", "access_denied"),
        ("consent_required", "access_denied"),
        ("x", "server_error"),
    ):
        gate.provider.callback = {"error": error}
        assert (await gate.logged_in(browser, client))["error"] == told
        assert f"the provider refused a login: {error!r}" in caplog.text


async def test_what_the_provider_says_of_a_user_is_checked(tmp_path: Path, provider: Provider) -> None:
    async with gateway(tmp_path, provider, id_claim="login", users={"*": ["read"]}, claims={"level": 1}) as gate:
        client = await gate.client_id()
        for user, refused in (
            ({"login": "a" * 255, "level": 1}, None),
            ({"login": 7, "level": [0, 1]}, None),
            ({"login": "a" * 256, "level": 1}, "that can be an id"),
            ({"login": "", "level": 1}, "that can be an id"),
            ({"login": True, "level": 1}, "that can be an id"),
            ({"login": "a\x00", "level": 1}, "that can be an id"),
            ({"level": 1}, "that can be an id"),
            ({"login": "a", "level": True}, "does not have the required value"),
            ({"login": "a", "level": "1"}, "does not have the required value"),
            ({"login": "a"}, "does not have the required value"),
        ):
            provider.user = {"sub": "ann", **user}
            async with gate.browser() as browser:
                status, page, headers = await browser.get(await gate.back(browser, client))
                assert (status, "Location" in headers) == ((303, True) if refused is None else (400, False)), user
                assert refused is None or refused in page
        provider.user, provider.claims = {"sub": "eve", "login": "a", "level": 1}, {"sub": "ann", "level": None}
        async with gate.browser() as browser:
            status, page, _ = await browser.get(await gate.back(browser, client))
            assert (status, "different subjects (sub)" in page) == (400, True)
            back = (await gate.back(browser, client)).replace("code=", "other=")
            status, page, _ = await browser.get(back)
            assert (status, "got neither a code nor an error" in page) == (400, True)
            provider.has_id_token = False
            status, page, _ = await browser.get(await gate.back(browser, client))
            assert (status, "set authorization_url, token_url and userinfo_url instead of issuer" in page) == (
                400,
                True,
            )


async def test_a_provider_is_asked_with_the_configured_parameters(tmp_path: Path, provider: Provider) -> None:
    async with gateway(tmp_path, provider, scopes=["openid", "email"], extra={"prompt": "login"}) as gate:
        await gate.tokens(await gate.client_id())
    (query,) = provider.queries
    assert [len(query[name]) for name in ("state", "nonce", "code_challenge")] == [43] * 3  # 256 bits
    kept = {"response_type", "client_id", "redirect_uri", "scope", "code_challenge_method", "prompt"}
    assert {name: query[name] for name in kept} == {
        "response_type": "code", "client_id": "gateway", "redirect_uri": f"{gate.url}/oauth/callback",
        "scope": "openid email", "code_challenge_method": "S256", "prompt": "login",
    }  # fmt: skip


async def test_a_token_says_how_long_it_is_valid_and_ends_with_its_login(
    tmp_path: Path, provider: Provider
) -> None:
    for lifetimes, expected in (((900.0, 9_000.0), range(890, 901)), ((900.0, 100.0), range(90, 101))):
        access, login = lifetimes
        async with gateway(tmp_path, provider, access_lifetime=access, refresh_lifetime=login) as gate:
            tokens = await gate.tokens(await gate.client_id(grant_types=["authorization_code"]))
            assert tokens["expires_in"] in expected
            assert "refresh_token" not in tokens


# --- codes ---------------------------------------------------------------------------------------------


async def test_a_code_that_comes_twice_ends_the_login(gate: Gateway) -> None:
    client = await gate.client_id()
    code = await gate.code(client)
    _, tokens = await gate.redeem(client, code)
    assert (await gate.redeem(client, code))[1]["error"] == "invalid_grant"
    assert (await gate.call(tokens["access_token"]))[0] == 401


async def test_a_code_is_redeemed_once_among_many(gate: Gateway) -> None:
    client = await gate.client_id()
    code = await gate.code(client)
    outcomes = await asyncio.gather(*(gate.redeem(client, code) for _ in range(8)))
    assert [status for status, _ in outcomes].count(200) <= 1


WRONG_REDEMPTIONS: list[Any] = [
    {"code_verifier": secrets.token_urlsafe(48)},
    {"code_verifier": ""},
    {"code_verifier": CHALLENGE},
    {"redirect_uri": "http://127.0.0.1:7778/callback"},
    {"redirect_uri": ""},
    {"resource": "https://other.example/mcp"},
]


async def test_a_code_needs_what_the_login_was_begun_with(gate: Gateway) -> None:
    client = await gate.client_id()
    for changed in WRONG_REDEMPTIONS:
        assert (await gate.redeem(client, await gate.code(client), **changed))[0] == 400, changed


async def test_a_code_and_a_refresh_token_of_another_client_are_refused(gate: Gateway) -> None:
    client, other = await gate.client_id(), await gate.client_id()
    code = await gate.code(client)
    assert (await gate.redeem(other, code))[1]["error"] == "invalid_grant"
    tokens = await gate.tokens(client)
    assert (await gate.refresh(other, tokens["refresh_token"]))[1]["error"] == "invalid_grant"
    assert (await gate.refresh(client, tokens["refresh_token"], scope="read admin"))[1]["error"] == "invalid_scope"
    assert (await gate.refresh(client, tokens["access_token"]))[0] == 400
    assert (await gate.call(tokens["refresh_token"]))[0] == 401
    assert (await gate.call(code))[0] == 401


async def test_an_expired_code_is_refused(gate: Gateway, tmp_path: Path) -> None:
    client = await gate.client_id()
    code = await gate.code(client)
    with closing(sqlite3.connect(tmp_path / "oauth.db")) as connection, connection:
        connection.execute("UPDATE grants SET made = made - ?", (limits.CODE_SECONDS + 1,))
    assert (await gate.redeem(client, code))[1]["error"] == "invalid_grant"


# --- what clients ask for ------------------------------------------------------------------------------


WRONG_REQUESTS = [
    *TABLES["wrong requests"],
    {"code_challenge_method": "plain", "code_challenge": VERIFIER},
    {"state": "x" * 9000},
]


async def test_a_wrong_request_gets_a_page_and_no_redirect(gate: Gateway, browser: Browser) -> None:
    client = await gate.client_id()
    for changed in WRONG_REQUESTS:
        status, page, headers = await browser.get(gate.authorize_url(client, **changed))
        assert status == 400, changed
        assert "Location" not in headers
        assert "<form" not in page


async def test_a_parameter_that_comes_twice_is_refused(gate: Gateway, browser: Browser) -> None:
    url = gate.authorize_url(await gate.client_id()) + "&redirect_uri=https%3A%2F%2Fevil.example"
    assert (await browser.get(url))[0] == 400


async def test_a_host_on_the_users_machine_may_have_any_port(gate: Gateway) -> None:
    client = await gate.client_id(redirect_uris=["http://127.0.0.1/cb", "http://[::1]/cb"])
    for uri in ("http://127.0.0.1:50123/cb", "http://[::1]:50123/cb"):
        async with gate.browser() as browser:
            answer = await gate.logged_in(browser, client, redirect_uri=uri)
        assert (await gate.redeem(client, answer["code"], redirect_uri=uri))[0] == 200


# --- registration --------------------------------------------------------------------------------------


UNSAFE_REDIRECTS = TABLES["unsafe redirects"]


async def test_a_redirect_uri_that_is_not_safe_is_not_registered(gate: Gateway) -> None:
    for uri in UNSAFE_REDIRECTS:
        status, answer = await gate.register(redirect_uris=[HOST, uri])
        assert (status, answer["error"]) == (400, "invalid_redirect_uri"), uri


UNUSABLE_METADATA = TABLES["unusable metadata"]


async def test_metadata_that_cannot_be_used_are_refused(gate: Gateway) -> None:
    for metadata in UNUSABLE_METADATA:
        assert (await gate.register(**metadata))[0] == 400, metadata
    _, answer = await gate.register(grant_types=["implicit"])
    assert answer["error_description"].endswith("got ['implicit']")


async def test_a_registration_is_small_json(gate: Gateway) -> None:
    for body, status in ((b"[" * 10_000, 400), (b"nope", 400), (b"[]", 400), (b'{"x":"' + b"x" * 20_000, 413)):
        async with gate.session.post(f"{gate.url}/oauth/register", data=body) as response:
            assert response.status == status


async def test_registration_can_be_switched_off(tmp_path: Path, provider: Provider) -> None:
    async with gateway(tmp_path, provider, registration=False) as gate:
        async with gate.session.post(f"{gate.url}/oauth/register", json={"redirect_uris": [HOST]}) as response:
            assert response.status == 404
        assert "registration_endpoint" not in (await gate.described())[1]


async def test_redirects_can_be_limited_to_some_hosts_and_schemes(tmp_path: Path, provider: Provider) -> None:
    allowed = {"redirect_hosts": ["claude.example"], "redirect_schemes": ["cursor"]}
    async with gateway(tmp_path, provider, **allowed) as gate:
        good = ["https://claude.example/cb", "cursor://host/cb", "com.example.app:/cb", HOST]
        assert (await gate.register(redirect_uris=good))[0] == 201
        assert (await gate.register(redirect_uris=["https://evil.example/cb"]))[0] == 400


async def test_clients_without_a_login_go_first_if_there_are_too_many(
    gate: Gateway, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = await gate.client_id()
    tokens = await gate.tokens(used)
    monkeypatch.setattr(limits, "MAX_CLIENTS", 3)
    made = [await gate.client_id() for _ in range(4)]
    statuses = [(await browser.get(gate.authorize_url(client)))[0] for client in (used, *made)]
    assert statuses == [200, 400, 400, 200, 200]
    assert (await gate.refresh(used, tokens["refresh_token"]))[0] == 200


async def test_no_client_is_registered_if_all_have_logins(gate: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    await gate.tokens(await gate.client_id())
    monkeypatch.setattr(limits, "MAX_CLIENTS", 1)
    assert (await gate.register())[0] == 400


async def test_pending_logins_are_bounded_and_those_that_wait_for_the_provider_stay(
    gate: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await gate.client_id()
    monkeypatch.setattr(limits, "MAX_LOGINS", 3)
    async with gate.browser() as browser, gate.browser() as attacker:
        back = await gate.back(browser, client)
        for _ in range(5):
            await attacker.get(gate.authorize_url(client))
        assert (await browser.get(back))[0] == 303


async def test_grants_of_a_user_are_bounded(gate: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await gate.client_id()
    monkeypatch.setattr(limits, "MAX_GRANTS_OF_USER", 2)
    tokens = [await gate.tokens(client) for _ in range(3)]
    assert [(await gate.call(each["access_token"]))[0] for each in tokens] == [401, 200, 200]


# --- clients that a document describes -----------------------------------------------------------------


@pytest.fixture
async def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """An HTTPS server on this machine, and the documents that it serves by their paths."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(cert)]
    process = await asyncio.create_subprocess_exec(*command, *names, *files, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    served: dict[str, Any] = {}

    async def handle(request: web.BaseRequest) -> web.Response:
        found = served.get(request.path)
        if found is None:
            raise web.HTTPFound("/client")
        if isinstance(found, int):
            return web.Response(status=found)
        return web.json_response(found) if isinstance(found, dict) else web.Response(body=found)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = RawTestServer(handle)
    await server.start_server(ssl=context)
    yield f"https://localhost:{server.port}", served
    await server.close()


def document(url: str, **changed: Any) -> dict[str, Any]:
    return {"client_id": url, "client_name": "Host", "redirect_uris": [HOST], **changed}


async def test_a_client_that_a_document_describes_logs_in_without_registration(
    tmp_path: Path, provider: Provider, documents: tuple[str, dict[str, Any]]
) -> None:
    base, served = documents
    url = f"{base}/client"
    served["/client"] = document(url, token_endpoint_auth_method="none")
    async with gateway(tmp_path, provider, client_hosts=[urlsplit(base).netloc]) as gate:
        async with gate.browser() as browser:
            _, page, _ = await browser.get(gate.authorize_url(url))
        assert url in page
        tokens = await gate.tokens(url)
        assert await gate.call(tokens["access_token"]) == (200, ["ann", "read", "write"])
        assert (await gate.refresh(url, tokens["refresh_token"]))[0] == 200


@pytest.mark.parametrize("found", [*TABLES["documents"], {"client_name": "x" * 20_000}, b"[1]", b"{", None])
async def test_a_document_that_does_not_fit_is_refused(
    tmp_path: Path, provider: Provider, documents: tuple[str, dict[str, Any]], found: Any
) -> None:
    base, served = documents
    url = f"{base}/client"
    if found is not None:  # else the server redirects
        served["/client"] = document(url, **found) if isinstance(found, dict) else found
    async with (
        gateway(tmp_path, provider, client_hosts=[urlsplit(base).netloc]) as gate,
        gate.browser() as browser,
    ):
        status, page, headers = await browser.get(gate.authorize_url(url))
    assert status == 400, page
    assert "Location" not in headers


async def test_a_document_is_read_up_to_its_bound(documents: tuple[str, dict[str, Any]]) -> None:
    base, served = documents
    served.update({"/whole": b"x" * 16_384, "/more": b"x" * 16_385})
    assert await fetch_document(f"{base}/whole?a=1", is_private=True) == served["/whole"]
    for path, reason in (("more", "it has more than 16384 bytes"), ("gone", "expected HTTP 200, got HTTP 302")):
        with pytest.raises(CallError, match=reason):
            await fetch_document(f"{base}/{path}", is_private=True)
    for status, hint in (
        (299, ""),
        (300, "; redirects are not followed"),
        (399, "; redirects are not followed"),
        (400, ""),
    ):
        served["/status"] = status
        with pytest.raises(CallError, match=f"got HTTP {status}{hint}$"):
            await fetch_document(f"{base}/status", is_private=True)


@pytest.mark.parametrize("hosts", [["*"], [], ["other.example"], ["localhost"]])
async def test_a_document_in_a_private_network_is_fetched_only_from_a_listed_host(
    tmp_path: Path, provider: Provider, documents: tuple[str, dict[str, Any]], hosts: list[str]
) -> None:
    base, served = documents
    served["/client"] = document(f"{base}/client")
    async with gateway(tmp_path, provider, client_hosts=hosts) as gate, gate.browser() as browser:
        status, page, _ = await browser.get(gate.authorize_url(f"{base}/client"))
    assert status == 400
    assert "client_hosts" in page


PRIVATE_DOCUMENTS = TABLES["private documents"]


async def test_a_client_id_that_leads_to_a_private_network_is_refused(gate: Gateway) -> None:
    async with gate.browser() as browser:
        for url in PRIVATE_DOCUMENTS:
            assert (await browser.get(gate.authorize_url(url)))[0] == 400, url
            status, answer = await gate.redeem(url, "operad_ac_" + "0" * 32 + "x" * 43)
            assert (status, answer["error"]) == (400, "invalid_grant")


# --- secrets and configuration -------------------------------------------------------------------------


async def test_no_secret_is_in_the_store_and_only_its_user_can_read_it(
    gate: Gateway, browser: Browser, tmp_path: Path
) -> None:
    _, client = await gate.register(token_endpoint_auth_method="client_secret_post")
    code = (await gate.logged_in(browser, client["client_id"]))["code"]
    cookies = [cookie.value for cookie in browser.session.cookie_jar]
    _, tokens = await gate.redeem(client["client_id"], code, client_secret=client["client_secret"])
    secret = [code, *cookies, client["client_secret"], tokens["access_token"], tokens["refresh_token"]]
    secret += gate.provider.access_tokens
    files = [path for path in tmp_path.iterdir() if path.name.startswith("oauth.db")]
    assert files
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        content = path.read_bytes()
        assert not [each for each in secret if each.encode() in content]


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
async def test_a_store_that_others_can_read_is_closed_to_them(
    tmp_path: Path, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "oauth.db"
    path.touch()
    path.chmod(0o644)
    async with gateway(tmp_path, provider) as gate:
        await gate.client_id()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"{path} was open to other users (mode 644); made it 0600" in caplog.text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"url": "http://gateway.example.com"}, "https"),
        ({"url": "https://gateway.example.com/?a=1"}, "without user name, query and fragment"),
        ({"issuer": "http://id.example.com"}, "https"),
        ({"issuer": None}, "expected issuer"),
        ({"issuer": None, "token_url": "https://a"}, "set issuer, or authorization_url and userinfo_url$"),
    ],
)
def test_a_configuration_that_is_not_safe_is_refused(changed: dict[str, Any], message: str) -> None:
    values = {"url": "https://gw.example.com", "issuer": "https://id.example.com", "users": {"a": []}, **CLIENT}
    with pytest.raises(ConfigError, match=message):
        OAuthServerOptions(**{**values, **changed})


def test_users_must_be_named() -> None:
    with pytest.raises(ValueError, match="users"):
        OAuthServerOptions(url="https://gw.example.com", issuer="https://id.example.com", users={}, **CLIENT)


async def test_a_page_of_another_origin_reads_no_token(gate: Gateway) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    async with gate.session.options(f"{gate.url}/oauth/token", headers=headers) as response:
        assert "Access-Control-Allow-Origin" not in response.headers

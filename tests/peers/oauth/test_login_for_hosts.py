"""Logins of MCP hosts through ``[serve.oauth]``, at a certified provider: the official clients, Chromium, the suite."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import aiohttp
import attrs
import httpx2
import pytest
from aiohttp import web
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from operad import AccessControl, Identity, OperationContext, OperationRegistry, load_plugins, operation
from operad_auth import Credentials, IntrospectionOptions, OAuthClient, OAuthOptions, TokenStore
from operad_serve.oauth.options import OAuthServerOptions
from operad_testing import free_port
from tests.kit import CHROMIUM, ROOT, front_door, listening, marked
from tests.peers.mcp.installed import HERE as MCP
from tests.peers.mcp.installed import NODE, SUITE, in_node
from tests.peers.oauth.provider import HERE, line_of, needs_provider, node, running

BROWSER = ROOT / "tests" / "browser"

pytestmark = needs_provider
in_browser = marked(
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None or not (BROWSER / "node_modules" / "playwright-core").is_dir(),
        reason=f"needs Chromium and playwright-core; run: npm install --prefix {BROWSER}",
    ),
)


@operation(namespace="shop", type="query", access_control=AccessControl(required_scopes=("read",)))
async def whoami(context: OperationContext) -> str:
    """Return the caller and their scopes."""
    assert isinstance(context.identity, Identity)
    return " ".join([context.identity.id, *sorted(context.identity.scopes)])


@attrs.define
class Gateway:
    """A front door with HTTP API and MCP, and a host's address for redirects."""

    url: str
    issuer: str
    callback: str
    returned: asyncio.Queue[str]
    """The URLs to which browsers came back."""


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Gateway]:
    """Run a provider, a front door and the listener of a host."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    returned: asyncio.Queue[str] = asyncio.Queue()

    async def callback(request: web.Request) -> web.Response:
        returned.put_nowait(str(request.url))
        return web.Response(text="You may close this page.")

    async def page(request: web.Request) -> web.FileResponse:
        return web.FileResponse(HERE / "browser_host.html")

    async with (
        listening(web.get("/callback", callback), web.get("/host", page)) as address,
        running("[]", f"{url}/oauth/callback") as issuer,
        OperationRegistry(load_plugins(only=["serve", "mcp"])) as registry,
    ):
        registry.register(whoami)
        oauth = OAuthServerOptions(
            url=url,
            issuer=issuer,
            client_id="gateway",
            client_secret="g:a/t eway",
            users={"ann": ["read", "write"]},
            store=str(folder / "oauth.db"),
        )
        async with front_door(registry, port=port, oauth=oauth, allowed_origins=[address]):
            yield Gateway(url, issuer, f"{address}/callback", returned)


async def person(url: str, *, user: str = "ann", agrees: bool = True) -> None:
    """Do what a person does in a browser: agree, enter a name at the provider, and go where that leads."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(url) as page:
            text = await page.text()
            assert page.status == 200, text
        login = re.findall(r'name="login" value="([^"]+)"', text)
        target = re.findall(r'action="([^"]+)"', text)
        answer = {"login": html.unescape(login[0]), "answer": "allow" if agrees else "deny"}
        async with browser.post(html.unescape(target[0]), data=answer) as page:
            if 'name="user"' not in await page.text():
                return
            here = str(page.url)
        async with browser.post(here, data={"user": user}) as page:
            assert page.status == 200, await page.text()


class Kept:
    """The storage of a host."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.seen: list[OAuthToken] = []

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.seen.append(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Host:
    """The official Python client as a host."""

    def __init__(self, gate: Gateway, visit: Callable[[str], Awaitable[None]], **returned: str) -> None:
        self.gate, self.kept, self.changed = gate, Kept(), returned
        self.logins = 0
        self.auth: OAuthClientProvider | None = None
        self._visit = visit

    async def _callback(self) -> AuthorizationCodeResult:
        async with asyncio.timeout(60):
            query = dict(parse_qsl(urlsplit(await self.gate.returned.get()).query)) | self.changed
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))

    async def _open(self, url: str) -> None:
        self.logins += 1
        await self._visit(url)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ClientSession]:
        metadata = OAuthClientMetadata(
            client_name="Python host",
            redirect_uris=[AnyUrl(self.gate.callback)],
            token_endpoint_auth_method="none",
        )
        url = f"{self.gate.url}/mcp"
        auth = self.auth = OAuthClientProvider(url, metadata, self.kept, self._open, self._callback)
        async with (
            httpx2.AsyncClient(auth=auth, timeout=60) as client,
            streamable_http_client(url, http_client=client) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            yield session

    def expire(self) -> None:
        """Let the host find that its access token has expired."""
        assert self.auth is not None
        self.auth.context.token_expiry_time = 1.0

    async def call(self) -> str:
        """Call in a session of its own."""
        async with self.session() as session:
            return await said(session)


async def said(session: ClientSession) -> str:
    """Return the text of the operation's result."""
    result = await session.call_tool("shop_whoami", {})
    assert not result.is_error
    text: str = result.content[0].text  # type: ignore[union-attr]  # the operation returns text
    return text


async def http(method: str, url: str, **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as response:
        return response.status, await response.text()


# --- hosts ---------------------------------------------------------------------------------------------


async def test_the_python_client_logs_in_calls_refreshes_and_is_shut_out_by_revocation(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate:
        host = Host(gate, person)
        async with host.session() as session:
            assert await said(session) == "ann read write"
            assert host.kept.tokens is not None
            assert host.kept.client is not None
            first = host.kept.tokens
            bearer = {"Authorization": f"Bearer {first.access_token}"}
            expire_access(tmp_path)
            assert (await http("GET", f"{gate.url}/operations/shop.whoami", headers=bearer))[0] == 401
            host.expire()
            assert await said(session) == "ann read write"
        assert host.kept.tokens.refresh_token != first.refresh_token
        assert host.logins == 1
        form = {"client_id": str(host.kept.client.client_id), "token": str(host.kept.tokens.refresh_token)}
        assert (await http("POST", f"{gate.url}/oauth/revoke", data=form))[0] == 200
        bearer = {"Authorization": f"Bearer {host.kept.tokens.access_token}"}
        assert (await http("GET", f"{gate.url}/operations/shop.whoami", headers=bearer))[0] == 401
        assert await host.call() == "ann read write"
        assert host.logins == 2


async def test_a_host_refuses_the_response_of_another_issuer(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate:
        host = Host(gate, person, iss="https://evil.example")
        with pytest.raises(BaseException) as raised:  # a group with the error below
            await host.call()
        assert raised.group_contains(OAuthFlowError) or raised.errisinstance(OAuthFlowError)
        assert host.kept.tokens is None


async def test_a_user_whom_the_table_does_not_name_gets_no_token(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate:

        async def eve(url: str) -> None:
            await person(url, user="eve")

        host = Host(gate, eve)
        with pytest.raises(BaseException):  # noqa: B017  # a group of the SDK's errors
            await host.call()
        assert host.kept.tokens is None


@in_node
async def test_the_typescript_client_logs_in_calls_and_refreshes(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as gate,
        node(HERE / "ts_host.mjs", f"{gate.url}/mcp", gate.callback, cwd=MCP, binary=NODE) as host,
    ):
        await person(await line_of(host, "/oauth/authorize"))
        async with asyncio.timeout(60):
            host.stdin.write((await gate.returned.get()).encode() + b"\n")
        assert json.loads(await line_of(host)) == ["ann read write", "ann read write"]


@in_node
async def test_the_suites_scenarios_for_authorization_servers_pass(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate:
        port = free_port()
        metadata = {"redirect_uris": [f"http://127.0.0.1:{port}/callback"], "token_endpoint_auth_method": "none"}
        status, registered = await http("POST", f"{gate.url}/oauth/register", json=metadata)
        assert status == 201
        command = ["authorization", "--url", gate.url, "--client-id", json.loads(registered)["client_id"]]
        options = ["--resource", f"{gate.url}/mcp", "--port", str(port), "-o", str(tmp_path / "results")]
        async with node(SUITE, *command, *options, binary=NODE, cwd=MCP) as suite:
            await person(await line_of(suite, "/oauth/authorize"))
            await asyncio.wait_for(suite.stdout.read(), 60)
        found = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("checks.json")]
        statuses = {check["id"]: check["status"] for checks in found for check in checks}
        assert set(statuses.values()) == {"SUCCESS"}, found
        assert {"authorization-server-metadata", "authorization-server-metadata-cimd"} <= statuses.keys()
        assert len(statuses) >= 3


# --- in Chromium ---------------------------------------------------------------------------------------


class Chromium:
    """A browser whose steps are written here. Each context has its own cookies."""

    def __init__(self, process: Any) -> None:
        self._process = process

    async def __call__(self, context: str, do: str, *, page: str = "1", **step: Any) -> Any:
        told = json.dumps({"context": context, "page": page, "do": do, **step}) + "\n"
        self._process.stdin.write(told.encode())
        answer = json.loads(await line_of(self._process))
        assert "error" not in answer, answer
        return answer["value"]

    async def agree(self, context: str, page: str = "1") -> None:
        """Agree on the page of consent, and wait for the provider's."""
        await self(context, "click", page=page, selector="button.yes", until="**/interaction/**")

    async def log_in(self, context: str, until: str, page: str = "1") -> str:
        """Enter a name at the provider. Return where that leads."""
        await self(context, "fill", page=page, selector="input[name=user]", text="ann")
        ended: str = await self(context, "click", page=page, selector="button", until=until)
        return ended


@asynccontextmanager
async def chromium() -> AsyncIterator[Chromium]:
    async with node("driver.mjs", str(CHROMIUM), cwd=BROWSER) as process:
        yield Chromium(process)


async def registered(gate: Gateway) -> str:
    """Register a client, and return the URL with which its logins begin, without their state."""
    body = {"redirect_uris": [gate.callback], "token_endpoint_auth_method": "none", "client_name": "A <b>host</b>"}
    _, answer = await http("POST", f"{gate.url}/oauth/register", json=body)
    query = {
        "response_type": "code",
        "client_id": json.loads(answer)["client_id"],
        "redirect_uri": gate.callback,
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }
    return f"{gate.url}/oauth/authorize?{urlencode(query)}"


@in_browser
async def test_a_host_logs_in_with_chromium(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate, chromium() as browser:

        async def visit(url: str) -> None:
            assert await browser("me", "open", url=url) == 200
            assert await browser("me", "text", selector="#client") == "Python host"
            assert "an application on this computer (127.0.0.1:" in await browser("me", "text", selector="#target")
            assert await browser("me", "text", selector="#scopes") == "readwrite"
            await browser.agree("me")
            await browser.log_in("me", "**/callback?*")

        host = Host(gate, visit)
        assert await host.call() == "ann read write"


def expire_access(folder: Path) -> None:
    """Let all access tokens of the server expire."""
    with contextlib.closing(sqlite3.connect(folder / "oauth.db")) as store, store:
        store.execute("UPDATE grants SET access_expires = 1, former_expires = 1")


@in_browser
async def test_a_page_as_a_host_refreshes_expired_tokens_and_is_shut_out_by_revocation(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate, chromium() as browser:
        host = gate.callback.replace("/callback", "/host")

        async def press(tab: str, button: str, expected: str) -> None:
            await browser("me", "click", page=tab, selector=f"#{button}")
            await browser("me", "wait", page=tab, selector="#seen", text=expected)

        for tab in ("1", "2"):
            assert (
                await browser("me", "open", page=tab, url=f"{host}?{urlencode({'mcp': f'{gate.url}/mcp'})}") == 200
            )
            await browser("me", "click", page=tab, selector="#connect", until="**/oauth/authorize?*")
            assert await browser("me", "text", page=tab, selector="#client") == "A page"
        # The second tab finishes first. The provider knows the browser then.
        await browser.agree("me", "2")
        await browser.log_in("me", f"{host}*", "2")
        await browser("me", "click", page="1", selector="button.yes", until=f"{host}*")
        for tab in ("1", "2"):
            await browser("me", "wait", page=tab, selector="#seen", text="connected")
            await press(tab, "call", "ann read write")
        expire_access(tmp_path)
        for tab in ("1", "2"):
            await press(tab, "call", "ann read write after a refresh")
            await press(tab, "call", "ann read write")
        await press("1", "revoke", "revoked 200")
        await press("1", "call", "failed: 400 invalid_grant")
        await press("2", "call", "ann read write")  # a login of its own


@in_browser
async def test_two_tabs_a_denial_a_stolen_state_and_a_mixed_up_issuer_in_chromium(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate, chromium() as browser:
        url = await registered(gate)
        for page in ("1", "2"):
            await browser("me", "open", page=page, url=f"{url}&state=tab-{page}")
            assert await browser("me", "text", page=page, selector="#client") == "A <b>host</b>"
        await browser.agree("me", "1")
        await browser.log_in("me", "**/callback?*", "1")
        ended = await browser("me", "click", page="2", selector="button.yes", until=f"{gate.callback}**")
        assert "state=tab-2" in ended  # the provider knows this browser; the consent was asked for all the same
        for state in ("tab-1", "tab-2"):
            query = dict(parse_qsl(urlsplit(await gate.returned.get()).query))
            assert (query["state"], query["iss"]) == (state, gate.url)
            assert "code" in query
        await browser("me", "open", url=f"{url}&state=no")
        await browser("me", "click", selector="text=Deny", until=f"{gate.callback}**")
        assert "error=access_denied" in await gate.returned.get()

        # The thief gets the victim's way back from the provider, before the victim's browser has gone it.
        await browser("me", "open", url=f"{url}&state=mine")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as victim:
            stolen = await way_back(victim, url)
            assert await browser("thief", "open", url=f"{url}&state=thief") == 200  # has a cookie of its own
            assert await browser("thief", "open", url=stolen) == 400
            assert "not started in this browser" in await browser("thief", "text", selector="[role=alert]")
            (cookie,) = (one for one in victim.cookie_jar if one.key == "operad-login")
        wrong = f"{stolen.partition('&iss=')[0]}&iss={urlencode({'': 'https://evil.example'})[1:]}"
        await browser("victim", "cookie", name=cookie.key, value=cookie.value, url=gate.url)
        for url, reason in ((wrong, "expected iss "), (stolen, "was finished before")):
            assert await browser("victim", "open", url=url) == 400
            assert reason in await browser("victim", "text", selector="[role=alert]")


async def way_back(browser: aiohttp.ClientSession, url: str) -> str:
    """Log in up to the redirect of the provider, and return its target."""
    async with browser.get(url) as page:
        text = await page.text()
    answer = {"login": html.unescape(re.findall(r'name="login" value="([^"]+)"', text)[0]), "answer": "allow"}
    async with browser.post(urljoin(url, "/oauth/consent"), data=answer) as page:
        here = page.url
    target = str(here)
    form: dict[str, str] | None = {"user": "ann"}
    while "/oauth/callback" not in target:
        method = "GET" if form is None else "POST"
        async with browser.request(method, target, data=form, allow_redirects=False) as page:
            target, form = urljoin(target, page.headers["Location"]), None
    return target


@in_browser
async def test_no_page_can_frame_the_consent_or_send_its_form(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate, chromium() as browser:
        url = await registered(gate)
        await browser("me", "open", url=f"{url}&state=x")
        login = "stolen"
        await browser("me", "open", page="evil", url=f"{gate.issuer}/.well-known/openid-configuration")
        framed = await browser("me", "frames", page="evil", url=f"{url}&state=y")
        assert "Allow access" not in framed
        form = f'<form method="post" action="{gate.url}/oauth/consent"><input name="login" value="{login}">'
        await browser(
            "me", "html", page="evil", html=f'{form}<button name="answer" value="allow">win</button></form>'
        )
        assert await browser("me", "press", page="evil", selector="button") in (400, 403)


# --- introspection -------------------------------------------------------------------------------------


async def test_a_token_of_the_provider_is_introspected(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate:
        machine = {"client_id": "machine", "client_secret": "s:e/c ret", "issuer": gate.issuer}
        asked = OAuthOptions(
            **machine, grant="client_credentials", scopes=("pets:read",), resource=("urn:opaque",)
        )
        store = TokenStore(tmp_path, keyring=False)
        token = (await OAuthClient(asked, store=store, name="pets").token()).access_token
        options = {**machine, "id_claim": "client_id"}
        right = IntrospectionOptions(audience="urn:opaque", **options).authenticator()
        identity = await right(Credentials("bearer", token))
        assert identity is not None
        assert (identity.id, identity.scopes) == ("machine", {"pets:read"})
        assert await right(Credentials("bearer", token[:-1] + "x")) is None
        other = IntrospectionOptions(audience="urn:another", **options).authenticator()
        assert await other(Credentials("bearer", token)) is None

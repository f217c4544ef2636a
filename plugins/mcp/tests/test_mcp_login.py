"""Logging in without programming: a real authorization server, tokens that outlive the process, several accounts."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
import pytest
from mcp.client.auth import AuthorizationCodeResult
from mcp.server.auth import provider
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from operad import CallError, ConfigError, OperationRegistry, SourceError, load_plugins
from operad_auth import TokenStore
from operad_mcp import MCPAuth, MCPClientConfig
from operad_mcp.auth.oauth import KeptAuth, client_of, http_auth
from operad_mcp.client.login import MCPLogin
from operad_testing import free_port
from plugins.mcp.tests.peers import Patch, listening, loaded, table

URL = "http://127.0.0.1:9/mcp"


class Accounts(provider.OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The accounts of an authorization server, in memory. Refresh tokens count once."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.seen: Counter[str] = Counter()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.seen["register"] += 1
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: Any) -> str:
        self.seen["authorize"] += 1
        code = AuthorizationCode(
            code=secrets.token_hex(16), scopes=params.scopes or [], expires_at=time.time() + 60,
            client_id=client.client_id or "", code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource,
        )  # fmt: skip
        self.codes[code.code] = code
        return provider.construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issued(client, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        self.seen["refresh"] += 1
        del self.refreshing[refresh_token.token]
        return self._issued(client, scopes)

    def _issued(self, client: Any, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        own = {"client_id": client.client_id, "scopes": scopes}
        self.tokens[access] = AccessToken(token=access, expires_at=int(time.time()) + 3600, **own)
        self.refreshing[refresh] = RefreshToken(token=refresh, **own)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600, scope=" ".join(scopes))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.seen["revoke"] += 1
        self.tokens.pop(token.token, None)
        self.refreshing.pop(token.token, None)

    def expire(self) -> None:
        """End all access tokens."""
        self.tokens.clear()


@asynccontextmanager
async def guarded() -> AsyncIterator[tuple[str, Accounts]]:
    """A server behind its own authorization server: its URL, and the accounts."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    accounts = Accounts()
    auth: Any = {
        "issuer_url": base, "resource_server_url": f"{base}/mcp", "validate_token_resource": False,
        "client_registration_options": {"enabled": True}, "revocation_options": {"enabled": True},
    }  # fmt: skip
    server = MCPServer("guarded", auth_server_provider=accounts, auth=AuthSettings(**auth))

    @server.tool()
    def who() -> str:
        return "you"

    async with listening(server.streamable_http_app(stateless_http=True), port):
        yield f"{base}/mcp", accounts


def browse(url: str) -> None:
    """A browser whose user agrees to everything."""
    urllib.request.urlopen(url, timeout=20).read()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return tmp_path


def configured(folder: Path, url: str, **auth: str) -> Path:
    redirect = f"http://127.0.0.1:{free_port()}/callback"
    values = ", ".join(f'{name} = "{value}"' for name, value in {"redirect_uri": redirect, **auth}.items())
    path = folder / "operad.toml"
    path.write_text(f'[sources.g]\ntype = "mcp"\nurl = "{url}"\nauth = {{ type = "oauth", {values} }}\n')
    return path


def configuration(path: Path) -> Any:
    return OperationRegistry.from_config(path, load_plugins(only=["mcp"]))


async def logged_in(path: Path, account: str | None = None, open_url: Callable[[str], Any] = browse) -> str:
    entry = await configuration(path).source_login("g", account)
    return await entry.login(tell=lambda _: None, open_url=open_url, timeout=20)


async def call(path: Path) -> str:
    """As a new process would: nothing is known but what is kept."""
    async with configuration(path) as registry:
        if registry.failures:
            raise registry.failures[0].error
        return str((await registry.execute("g.who")).meta.content[0].text)


async def test_a_login_outlives_the_process_its_token_is_renewed_and_a_logout_ends_it(home: Path) -> None:
    async with guarded() as (url, accounts):
        path = configured(home, url)
        with pytest.raises(SourceError, match="run: operad login g"):
            await call(path)
        assert accounts.seen["authorize"] == 0
        assert "tokens.json" in await logged_in(path)
        assert await call(path) == "you"
        assert accounts.seen == {"register": 1, "authorize": 1}
        # A token that has expired is renewed by a process that never saw it.
        store = TokenStore()
        text = store.path.read_text()
        store.path.write_text(re.sub(r'"expires_at": [0-9.]+', '"expires_at": 1.0', text))
        accounts.expire()
        assert await call(path) == "you"
        assert await call(path) == "you"
        assert accounts.seen == {"register": 1, "authorize": 1, "refresh": 1}
        assert json.loads(store.path.read_text())["entries"]
        entry = await configuration(path).source_login("g", None)
        assert await entry.logout() == "the token is deleted here, and revoked"
        assert accounts.seen["revoke"] == 1
        with pytest.raises(SourceError, match="operad login g"):
            await call(path)


async def test_two_accounts_at_one_server_have_their_own_tokens(home: Path) -> None:
    async with guarded() as (url, _):
        path = configured(home, url)
        await logged_in(path, "work")
        with pytest.raises(SourceError, match="operad login g"):
            await call(path)
        assert await call(configured(home, url, account="work")) == "you"
        with pytest.raises(SourceError, match="operad login g --account home"):
            await call(configured(home, url, account="home"))


async def test_a_changed_client_is_another_client(home: Path) -> None:
    async with guarded() as (url, accounts):
        path = configured(home, url)
        redirect = path.read_text().split('redirect_uri = "')[1].split('"')[0]
        for name in ("first", "second"):
            public: Any = {"redirect_uris": [redirect], "token_endpoint_auth_method": "none"}
            accounts.clients[name] = OAuthClientInformationFull(client_id=name, **public)
        first = configured(home, url, client_id="first", redirect_uri=redirect)
        await logged_in(first)
        assert await call(first) == "you"
        second = configured(home, url, client_id="second", redirect_uri=redirect)
        with pytest.raises(SourceError, match="operad login g"):
            await call(second)
        await logged_in(second)
        assert {token.client_id for token in accounts.tokens.values()} == {"first", "second"}
        assert accounts.seen["register"] == 0


async def test_only_the_configured_authorization_server_gets_a_user(home: Path) -> None:
    async with guarded() as (url, accounts):
        for client in ({}, {"client_id": "mine", "client_secret": "hush"}):
            with pytest.raises(CallError, match="expected the authorization server https://as.example"):
                await logged_in(configured(home, url, issuer="https://as.example", **client))
        assert accounts.seen["authorize"] == 0
        own = configured(home, url, issuer=url.removesuffix("/mcp"))
        await logged_in(own)
        assert await call(own) == "you"


async def test_a_login_whose_token_is_refused_is_asked_for_once(home: Path) -> None:
    async def refuse(token: str) -> None:
        return None

    async with guarded() as (url, accounts):
        accounts.load_access_token = refuse  # type: ignore[method-assign,assignment]  # the server takes back its word
        with pytest.raises(CallError) as caught:
            await logged_in(configured(home, url))
        assert caught.value.details["statusCode"] == 401  # type: ignore[index,call-overload]  # it is a table
        assert accounts.seen["authorize"] == 1


class OwnStore:
    """The store of an application, which keeps what the SDK gives it."""

    def __init__(self, tokens: OAuthToken | None = None, client: Any = None) -> None:
        self.tokens, self.client = tokens, client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def test_tokens_of_an_applications_own_store_are_renewed_too() -> None:
    store, visited = OwnStore(), list[str]()

    async def redirect(url: str) -> None:
        visited.append(url)

    async def answer() -> list[str | None]:
        async with httpx2.AsyncClient(timeout=60) as client:
            location = (await client.get(visited[-1])).headers["location"]
        query = parse_qs(urlsplit(location).query)
        return [query[name][0] if name in query else None for name in ("code", "state", "iss")]

    async def use(url: str) -> None:
        auth = {"type": "oauth", "store": store, "redirect_handler": redirect, "callback_handler": answer}
        async with loaded("g", url=url, auth=auth) as registry:
            await registry.execute("g.who")

    async with guarded() as (url, accounts):
        await use(url)
        accounts.expire()
        await use(url)
        assert accounts.seen == {"register": 1, "authorize": 1, "refresh": 1}


async def test_who_refuses_or_does_not_come_is_told_in_words(home: Path) -> None:
    def refuse(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        browse(f"{query['redirect_uri'][0]}?error=access_denied&state={query['state'][0]}")

    async with guarded() as (url, _):
        path = configured(home, url)
        with pytest.raises(CallError, match="the authorization server refused the login: access_denied"):
            await logged_in(path, open_url=refuse)
        plain = home / "plain.toml"
        plain.write_text(f'[sources.g]\ntype = "mcp"\nurl = "{url}"\n')
        with pytest.raises(ConfigError, match="this server needs no login"):
            await logged_in(plain)
    hosted = {"mcpServers": {"g": {"url": url}}}
    (home / "mcp.json").write_text(json.dumps(hosted))
    plain.write_text('[sources.g]\ntype = "mcp"\nconfig = "mcp.json"\nname = "g"\n')
    with pytest.raises(ConfigError, match=r'set "oauth": \{\} and its url in .*mcp\.json'):
        await logged_in(plain)
    hosted["mcpServers"]["g"]["disabled"] = True
    (home / "mcp.json").write_text(json.dumps(hosted))
    with pytest.raises(ConfigError, match='the server "g" is disabled in this file; enable it there'):
        await logged_in(plain)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
async def test_a_real_browser_brings_the_login_back(home: Path, tmp_path: Path) -> None:
    def chromium(url: str) -> None:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        subprocess.run(["chromium", *options, "--dump-dom", url], capture_output=True, timeout=60, check=True)

    async with guarded() as (url, accounts):
        path = configured(home, url)
        await logged_in(path, open_url=chromium)
        assert await call(path) == "you"
        assert accounts.seen["authorize"] == 1


# --- assertions ------------------------------------------------------------------------------------------


async def test_an_assertion_is_exchanged_once_for_all_requests_and_again_when_its_token_is_refused() -> None:
    asked: list[tuple[str | None, dict[str, Any]]] = []
    valid: set[str] = set()
    given: list[tuple[str, str]] = []
    lifetime, is_closed = 3600, False

    async def metadata(request: Request) -> JSONResponse:
        base = str(request.base_url).rstrip("/")
        return JSONResponse({"issuer": base, "token_endpoint": f"{base}/token"})

    async def token(request: Request) -> JSONResponse:
        asked.append((request.headers.get("authorization"), dict(parse_qsl((await request.body()).decode()))))
        valid.add(f"t{len(asked)}")
        return JSONResponse({"access_token": f"t{len(asked)}", "token_type": "Bearer", "expires_in": lifetime})

    async def guard(request: Request) -> Response:
        is_valid = request.headers["authorization"].removeprefix("Bearer ") in valid and not is_closed
        return Response(status_code=200 if is_valid else 401)

    async def assertion(issuer: str, resource: str) -> str:
        given.append((issuer, resource))
        return "an-assertion"

    routes = [
        Route("/.well-known/oauth-authorization-server", metadata),
        Route("/token", token, methods=["POST"]),
        Route("/mcp", guard),
    ]
    async with listening(Starlette(routes=routes)) as base:
        for kind in ("an-assertion", assertion):
            asked.clear()
            options: Any = {"type": "jwt_bearer", "issuer": base, "assertion": kind, "scope": "a b"}
            auth = MCPAuth(**options, **({} if callable(kind) else {"client_id": "c", "client_secret": "s"}))
            used = http_auth(MCPClientConfig(url=f"{base}/mcp?key=1", auth=auth), "s")
            async with httpx2.AsyncClient(auth=used) as client:

                async def status(client: httpx2.AsyncClient = client) -> int:
                    return (await client.get(f"{base}/mcp")).status_code

                for times in (1, 2):
                    valid.clear()
                    assert await asyncio.gather(*(status() for _ in range(3))) == [200] * 3
                    assert len(asked) == times
                is_closed, lifetime = True, 0
                for times in (3, 4):  # the new token has expired, and the next is refused at once
                    assert (await status(), len(asked)) == (401, times)
                is_closed, lifetime = False, 3600
            basic = None if callable(kind) else "Basic Yzpz"
            grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
            fields = {"grant_type": grant, "assertion": "an-assertion", "scope": "a b", "resource": f"{base}/mcp"}
            for header, form in asked:
                assert header == basic
                assert fields.items() <= form.items()
        assert set(given) == {(base, f"{base}/mcp")}


@table("logouts")
async def test_a_logout_says_whether_a_token_was_there_and_revoked(home: Path, record: Any, said: str) -> None:
    store = TokenStore()
    config = MCPClientConfig(url="http://127.0.0.1:9/mcp", auth=MCPAuth(type="oauth", store=store))
    kept = KeptAuth("http://127.0.0.1:9/mcp", config.auth, None, None, "s").kept  # type: ignore[arg-type]  # it is set
    if record:
        await store.set(kept.key, record)
    assert said in await MCPLogin("s", config).logout()
    assert await store.get(kept.key) is None


@table("own_tokens")
async def test_tokens_of_an_own_store_are_of_its_client_and_renewed_before_their_first_use(
    stored: str | None, lifetime: int | None, refresh: str | None, is_used: bool, is_renewed: bool
) -> None:
    tokens = OAuthToken(access_token="a", expires_in=lifetime, refresh_token=refresh)
    uris: Any = ["http://127.0.0.1:9/"]
    client = stored and OAuthClientInformationFull(client_id=stored, redirect_uris=uris)
    auth = MCPAuth(type="oauth", client_id="c", store=OwnStore(tokens, client))
    made: Any = http_auth(MCPClientConfig(url="http://127.0.0.1:9/mcp", auth=auth), "s")
    assert (await made.context.storage.get_tokens() is not None) is is_used
    assert (made.context.token_expiry_time is not None) is is_renewed
    assert (await made.context.storage.get_client_info()).client_id == "c"


def test_failed_logins_print_nothing_without_logging() -> None:
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("mcp").handlers)


@table("oauth_clients")
def test_an_oauth_client_is_as_configured_and_the_server_chooses_what_is_not(
    given: Any, method: str | None, registered: str | None
) -> None:
    auth = MCPAuth(type="oauth", scope="a b", issuer="https://as.example/", client_name="me", **given)
    made: Any = http_auth(MCPClientConfig(url=URL, auth=auth), "s")
    metadata, client = made.kept.context.client_metadata, client_of(auth)
    assert (metadata.client_name, metadata.scope, metadata.token_endpoint_auth_method) == ("me", "a b", registered)
    assert (client and (client.token_endpoint_auth_method, client.scope)) == (method and (method, "a b"))


async def test_client_credentials_are_a_secret_or_a_signed_token_and_are_kept_in_memory() -> None:
    own: Any = object()
    options: Any = {"type": "client_credentials", "client_id": "i", "issuer": "https://as.invalid", "scope": "x"}
    post: Any = {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"}
    for given, expected in (({"private_key": "k"}, "private_key_jwt"), (post, "client_secret_post")):
        made: Any = http_auth(MCPClientConfig(url=URL, auth=MCPAuth(**options, **given, store=own)), "s")
        assert made.context.storage is own
        assert made.context.client_metadata.token_endpoint_auth_method == expected
    made = http_auth(MCPClientConfig(url=URL, auth=MCPAuth(**options, client_secret="s")), "s")
    assert made.context.client_metadata.token_endpoint_auth_method == "client_secret_basic"
    store = made.context.storage
    assert (await store.get_tokens(), await store.get_client_info()) == (None, None)
    await store.set_tokens(own)
    await store.set_client_info(options)
    assert (await store.get_tokens(), await store.get_client_info()) == (own, options)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["c"], ("c", None, None)), (["c", "s"], ("c", "s", None)), (["c", "s", "i"], ("c", "s", "i")),
        (AuthorizationCodeResult(code="c", state="s", iss="i"), ("c", "s", "i")), (None, None),
    ],
)  # fmt: skip
async def test_the_answer_of_a_callback_may_be_short_and_the_callback_is_required(
    answer: Any, expected: Any
) -> None:
    async def callback(*_: Any) -> Any:
        return answer

    auth = MCPAuth(type="oauth", redirect_handler=callback, callback_handler=answer and callback)
    made: Any = http_auth(MCPClientConfig(url=URL, auth=auth), "s")
    if answer is None:
        with pytest.raises(ConfigError, match="expected callback_handler with redirect_handler"):
            await made.kept.context.callback_handler()
    else:
        found = await made.kept.context.callback_handler()
        assert (found.code, found.state, found.iss) == expected


@table("revocations")
async def test_a_logout_revokes_the_token_as_the_client_that_got_it(
    home: Path, record: Any, status: int, header: str | None, form: str
) -> None:
    asked: list[tuple[str | None, str]] = []

    async def revoke(request: Request) -> Response:
        asked.append((request.headers.get("authorization"), (await request.body()).decode()))
        return Response(status_code=status)

    async with listening(Starlette(routes=[Route("/r", revoke, methods=["POST"])])) as base:
        auth = MCPAuth(type="oauth", store=(store := TokenStore()))
        kept = KeptAuth(URL, auth, None, None, "s").kept
        await store.set(kept.key, {**record, "server": {"revocation_endpoint": f"{base}/r"}})
        said = await MCPLogin("s", MCPClientConfig(url=URL, auth=auth)).logout()
    assert said.endswith("deleted here, and revoked" if status == 200 else "was not revoked at the server")
    assert asked == [(header, form)]

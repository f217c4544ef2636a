"""Logins at an authorization server that nobody here wrote (oidc-provider), in a browser where there is one."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from html import unescape
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from operad import CallError, Identity, OperationContext, OperationRegistry, load_plugins
from operad_auth import (
    Credentials,
    JWTAuthenticator,
    LoginRequired,
    OAuthClient,
    OAuthError,
    OAuthOptions,
    TokenStore,
)
from operad_testing import free_port
from tests.kit import CHROMIUM, front_door, listening, openapi
from tests.peers.oauth.provider import needs_provider, running

pytestmark = needs_provider
KEY: dict[str, Any] = {
    **ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True),
    "kid": "client",
}
PUBLIC = json.dumps([{name: value for name, value in KEY.items() if name != "d"}])


@pytest.fixture
async def issuer() -> AsyncIterator[str]:
    async with running(PUBLIC) as url:
        yield url


def person() -> Callable[..., str]:
    """Somebody with a browser that keeps cookies; answers the page where they end, below its URL."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def visit(url: str, form: dict[str, str] | None = None, **headers: str) -> str:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        with opener.open(urllib.request.Request(url, data, headers), timeout=30) as page:
            return f"{page.url}\n{page.read().decode()}"

    return visit


def enter_code(url: str) -> None:
    """What somebody does with the code of a device: send the form with it, then the one that confirms it."""
    visit = person()
    page = visit(url)
    for extra in ({"user_code": url.rpartition("=")[2]}, {"confirm": "yes"}):
        target = re.findall(r'action="([^"]+)"', page)[0]
        hidden = dict(re.findall(r'name="(xsrf|user_code)" value="([^"]*)"', page))
        page = visit(target, {**hidden, **extra})


def chromium(url: str) -> None:
    """A real browser, without a window."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--timeout=10000"]
        subprocess.run([CHROMIUM, *options, "--dump-dom", url], capture_output=True, timeout=90, check=True)


def client(issuer: str, folder: Path, **options: Any) -> OAuthClient:
    chosen = {"client_id": "cli", "issuer": issuer, "scopes": "openid offline_access pets:read", **options}
    chosen.setdefault("extra", {"prompt": "consent"})  # OpenID Connect Core, 11: without it no offline_access
    return OAuthClient(
        OAuthOptions(**{"resource": "urn:pets", **chosen}), store=TokenStore(folder, keyring=False), name="pets"
    )


async def whoever(issuer: str, token: str) -> Any:
    return await JWTAuthenticator(issuer, "urn:pets")(Credentials("bearer", token))


async def test_a_login_is_renewed_used_by_another_process_and_ended(issuer: str, tmp_path: Path) -> None:
    await client(issuer, tmp_path).login(tell=lambda _: None, open_url=person(), timeout=60)
    later = client(issuer, tmp_path)
    first = await later.token()
    identity = await whoever(issuer, first.access_token)
    assert (identity.id, identity.scopes) == ("ann", frozenset({"pets:read"}))
    later.refused(first.access_token)
    second = await later.token()
    assert second.access_token != first.access_token
    assert (await whoever(issuer, second.access_token)).id == "ann"
    assert "revoked" in await client(issuer, tmp_path).logout()
    with pytest.raises(LoginRequired):
        await client(issuer, tmp_path).token()


@pytest.mark.long
async def test_a_code_is_entered_elsewhere(issuer: str, tmp_path: Path) -> None:
    device = client(issuer, tmp_path, grant="device_code")
    told: list[str] = []
    await device.login(tell=told.append, open_url=enter_code, timeout=60)
    assert re.search(r"enter the code: \w{4}-\w{4}", told[0])
    assert (await whoever(issuer, (await device.token()).access_token)).id == "ann"


MACHINE = {"client_id": "machine", "client_secret": "s:e/c ret", "grant": "client_credentials"}


async def test_a_machine_needs_nobody_and_a_wrong_secret_is_refused(issuer: str, tmp_path: Path) -> None:
    for client_auth in ("auto", "basic", "post"):
        token = await client(issuer, tmp_path, **MACHINE, client_auth=client_auth, scopes="pets:write").token()
        assert (await whoever(issuer, token.access_token)).scopes == {"pets:write"}
    wrong = client(issuer, tmp_path, **(MACHINE | {"client_secret": "wrong"}))
    with pytest.raises(OAuthError, match="invalid_client"):
        await wrong.token()


async def test_a_machine_may_prove_itself_by_its_key(issuer: str, tmp_path: Path) -> None:
    signer = {"client_id": "signer", "private_key": json.dumps(KEY), "grant": "client_credentials"}
    token = await client(issuer, tmp_path, **signer, scopes="pets:write").token()
    assert (await whoever(issuer, token.access_token)).id == "signer"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None or sys.platform != "linux", reason="needs Chromium")
async def test_a_login_in_a_real_browser(issuer: str, tmp_path: Path) -> None:
    one = client(issuer, tmp_path)
    await one.login(tell=lambda _: None, open_url=chromium, timeout=90)
    assert (await whoever(issuer, (await one.token()).access_token)).id == "ann"


# --- credentials of callers ------------------------------------------------------------------------------


async def test_a_gateway_exchanges_the_token_of_each_caller(issuer: str, tmp_path: Path) -> None:
    await client(issuer, tmp_path).login(tell=lambda _: None, open_url=person(), timeout=60)
    ann = await client(issuer, tmp_path).token()
    machine = await client(issuer, tmp_path, **MACHINE, scopes="pets:write").token()
    credentials = (
        f'type = "exchange"\nissuer = "{issuer}"\nclient_id = "exchanger"\nclient_secret = "e:x/c hange"\n'
        'audience = "urn:orders"\nscopes = ["orders:read"]\n'
    )
    async with orders(tmp_path, issuer, "urn:orders", credentials) as registry:

        async def call(name: str, token: str) -> Any:
            context = OperationContext(identity=Identity(name), credentials=Credentials("bearer", token))
            return (await registry.execute("orders.who", {}, context)).data

        callers = [("ann", ann.access_token), ("machine", machine.access_token)] * 5
        found = await asyncio.gather(*(call(*caller) for caller in callers))
        assert found == [[name, "orders:read"] for name, _ in callers]
        wrong = "not a token of the server"
        with pytest.raises(CallError, match="ACCESS_DENIED.*cannot be exchanged.*invalid_grant") as caught:
            await call("eve", wrong)
        assert wrong not in str(caught.value)


async def test_users_of_a_gateway_connect_their_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERAD_TOKEN_KEY", Fernet.generate_key().decode())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    gate = f"http://127.0.0.1:{(port := free_port())}"
    async with running(PUBLIC, f"{gate}/connect/orders/callback") as issuer:
        credentials = (
            f'type = "oauth"\nissuer = "{issuer}"\nclient_id = "gateway"\nclient_secret = "g:a/t eway"\n'
            f'resource = ["urn:pets"]\nscopes = ["openid", "pets:read"]\npublic_url = "{gate}"\n'
        )
        tokens = {name: f"gateway-token-of-{name}" for name in ("ann", "bob")}
        async with (
            orders(tmp_path, issuer, "urn:pets", credentials) as registry,
            front_door(registry, tokens, port=port),
        ):
            for name, token in tokens.items():
                context = OperationContext(identity=Identity(name))
                with pytest.raises(CallError, match="AUTHORIZATION_REQUIRED") as caught:
                    await registry.execute("orders.who", {}, context)
                link = caught.value.details["url"]
                assert "orders is connected" in await asyncio.to_thread(agreed, link, token, f"{name}.at.pets")
            for name in tokens:
                found = await registry.execute("orders.who", {}, OperationContext(identity=Identity(name)))
                assert found.data == [f"{name}.at.pets", "pets:read"]


def agreed(link: str, token: str, account: str) -> str:
    """What a user does with a link: prove who they are, log in at the provider, and come back."""
    visit = person()
    ticket = re.findall(r'name="ticket" value="([^"]+)"', visit(link))[0]
    origin = link.partition("/connect")[0]
    login = visit(link, {"ticket": unescape(ticket), "token": token}, Origin=origin)
    return visit(login.partition("\n")[0], {"user": account})


@asynccontextmanager
async def orders(folder: Path, issuer: str, audience: str, credentials: str) -> AsyncIterator[OperationRegistry]:
    """Run an API that checks the tokens of the server, and a registry that calls it for its callers."""
    authenticate = JWTAuthenticator(issuer, audience)

    async def who(request: web.Request) -> web.Response:
        identity = await authenticate(Credentials.from_headers(dict(request.headers)))
        status = 401 if identity is None else 200
        return web.json_response(None if identity is None else [identity.id, *identity.scopes], status=status)

    operation = {"operationId": "who", "responses": {"200": {"description": ""}}}
    (folder / "orders.json").write_text(json.dumps(openapi({"/who": {"get": operation}})))
    async with listening(who) as url:
        (folder / "operad.toml").write_text(
            f'[[credentials]]\nname = "orders"\n{credentials}'
            f'[sources.orders]\ntype = "openapi"\nspec = "orders.json"\nbase_url = "{url}"\n'
            'auth = {type = "caller", provider = "orders"}\n'
        )
        async with OperationRegistry.from_config(folder, load_plugins(), strict=True) as registry:
            yield registry

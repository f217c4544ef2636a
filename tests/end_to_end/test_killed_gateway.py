"""A gateway that is killed in the middle of its calls: each finished call is audited, and no secret is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import attrs
import pytest
from aiohttp import web
from cryptography.fernet import Fernet

from operad_testing import free_port
from plugins.auth.tests.conftest import AuthorizationServer
from plugins.serve.tests import oidc_server
from plugins.serve.tests.test_serving_oauth import Gateway
from tests.end_to_end.test_connected_accounts import Browser
from tests.kit import OPERAD, listening, openapi

KILLS, CALLERS = 3, 6

CONFIGURATION = """
[serve]
http = "127.0.0.1:{port}"
access_log = true

[[serve.tokens]]
id = "bob"
token = "${{BOB_TOKEN}}"

[serve.oauth]
url = "http://127.0.0.1:{port}"
issuer = "{provider}"
client_id = "gateway"
client_secret = "${{PROVIDER_SECRET}}"
users = {{ ann = ["read"] }}
store = "oauth.db"

[[credentials]]
name = "connected"
type = "oauth"
issuer = "{accounts}"
client_id = "machine"
client_secret = "${{ACCOUNTS_SECRET}}"
public_url = "http://127.0.0.1:{port}"

[[credentials]]
name = "exchanged"
type = "exchange"
token_url = "{api}/token"
client_id = "gate"
client_secret = "${{EXCHANGE_SECRET}}"

[[credentials]]
name = "listed"
type = "table"
entries = {{ ann = "${{ANN_KEY}}", bob = "${{BOB_KEY}}" }}

[[rules]]
match = "*"
audit = "audit.jsonl"
redact = ["password"]
set = {{ tenant = "${{TENANT}}" }}
"""
SOURCE = """
[sources.{name}]
type = "openapi"
spec = "api.json"
base_url = "{api}"
auth = {{ type = "caller", provider = "{name}" }}
"""
NAMES = ("connected", "exchanged", "listed")
FIELDS = {name: {"type": "string"} for name in ("card", "password", "tenant")}
BODY = {"content": {"application/json": {"schema": {"type": "object", "properties": FIELDS}}}}
ORDER = {"operationId": "order", "requestBody": BODY, "responses": {"200": {"description": ""}}}
DOCUMENT = openapi({"/order": {"post": ORDER}})


@attrs.define
class API:
    """An API that returns the input with a password, sometimes as an error; and exchanges tokens."""

    secrets: set[str] = attrs.field(factory=set)
    """Everything that it received or made and that is nobody else's business."""

    async def order(self, request: web.Request) -> web.Response:
        password, input = secrets.token_hex(16), await request.json()
        self.secrets |= {password, request.headers["Authorization"].partition(" ")[2]}
        body = {"password": password, "tenant is known": input["tenant"] == os.environ["TENANT"]}
        return web.json_response(body, status=random.choice([200, 200, 200, 500]))

    async def token(self, request: web.Request) -> web.Response:
        assert parse_qs(await request.text())["subject_token"]
        return web.json_response({"access_token": secrets.token_hex(16), "expires_in": 3600})


@asynccontextmanager
async def killed(folder: Path, url: str) -> AsyncIterator[None]:
    """Run `operad serve` until the end of the block, and kill it there."""
    with (folder / "output.log").open("ab") as output:
        process = await asyncio.create_subprocess_exec(OPERAD, "serve", cwd=folder, stdout=output, stderr=output)
        try:
            async with aiohttp.ClientSession() as session, asyncio.timeout(60):
                while True:
                    assert process.returncode is None, (folder / "output.log").read_text()
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"{url}/health") as response:
                            if response.status == 200:
                                break
                    await asyncio.sleep(0.05)
            yield
        finally:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("calls", [120, pytest.param(6_000, marks=pytest.mark.long)])
async def test_a_killed_gateway_leaves_a_line_for_each_finished_call_and_no_secret_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    names = ("BOB_TOKEN", "EXCHANGE_SECRET", "ANN_KEY", "BOB_KEY", "TENANT")
    given = {name: secrets.token_hex(16) for name in names}
    given |= {"PROVIDER_SECRET": "s3cret", "ACCOUNTS_SECRET": "s:e/c ret"}
    given["OPERAD_TOKEN_KEY"] = Fernet.generate_key().decode()
    (tmp_path / "tmp").mkdir()
    places = {"XDG_CONFIG_HOME": "home", "XDG_CACHE_HOME": "cache", "HOME": "home", "TMPDIR": "tmp"}
    for name, value in {**given, **{name: str(tmp_path / place) for name, place in places.items()}}.items():
        monkeypatch.setenv(name, value)
    port = free_port()
    url, api, accounts = f"http://127.0.0.1:{port}", API(), AuthorizationServer()
    known, finished, ended = set(given.values()), 0, asyncio.Event()

    async def caller(session: aiohttp.ClientSession, tokens: list[str]) -> None:
        """Call until the gateway is killed."""
        nonlocal finished
        while True:
            card = secrets.token_hex(16)
            known.add(card)
            headers = {"Authorization": f"Bearer {random.choice(tokens)}"}
            operation = f"{url}/operations/{random.choice(NAMES)}.order"
            try:
                async with session.post(
                    operation, json={"card": card, "password": card}, headers=headers
                ) as found:
                    text = await found.text()
            except aiohttp.ClientError:
                return
            assert not [secret for secret in api.secrets if secret in text]
            finished += 1
            if finished % (calls // KILLS) == 0:
                ended.set()

    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(oidc_server.running())
        provider.has_refresh_tokens = True
        accounts.issuer = await stack.enter_async_context(listening(accounts.handle))
        routes = web.post("/order", api.order), web.post("/token", api.token)
        upstream = await stack.enter_async_context(listening(*routes))
        text = CONFIGURATION.format(port=port, provider=provider.issuer, accounts=accounts.issuer, api=upstream)
        text += "".join(SOURCE.format(name=name, api=upstream) for name in NAMES)
        (tmp_path / "operad.toml").write_text(text)
        (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        gate = Gateway(url, provider, session, {})
        client, tokens = "", dict[str, Any]()
        for _ in range(KILLS):
            ended.clear()
            async with killed(tmp_path, url):
                if not client:
                    client = await gate.client_id()
                    async with gate.browser() as host:
                        code = (await gate.logged_in(host, client))["code"]
                    status, tokens = await gate.redeem(client, code)
                    known.add(code)
                    async with Browser() as browser:
                        await browser.open(f"{url}/connect/connected?ticket={await ticket(session, url, tokens)}")
                        page = await browser.open(await browser.agree(tokens["access_token"]))
                        assert "is connected" in page
                else:
                    status, tokens = await gate.refresh(client, tokens["refresh_token"])
                assert status == 200
                known |= {tokens["access_token"], tokens["refresh_token"]}
                shown = [tokens["access_token"], given["BOB_TOKEN"]]
                running = [asyncio.create_task(caller(session, shown)) for _ in range(CALLERS)]
                async with asyncio.timeout(600):
                    await ended.wait()
            await asyncio.gather(*running)
    known |= {*api.secrets, *provider.access_tokens, *provider.refresh_tokens, *accounts.refresh_tokens}
    known |= {form[key] for form in accounts.forms for key in ("code", "code_verifier") if key in form}
    assert len(provider.refresh_tokens) == KILLS

    lines = (tmp_path / "audit.jsonl").read_text().splitlines(keepends=True)
    assert all(line.endswith("\n") and json.loads(line)["caller"] in ("ann", "bob") for line in lines)
    assert {json.loads(line)["outcome"] for line in lines} > {"ok", "AUTHORIZATION_REQUIRED"}
    assert calls <= finished < len(lines) <= finished + 1 + KILLS * CALLERS  # the first call asked for the account
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {"audit.jsonl", "oauth.db", "output.log", "tokens.json"} <= {file.name for file in files}
    assert b'"path":"/operations/listed.order"' in files[tmp_path / "output.log"]
    found = [
        (file.name, secret) for file, content in files.items() for secret in known if secret.encode() in content
    ]
    assert found == []
    assert not [file for file in files if any(secret in str(file) for secret in known)]


async def ticket(session: aiohttp.ClientSession, url: str, tokens: dict[str, Any]) -> str:
    """Return the ticket in the link that the first call of a user gets."""
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    async with session.post(f"{url}/operations/connected.order", json={}, headers=headers) as response:
        problem = await response.json(content_type=None)
        assert problem["code"] == "AUTHORIZATION_REQUIRED", problem
        link: str = problem["details"]["url"]
        return link.partition("ticket=")[2]

"""docs/openapi.md: each answer to "How do I" runs as it stands, against a shop that is really there."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest
import trustme
from aiohttp import web

from operad import OperationRegistry, load_plugins
from operad_auth import TokenStore
from operad_openapi.source import OpenAPISourceConfig
from tests.kit import listening

PAGE = (Path(__file__).parents[2] / "docs" / "openapi.md").read_text()
URL = "http://127.0.0.1:8080"
SECTIONS = re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |^## )", PAGE, re.DOTALL | re.MULTILINE)
DEFAULT = f"""
[sources.shop]
type = "openapi"
spec = "shop.json"
base_url = "{URL}"
auth = {{ type = "bearer", token = "t0ken" }}
"""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


NAMES = ["tea", "milk", "cake", "jam", "bread"]


class Shop:
    """Answers what the page asks for."""

    def __init__(self) -> None:
        self.searches = 0
        self.created: list[Any] = []
        self.photos: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        fixed: dict[str, Any] = {
            "/token": {"access_token": "ann's", "token_type": "Bearer", "expires_in": 3600},
            "/me": request.headers.get("Authorization"),
            "/items/1": {"id": 1, "name": "tea", "tenant": request.headers.get("X-Tenant"), "undeclared": True},
        }
        if path == "/watch":
            return web.Response(text='event: item\nid: 1\ndata: {"id": 1}\n\n', content_type="text/event-stream")
        if path.startswith("/reports/"):
            return web.Response(body=b"x" * 3_000_000, content_type="application/pdf")
        if path == "/search":
            self.searches += 1
            if self.searches == 1:
                return web.Response(status=429, headers={"Retry-After": "0"})
            return web.json_response([(await request.json())["text"]])
        if path.endswith("/photo"):
            self.photos.append((await request.read()).decode("latin-1"))
            return web.json_response(None)
        if path == "/items" and request.method == "POST":
            self.created.append(await request.json())
            return web.json_response({"id": 1})
        if path == "/items":
            start, size = int(request.query.get("cursor") or 0), int(request.query.get("limit", 3))
            items = [{"name": name} for name in NAMES[start : start + size]]
            following = str(start + size) if start + size < len(NAMES) else None
            return web.json_response({"items": items, "meta": {"next": following}})
        return web.json_response(fixed[path])


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Shop, str]]:
    """The shop with its URL, in a folder with its document."""
    shutil.copy(Path(__file__).with_name("shop.json"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_TOKEN", "t0ken")
    authority = trustme.CA()
    own = authority.issue_cert("me@shop.example")
    authority.cert_pem.write_to_path("corporate-ca.pem")
    own.cert_chain_pems[0].write_to_path("me.pem")
    own.private_key_pem.write_to_path("me.key")
    shop = Shop()
    async with listening(shop.answer) as url:
        yield shop, url


def configured(table: str) -> OperationRegistry:
    """A registry with the tables of a text as its configuration."""
    Path("operad.toml").write_text(table)
    return OperationRegistry.from_config("operad.toml", load_plugins(only=["openapi"]), strict=True)


async def run(texts: list[str], registry: OperationRegistry, url: str) -> None:
    for text in texts:
        code = compile(text.replace(URL, url), "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        found = eval(code, {"registry": registry})
        if inspect.isawaitable(found):
            await found


@pytest.mark.parametrize("text", [pytest.param(text, id=title) for title, text in SECTIONS])
async def test_an_answer_runs_as_it_stands(shop: Any, text: str) -> None:
    _, url = shop
    for overlay in blocks(text, "yaml"):
        Path("fix.yaml").write_text(overlay)
    [table] = blocks(text, "toml") or [DEFAULT]
    async with configured(table.replace(URL, url)) as registry:
        assert len(registry) > 0
        await run(blocks(text, "python"), registry, url)


async def test_the_answers_do_what_they_say(shop: Any) -> None:
    """What a block does on the other side of the connection."""
    answers, url = shop
    async with configured(DEFAULT.replace(URL, url).replace("auth =", 'extras = ["body"]\nauth =')) as registry:
        texts = dict(SECTIONS)
        for title in ("send a file", "give dates, decimals, enums, and None", "send what the document forgot"):
            await run(blocks(texts[title], "python"), registry, url)
    assert len(answers.photos) == 3
    assert all('filename="photo.png"' in photo and "PNG" in photo for photo in answers.photos)
    assert answers.created == [
        {"name": "tea", "price": 3.5, "until": "2026-01-02"},
        {"name": "tea", "price": 3, "colour": "green"},
    ]


async def test_a_person_logs_in_as_the_page_says(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``operad login shop`` does; the browser is a function that the person's consent sends back."""
    _, url = shop
    monkeypatch.setattr("operad_auth.oauth.TokenStore", lambda: TokenStore(Path("tokens"), keyring=False))

    def browse(asked: str) -> None:
        query = parse_qs(urlsplit(asked).query)
        assert query["scope"] == ["items:read"]
        urllib.request.urlopen(f"{query['redirect_uri'][0]}?code=c0de&state={query['state'][0]}").read()

    async with configured(blocks(dict(SECTIONS)["log in"], "toml")[0].replace(URL, url)) as registry:
        login = await registry.source_login("shop")
        await login.login(tell=lambda _: None, open_url=browse, timeout=60)
        assert (await registry.execute("shop.whoAmI")).data == "Bearer ann's"


async def test_the_first_program_runs(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, url = shop
    first = PAGE.partition("## How do I")[0]
    Path("operad.toml").write_text(blocks(first, "toml")[0].replace(URL, url))
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(blocks(first, "python")[0], "first", "exec"), scope)
    await scope["main"]()
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].startswith("shop.createItem")
    assert "{'id': 1} 200" in printed


def test_every_option_is_in_the_table() -> None:
    table = PAGE.partition("\n## Options\n")[2]
    named = set(re.findall(r"`(\w+)`", table))
    assert {field.name for field in attrs.fields(OpenAPISourceConfig)} - named == set()

"""The explorer in Chromium: each feature, the keyboard alone, no accessibility violation, nothing from outside.

Screenshots are left in the folder that ``OPERAD_SCREENSHOTS`` names, for the documentation and for whoever changes
the page to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from aiohttp import web

from operad import CallError, Identity, OperationContext, OperationRegistry, load_plugins, operation
from operad_auth import StaticTokens
from operad_rules import Rule, add_rules
from operad_serve import to_openapi
from plugins.serve.tests.front_door import served
from tests.kit import CHROMIUM, GITHUB, ROOT, listening, output_of

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent
NODE = shutil.which("node")
SEEN = json.loads((HERE / "explorer.json").read_text())
"""What the browser shows at each step."""
HOSTILE = ROOT / "plugins/mcp/tests/mcp_hostile_server.py"


@operation(namespace="shop", type="query")
async def add(a: int, b: int = 2) -> int:
    """Add two integers. <img src=x onerror="document.title='run'">"""
    return a + b


@operation(namespace="shop", type="query")
async def find(
    names: list[str], ratio: float | None = None, on: bool = False, where: dict[str, int] | None = None
) -> dict[str, Any]:
    """Find things by name."""
    return {"names": names, "ratio": ratio, "on": on, "where": where}


@operation(namespace="shop", type="query")
async def offer(a: int, context: OperationContext) -> int:
    """The dearest book that a customer can afford. It asks three other operations for it."""
    await asyncio.sleep(0.01)
    first = await context.env["shop.add"]({"a": a})
    await asyncio.gather(context.env["shop.add"]({"a": a}), context.env["shop.find"]({"names": ["x"]}))
    return int(first.data)


@dataclasses.dataclass
class Author:
    name: str
    born: date | None = None


@dataclasses.dataclass
class Book:
    title: str
    pages: int
    authors: list[Author] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Put:
    book: Book
    where: int


@operation(namespace="shop", error_schemas=[{"code": "FULL", "description": "No shelf is free."}])
async def put(book: Book, where: Author | Annotated[int, "A shelf."] = 1) -> Put:
    """Put a book onto a shelf."""
    return Put(book, where if isinstance(where, int) else 0)


@operation(namespace="shop", type="query")
async def cover(picture: bytes) -> bytes:
    """Return a picture as it is."""
    return picture


@operation(namespace="shop", error_schemas=[{"code": "SOLD_OUT", "httpStatus": 409}])
async def buy() -> None:
    """Buy what is left."""
    raise CallError("SOLD_OUT", "sold out", {"left": 0})


@operation(namespace="shop", type="subscription")
async def ticks(every: float = 0.2) -> AsyncIterator[dict[str, int]]:
    """A tick, again and again."""
    number = 0
    while True:
        yield {"tick": number}
        number += 1
        await asyncio.sleep(every)


@operation(namespace="shop", type="subscription")
async def breaks(n: int = 2) -> AsyncIterator[dict[str, Any]]:
    """Some states of an order, and then a failure."""
    for number in range(n):
        yield {"order": 1001, "state": ["accepted", "packed", "shipped"][number % 3]}
    raise CallError("EXECUTION_ERROR", "the courier is lost")


@operation(namespace="admin", type="query", access_control={"required_scopes": ["admin"]})
async def secret() -> int:
    return 42


MORE = 'from operad import operation\n@operation(namespace="more")\nasync def {}() -> int:\n    return 1\n'
OPERATIONS = (add, find, offer, put, cover, buy, ticks, breaks, secret)
TOKENS = StaticTokens(
    {
        "of-root": Identity("root", ["operad:admin"]),
        "of-ann": Identity("ann"),
        "a-token-of-root": Identity("root", ["admin", "operad:admin"]),
    }
)


LOOKS = "light:1280,dark:390"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return Path(os.environ.get("OPERAD_SCREENSHOTS", tmp_path))


@contextlib.asynccontextmanager
async def shop(*plugins: str) -> AsyncIterator[OperationRegistry]:
    """A registry with the operations above."""
    async with OperationRegistry(load_plugins(only=["openapi", *plugins])) as registry:
        for each in OPERATIONS:
            registry.register(each)
        yield registry


async def watched(
    app: Any, folder: Path, token: str = "", looks: str = LOOKS, *arguments: str
) -> dict[str, list[Any]]:
    """What the browser saw of an application, by step: no violation and no error among it."""
    if CHROMIUM is None or NODE is None or not (HERE / "node_modules" / "playwright-core").is_dir():
        pytest.skip("needs Chromium, Node and `npm install` in tests/browser")
    async with served(app) as url:
        steps = await output_of(NODE, HERE / "explorer.mjs", f"{url}/", folder, CHROMIUM, token, looks, *arguments)
    seen: dict[str, list[Any]] = defaultdict(list)
    for line in steps.splitlines():
        told = json.loads(line)
        seen[told["step"]].append(told["value"])
    assert (seen["failed"], seen["done"]) == ([], [True])
    assert (seen["violation"], seen["error"]) == ([], [])
    return seen


async def bookshop(folder: Path, pictures: Path, looks: str = LOOKS) -> dict[str, list[Any]]:
    """What the browser saw of the operations above and a source whose file has changed."""
    more = folder / "more.py"
    more.write_text(MORE.format("loaded"))
    async with shop("scanner") as registry:
        await registry.load("scanner", namespace="more", path=more)
        more.write_text(MORE.format("reloaded"))
        return await watched(to_openapi(registry, title="A small bookshop"), pictures, looks=looks)


async def test_each_feature_of_the_explorer_with_mouse_and_keyboard_alone(tmp_path: Path, pictures: Path) -> None:
    seen = await bookshop(tmp_path, pictures)
    one = {step: values[0] for step, values in seen.items() if values}
    assert seen["outside"] == []
    assert {step: one.get(step) for step in SEEN["features"]} == SEEN["features"]
    assert " ".join(name[1:] for name in one["listed"]) == "loaded add breaks buy cover find offer put ticks"
    assert one["no json"].startswith("Not JSON")
    exact = 9007199254740993  # 2 ** 53 + 1, which JavaScript has no number for
    assert f'"where": {exact}' in one["nested"]
    assert json.loads(one["nested"])["book"]["authors"] == [{"name": "Jane", "born": "1775-12-16"}]
    assert json.loads(one["nested as json"])["where"] == exact
    curl, python, command = one["snippets"]
    assert curl.startswith("curl 'http://127.0.0.1")
    assert command.startswith("operad call 'shop.put' --json '{")
    assert all(str(exact) in text for text in (curl, python, command))
    compile(python, "snippet", "exec")
    assert len(list(pictures.glob("*-*-*.png"))) >= 8


async def github(request: web.Request) -> web.Response:
    """A small part of GitHub's API: a list of issues, and a refusal of everything else."""
    if request.path.endswith("/issues"):
        return web.json_response([{"id": 2**53 + 1, "number": 1, "title": "Found a bug"}])
    return web.json_response({"message": "Validation Failed"}, status=422)


@pytest.mark.skipif(not GITHUB.exists(), reason="needs `npm install` in tests/peers/prism")
async def test_an_api_of_the_size_of_github_is_used_with_the_keyboard_alone(pictures: Path) -> None:
    async with listening(github) as upstream, OperationRegistry(load_plugins(only=["openapi"])) as registry:
        await registry.load("openapi", namespace="github", spec=str(GITHUB), base_url=upstream)
        seen = await watched(to_openapi(registry, title="GitHub"), pictures, "", LOOKS, "large")
    assert seen["count"][0] > 1_000
    assert seen["listed by keyboard"] == [["Found a bug"]]
    assert seen["refused by keyboard"][0].startswith("422")


@pytest.mark.long
async def test_every_look_of_the_explorer_is_without_violations(tmp_path: Path, pictures: Path) -> None:
    await bookshop(tmp_path, pictures, "light:1280,light:390,dark:1280,dark:390")
    assert len(list(pictures.glob("*-*-*.png"))) >= 16


async def test_the_rules_of_an_operation_are_shown_in_their_order_to_admins_alone(
    tmp_path: Path, pictures: Path
) -> None:
    async with shop() as registry:
        add_rules(
            registry,
            Rule(match=["shop.add", "<img src=x>"], rate="100/minute", audit=str(tmp_path / "audit.jsonl")),
            Rule(match="shop.a*", cache="60s", redact=["*token*"]),
            Rule(match="operad.*", rate="3/hour"),
        )
        app = to_openapi(registry, authenticate=TOKENS)
        seen = await watched(app, pictures, "of-root", LOOKS, "rules")
        by_ann = await watched(app, tmp_path, "of-ann", LOOKS, "rules")
    assert seen["headings"] == [["Rules"], ["Rules"]]
    assert seen["before"] == [0, 0]  # the page requests nothing before the rules are opened
    assert seen["rules"] == 2 * [
        [
            f'audit "{tmp_path}/audit.jsonl" rule 1: shop.add, <img src=x>',
            'redact ["*token*"] rule 2: shop.a*',
            'cache "60s" rule 2: shop.a*',
            'rate "100/minute" rule 1: shop.add, <img src=x>',
        ]
    ]
    assert seen["markup"] == [0, 0]
    assert seen["refused"][0].startswith("The rules cannot be shown: ")
    assert seen["works"] == [True]
    assert by_ann["headings"] == [[], []]


async def test_held_operations_are_shown_to_admins_with_the_reason_and_the_command(
    tmp_path: Path, pictures: Path
) -> None:
    pins = tmp_path / "tools.lock.json"

    async def shown(token: str) -> dict[str, list[Any]]:
        async with OperationRegistry(load_plugins(only=["openapi", "mcp"])) as registry:
            await registry.load("mcp", namespace="h", command=sys.executable, args=[str(HOSTILE)], pin=str(pins))
            registry.register(add)
            return await watched(to_openapi(registry, authenticate=TOKENS), pictures, token, LOOKS, "held")

    assert (await shown("of-root"))["held"] == [[], []]
    kept = json.loads(pins.read_text())
    kept["approved"]["h"]["echo"]["description"] = "<img src=x>"
    pins.write_text(json.dumps(kept))
    seen = await shown("of-root")
    id, reason = seen["held"][0]
    assert id == "h.echo"
    assert "its definition changed since it was approved (description)" in reason
    assert "`operad pin --accept h.echo`" in reason
    assert not any(text.endswith("echo") for text in seen["listed"][0])
    assert seen["markup"] == [0, 0]
    assert (await shown("of-ann"))["held"] == [[], []]


async def test_a_token_is_used_and_kept_nowhere(tmp_path: Path) -> None:
    async with shop() as registry:
        seen = await watched(to_openapi(registry, authenticate=TOKENS), tmp_path, "a-token-of-root")
    assert {step: seen[step] for step in SEEN["token"]} == SEEN["token"]

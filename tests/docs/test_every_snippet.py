"""Every Python block of the pages runs: here, in the test of its page, or it is declared with a reason why not."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest
import trustme

from operad import CallError, OperationContext, OperationRegistry, load_plugins, operation
from operad_cli.demo.bookshop import serve_bookshop
from tests.docs.test_pages import GUIDES
from tests.kit import operad, url_in

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
IN_ITS_OWN_TEST = {
    "README.md": "tests/docs/test_snippets.py",
    "docs/access.md": "tests/docs/test_snippets.py",
    "docs/functions.md": "tests/docs/test_snippets.py",
    "docs/hooks.md": "tests/public_api/test_hook_reference.py",
    "docs/llm.md": "tests/docs/test_pages.py",
    "docs/openapi.md": "tests/docs/test_openapi_page.py",
    "docs/quickstart-application.md": "tests/packaging/test_quickstart.py",
    "docs/quickstart-gateway.md": "tests/packaging/test_quickstart.py",
    "docs/stubs.md": "tests/docs/test_pages.py",
    "docs/tutorial.md": "tests/docs/test_pages.py",
    "docs/write-a-plugin.md": "tests/docs/test_write_a_plugin.py",
    "plugins/nats/README.md": "tests/brokers/test_broker_federation.py",
    "plugins/redis/README.md": "tests/brokers/test_broker_federation.py",
    "plugins/websocket/README.md": "plugins/websocket/tests/test_websocket_readme.py",
    **{f"docs/{guide}.md": "tests/docs/test_pages.py" for guide in GUIDES},
}
"""Pages with a test that runs all of their blocks."""
ELSEWHERE = {
    ("docs/scale.md", 1): "tests/brokers/test_broker_federation.py",
    **{("docs/code-mode.md", number): "test_the_programs_of_code_mode_run_in_the_sandbox" for number in (1, 2)},
    ("plugins/code/README.md", 1): "test_the_programs_of_code_mode_run_in_the_sandbox",
}
"""Single blocks that another test runs."""
NOT_RUN = {
    ("docs/mcp.md", 1): "it connects to crm.example, and installs a server from PyPI",
    ("docs/mcp.md", 2): "it calls an operation of crm.example",
    ("docs/mcp.md", 5): "it connects to crm.example",
    ("plugins/llm/README.md", 1): "it asks a model",
    ("plugins/mcp/README.md", 1): "it installs a server from npm",
    ("plugins/mcp/README.md", 2): "it serves on the standard input of its process, until that ends",
    ("plugins/openapi/README.md", 1): "it calls the petstore's server",
}
"""Blocks that no test runs, and why. Their syntax and their imports are checked all the same."""


def blocks() -> Iterator[tuple[str, int, str]]:
    """Yield each block with its page and its number there."""
    pages = [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("plugins/*/README.md"),
    ]
    for page in sorted(pages):
        for number, (_, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            yield str(page.relative_to(ROOT)), number, dedent(text)


ALL = list(blocks())
HERE: dict[str, list[str]] = {}
for page, number, text in ALL:
    if page not in IN_ITS_OWN_TEST and (page, number) not in ELSEWHERE and (page, number) not in NOT_RUN:
        HERE.setdefault(page, []).append(text)


def test_what_is_declared_exists() -> None:
    assert {*ELSEWHERE, *NOT_RUN} <= {(page, number) for page, number, _ in ALL}
    assert IN_ITS_OWN_TEST.keys() <= {page for page, _, _ in ALL}
    for page, test in IN_ITS_OWN_TEST.items():
        text = (ROOT / test).read_text(encoding="utf-8")
        assert Path(page).stem in text or "glob" in text, f"{test} does not read {page}"


OPERATIONS = """
from operad import operation

@operation(namespace="text", type="query")
async def shout(text: str, times: int = 1) -> str:
    return text.upper() + "!" * times
"""


@pytest.fixture
async def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """Names that fragments use, in a folder with a configuration and a folder of operations."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from operad_mcp import MCPCall, MCPExtras, to_mcp
    from operad_opentelemetry import Telemetry

    monkeypatch.chdir(tmp_path)
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "text.py").write_text(OPERATIONS)
    tracers, meters = TracerProvider(), MeterProvider()
    async with serve_bookshop() as url:
        source = f'[sources.shop]\ntype = "openapi"\nspec = "{url}/openapi.json"\n'
        (tmp_path / "operad.toml").write_text(source)
        async with OperationRegistry.from_config("operad.toml") as registry:
            yield {
                "registry": registry, "serving": to_mcp(registry), "to_mcp": to_mcp, "load_plugins": load_plugins,
                "OperationRegistry": OperationRegistry, "operation": operation, "MCPCall": MCPCall,
                "MCPExtras": MCPExtras, "Starlette": Starlette, "Mount": Mount, "Telemetry": Telemetry,
                "tracer_provider": tracers, "meter_provider": meters,
            }  # fmt: skip
    tracers.shutdown()
    meters.shutdown()


@pytest.mark.parametrize("page", list(HERE))
async def test_the_blocks_of_a_page_run_one_after_the_other(page: str, names: dict[str, Any]) -> None:
    scope: dict[str, Any] = {}
    for text in HERE[page]:
        scope |= {"__name__": "page", **names}
        code = compile(text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if "asyncio.run(" in text:  # it brings its own event loop
            await asyncio.to_thread(exec, code, scope)
        elif inspect.isawaitable(waiting := eval(code, scope)):
            await waiting
        if "asyncio.run(" not in text and "async def main(" in text:
            await scope["main"]()


async def test_the_caller_of_the_page_of_errors_sees_the_error_that_the_function_declares() -> None:
    caller, function = (text for page, _, text in ALL if page == "docs/errors.md")
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(function, "docs/errors.md", "exec", dont_inherit=True), scope)
    async with OperationRegistry() as registry:
        registry.register(scope["buy"])
        with pytest.raises(CallError, match="SOLD_OUT: tea is sold out"):
            await registry.execute("shop.buy", {"article": "tea"})
        exec(compile(caller, "docs/errors.md", "exec", dont_inherit=True), scope)
        assert await scope["buy"](registry) == "try another shop"


@operation(namespace="github", type="query")
async def issues_list_for_repo(
    owner: str, repo: str, state: str = "open", sort: str = "created", direction: str = "desc"
) -> list[dict[str, Any]]:
    return [{"number": number, "title": title} for number, title in ((2, "b"), (1, "a"))]


@operation(namespace="github", type="query")
async def issues_list_comments(owner: str, repo: str, issue_number: int) -> list[str]:
    return ["first", "second"][:issue_number]


async def test_the_programs_of_code_mode_run_in_the_sandbox(tmp_path: Path) -> None:
    program, recipe = (text for page, _, text in ALL if page == "docs/code-mode.md")
    (short,) = (text for page, _, text in ALL if page == "plugins/code/README.md")
    (tmp_path / "oldest_issues.py").write_text(recipe)
    async with OperationRegistry(load_plugins()) as registry:
        for each in (issues_list_for_repo, issues_list_comments):
            registry.register(each)
        await registry.load("code", namespace="code")
        await registry.load("code", namespace="recipes", path=str(tmp_path))
        done = await registry.execute("code.run", {"code": program}, OperationContext())
        assert done.data == [{"title": "b", "comments": 2}, {"title": "a", "comments": 1}]
        assert (await registry.execute("code.run", {"code": short})).data == ["a", "b"]
        oldest = await registry.execute("recipes.oldest_issues", {"owner": "a", "repo": "b", "count": 1})
        assert oldest.data == ["b"]


# --- commands that serve -------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "scheme"), [("deployment", "http"), ("security", "https")])
async def test_the_command_of_a_page_serves_those_with_a_token(
    page: str, scheme: str, tmp_path: Path, names: dict[str, Any]
) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"^operad (serve .*--tokens.*)$", text, re.MULTILINE)
    command = re.sub(r"(?<=--http )\S+", "127.0.0.1:0", arguments).split()
    (tmp_path / "tokens.toml").write_text('"a-token-of-alice-12345" = "alice"\n')
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    async with (
        operad(tmp_path, *command, until=f"on {scheme}://.*;", NO_COLOR="1") as (_, shown),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session,
    ):
        url = f"{url_in(shown)}/operations/shop.getBook?bookId=3"
        async with session.get(url) as response:
            assert response.status == 401
        bearer = {"Authorization": "Bearer a-token-of-alice-12345"}
        async with session.get(url, headers=bearer) as response:
            assert (await response.json())["title"] == "Solaris"

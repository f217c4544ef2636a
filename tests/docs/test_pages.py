"""Pages whose examples run as they stand, and whose tables are complete."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from operad import CallError, ErrorCode, OperationRegistry, errors
from operad_auth import IntrospectionOptions, JWTOptions, OAuthOptions, TokenRecord, authenticator_from
from operad_cli.demo.bookshop import serve_bookshop
from operad_mcp import to_mcp
from operad_serve.problems import problem_of
from tests.docs.replaying import DOCS, blocks
from tests.kit import output_of

# --- guides --------------------------------------------------------------------------------------------

GUIDES = (
    "calling",
    "auth",
    "interceptors",
    "typed-calls",
    "views",
    "sync",
    "idempotency",
    "rules",
    "gateway",
    "testing",
    "notebooks",
)
BLOCKS = [
    pytest.param(page, block, id=f"{page}-{number}")
    for page in GUIDES
    for number, block in enumerate(blocks(page, "python"), start=1)
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_block_of_a_guide_runs_as_it_stands(
    page: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": f"docs_{page}"}
    exec(compile(block, f"docs/{page}.md", "exec", dont_inherit=True), scope)
    main = scope.get("main")
    if inspect.iscoroutinefunction(main):
        asyncio.run(main())
    elif main is not None:
        main()


# --- tutorial.md, llm.md, serving-mcp.md, stubs.md -----------------------------------------------------


async def test_every_block_of_the_tutorial_runs() -> None:
    async with serve_bookshop() as url:
        scope: dict[str, object] = {"url": url, "__name__": "tutorial"}
        for number, block in enumerate(blocks("tutorial", "python"), start=1):
            result = eval(compile(block, f"block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), scope)
            if inspect.isawaitable(result):
                await result


async def test_the_example_for_models_offers_a_tool_and_runs_its_call() -> None:
    shown = await output_of(sys.executable, "-c", blocks("llm", "python")[0])
    assert shown.splitlines() == [
        "\"shop_price\" {'shop_price': 'shop.price'}",
        "{'role': 'tool', 'tool_call_id': 'call_1', 'content': '{\"article\":\"hat\",\"price\":\"12 EUR\"}'}",
    ]


async def test_the_first_example_serves_mcp_and_the_second_adds_a_resource_a_template_and_a_prompt() -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    for example in blocks("serving-mcp", "python")[:2]:
        exec(compile(example, "docs/serving-mcp.md", "exec", dont_inherit=True), scope)
    registry: OperationRegistry = scope["registry"]
    for name in ("note", "user", "review"):
        registry.register(scope[name])
    async with Client(to_mcp(registry).server()) as client:
        assert (await client.call_tool("demo_add", {"a": 2, "b": 3})).structured_content == 5
        assert [item.uri for item in (await client.list_resources()).resources] == ["demo://note"]
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert [item.name for item in (await client.list_prompts()).prompts] == ["demo_review"]


async def test_the_page_of_stubs_writes_types_of_an_application_that_runs_and_is_checked(
    tmp_path: Path, mypy_cache: str
) -> None:
    operations, application = blocks("stubs", "python")
    (tmp_path / "operad.toml").write_text(blocks("stubs", "toml")[0])
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "shop.py").write_text(operations)
    (tmp_path / "app.py").write_text(application)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("OPERAD_CONFIG", None)

    async def run(*command: str) -> str:
        return await output_of(sys.executable, "-m", *command, cwd=tmp_path, env=environment)

    command, says = blocks("stubs", "console")[0].splitlines()
    assert await run("operad_cli.main", *command.split()[2:]) == f"{says}\n"
    assert await run("app") == "Emma 474\nEmma\n"
    assert "no issues" in await run("mypy", "--strict", "--cache-dir", mypy_cache, "app.py")


# --- auth.md -------------------------------------------------------------------------------------------


def test_the_configuration_of_callers_makes_an_authenticator(tmp_path: Path) -> None:
    (tmp_path / "who.py").write_text("def caller(credentials): return None\n")
    text, _ = blocks("auth", "toml")
    serve = tomllib.loads(text)["serve"]
    tokens = [TokenRecord(**record) for record in serve["tokens"]]
    jwt = JWTOptions(**serve["jwt"])
    assert authenticator_from(tokens=tokens, jwt=jwt, authenticate=serve["authenticate"], base_dir=tmp_path)


def test_the_table_of_introspection_makes_an_authenticator() -> None:
    _, text = blocks("auth", "toml")
    options = IntrospectionOptions(**tomllib.loads(text)["serve"]["introspection"])
    assert authenticator_from(introspection=options) is not None


def test_the_options_of_a_client_are_those_of_the_page() -> None:
    table = (DOCS / "auth.md").read_text().partition("| option | meaning |")[2]
    options = set(inspect.signature(OAuthOptions).parameters) - {"client_id", "client_secret"}
    assert options - set(re.findall(r"`(\w+)`", table)) == set()


# --- errors.md -----------------------------------------------------------------------------------------

ERRORS = (DOCS / "errors.md").read_text(encoding="utf-8")


def test_every_code_is_in_the_table_with_its_http_status() -> None:
    table = ERRORS.partition("<!-- codes:")[2].partition("<!-- end of codes -->")[0]
    named = re.findall(r"^\| `([A-Z_]+)` \|[^|]*\| (\d+) \| (yes)? *\|", table, re.MULTILINE)
    assert {code for code, _, _ in named} == {str(code) for code in ErrorCode}
    for code, status, did_not_run in named:
        error = CallError(code, "x")
        assert problem_of(error, (), has_identity=True).status == int(status), code
        assert error.says_nothing_ran is bool(did_not_run), code


def test_every_class_of_errors_is_on_the_page() -> None:
    children = [cls.__name__ for cls in errors.OperadError.__subclasses__() if cls.__module__ == errors.__name__]
    assert [name for name in children if f"`{name}`" not in ERRORS] == []

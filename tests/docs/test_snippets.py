"""What the pages show and no other test runs: it parses, its names exist, its keys are known, its commands are."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import jsonschema
import pytest

from operad import CallError, OperationRegistry, load_plugins
from operad_cli.app import application
from operad_cli.demo.bookshop import serve_bookshop

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(ROOT.glob("docs/*.md")) if page.stem != "write-a-plugin"),  # it is run whole
    *sorted(ROOT.glob("core/README.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> Iterator[object]:
    for page in PAGES:
        for number, (_, kind, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            if kind == language:
                yield pytest.param(dedent(text), id=f"{page.relative_to(ROOT)}-{number}")


SCHEMA = json.loads((ROOT / "docs" / "operad.schema.json").read_text(encoding="utf-8"))
TABLES = SCHEMA["properties"].keys()


def documents(text: str) -> list[dict[str, Any]]:
    """What a block says; where it shows one key several ways, each line for itself."""
    keys = re.findall(r"^(\w+) *=", text, re.MULTILINE)
    if "[" not in {line[:1] for line in text.splitlines()} and len(set(keys)) < len(keys):
        return [tomllib.loads(line) for line in text.splitlines()]
    return [tomllib.loads(text)]


@pytest.mark.parametrize("text", list(blocks("toml")))
def test_a_configuration_is_toml_and_has_keys_that_there_are(text: str, request: pytest.FixtureRequest) -> None:
    kind = Path(request.node.callspec.id.rpartition("-")[0]).stem
    for document in documents(text):
        if not document.keys() & TABLES and kind in ("openapi", "mcp", "scanner"):
            document = {"sources": {"a": document}}
        if not document.keys() <= TABLES:
            continue  # of another program
        for source in document.get("sources", {}).values():
            source.setdefault("type", kind if kind in ("openapi", "mcp", "scanner") else "of the page")
            needed = {"openapi": {"spec": "x"}, "scanner": {"path": "x"}}.get(source["type"], {})
            source.update({key: value for key, value in needed.items() if key not in source})
        problems = list(jsonschema.Draft7Validator(SCHEMA).iter_errors(document))
        assert [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in problems] == []


@pytest.mark.parametrize("text", list(blocks("python")))
def test_a_snippet_of_python_parses_and_imports_what_there_is(text: str) -> None:
    text = text.replace("…", "...")
    tree = compile(text, "snippet", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("operad"):
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def commands(text: str) -> Iterator[list[str]]:
    """The `operad` commands in what a terminal is given; comments, and what they show, left out."""
    lines = text.replace("\\\n", " ").splitlines()
    typed = [line for line in lines if line.startswith("$ ")]  # of a transcript
    for line in typed or lines:
        words = shlex.split(line.removeprefix("$ "), comments=True) if " operad " in f" {line} " else []
        if "operad" in words and "pip" not in words:
            rest = words[words.index("operad") + 1 :]
            ends = [rest.index(sign) for sign in ("|", "&&", "||", ";", "&", ">", ">>", "2>", "<") if sign in rest]
            yield rest[: min(ends, default=len(rest))]


@pytest.mark.parametrize("text", list(blocks("console")))
def test_a_command_and_its_options_exist(text: str) -> None:
    group = application()
    context = click.Context(group, info_name="operad")
    for words in commands(text):
        name = next((word for word in words if not word.startswith("-")), None)
        if name is None or name == "…":
            continue
        command = group.get_command(context, name)
        assert command is not None, words
        known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
        known |= {option for each in group.get_params(context) for option in each.opts} | {"-h", "--help"}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
        assert used <= known, words


# --- those that no other test runs ---------------------------------------------------------------------


def python(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [dedent(block) for _, kind, block in BLOCK.findall(text) if kind == "python"]


def run(*texts: str, **names: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "snippet", **names}
    for text in texts:
        exec(compile(text, "snippet", "exec", dont_inherit=True), scope)
    return scope


async def test_the_program_of_the_readme_calls_an_api_an_mcp_tool_and_a_function(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    async with serve_bookshop() as url:
        text = python("README.md")[0].replace("http://127.0.0.1:33889", url)
        await asyncio.to_thread(run, text)
    assert capsys.readouterr().out == "SOLARIS! Asia/Tokyo\n"


async def test_the_functions_of_the_page_of_functions_are_operations(tmp_path: Path) -> None:
    class Money:
        @classmethod
        def parse(cls, text: str) -> Money:
            return cls()

        def __str__(self) -> str:
            return "3.50 EUR"

    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with OperationRegistry() as registry:
        scope = run(*python("docs/functions.md"), registry=registry, Money=Money, Database=object)
        registry.register(scope["head"])
        registry.register(scope["pay"])
        answer = await registry.execute("files.head", {"path": str(tmp_path / "a.txt"), "lines": 1})
        assert answer.data == ["one"]
        spec = registry.get_spec("shop.pay")
        assert spec is not None
        assert spec.input_schema.errors({"amount": 3})
        assert registry.get_spec("shop.price") is not None
        registry.register(scope["book"])
        await scope["visit"](registry)
        registry.register(scope["buy"])
        with pytest.raises(CallError, match="SOLD_OUT: tea is sold out"):
            await registry.execute("shop.buy", {"article": "tea"})


NEED_A_DATABASE = ("database.py", "shop.py")


async def test_the_files_of_the_page_of_the_scanner_are_scanned(tmp_path: Path) -> None:
    for text in python("docs/scanner.md"):
        if (named := re.match(r"# operations/(\w+\.py)", text)) is not None and named[1] not in NEED_A_DATABASE:
            (tmp_path / named[1]).write_text(text)
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", namespace="text", path=str(tmp_path))
        assert [spec.id for spec in registry.specs()] == ["text.echo", "text.shout", "text.translate"]
        assert (await registry.execute("text.shout", {"text": "a"})).data == "A!"


async def test_the_requirements_of_the_page_of_access_are_checked() -> None:
    (text,) = python("docs/access.md")
    async with OperationRegistry() as registry:
        scope = run(text)
        registry.register(scope["rename"])
        registry.register(scope["read"])
        await scope["main"](registry)
        with pytest.raises(CallError, match="ACCESS_DENIED"):
            await registry.execute("books.read", {"book_id": 7})

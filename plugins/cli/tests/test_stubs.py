"""`operad stubs`: what type checkers are told of a configuration, and what runs by the same names."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from operad_cli.main import main

OPERATIONS = '''
from operad import operation
from collections.abc import AsyncIterator
from typing import TypedDict

class Book(TypedDict):
    title: str
    pages: int

NODE = {"type": "object", "required": ["value"], "properties": {
    "value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}

@operation(namespace="shop", name="books/find", type="query", description='Find """books""" \\\\', input_schema={
    "type": "object", "additionalProperties": False, "required": ["order"], "properties": {
        "from": {"type": "integer", "description": "Where to begin. And more."},
        "order": {"enum": ["title", "pages"]},
        "timeout": {"type": "number"}}},
    output_schema={"type": "array", "items": {"type": "object", "required": ["title"], "properties": {
        "title": {"type": "string"}, "class": {"type": ["string", "null"]}}}})
async def find(input):
    return [{"title": str(input)}]

@operation(namespace="shop")
async def list(book: Book) -> int:
    return book["pages"]

@operation(namespace="shop", name="chain", type="query", input_schema={"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    output_schema={"$ref": "#/$defs/node", "$defs": {"node": NODE}})
async def chain(input):
    return input

@operation(namespace="shop")
async def ticks(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number
'''

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "shop.py").write_text(OPERATIONS)
    (tmp_path / "operad.toml").write_text('[sources.local]\ntype = "scanner"\npath = "ops"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OPERAD_CONFIG", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        output = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, output.out, output.err

    return run


RIGHT = """
from shop_types import Context, Registry

async def handler(context: Context) -> str:
    envelope = await context.env.shop.books_find(order="title", from_=1)
    async for tick in context.env.shop.ticks.subscribe(count=2):
        print(tick.data)
    return envelope.data[0]["title"]

async def main() -> None:
    async with Registry.from_config("operad.toml") as registry:
        shop = registry.client("shop")
        pages: int = await shop.list(book={"title": "Emma", "pages": 400}, timeout=2.0)
        node = await shop.chain(value=pages, next={"value": 1})
        print(node["next"]["next"]["value"] + 1)
        async for number in shop.ticks(count=3):
            print(number + 1)
"""
WRONG = """
from shop_types import Registry

async def main(registry: Registry) -> None:
    shop = registry.client("shop")
    await shop.books_find()
    await shop.books_find(order="author")
    await shop.books_find(order="title", frm=1)
    await shop.list(book={"title": "Emma", "pages": "400"})
    await shop.chain(value=1, next={"value": 1, "next": {"valu": 2}})
    (await shop.books_find(order="title"))[0]["titel"]
    await shop.nothing()
"""


def test_a_type_checker_takes_right_calls_and_refuses_wrong_ones(run: Run) -> None:
    assert run("stubs", "shop_types") == (0, "shop_types: 4 operations in 1 namespace\n", "")
    Path("right.py").write_text(RIGHT)
    Path("wrong.py").write_text(WRONG)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "right.py", "wrong.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert {line.rpartition(": error:")[0] for line in lines} == {f"wrong.py:{n}" for n in range(6, 13)}, checked

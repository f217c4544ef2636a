"""`operad stubs`: what type checkers are told of a configuration, and what runs by the same names."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from operad import OperationSpec
from operad_cli.stubs.modules import package
from plugins.cli.tests.conftest import Run, configure

PEERS = Path(__file__).parents[3] / "tests" / "peers" / "prism" / "node_modules"
PYRIGHT = Path(__file__).parents[3] / "tests" / "public_api" / "node_modules" / "pyright" / "index.js"
GITHUB = PEERS / "@octokit" / "openapi" / "generated" / "api.github.com.json"

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


def mistakes(*files: str) -> set[str]:
    """The lines of files in which mypy finds an error: FILE:LINE."""
    command = [sys.executable, "-m", "mypy", "--strict", *files]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    return {line.partition(": error:")[0] for line in checked.stdout.splitlines() if ": error:" in line}


def test_a_type_checker_takes_right_calls_and_refuses_wrong_ones(run: Run) -> None:
    assert run("stubs", "shop_types") == (0, "shop_types: 4 operations in 1 namespace\n", "")
    Path("right.py").write_text(RIGHT)
    Path("wrong.py").write_text(WRONG)
    assert mistakes("right.py", "wrong.py") == {f"wrong.py:{n}" for n in range(6, 13)}


def test_what_is_checked_runs_by_the_same_names(run: Run) -> None:
    run("stubs", "shop_types")
    Path("use.py").write_text(
        "import asyncio\nfrom shop_types import Registry\n\n"
        "async def main():\n"
        "    async with Registry.from_config('operad.toml') as registry:\n"
        "        shop = registry.client('shop')\n"
        "        print(await shop.books_find(order='title', from_=1, timeout_=2.5, timeout=9.0))\n"
        "        print([number async for number in shop.ticks(count=2)], dir(shop))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "use.py"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        str([{"title": str({"order": "title", "from": 1, "timeout": 2.5})}]),
        "[0, 1] ['books_find', 'chain', 'list', 'ticks']",
    ], done.stderr


def test_a_docstring_and_names_of_a_document_stay_words(run: Run) -> None:
    run("stubs", "shop_types")
    text = Path("shop_types/shop.pyi").read_text()
    assert {type(node).__name__ for node in ast.parse(text).body} <= {
        "Import", "ImportFrom", "ClassDef", "AnnAssign", "Assign"
    }  # fmt: skip
    method = next(node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == "books_find")
    assert isinstance(method, ast.AsyncFunctionDef)
    assert str(ast.get_docstring(method)).startswith('books/find\n\nFind """books""" \\\n')
    assert "from_: Where to begin." in str(ast.get_docstring(method))
    assert [one.arg for one in method.args.kwonlyargs] == ["order", "from_", "timeout_", "timeout"]


HOSTILE = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))["hostile words"]
"""Words of a document that would like to be code."""


def test_no_word_of_a_hostile_document_becomes_code_or_breaks_it() -> None:
    fields = {word: {"type": "string", "description": word, "enum": [word, "ok"]} for word in HOSTILE}
    answers = [{"type": "object", "title": word, "properties": fields} for word in HOSTILE[:2]]
    specs = [
        OperationSpec(
            namespace=("shop", "class", "__init__", "namespace", "list")[number % 5],
            name="".join(letter for letter in word if letter.isprintable() and not letter.isspace()) or "n",
            title=word,
            description=word,
            input_schema={"type": "object", "properties": fields, "required": HOSTILE[:3]},
            output_schema={"anyOf": [*answers, {"enum": HOSTILE}, {"const": word}]},
        )
        for number, word in enumerate(HOSTILE)
    ]
    for name, text in package(specs).items():
        tree = ast.parse(text.encode())
        assert {type(node) for node in tree.body} <= {
            ast.Expr, ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.AnnAssign,
        }  # fmt: skip
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Import), name
            assert not isinstance(node, ast.Call) or ast.unparse(node.func) == "TypedDict", name
            if isinstance(node, ast.ImportFrom):
                assert node.level or node.module in ("builtins", "collections.abc", "operad", "typing"), name


def test_a_module_imports_what_its_types_use_and_not_what_its_texts_say() -> None:
    said = "Subscription, AsyncGenerator, Never and NotRequired: 'Literal', \\"
    spec = OperationSpec(
        namespace="shop",
        name="Never",
        description=said,
        input_schema={"type": "object", "properties": {"ResponseEnvelope": {"enum": [said, "TypeAlias"]}}},
        output_schema={"enum": [1]},
    )
    tree = ast.parse(package([spec])["shop.pyi"])
    imported = {name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert imported == {"Literal", "ResponseEnvelope"}


def test_what_is_not_up_to_date_is_told(run: Run) -> None:
    assert run("stubs", "shop_types", "--check")[0] == 1
    assert not Path("shop_types").exists()
    run("stubs", "shop_types")
    assert run("stubs", "shop_types", "--check") == (0, "", "")
    Path("shop_types/gone.pyi").write_text("")
    code, _, err = run("stubs", "shop_types", "--check")
    assert (code, err) == (1, "shop_types is not up to date (gone.pyi); run: operad stubs shop_types\n")
    run("stubs", "shop_types")
    assert not Path("shop_types/gone.pyi").exists()


@pytest.mark.parametrize(
    ("folder", "says"),
    [("ops", "has other files"), ("shop-types", "invalid package name"), ("operad.toml", "invalid package name")],
)
def test_a_folder_that_is_no_package_of_ours_is_left_alone(run: Run, folder: str, says: str) -> None:
    code, _, err = run("stubs", folder)
    assert code == 1
    assert says in err
    assert Path("ops/served.py").read_text() == OPERATIONS


def test_nothing_is_written_while_a_source_fails(run: Run) -> None:
    configure('[sources.gone]\ntype = "scanner"\npath = "nowhere"\n')
    code, _, err = run("stubs", "shop_types")
    assert code == 1
    assert "Nothing was written" in err
    assert not Path("shop_types").exists()


@pytest.mark.long
@pytest.mark.node
@pytest.mark.skipif(not GITHUB.is_file(), reason="needs the document: npm install in tests/peers/prism")
def test_a_type_checker_takes_all_of_githubs_operations(run: Run) -> None:
    Path("operad.toml").write_text(f'[sources.github]\ntype = "openapi"\nspec = "{GITHUB}"\n')
    assert run("stubs", "github_types")[1].startswith("github_types: 1223 operations")
    Path("use.py").write_text(
        "from github_types import Registry\n\nasync def main(registry: Registry) -> None:\n"
        "    github = registry.client('github')\n"
        "    for issue in await github.issues_list_for_repo(owner='o', repo='r', state='open'):\n"
        "        print(issue['number'] + 1)\n"
        "    await github.issues_list_for_repo(owner='o', repo='r', state='opne')\n"
    )
    assert mistakes("use.py", "github_types/github.pyi") == {"use.py:7"}
    if not PYRIGHT.is_file():
        pytest.skip(f"pyright's part needs it: npm install --prefix {PYRIGHT.parents[2]}")
    Path("pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "include": ["use.py", "github_types"]}')
    command = ["node", str(PYRIGHT), "--pythonpath", sys.executable, "--project", "."]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in checked.stdout.splitlines() if " - error: " in line]
    assert [line.partition("use.py:")[2].partition(":")[0] for line in errors] == ["7"], checked.stdout

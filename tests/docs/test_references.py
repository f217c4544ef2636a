"""The pages and files that are made from the code have every public name, command, table and key."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from operad.config.structuring import structure
from operad_cli.app import application
from tools import references, rooms

ROOT = Path(__file__).parents[2]

pages = cache(references.pages)


def test_the_written_files_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "references.py", tmp_path], check=True, timeout=120)
    for fresh in [path for path in tmp_path.rglob("*") if path.is_file()]:
        name = fresh.relative_to(tmp_path)
        written = (ROOT / name).read_text(encoding="utf-8")
        assert written == fresh.read_text(encoding="utf-8"), f"{name}: run tools/references.py"


def entries(page: str) -> dict[str, str]:
    """Return the sections of a page by their headings."""
    return {name: text for name, _, text in (part.partition("\n") for part in page.split("\n## ")[1:])}


def test_the_api_reference_has_an_entry_for_every_public_name() -> None:
    made = pages()
    index = (ROOT / "docs" / "api" / "README.md").read_text(encoding="utf-8")
    for face in references.FACES:
        assert f"(../../{_interface(face)})" in index
        found = entries(made[f"api/{face}.md"])
        assert list(found) == importlib.import_module(face).__all__
        assert [name for name, text in found.items() if not text.strip()] == []
    load = entries(made["api/operad.md"])["load_plugins"]
    assert load.startswith("\n```python\nload_plugins(")
    assert "\n::: operad." in load


def _interface(module: str) -> Path:
    """Return the file that declares the public names of a module, as a path in the repository."""
    source = Path(str(importlib.import_module(module).__file__))
    return next(path for path in (source.with_suffix(".pyi"), source) if path.exists()).relative_to(ROOT)


def test_the_page_of_the_command_line_has_the_help_of_every_command() -> None:
    found = entries(pages()["cli.md"])
    group = application()
    names = group.list_commands(click.Context(group, info_name="operad"))
    assert {"operad", *(f"operad {name}" for name in names)} <= found.keys()
    for title, text in found.items():
        assert f"Usage: {title}" in text
        assert "--help" in text


def test_the_pages_that_the_build_makes_are_short_in_the_repository() -> None:
    committed = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    for uri in committed & pages().keys():
        assert "`nox -s docs` builds the site" in (ROOT / "docs" / uri).read_text(encoding="utf-8")
    assert committed & pages().keys() == {"cli.md", "configuration-reference.md", "api/README.md"}


def test_every_key_of_every_table_is_in_the_reference_with_what_it_means_and_in_the_schema_for_editors() -> None:
    sections = entries(pages()["configuration-reference.md"].replace("\n### ", "\n## "))
    schema = json.loads((ROOT / "docs" / "operad.schema.json").read_text(encoding="utf-8"))
    kinds = {
        kind["properties"]["type"].get("const"): kind
        for kind in schema["properties"]["sources"]["additionalProperties"]["oneOf"]
    }
    found = references.tables()
    assert {"calls", "serve", "hub", "registry", "plugins"} <= found.keys()
    for title, (cls, _) in [
        *found.items(),
        *((name, (cls, "")) for cls, name in references.homes_of(found).items()),
    ]:
        section = sections.get(f"`[{title}]`", sections.get(f"`[[{title}]]`", sections.get(title, "")))
        for field in references.options(title, cls):
            line = next((line for line in section.splitlines() if line.startswith(f"| `{field.alias}` |")), "")
            assert line, f"{title}: {field.alias} is not in the reference"
            assert line.split(" | ")[-1].strip(" |"), f"{title}: {field.alias} has no text below its field"
    for title, (cls, _) in found.items():
        if title.startswith("sources.<name>, type"):
            part = kinds[title.split('"')[1]]
        elif title == "sources.<name>":
            part = kinds["scanner"]
        elif title.startswith("serve."):
            part = schema["properties"]["serve"]["properties"][title[6:]]
            part = part.get("anyOf", [part])[-1]
        else:
            part = schema["properties"][title.partition(",")[0]]
            part = part.get("items", part)
        names = {field.alias for field in references.options(title, cls)}
        assert names <= part["properties"].keys(), title


def _keys() -> set[str]:
    found = references.tables()
    classes = [
        *((title, cls) for title, (cls, _) in found.items()),
        *(("", cls) for cls in references.homes_of(found)),
    ]
    return {field.alias for title, cls in classes for field in references.options(title, cls)}


LIMIT = re.compile(r"\b(max_[a-z_]*[a-z]|(?<!\w)[a-z]+_bytes|(?<=\(limit )[a-z_]+)\b")


def _said(text: str) -> Iterator[str]:
    """The texts of a module that are words for somebody: no names, no docstrings."""
    nodes = [*ast.walk(ast.parse(text if LIMIT.search(text) else ""))]
    bodies = [node.body for node in nodes if isinstance(getattr(node, "body", None), list)]
    docs = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    for node in nodes:
        said = node.value if isinstance(node, ast.Constant) and id(node) not in docs else ""
        if isinstance(said, str) and " " in said.strip():
            yield said


ARGUMENTS = {"max_event_size": "SSEParser's, for who parses streams without a source"}
"""Limits that messages name and no configuration has, and what they are."""


def test_every_limit_that_a_message_names_is_a_key_of_the_configuration() -> None:
    texts = [path.read_text(encoding="utf-8") for source in rooms.sources() for path in source.rglob("*.py")]
    told = {limit for text in texts for said in _said(text) for limit in LIMIT.findall(said)}
    assert len(told) >= 20
    assert told - _keys() == ARGUMENTS.keys()


@pytest.mark.parametrize("title", ["registry", "calls", "hub", "serve.mcp", "serve.openapi", 'type = "openapi"'])
def test_each_bound_of_a_table_and_of_the_table_of_its_limits_can_be_set(title: str) -> None:
    cls = next(cls for name, (cls, _) in references.tables().items() if name.endswith(title))
    needed = {"spec": "x.json"} if "openapi" in title and "type" in title else {}
    nested = references.parts(cls).get("limits")
    for within, made in ((None, cls), *([("limits", nested)] if nested is not None else [])):
        for field in references.options("", made):
            if isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
                value = field.default + 1
                table = {field.alias: value} if within is None else {within: {field.alias: value}}
                read: Any = structure(cls, {**needed, **table}, title)
                assert getattr(read if within is None else getattr(read, within), field.name) == value


def test_the_schema_for_editors_takes_what_the_readme_writes_and_refuses_misspelt_keys() -> None:
    schema = json.loads((ROOT / "docs" / "operad.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = readme.partition("```toml\n")[2].partition("```")[0]
    validator.validate(tomllib.loads(example))
    assert not validator.is_valid({"registry": {"max_thread": 3}})
    assert not validator.is_valid({"sources": {"a": {"type": "openapi", "sepc": "x"}}})
    assert not validator.is_valid({"hub": {"listn": "x"}})
    assert not validator.is_valid({"calls": {"timeout": []}})
    validator.validate({"sources": {"a": {"type": "grpc", "target": "x"}}, "transport": {"url": "x://", "y": 1}})
    validator.validate(
        {"serve": {"http": "127.0.0.1:0", "mcp": {"stdio": True}, "tokens": [{"token": "a", "id": "b"}]}}
    )

"""Who logs under which name: the core as ``operad`` or ``operad.<room>``, a plugin as ``operad.<distribution>``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import rooms

ROOT = Path(__file__).parents[2]
SOURCES = rooms.sources()
NAMES = [source.parent.name for source in SOURCES]

OTHERS = {
    ("core", "operad.loading.sources", "operad.{name}"): "the logger of a source plugin, handed to it",
    ("testing", "operad_testing._sources", ""): "the kit captures what anybody logs",
    ("cli", "operad_cli.output.logs", ""): "the command is the application: it sets logging up",
    ("cli", "operad_cli.output.logs", "mcp"): "errors of libraries are told by the commands themselves",
    ("cli", "operad_cli.output.logs", "asyncio"): "errors of libraries are told by the commands themselves",
    ("cli", "operad_cli.running.checks", ""): "doctor keeps from the log what it shows as checks of the sources",
    ("cli", "operad_cli.options", "operad"): "plugins load without warnings while a command asks for them",
    ("mcp", "operad_mcp.auth.oauth", "mcp"): "the SDK is as silent as operad",
    ("mcp", "operad_mcp.wire.dialing", "httpx2"): "what it logs of URLs goes without their secrets",
}
"""Loggers that are not the module's own, and why it asks for them."""


def loggers(text: str) -> Iterator[str]:
    """The names that a module asks ``getLogger`` for; a part known at run time alone stands in braces."""
    for node in ast.walk(ast.parse(text if "getLogger" in text else "")):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            name = node.args[0] if node.args else ast.Constant("")
            yield str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name).strip("f'\"")


def own(distribution: str, module: str) -> set[str]:
    if distribution == "core":
        return {"operad", f"operad.{rooms.room(module)}"}
    return {"operad_schema"} if distribution == "schema" else {f"operad.{distribution}"}


def astray(distribution: str, module: str, text: str) -> list[tuple[str, str, str]]:
    """The loggers of a module that are not its own."""
    return [(distribution, module, name) for name in loggers(text) if name not in own(distribution, module)]


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_each_distribution_logs_under_its_own_name(source: Path) -> None:
    distribution = source.parent.name
    found = {
        breach
        for module, path in rooms.modules(source).items()
        for breach in astray(distribution, module, path.read_text(encoding="utf-8"))
    }
    assert found == {key for key in OTHERS if key[0] == distribution}


def test_the_page_names_the_loggers_of_the_core() -> None:
    core = rooms.modules(ROOT / "core" / "src").items()
    names = {name for module, path in core for name in loggers(path.read_text(encoding="utf-8")) if name}
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    assert [name for name in sorted(names - {"operad.{name}"}) if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("distribution", "module", "name"),
    [
        ("core", "operad_schema.compiling", "operad_schema.schema"),
        ("calls", "operad_calls.calling.map", "operad.auth"),
        ("core", "operad.sources", "operad.sources"),
        ("mcp", "operad_mcp.client.servers", "operad"),
        ("mcp", "operad_mcp.client.servers", "operad_mcp.client.servers"),
    ],
)
def test_a_logger_of_another_name_is_found(distribution: str, module: str, name: str) -> None:
    assert astray(distribution, module, f"import logging\nlogging.getLogger({name!r})") == [
        (distribution, module, name)
    ]
    assert astray(distribution, module, "import logging\nlogging.getLogger(__name__)") != []

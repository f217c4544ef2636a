"""The public names: what promised.json lists is promised. A name that comes or goes is a decision, made there."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROMISED: dict[str, list[str]] = json.loads(Path(__file__).with_name("promised.json").read_text())

HEAVY = ("aiohttp", "fastjsonschema", "grpc", "jsonschema", "mcp", "nats", "pydantic", "redis", "yaml", "typer")
"""What neither operad nor loading its plugins may import: each costs 10 ms to 400 ms."""


@pytest.mark.parametrize("module", PROMISED)
def test_the_promised_names_are_there_and_no_others(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(PROMISED[module])


def test_authors_of_plugins_meet_at_most_forty_names() -> None:
    assert len(PROMISED["operad.plugin"]) <= 40


@pytest.mark.parametrize("module", PROMISED)
def test_the_list_of_names_is_sorted_and_each_name_exists(module: str) -> None:
    imported = importlib.import_module(module)
    assert imported.__all__ == sorted(imported.__all__, key=lambda name: (not name.isupper(), name))
    for name in imported.__all__:
        assert hasattr(imported, name), name


@pytest.mark.parametrize("module", PROMISED)
def test_every_public_class_and_function_has_a_docstring(module: str) -> None:
    for name in PROMISED[module]:
        value = getattr(importlib.import_module(module), name, None)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module}.{name} has no docstring"
            for method, member in vars(value).items():
                if inspect.isfunction(member) and not method.startswith("_"):
                    assert member.__doc__, f"{module}.{name}.{method} has no docstring"


def imported_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has imported after ``code``."""
    probe = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True)
    return {module.partition(".")[0] for module in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "code",
    [
        "import operad",
        "import operad.plugin",
        "import operad\noperad.load_plugins()",
        "import operad\noperad.OperationRegistry(operad.load_plugins())",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(code: str) -> None:
    assert imported_by(code).isdisjoint(HEAVY)


def test_the_conformance_kit_needs_no_test_runner() -> None:
    assert imported_by("import operad.testing; operad.testing.run").isdisjoint(
        {"pytest", "_pytest", "hypothesis", *HEAVY}
    )

"""``import operad`` imports what finding plugins needs; each public name comes when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import operad


def loaded_by(code: str) -> set[str]:
    probe = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_names_at_run_time_are_those_that_type_checkers_see() -> None:
    assert operad.__file__ is not None
    tree = ast.parse(Path(operad.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    seen = {
        name.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert [
        name for name, home in seen.items() if getattr(operad, name) is not getattr(import_module(str(home)), name)
    ] == []
    assert sorted(seen) == sorted(operad.__all__)


@pytest.mark.parametrize("name", operad.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(operad, name) is not None
    assert name in dir(operad)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = operad.Nonsense


def test_a_plugin_module_imports_nothing_that_came_not_with_operad() -> None:
    with_operad = loaded_by("import operad")
    assert loaded_by("import operad.plugin") - with_operad == {"operad.plugin"}
    assert not with_operad & {"asyncio", "msgspec", "cattrs", "operad.registry", "operad_calls"}


@pytest.mark.parametrize(
    "module", ["aiohttp", "mcp", "jsonschema", "pydantic", "fastjsonschema", "cattrs", "msgspec"]
)
def test_a_registry_is_made_and_called_without(module: str) -> None:
    code = """
import asyncio
from operad import OperationRegistry, OperationSpec
async def f(input, context): return 1
registry = OperationRegistry()
registry.register(OperationSpec(namespace="a", name="b"), f)
assert asyncio.run(registry.execute("a.b")).data == 1
"""
    assert module not in loaded_by(f"exec({code!r})")


def test_finding_plugins_imports_no_event_loop() -> None:
    assert "asyncio" not in loaded_by("import operad; operad.load_plugins()")


def test_the_compiler_of_schemas_is_imported_with_the_first_schema_that_is_used() -> None:
    assert "operad_schema.compiling" not in loaded_by("import operad_schema, operad; operad.OperationSpec")

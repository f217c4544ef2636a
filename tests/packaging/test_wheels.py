"""From built wheels, in fresh environments: what is installed is what `load_plugins` finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = [
    tomllib.loads(file.read_text())["project"] for file in sorted((ROOT / "plugins").glob("*/pyproject.toml"))
]
PLUGINS = [project["name"] for project in PROJECTS if "operad" in project.get("entry-points", {})]

EXAMPLES = sorted(folder.name for folder in (ROOT / "examples").glob("operad-*"))
"""The distributions of examples, as third parties would write them."""

MakeEnvironment = Callable[[list[Any]], Any]

SMOKE = """
import asyncio, operad
from operad import OperationRegistry, operation

@operation(type="query")
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with OperationRegistry(operad.load_plugins(strict=True)) as registry:
        registry.register(add)
        print((await registry.execute("local.add", {"a": 1, "b": 2})).data)

asyncio.run(main())
"""

FIRST = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "core" / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)[0]
"""The first Python example of the README of `operad`."""


def statuses(records: list[dict[str, Any]]) -> dict[str, str]:
    return {record["distribution"]: record["status"] for record in records}


def test_the_core_alone_installs_with_pip_and_works(wheels: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True, timeout=300)
    python = str(tmp_path / "env" / "bin" / "python")
    wheel = wheels["operad"]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", wheel.parent]
    done = subprocess.run([*pip, wheel], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0 and "Connection" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    for program, shown in ((SMOKE, "3"), (FIRST, "0.25 local")):
        done = subprocess.run(
            [python, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout.splitlines()[:1]) == (0, [shown]), done.stderr


def test_the_kit_alone_brings_a_plugin_of_pytest(wheels: dict[str, Path]) -> None:
    found = set()
    for distribution, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            points = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
            found |= {distribution for name in points if b"pytest11" in archive.read(name)}
    assert found == {"operad-testing"}


def test_the_core_alone_knows_no_plugin(make_environment: MakeEnvironment, wheels: dict[str, Path]) -> None:
    environment = make_environment([wheels["operad"]])
    assert environment.records() == []
    done = environment.run("-c", "import operad; operad.load_plugins().source('openapi')")
    assert "pip install operad-openapi" in done.stderr


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_appears_once_its_wheel_is_installed(
    name: str, make_environment: MakeEnvironment, wheels: dict[str, Path]
) -> None:
    environment = make_environment([wheels["operad"], wheels[name]])
    (record,) = (record for record in environment.records() if record["distribution"] == name)
    assert (record["distribution"], record["status"], record["error"]) == (name, "loaded", None)
    assert record["name"] == name.removeprefix("operad-")
    assert record["contributes"]
    done = environment.run("-W", "error", "-c", SMOKE)
    assert done.stdout == "3\n", done.stderr


@pytest.fixture(scope="module")
def everything(make_environment: MakeEnvironment, wheels: dict[str, Path]) -> Any:
    """An environment with the core, all plugins, and the examples on top."""
    return make_environment([*wheels.values(), "pytest", "grpcio-tools"])


def test_all_plugins_and_those_of_third_parties_load_together(everything: Any) -> None:
    assert statuses(everything.records()) == dict.fromkeys([*PLUGINS, *EXAMPLES], "loaded")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes_its_own_tests_there(example: str, everything: Any) -> None:
    done = everything.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=ROOT / "examples" / example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


FOREIGN = """
import asyncio
from operad import OperationRegistry, OperationSpec, load_plugins

async def main():
    plugins = load_plugins(strict=True)
    print(type(plugins.call_map("tcp://127.0.0.1:1")).__name__)
    async with OperationRegistry(plugins) as registry:
        print(type(plugins.call_server(registry, "tcp://127.0.0.1:1")).__name__)
        for name in ("book", "order"):
            registry.register_spec(OperationSpec(namespace="shop", name=name))
        print([spec.id for spec in registry.search("[.]b(oo)+k$")])

asyncio.run(main())
"""


def test_call_maps_call_servers_and_searches_of_third_parties_come_before_ours(everything: Any) -> None:
    done = everything.run("-W", "error", "-c", FOREIGN)
    assert done.stdout.split() == ["TCPCallMap", "TCPCallServer", "['shop.book']"], done.stderr


def test_the_core_knows_nothing_of_grpc() -> None:
    for file in (ROOT / "core" / "src").rglob("*.py"):
        assert "grpc" not in file.read_text().lower(), file


def test_the_command_lists_a_plugin_that_is_broken_with_the_others(everything: Any, tmp_path: Path) -> None:
    info = tmp_path / "bad_import-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-import\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[operad]\nbad-import = bad_import\n")
    (tmp_path / "bad_import.py").write_text("raise RuntimeError('it never worked here')")
    command = [everything.python, "-m", "operad_cli.main", "plugins", "--json"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    records = json.loads(done.stdout)
    loaded = dict.fromkeys([*PLUGINS, *EXAMPLES], "loaded")
    assert statuses(records) == {**loaded, "bad-import": "failed"}, done.stderr
    assert [record["version"] for record in records if "it never worked here" in (record["error"] or "")] == [
        "1.0"
    ]

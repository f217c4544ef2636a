"""From built wheels, in fresh environments: what is installed is what `load_plugins` finds."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
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
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--find-links",
        wheel.parent,
        wheel,
    ]
    done = subprocess.run([python, *install], capture_output=True, text=True, timeout=300, check=False)
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


@contextmanager
def installed(environment: Any, folder: Path, *names: str) -> Iterator[None]:
    """Have plugins that misbehave in an environment."""
    environment.install(*(write_wheel(folder, name, CULPRITS[name][0]) for name in names))
    try:
        yield
    finally:
        environment.uv("pip", "uninstall", "--quiet", "--python", environment.python, *names)


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


# --- plugins that misbehave -----------------------------------------------------------------------

SOURCE = """
import attrs
from operad.plugin import Source, hookimpl

@attrs.frozen
class Config: ...

async def load(config, context): ...

@hookimpl
def operad_sources():
    return [Source("{source}", load, Config)]
"""

KIND = """
from typing import ClassVar
import attrs
from operad.plugin import EnvelopeKind, hookimpl

@attrs.frozen
class Meta:
    source: ClassVar[str] = "{source}"

@hookimpl
def operad_envelope_kinds():
    return [EnvelopeKind("{source}", Meta)]
"""

CULPRITS = {
    "bad-import": ("raise RuntimeError('it never worked here')", "failed", "it never worked here"),
    "bad-spelling": (
        SOURCE.format(source="x").replace("operad_sources", "operad_souces"),
        "failed",
        "operad_sources",
    ),
    "bad-version": ("operad_api_version = 99\n" + SOURCE.format(source="y"), "incompatible", "99"),
    "claim-source-a": (SOURCE.format(source="claimed"), "loaded", None),
    "claim-source-b": (SOURCE.format(source="claimed"), "conflict", '"claim-source-a" (claim-source-a 1.0)'),
    "claim-kind-a": (KIND.format(source="claimed"), "loaded", None),
    "claim-kind-b": (KIND.format(source="claimed"), "conflict", '"claim-kind-a" (claim-kind-a 1.0)'),
    "good-one": (SOURCE.format(source="good"), "loaded", None),
}


def write_wheel(folder: Path, name: str, source: str) -> Path:
    """A wheel of one module with an entry point (the format: PyPA's binary distribution format 1.0)."""
    package = name.replace("-", "_")
    info = f"{package}-1.0.dist-info"
    files = {
        f"{package}.py": dedent(source),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: operad>=0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[operad]\n{name} = {package}\n",
    }
    record = ""
    wheel = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return wheel


def test_culprits_are_named_with_their_distribution_and_all_others_load(everything: Any, tmp_path: Path) -> None:
    with installed(everything, tmp_path, *CULPRITS):
        records = {record["distribution"]: record for record in everything.records()}
        assert sorted(records) == sorted([*PLUGINS, *EXAMPLES, *CULPRITS])
        for name in (*PLUGINS, *EXAMPLES):
            assert records[name]["status"] == "loaded", records[name]
        for name, (_, status, says) in CULPRITS.items():
            assert records[name]["status"] == status, records[name]
            assert records[name]["version"] == "1.0"
            assert says is None or says in records[name]["error"]
        strict = everything.run("-c", "import operad; operad.load_plugins(strict=True)")
        for name, (_, status, _) in CULPRITS.items():
            assert (f'plugin "{name}" ({name} 1.0)' in strict.stderr) is (status != "loaded")


def test_the_command_lists_plugins_where_some_are_broken(everything: Any, tmp_path: Path) -> None:
    with installed(everything, tmp_path, "bad-import"):
        done = everything.run("-m", "operad_cli.main", "plugins", "--json")
        assert "it never worked here" in done.stdout, done.stderr
        assert "bad-import" in done.stdout

"""Run the tests with other versions than the pinned ones, and write the result into docs/support.md.

``python tools/versions.py NAME…`` runs one of them, or several:

- ``floors``: the lowest versions that the distributions promise.
- ``newest``: the newest versions that there are.
- ``3.12``, ``3.13``, ``3.14``: the pinned versions with another CPython.

Each makes an environment of its own, ``.venv-NAME``. ``python tools/versions.py NAME PART…`` runs parts again, as
``plugins/mcp``, in the environment that is there. The parts leave out ``tests/architecture``,
``tests/packaging``, ``tests/browser`` and ``tests/peers``: they test the repository, or programs of others.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "support.md"
BEGIN, END = "<!-- versions: written by tools/versions.py -->\n", "<!-- end of versions -->\n"
WHAT = {
    "floors": "the lowest versions that the distributions promise",
    "newest": "the newest versions",
    "3.12": "the pinned versions",
    "3.13": "the pinned versions",
    "3.14": "the pinned versions",
}
PYTHONS = ("3.12", "3.13", "3.14")
PARTS = [
    "core/tests",
    "schema/tests",
    *sorted(f"plugins/{path.parent.name}" for path in ROOT.glob("plugins/*/tests")),
]
PARTS += [f"tests/{name}" for name in ("brokers", "chaos", "discovery", "docs", "end_to_end", "public_api")]
UV = [sys.executable, "-m", "uv"]
VERSIONS = """
import importlib.metadata as m, json, platform
versions = {one.name.lower().replace("_", "-"): one.version for one in m.distributions()}
print(json.dumps([platform.python_version(), versions]))
"""


def members() -> list[Path]:
    """Return the folders of the distributions."""
    return [ROOT / "core", ROOT / "schema", *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def project(folder: Path) -> dict[str, Any]:
    """Return the table ``[project]`` of a distribution."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def floors() -> dict[str, set[Version]]:
    """Return the lowest versions of each dependency that the distributions and their extras require."""
    found: dict[str, set[Version]] = {}
    for table in map(project, members()):
        for text in [*table.get("dependencies", []), *chain(*table.get("optional-dependencies", {}).values())]:
            requirement = Requirement(text)
            if not requirement.name.startswith("operad"):
                lowest = {Version(part.version) for part in requirement.specifier if part.operator == ">="}
                found.setdefault(requirement.name.lower().replace("_", "-"), set()).update(lowest)
    return found


def uv(*arguments: str, **variables: str) -> None:
    """Run uv."""
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    subprocess.run([*UV, *arguments], cwd=ROOT, env=environment | variables, check=True)


def find_python(name: str) -> str | None:
    """Return a CPython of a version: one that uv finds, or one of pyenv."""
    for candidate in (name, *map(str, Path.home().glob(f".pyenv/versions/{name}.*/bin/python"))):
        done = subprocess.run([*UV, "python", "find", candidate], cwd=ROOT, capture_output=True, check=False)
        if done.returncode == 0:
            return candidate
    return None


def make_environment(name: str, folder: Path) -> bool:
    """Make the environment of a run. Return False if there is no such CPython here."""
    if name in PYTHONS:
        python = find_python(name)
        if python is not None:
            uv("sync", "--quiet", "--python", python, UV_PROJECT_ENVIRONMENT=str(folder))
        return python is not None
    ours = []
    for member in members():
        extras = ",".join(project(member).get("optional-dependencies", {}))
        ours += ["--editable", f"{member}[{extras}]" if extras else str(member)]
    resolution = "lowest-direct" if name == "floors" else "highest"
    uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
    # Without the configuration of the workspace, which has the pins.
    uv("pip", "install", "--quiet", "--no-config", "--resolution", resolution, "--python", str(folder),
       *ours, "--group", "dev", "--group", "test")  # fmt: skip
    return True


def run(name: str, parts: list[str]) -> tuple[str, str]:
    """Run parts of the tests, all if none is named. Return the CPython, and the results of all parts so far."""
    folder = ROOT / f".venv-{name}"
    python, reports = folder / "bin" / "python", folder / "reports"
    if not (parts and python.exists()):
        if not make_environment(name, folder):
            return "", "not tested"
        shutil.rmtree(reports, ignore_errors=True)
    seen = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    version, versions = json.loads(seen)
    if name == "floors":
        check_floors(versions)
    variables = os.environ | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    for part in parts or PARTS:
        report = reports / f"{part.replace('/', '-')}.xml"
        command = [python, "-m", "pytest", "-q", "-n", "2", f"--junitxml={report}", part]
        subprocess.run(command, cwd=ROOT, env=variables, check=False)
    return version, summary([*reports.glob("*.xml")])


def summary(reports: list[Path]) -> str:
    """Return the results of parts in words."""
    suites = [suite for report in reports for suite in ElementTree.parse(report).getroot().iter("testsuite")]  # noqa: S314  # pytest wrote them
    tests, skipped, failures, errors = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "skipped", "failures", "errors")
    )
    failed = failures + errors
    words = f"{tests - skipped - failed:,} passed, {skipped} skipped"
    if missing := len(PARTS) - len(reports):
        words += f", {missing} parts not tested"
    return words + (f", {failed} failed" if failed else "")


def check_floors(installed: dict[str, str]) -> None:
    """Raise `SystemExit` if a floor is not what is installed: it would be promised, and not tested."""
    wrong = [
        f"{name}: {' and '.join(map(str, sorted(lowest)))} promised, {installed[name]} tested"
        for name, lowest in sorted(floors().items())
        if lowest and lowest != {Version(installed[name])}
    ]
    if wrong:
        raise SystemExit("\n".join(["change these floors to what is tested:", *wrong]))


def block() -> str:
    """Return the table as the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def write(name: str, version: str, words: str) -> None:
    """Write the row of a run."""
    row = f"| `{name}` | {WHAT[name]} | {version} | {words} |"
    lines = [row if line.startswith(f"| `{name}` |") else line for line in block().splitlines()]
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(block(), "\n".join(lines) + "\n"), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run each, or parts of one, and write the rows."""
    names = [name for name in arguments if name in WHAT]
    failed = False
    for name in names:
        version, words = run(name, [part for part in arguments if part not in WHAT])
        print(f"{name}: {version} {words}")
        failed |= "failed" in words
        write(name, version, words)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

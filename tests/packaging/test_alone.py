"""Each distribution alone: in an environment with its wheel, what that requires and what its tests name, they pass."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = [
    "schema",
    "core",
    *sorted(f"plugins/{path.parent.name}" for path in ROOT.glob("plugins/*/pyproject.toml")),
]
RUNNER = ("pytest", "pytest-asyncio", "pytest-xdist", "hypothesis")


@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_tests_of_a_distribution_pass_where_it_is_alone(
    folder: str, make_environment: Callable[[list[Any]], Any], wheels: dict[str, Path], tmp_path: Path
) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
    environment = make_environment(
        [wheels[project["project"]["name"]], *RUNNER, *project.get("dependency-groups", {}).get("test", [])]
    )
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(
        ROOT / folder / "tests", tmp_path / folder / "tests", ignore=shutil.ignore_patterns("__pycache__", ".venv")
    )
    for helper in ROOT.glob("plugins/*/tests/*.py"):  # some tests use helpers of other distributions' tests
        if not helper.name.startswith("test_"):
            (tmp_path / helper.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(helper, tmp_path / helper.relative_to(ROOT))
    shutil.copy(ROOT / folder / "README.md", tmp_path / folder)
    done = environment.run(
        "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", f"{folder}/tests", cwd=tmp_path, timeout=900
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]

"""The command ``operad run``, and programs called from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "shop.py").write_text(
        "from operad import operation\n\n"
        '@operation(namespace="shop", type="query", access_control={"required_scopes": ["x"]})\n'
        "async def prices(count: int) -> list[int]:\n    return list(range(count))\n"
    )
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "total.py").write_text(
        "async def main(count: int) -> int:\n    return sum(await shop.prices(count=count))\n"
    )
    (tmp_path / "operad.toml").write_text(
        '[sources.local]\ntype = "scanner"\npath = "operations"\n[sources.code]\ntype = "code"\n'
        '[sources.recipes]\ntype = "code"\npath = "recipes"\n'
    )
    return tmp_path


def operad(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "operad"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_file_is_run_over_all_sources(folder: Path) -> None:
    (folder / "report.py").write_text("print('hello')\nreturn await shop.prices(count=3)\n")
    done = operad(folder, "run", "report.py", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [0, 1, 2]), done.stderr


def test_check_reports_mistakes_and_runs_nothing(folder: Path) -> None:
    (folder / "report.py").write_text("x = 1\nawait shop.prices(cont=3)\n")
    done = operad(folder, "run", "report.py", "--check")
    assert done.returncode == 1
    assert "line 2" in done.stderr
    assert "shop.prices(*, count: int) -> list[int]" in done.stderr
    (folder / "report.py").write_text("1 / 0\n")
    assert operad(folder, "run", "report.py", "--check").returncode == 0


def test_a_saved_program_takes_arguments(folder: Path) -> None:
    done = operad(folder, "run", "recipes/total.py", "count=4")
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
    assert "count" in operad(folder, "run", "recipes/total.py").stderr


def test_one_call_of_a_program_loads_the_sources_that_it_needs(folder: Path) -> None:
    (folder / "operations" / "shop.py").write_text(
        (folder / "operations" / "shop.py").read_text().replace(', access_control={"required_scopes": ["x"]}', "")
    )
    done = operad(folder, "call", "recipes.total", "count=4", "--data")
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
    done = operad(folder, "call", "code.run", "code=await shop.prices(count=2)", "--data", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [0, 1]), done.stderr

"""docs/stubs.md: its files are written as they stand, its command and its application run and are checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "stubs.md").read_text()


def block(language: str, number: int) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[number]


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("OPERAD_CONFIG", None)
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


def test_the_page_writes_types_of_an_application_that_runs_and_is_checked(tmp_path: Path, mypy_cache: str) -> None:
    (tmp_path / "operad.toml").write_text(block("toml", 0))
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "shop.py").write_text(block("python", 0))
    (tmp_path / "app.py").write_text(block("python", 1))
    command, says = block("console", 0).splitlines()
    assert run(tmp_path, "operad_cli.main", *command.split()[2:]) == f"{says}\n"
    assert run(tmp_path, "app") == "Emma 474\nEmma\n"
    assert "no issues" in run(tmp_path, "mypy", "--strict", "--cache-dir", mypy_cache, "app.py")

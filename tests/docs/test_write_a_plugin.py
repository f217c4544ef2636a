"""docs/write-a-plugin.md: its files, written as they stand, are a plugin that installs and passes its tests."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text()
FILES = dict(re.findall(r"^\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
EXCERPTS = [
    (path, block)
    for path, blocks in re.findall(
        r"^From \[`[^`]+`\]\(\.\./(examples/[^)]+)\):\n\n((?:```python\n.*?^```\n+)+)",
        PAGE,
        re.DOTALL | re.MULTILINE,
    )
    for block in re.findall(r"^```python\n(.*?)^```", blocks, re.DOTALL | re.MULTILINE)
]
COMMANDS = [
    line
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operad-jsonlines")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_page_shows_every_file_and_command() -> None:
    assert len(FILES) == 10
    assert COMMANDS == ['pip install -e ".[test]"', "python -m pytest", "operad plugins"]


@pytest.mark.slow
def test_the_commands_run_in_a_fresh_environment(
    project: Path, make_environment: Callable[[list[Any]], Any], wheels: dict[str, Path]
) -> None:
    environment = make_environment([wheels["operad"], wheels["operad-cli"]])
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        if program == "pip":  # uv's, because it has the cache
            options = ("--find-links", str(environment.wheels), "--quiet", "--python", environment.python)
            environment.uv("pip", *arguments, *options, cwd=project)
            continue
        if program == "operad":
            arguments = ["-m", "operad_cli.main", *arguments]
        done = environment.run(*arguments, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr
    (record,) = (one for one in environment.records() if one["distribution"] == "operad-jsonlines")
    assert (record["name"], record["status"]) == ("jsonlines", "loaded")
    listed = environment.run("-m", "operad_cli.main", "plugins", "--json", cwd=project)
    assert "operad-jsonlines" in json.dumps(json.loads(listed.stdout))


def is_typed(folder: Path, cache: str, *options: str) -> None:
    command = [sys.executable, "-m", "mypy", "--cache-dir", cache, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def test_the_files_are_strictly_typed(project: Path, mypy_cache: str) -> None:
    is_typed(project, mypy_cache, "--strict", "src/operad_jsonlines")


def test_what_the_page_quotes_of_the_examples_is_in_them() -> None:
    assert len(EXCERPTS) == 7
    for path, block in EXCERPTS:
        assert block in (ROOT / path).read_text(), f"{path}: {block}"


@pytest.mark.parametrize("example", ["operad-regex-search", "operad-tcp-calls"])
def test_an_example_is_strictly_typed(example: str, mypy_cache: str) -> None:
    is_typed(ROOT / "examples" / example, mypy_cache, "--config-file", "pyproject.toml", "src")

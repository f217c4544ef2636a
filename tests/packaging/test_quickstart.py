"""README and quickstarts, as a new user follows them: what the page installs, in a fresh environment, then each command."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from operad_cli.demo.bookshop import serve_bookshop
from tests.docs.replaying import DOCS, replay

Make = Callable[[list[Any]], Any]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serve_bookshop() as url:
        yield url


def prepared(make_environment: Make, page: str) -> Any:
    """Return an environment with what the page installs first."""
    command = re.search(r"^pip install (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert command is not None
    return make_environment(shlex.split(command[1]))


async def test_the_readme_leads_to_the_first_call_of_an_api_in_six_commands(
    tmp_path: Path, url: str, make_environment: Make
) -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    install, application = (readme.partition(f"\n## {title}\n")[2] for title in ("Install", "For an application"))
    (line,) = re.findall(r"^pip install (.+)$", install.partition("\n## ")[0], re.MULTILINE)
    (prepare,) = re.findall(r"^python3 -m venv .*$", install, re.MULTILINE)
    commands = application.partition("```console\n")[2].partition("```")[0].splitlines()
    assert len([*prepare.split(" && "), line, *commands]) <= 6
    programs = make_environment(shlex.split(line)).folder / "bin"
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    shown = ""
    for command in commands:
        listed = re.search(r"^(\S+)\.getBook ", shown, re.MULTILINE)
        words = shlex.split(command.replace("https://api.example.com", url))
        words = [word.replace("shop.", f"{listed[1]}.") if listed else word for word in words]
        done = await asyncio.to_thread(
            subprocess.run, words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
            timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        shown = done.stdout
        assert done.returncode == 0, f"{command}\n{shown}{done.stderr}"
    assert "Solaris" in shown


@pytest.mark.bash
async def test_the_quickstart_of_an_application_calls_an_api_in_six_commands(
    tmp_path: Path, url: str, make_environment: Make
) -> None:
    page = "quickstart-application.md"
    programs = prepared(make_environment, page).folder / "bin"
    commands = await replay(page, tmp_path, url, programs=programs)
    assert commands[-1] == "python app.py"
    first_call = next(number for number, command in enumerate(commands) if command.startswith("operad call"))
    assert first_call + len(["venv", "pip", "demo"]) < 6


@pytest.mark.bash
async def test_the_quickstart_of_a_gateway_serves_an_api_and_an_mcp_server_as_one(
    tmp_path: Path, url: str, make_environment: Make
) -> None:
    page = "quickstart-gateway.md"
    programs = prepared(make_environment, page).folder / "bin"
    assert (await replay(page, tmp_path, url, programs=programs))[-1] == "python check.py"


@pytest.mark.bash
async def test_the_quickstart_of_an_adapter_makes_a_plugin(tmp_path: Path, make_environment: Make) -> None:
    environment = prepared(make_environment, "quickstart-adapter.md")

    def install(command: str) -> None:
        path = re.search(r"\./([\w-]+)", command)
        assert path is not None, command
        environment.install(f"{tmp_path / path[1]}[test]")

    commands = await replay(
        "quickstart-adapter.md", tmp_path, programs=environment.folder / "bin", install=install
    )
    assert commands[-1] == "operad doctor"

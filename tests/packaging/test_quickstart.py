"""The quickstarts, as a new user follows them: what the page installs, in a fresh environment, then each command."""

from __future__ import annotations

import re
import shlex
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

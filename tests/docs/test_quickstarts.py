"""The quickstarts: their files are written and their commands replayed. That of adapters: tests/packaging.

What a page installs is in the environment of the tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operad_cli.demo.bookshop import serve_bookshop
from tests.docs.replaying import replay


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serve_bookshop() as url:
        yield url


@pytest.mark.bash
async def test_the_quickstart_of_an_application_calls_an_api_in_six_commands(tmp_path: Path, url: str) -> None:
    commands = await replay("quickstart-application.md", tmp_path, url)
    assert commands[-1] == "python app.py"
    first_call = next(number for number, command in enumerate(commands) if command.startswith("operad call"))
    assert first_call + len(["venv", "pip", "demo"]) < 6


@pytest.mark.bash
async def test_the_quickstart_of_a_gateway_serves_an_api_and_an_mcp_server_as_one(
    tmp_path: Path, url: str
) -> None:
    assert (await replay("quickstart-gateway.md", tmp_path, url))[-1] == "python check.py"

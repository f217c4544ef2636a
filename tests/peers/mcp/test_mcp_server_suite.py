"""The official conformance suite for servers, against a served registry: every scenario of both revisions."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plugins.mcp.tests.peers import listening
from tests.kit import output_of
from tests.peers.mcp import conformance_server
from tests.peers.mcp.installed import HERE, NODE, NPM, PYTHON, SUITE, needs_npm, needs_python

pytestmark = needs_npm

CHECKS = {"2025-11-25": 84, "2026-07-28": 152}
"""How many checks each revision has; a fixture that is missing makes them fewer, and none of them fail."""


@asynccontextmanager
async def target_of(transport: str) -> AsyncIterator[list[str]]:
    """What a client is told of the server of the fixtures: its command, or its URL."""
    if transport == "stdio":
        yield [sys.executable, str(HERE / "conformance_server.py"), "stdio"]
    else:
        async with listening(conformance_server.serving().asgi()) as url:
            yield [f"{url}/mcp"]


async def run_suite(version: str, folder: Path, *options: str) -> list[Any]:
    """The checks of a run of the suite."""
    async with target_of("http") as (url,):
        command = [SUITE, "server", "--url", url, "--spec-version", version, "-o", folder, *options]
        output = await output_of(NODE, *command)
    checks = [check for path in folder.rglob("checks.json") for check in json.loads(path.read_text())]
    bad = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
    assert not bad, json.dumps(bad, indent=1) + output
    return [check for check in checks if check["status"] == "SUCCESS"]


@pytest.mark.long
@pytest.mark.parametrize("version", CHECKS)
async def test_a_served_registry_passes_every_scenario_of_the_suite(version: str, tmp_path: Path) -> None:
    assert len(await run_suite(version, tmp_path, "--suite", "all")) == CHECKS[version]


@pytest.mark.parametrize(
    ("version", "scenario", "checks"),
    [
        pytest.param("2025-11-25", "tools-call-elicitation", 2, marks=pytest.mark.long),
        ("2026-07-28", "server-stateless", 30),
    ],
)
async def test_a_served_registry_passes_a_scenario_of_each_generation(
    version: str, scenario: str, checks: int, tmp_path: Path
) -> None:
    assert len(await run_suite(version, tmp_path, "--scenario", scenario)) == checks


@pytest.mark.long
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_inspector_lists_and_calls(transport: str) -> None:
    inspector = NPM / "inspector/clients/launcher/build/index.js"
    call = ["--method", "tools/call", "--tool-name", "add_numbers", "--tool-arg", "a=2", "b=3"]
    options = ["--transport", "http"] if transport == "http" else []
    async with target_of(transport) as target:
        listed = await output_of(NODE, inspector, "--cli", *target, *options, "--method", "tools/list")
        called = await output_of(NODE, inspector, "--cli", *target, *options, *call)
    assert "add_numbers" in [tool["name"] for tool in json.loads(listed)["tools"]]
    assert json.loads(called)["structuredContent"] == {"result": 5}


FASTMCP = """
import asyncio, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

async def main(target):
    if not target.startswith("http"):
        target = StdioTransport(target, sys.argv[2:])
    async with Client(target) as client:
        names = [tool.name for tool in await client.list_tools()]
        called = await client.call_tool("add_numbers", {"a": 2, "b": 3})
        read = await client.read_resource("test://static-text")
        got = await client.get_prompt("test_simple_prompt")
        print(len(names), called.structured_content, read[0].text, got.messages[0].content.text)

asyncio.run(main(sys.argv[1]))
"""


@needs_python
@pytest.mark.parametrize("transport", [pytest.param("stdio", marks=pytest.mark.long), "http"])
async def test_the_client_of_fastmcp_lists_calls_reads_and_prompts(transport: str) -> None:
    async with target_of(transport) as target:
        said = await output_of(PYTHON, "-c", FASTMCP, *target)
    assert " 5 This is the content of the static text resource. This is a simple prompt for testing." in said

"""The official conformance suite for servers, against a served registry: every scenario of both revisions."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.peers.mcp import conformance_server

HERE = Path(__file__).parent
NODE = HERE / "node_modules/node/bin/node"
SUITE = HERE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(not SUITE.exists() or not NODE.exists(), reason="npm install in tests/peers/mcp"),
]

CHECKS = {"2025-11-25": 84, "2026-07-28": 152}
"""How many checks each revision has; a fixture that is missing makes them fewer, and none of them fail."""


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
        serving = asyncio.ensure_future(server.serve([listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def run_suite(version: str, folder: Path, *options: str) -> list[Any]:
    """The checks of a run of the suite."""
    async with listening(conformance_server.serving().asgi()) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        command = [str(SUITE), "server", "--url", url, "--spec-version", version, "-o", str(folder), *options]
        output = await answer_of(*command)
    checks = [check for path in folder.rglob("checks.json") for check in json.loads(path.read_text())]
    bad = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
    assert not bad, json.dumps(bad, indent=1) + output
    return [check for check in checks if check["status"] == "SUCCESS"]


async def answer_of(*command: str) -> str:
    """What a program of Node prints; it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        str(NODE), *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(120):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()[-2000:] + errors.decode()[-2000:]
    return output.decode()


@pytest.mark.long
@pytest.mark.parametrize("version", list(CHECKS))
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
    inspector = HERE / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    call = ["--method", "tools/call", "--tool-name", "add_numbers", "--tool-arg", "a=2", "b=3"]
    if transport == "stdio":
        target = [sys.executable, str(HERE / "conformance_server.py"), "stdio"]
        listed = await answer_of(str(inspector), "--cli", *target, "--method", "tools/list")
        called = await answer_of(str(inspector), "--cli", *target, *call)
    else:
        async with listening(conformance_server.serving().asgi()) as port:
            target = [f"http://127.0.0.1:{port}/mcp", "--transport", "http"]
            listed = await answer_of(str(inspector), "--cli", *target, "--method", "tools/list")
            called = await answer_of(str(inspector), "--cli", *target, *call)
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


@pytest.mark.parametrize("transport", [pytest.param("stdio", marks=pytest.mark.long), "http"])
async def test_the_client_of_fastmcp_lists_calls_reads_and_prompts(transport: str) -> None:
    python = HERE / ".venv/bin/python"
    if not python.exists():
        pytest.skip("make tests/peers/mcp/.venv with requirements.txt")

    async def client(*target: str) -> str:
        process = await asyncio.create_subprocess_exec(
            str(python), "-c", FASTMCP, *target, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()

    if transport == "stdio":
        said = await client(sys.executable, str(HERE / "conformance_server.py"), "stdio")
    else:
        async with listening(conformance_server.serving().asgi()) as port:
            said = await client(f"http://127.0.0.1:{port}/mcp")
    assert " 5 This is the content of the static text resource. This is a simple prompt for testing." in said

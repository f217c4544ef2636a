"""The command line against a live API and a live MCP server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operad import CallHandler, OperationRegistry, operation
from operad_websocket import Hub, WebSocketTransport
from tests.end_to_end.petstore_server import serve_petstore

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OPERAD = Path(sys.executable).with_name("operad")
PETSTORE = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")).absolute() / "specs" / "petstore3.json"
EVERYTHING = ROOT / "tests/peers/mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


async def operad(folder: Path, *arguments: str, code: int = 0) -> str:
    process = await asyncio.create_subprocess_exec(
        OPERAD, *arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == code, (out.decode(), err.decode())
    return out.decode() if code == 0 else err.decode()


@pytest.fixture
async def petstore(tmp_path: Path) -> AsyncIterator[Path]:
    if not PETSTORE.is_file():
        pytest.skip("OPERAD_DOCUMENTS names no folder with petstore3.json")
    async with serve_petstore() as url:
        (tmp_path / "operad.toml").write_text(
            f'[sources.petstore]\ntype = "openapi"\nspec = "{PETSTORE}"\nbase_url = "{url}"\n'
            'auth = { type = "apiKey", token = "secret", header_name = "api_key" }\n'
        )
        yield tmp_path


async def test_list_call_subscribe_and_describe_work_against_a_live_petstore(petstore: Path) -> None:
    listed = json.loads(await operad(petstore, "list", "--json"))
    assert len(listed) == 19
    envelope = json.loads(await operad(petstore, "call", "petstore.getPetById", "petId=1", "--json"))
    assert envelope["data"]["name"] == "Rex"
    assert envelope["meta"]["source"] == "http"
    assert envelope["meta"]["statusCode"] == 200
    pet = '{"name": "Kit", "photoUrls": [], "status": "pending"}'
    assert json.loads(await operad(petstore, "call", "petstore.addPet", "--json", pet))["data"]["id"] == 3
    lines = await operad(petstore, "subscribe", "petstore.findPetsByStatus", "status=sold", "--json")
    assert [pet["name"] for pet in json.loads(lines)["data"]] == ["Tom"]
    described = json.loads(await operad(petstore, "describe", "petstore.addPet", "--json"))
    assert described["inputSchema"]["required"]


async def test_a_missing_pet_and_a_dead_server_are_one_paragraph_each(petstore: Path) -> None:
    error = await operad(petstore, "call", "petstore.getPetById", "petId=99", code=1)
    assert "404" in error
    assert len(error.strip().splitlines()) == 1
    text = (petstore / "operad.toml").read_text()
    base_url = next(line for line in text.splitlines() if line.startswith("base_url"))
    (petstore / "operad.toml").write_text(text.replace(base_url, 'base_url = "http://127.0.0.1:9"'))
    error = await operad(petstore, "call", "petstore.getPetById", "petId=1", code=1)
    assert error.startswith("error: UNAVAILABLE")
    assert "127.0.0.1:9" in error
    assert len(error.strip().splitlines()) == 1


async def test_a_malformed_document_is_one_paragraph_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"openapi": "3.1.0", ')
    (tmp_path / "operad.toml").write_text('[sources.x]\ntype = "openapi"\nspec = "broken.json"\n')
    error = await operad(tmp_path, "list", code=1)
    assert "broken.json" in error
    assert len(error.strip().splitlines()) == 1


async def test_a_dead_mcp_server_is_one_paragraph_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "operad.toml").write_text('[sources.x]\ntype = "mcp"\ncommand = "operad-no-such-command"\n')
    error = await operad(tmp_path, "list", code=1)
    assert "operad-no-such-command" in error
    assert len(error.strip().splitlines()) == 1


async def test_what_another_process_serves_is_listed_described_and_called(tmp_path: Path) -> None:
    """A hub in the configuration: its peers' schemas are asked for where they are shown or needed."""

    @operation(namespace="math", type="query")
    async def add(a: int, b: int) -> int:
        return a + b

    @operation(namespace="math")
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    served = OperationRegistry()
    served.register(add)
    served.register(count)
    async with Hub(port=0) as hub, CallHandler(served, WebSocketTransport(hub.url)):
        (tmp_path / "operad.toml").write_text(f'[sources.far]\ntype = "remote"\nurl = "{hub.url}"\n')
        listed = json.loads(await operad(tmp_path, "list", "--json"))
        assert [spec["id"] for spec in listed] == ["far.math.add", "far.math.count"]
        described = json.loads(await operad(tmp_path, "describe", "far.math.add", "--json"))
        assert described["inputSchema"]["required"] == ["a", "b"]
        for arguments in (("a=1", "b=2", "--json"), ("--json", '{"a": 1, "b": 2}')):
            assert json.loads(await operad(tmp_path, "call", "far.math.add", *arguments))["data"] == 3
        lines = await operad(tmp_path, "subscribe", "far.math.count", "to=3", "--json")
        assert [json.loads(line)["data"] for line in lines.splitlines()] == [0, 1, 2]
    error = await operad(tmp_path, "list", code=1)
    assert hub.url in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.node
async def test_the_everything_server_of_npm_is_listed_and_called(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not EVERYTHING.is_file():
        pytest.skip("needs node, and `npm install --prefix tests/peers/mcp`")
    (tmp_path / "operad.toml").write_text(
        f'[sources.everything]\ntype = "mcp"\ncommand = "{node}"\nargs = ["{EVERYTHING}", "stdio"]\n'
    )
    listed = json.loads(await operad(tmp_path, "list", "--json"))
    assert "everything.echo" in {spec["id"] for spec in listed}
    envelope = json.loads(await operad(tmp_path, "call", "everything.echo", "message=hi", "--json"))
    assert envelope["meta"]["source"] == "mcp"
    assert "hi" in json.dumps(envelope["data"])

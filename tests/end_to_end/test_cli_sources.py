"""The command line against a live API and a live MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from operad import CallHandler, OperationRegistry, operation
from operad_websocket import Hub, WebSocketTransport
from tests.kit import OPERAD, listening, needed_document, output_of


async def operad(folder: Path, *arguments: str) -> str:
    return await output_of(OPERAD, *arguments, cwd=folder)


async def paragraph(folder: Path, *arguments: str) -> str:
    """Return the error of a command, which is one paragraph."""
    error = await output_of(OPERAD, *arguments, code=1, cwd=folder)
    assert len(error.strip().splitlines()) == 1
    return error


async def pets(request: web.Request) -> web.Response:
    """The pet store."""
    named = [{"id": id, "name": name, "status": "sold"} for id, name in ((1, "Rex"), (2, "Tom"))]
    if request.method == "POST":
        return web.json_response({**await request.json(), "id": 3})
    if request.path == "/pet/findByStatus":
        return web.json_response([pet for pet in named if pet["status"] == request.query["status"]])
    found = [pet for pet in named if request.path == f"/pet/{pet['id']}"]
    return web.json_response(*found) if found else web.json_response({"message": "Pet not found"}, status=404)


@pytest.fixture
async def petstore(tmp_path: Path) -> AsyncIterator[Path]:
    document = needed_document("petstore3")
    async with listening(pets) as url:
        (tmp_path / "operad.toml").write_text(
            f'[sources.petstore]\ntype = "openapi"\nspec = "{document}"\nbase_url = "{url}"\n'
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
    assert [pet["name"] for pet in json.loads(lines)["data"]] == ["Rex", "Tom"]
    described = json.loads(await operad(petstore, "describe", "petstore.addPet", "--json"))
    assert described["inputSchema"]["required"]


async def test_a_missing_pet_and_a_dead_server_are_one_paragraph_each(petstore: Path) -> None:
    assert "404" in await paragraph(petstore, "call", "petstore.getPetById", "petId=99")
    text = (petstore / "operad.toml").read_text()
    base_url = next(line for line in text.splitlines() if line.startswith("base_url"))
    (petstore / "operad.toml").write_text(text.replace(base_url, 'base_url = "http://127.0.0.1:9"'))
    error = await paragraph(petstore, "call", "petstore.getPetById", "petId=1")
    assert error.startswith("error: UNAVAILABLE")
    assert "127.0.0.1:9" in error


@pytest.mark.parametrize(
    ("kind", "option", "name"),
    [
        pytest.param("openapi", "spec", "broken.json", id="a malformed document"),
        pytest.param("mcp", "command", "operad-no-such-command", id="a dead MCP server"),
    ],
)
async def test_a_source_that_cannot_be_loaded_is_one_paragraph_that_names_it(
    tmp_path: Path, kind: str, option: str, name: str
) -> None:
    (tmp_path / "broken.json").write_text('{"openapi": "3.1.0", ')
    (tmp_path / "operad.toml").write_text(f'[sources.x]\ntype = "{kind}"\n{option} = "{name}"\n')
    assert name in await paragraph(tmp_path, "list")


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
    assert hub.url in await paragraph(tmp_path, "list")

"""``operad serve`` at every door at once, as other people's clients see it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from operad import OperationRegistry, load_plugins, operation
from tests.kit import LOCAL, META, OPERAD, front_door, listening, openapi, operad, url_in

OPERATIONS = """
import asyncio, os
from operad import operation

print("printed while it loads")

@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    "Add two integers."
    print("printed by a handler")
    return a + b

@operation(namespace="math", type="query", access_control={"required_scopes": ["admin"]})
async def secret() -> int:
    "Not for everybody."
    return 42

@operation(namespace="math", type="subscription")
async def forever():
    yield 1
    await asyncio.sleep(60)
"""
CONFIGURATION = f"""
{LOCAL}
[serve]
http = "127.0.0.1:0"
drain_timeout = 5

[[serve.tokens]]
token = "${{TOKEN}}"
id = "joe"
scopes = ["admin"]

[serve.mcp]
name = "desk"
"""
TOKEN = "a-token-of-joe-12345"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(OPERATIONS)
    (tmp_path / "operad.toml").write_text(CONFIGURATION)
    return tmp_path


def running(folder: Path, *arguments: str, until: str = "/mcp", **env: str) -> Any:
    """``operad serve``, once it has said ``until``: its process, and what it said. It never says the token."""
    return operad(folder, "serve", *arguments, until=until, never=TOKEN, TOKEN=TOKEN, **env)


async def test_one_command_serves_http_mcp_and_health_and_drains_in_words_on_sigterm(folder: Path) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        running(folder, "--health", "127.0.0.1:0", until="/health") as (process, said),
        aiohttp.ClientSession() as session,
    ):
        assert "credentials    every operation requires them" in said
        base = url_in(said)
        health = re.search(r"health +(\S+)", said)
        assert health is not None
        for url in (health[1], f"{base}/health"):
            async with session.get(url) as response:
                assert await response.json() == {"status": "ok", "ready": True}
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        async with session.get(f"{base}/operations/math.add?a=1&b=2", headers=bearer) as response:
            assert await response.json() == 3
        for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), (bearer, 200)):
            async with session.get(f"{base}/operations/math.secret", headers=headers) as response:
                assert response.status == status
                assert status == 200 or response.headers["WWW-Authenticate"].startswith("Bearer")
            async with session.get(f"{base}/openapi.json", headers=headers) as response:
                seen = "math.secret" in await response.text()
                assert seen is (status == 200)
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            for path in ("/operations/math.add?a=1&b=2", "/mcp", "/openapi.json"):
                async with session.get(base + path, headers=headers) as response:
                    assert response.status in (403, 421), (headers, path)
        async with (
            httpx2.AsyncClient(headers=bearer) as own,
            Client(streamable_http_client(f"{base}/mcp", http_client=own)) as client,
        ):
            tools = await client.list_tools()
            assert [tool.name for tool in tools.tools] == ["math_add", "math_forever", "math_secret"]
            assert (await client.call_tool("math_add", {"a": 1, "b": 2})).structured_content == 3
        async with session.get(f"{base}/operations/math.forever", headers=bearer) as stream:
            assert await stream.content.readuntil(b"\n\n") == b"id: 1\ndata: 1\n\n"
            process.send_signal(signal.SIGTERM)
            last = (await stream.content.read()).decode()
            assert last.startswith("event: operad.error\n")
            assert "the server is stopping" in last
        assert (
            await asyncio.to_thread(process.stdout.read)
        ) == b"printed while it loads\nprinted by a handler\nprinted by a handler\n"


STUCK = """
import asyncio
from operad import operation

@operation(namespace="m")
async def stuck() -> None:
    print("stuck", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""


async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(STUCK)
    (tmp_path / "operad.toml").write_text(LOCAL)
    process = await asyncio.create_subprocess_exec(
        OPERAD, "serve", "--http", "127.0.0.1:0", cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(60):
            port = url_in((await process.stderr.readline()).decode()).rpartition(":")[2]
            _, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(b"POST /operations/m.stuck HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
            assert await process.stdout.readline() == b"stuck\n"
            process.terminate()
            while b"draining" not in await process.stderr.readline():
                pass
            process.terminate()  # a second one does not wait for the drain
            said = await process.stderr.read()
            await process.wait()
            writer.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    assert b"a call ignored its cancellation" in said


async def test_on_standard_streams_nothing_but_mcp_is_written_and_the_end_of_stdin_is_the_end(
    folder: Path,
) -> None:
    def request(method: str, number: int, **params: Any) -> bytes:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}}
        return json.dumps(message).encode() + b"\n"

    async with running(folder, "--mcp", "stdio", until="standard streams") as (process, said):
        assert "printed while it loads" in said
        process.stdin.write(request("tools/list", 1))
        process.stdin.write(request("tools/call", 2, name="math_add", arguments={"a": 1, "b": 2}))
        process.stdin.flush()
        answers = {}
        for _ in range(2):
            answer = json.loads(await asyncio.to_thread(process.stdout.readline))
            answers[answer["id"]] = answer["result"]
        assert [tool["name"] for tool in answers[1]["tools"]] == ["math_add", "math_forever"]
        assert answers[2]["structuredContent"] == 3
        process.stdin.close()
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert process.stdout.read() == b""


async def test_an_api_and_an_mcp_server_are_served_by_one_command_without_a_configuration(tmp_path: Path) -> None:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/openapi.json":
            get = {"operationId": "getBook", "responses": {"200": {"description": "A book."}}}
            return web.json_response(openapi({"/book": {"get": get}}))
        seen.append((request.path, request.headers.get("X-Key")))
        return web.json_response({"title": "Solaris"})

    async with listening(answer) as upstream:
        arguments = ("--http", "127.0.0.1:0", "--openapi", f"{upstream}/openapi.json", "--base-url", upstream)
        server = ("--mcp-server", f"{sys.executable} -m mcp_server_time --local-timezone UTC")
        header = ("--header", "X-Key=${KEY_OF_THE_SHOP}")
        async with (
            running(tmp_path, *arguments, *server, *header, KEY_OF_THE_SHOP="k-1") as (_, said),
            aiohttp.ClientSession() as session,
        ):
            base = url_in(said)
            async with session.get(f"{base}/openapi.json") as response:
                paths = list((await response.json())["paths"])
            assert paths == [
                "/operations/api.getBook",
                "/operations/time.convert_time",
                "/operations/time.get_current_time",
            ]
            async with session.get(f"{base}/operations/api.getBook") as response:
                assert await response.json() == {"title": "Solaris"}
                assert response.headers["Operad-Source"] == "http"
            async with session.post(
                f"{base}/operations/time.get_current_time", json={"timezone": "UTC"}
            ) as response:
                assert (await response.json())["timezone"] == "UTC"
    assert seen == [("/book", "k-1")]


async def test_everything_is_served_at_a_unix_socket_as_well(tmp_path: Path) -> None:
    @operation(namespace="math", type="query")
    async def add(a: int, b: int) -> int:
        return a + b

    registry, path = OperationRegistry(load_plugins()), tmp_path / "desk.sock"
    registry.register(add)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with front_door(registry, {"joe": TOKEN}, http=path) as url:
        assert url == f"http://unix:{path}:"
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)), headers=headers) as session:
            async with session.get("http://localhost/operations/math.add?a=1&b=2") as answer:
                assert await answer.json() == 3
            call = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            async with session.post("http://localhost/mcp", json=call) as answer:
                assert answer.status in (400, 406)  # the server is there; a session is not
            async with session.get("http://evil.example/openapi.json") as answer:
                assert answer.status == 421
    assert not path.exists()

"""What nobody here wrote judges what is served: schemathesis, openapi-spec-validator, a generated client, slow clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from operad import OperationRegistry, load_plugins
from operad_auth import StaticTokens
from operad_serve import to_openapi
from plugins.serve.tests import front_door
from tests.kit import output_of
from tests.peers.serving import shapes

HERE = Path(__file__).parent
UV = [found] if (found := os.environ.get("UV") or shutil.which("uv")) else ["python3", "-m", "uv"]
ROOT = HERE.parents[2]
SCHEMATHESIS = HERE / ".venv/bin/schemathesis"


async def in_environment(package: str, *command: str, cwd: Path) -> None:
    """Run a program of a package in an environment of its own. Skips where the package cannot be had."""
    arguments = [*UV, "tool", "run", "--from", package, *command]
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    if b"Failed to fetch" in out:
        pytest.skip(f"{package} cannot be fetched")
    assert process.returncode == 0, out.decode()


@pytest.fixture
async def app() -> Any:
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        for each in front_door.everything():
            registry.register(each)
        registry.register(front_door.SLASHED, front_door.who)
        yield to_openapi(registry, authenticate=StaticTokens(front_door.TOKENS))


TOKEN = "root-token-123456"
AS_ROOT = {"Authorization": f"Bearer {TOKEN}"}


async def judged(base: str, *options: str, cwd: Path) -> None:
    """Let schemathesis judge what is served. It makes all its checks unless told otherwise; see schemathesis.toml."""
    if not SCHEMATHESIS.exists():
        pytest.skip("make tests/peers/serving/.venv with requirements.txt")
    out = await output_of(
        SCHEMATHESIS, "--config-file", HERE / "schemathesis.toml", "run", f"{base}/openapi.json",
        "-H", f"Authorization: {AS_ROOT['Authorization']}", "-m", "all", "--continue-on-failure",
        "--request-timeout", "10", "--generation-database", "none", "--warnings", "off", *options,
        cwd=cwd, patience=None,
    )  # fmt: skip
    print(out.rpartition(" SUMMARY ")[2])  # how many cases there were: pytest -rP


async def test_schemathesis_finds_nothing_at_the_bounds_of_what_is_declared(app: Any, tmp_path: Path) -> None:
    async with front_door.served(app) as base:
        await judged(base, "--phases", "coverage", "--seed", "1", cwd=tmp_path)


async def test_schemathesis_finds_nothing_at_the_bounds_of_many_shapes(tmp_path: Path) -> None:
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        shapes.register(registry, every=9)
        async with front_door.served(to_openapi(registry)) as base:
            await judged(base, "--phases", "coverage", "--seed", "1", cwd=tmp_path)


@pytest.mark.long
async def test_schemathesis_finds_nothing_with_all_checks_and_phases(app: Any, tmp_path: Path) -> None:
    async with front_door.served(app) as base:
        await judged(base, "--phases", "examples,coverage,fuzzing,stateful", "-n", "300", cwd=tmp_path)


PET = {"id": 1, "name": "Rex", "photoUrls": [], "status": "available"}
ANSWERS: list[tuple[str, Any]] = [
    (r"GET /pet/findBy.*", [PET]),
    (r"POST /pet/.*/uploadImage", {"code": 200, "type": "", "message": ""}),
    (r"(DELETE|PUT) /(pet|user|store/order)/.*|GET /user/logout", None),
    (r"(GET|POST|PUT) /pet(/.*)?", PET),
    (r"GET /store/inventory", {"available": 1}),
    (r"(GET|POST) /store/order(/.*)?", {"id": 1, "petId": 1, "quantity": 1, "status": "placed"}),
    (r"GET /user/login", "logged in"),
    (r"(GET|POST) /user(/.*)?", {"id": 1, "username": "rex"}),
]
"""What a pet store says to each request, by method and path; ``None`` is an empty answer."""


async def store(request: web.Request) -> web.Response:
    """The pet store, which has the same pet for everybody."""
    asked = f"{request.method} {request.raw_path.partition('?')[0]}"
    for pattern, answer in ANSWERS:
        if re.fullmatch(pattern, asked):
            return web.Response() if answer is None else web.json_response(answer)
    raise web.HTTPNotImplemented(text=asked)


@pytest.mark.long
async def test_schemathesis_finds_nothing_in_several_hundred_operations_with_another_api_passed_on(
    tmp_path: Path,
) -> None:
    upstream = web.Application()
    upstream.router.add_route("*", r"/{path:[\s\S]*}", store)
    folder = os.environ.get("OPERAD_DOCUMENTS")
    async with TestServer(upstream) as server, OperationRegistry(load_plugins(only=["openapi"])) as registry:
        assert len(shapes.register(registry)) > 400
        if folder:
            document = f"{folder}/specs/petstore3.json"
            await registry.load("openapi", namespace="up", spec=document, base_url=str(server.make_url("/")))
        async with front_door.served(to_openapi(registry)) as base:
            await judged(base, "--phases", "examples,coverage,fuzzing,stateful", "-n", "20", cwd=tmp_path)


NODE_MODULES = HERE.parent / "mcp/node_modules/@modelcontextprotocol"
MCP_SERVERS = ("everything", "memory", "sequential-thinking")
UNSATISFIABLE = "resources.subscribe|trigger-long-running-operation|gzip-file-as-resource|simulated"
"""Operations of these servers that never end, that take longer than the judge waits, or that need another machine."""


@pytest.mark.long
async def test_schemathesis_finds_nothing_in_mcp_servers_that_are_passed_on(tmp_path: Path) -> None:
    if not NODE_MODULES.exists():
        pytest.skip("npm install --prefix tests/peers/mcp")
    async with OperationRegistry(load_plugins(only=["openapi", "mcp"])) as registry:
        for name in MCP_SERVERS:
            program = str(NODE_MODULES / f"server-{name}/dist/index.js")
            await registry.load("mcp", namespace=f"mcp-{name}", command="node", args=[program])
        async with front_door.served(to_openapi(registry)) as base:
            options = ("--phases", "examples,coverage,fuzzing,stateful", "-n", "20")
            await judged(base, *options, "--exclude-path-regex", UNSATISFIABLE, cwd=tmp_path)


@pytest.mark.long
async def test_the_document_is_valid_and_a_generated_client_calls_and_type_checks(
    app: Any, tmp_path: Path
) -> None:
    async with front_door.served(app) as base:
        async with (
            aiohttp.ClientSession(headers=AS_ROOT) as session,
            session.get(f"{base}/openapi.json") as response,
        ):
            document = await response.json()
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        generate = ("generate", "--path", "openapi.json", "--output-path", "client", "--meta", "none")
        await in_environment(
            "openapi-spec-validator==0.9.0", "openapi-spec-validator", "openapi.json", cwd=tmp_path
        )
        await in_environment("openapi-python-client", "openapi-python-client", *generate, cwd=tmp_path)
        (tmp_path / "use.py").write_text(
            "from client import AuthenticatedClient\nfrom client.api.shop import shop_add\n"
            "from client.models.shop_add_body import ShopAddBody\n"
            f"client = AuthenticatedClient(base_url={base!r}, token={TOKEN!r})\n"
            "print(shop_add.sync(client=client, body=ShopAddBody(a=40)))\n"
        )
        packages = "httpx,attrs,python-dateutil,mypy,types-python-dateutil"

        async def run(*command: str) -> subprocess.CompletedProcess[str]:
            python = [*UV, "run", "--no-project", "--with", packages, *command]
            return await asyncio.to_thread(
                subprocess.run, python, cwd=tmp_path, capture_output=True, text=True, check=False
            )

        done = await run("python", "use.py")
        assert done.stdout.strip() == "42", done.stderr
        done = await run("mypy", "use.py", "client")
        # client.py is the generator's own, the same for every document.
        found = [line for line in done.stdout.splitlines() if ": error:" in line]
        assert [line for line in found if not line.startswith("client/client.py:")] == []


SLOW = """
import asyncio, resource, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

async def main():
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        # A request that is never complete.
        writer.write(b"POST /operations/shop.add HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Length: 100\\r\\n\\r\\n{")
        writers.append(writer)
    print("here", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.long
async def test_slow_clients_do_not_keep_the_others_from_being_answered() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    slow = 10_000 if hard >= 11_000 else 800  # in a process of their own: each side has a descriptor for each
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 11_000)), hard))
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        registry.register(front_door.add)
        app = to_openapi(registry, body_timeout=600.0)
        async with front_door.served(app) as base, aiohttp.ClientSession() as session:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", SLOW, base.rpartition(":")[2], str(slow),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            assert await process.stdout.readline() == b"here\n"
            for _ in range(1_000):
                async with session.get(f"{base}/operations/shop.add?a=1") as response:
                    assert response.status == 200
            await process.communicate(b"")

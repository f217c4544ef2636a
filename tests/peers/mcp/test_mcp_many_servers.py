"""Many servers that other people wrote: each loads in the default mode, is called, killed, and called again.

They are in the folder that ``OPERAD_MCP_SERVERS`` names; ``python tests/peers/mcp/many_servers.py FOLDER`` makes it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tomllib
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from operad import CallError, ErrorCode, OperationRegistry, load_plugins
from operad_testing import free_port
from tests.kit import listener
from tests.peers.mcp.installed import HERE, NODE

FOLDER = Path(os.environ.get("OPERAD_MCP_SERVERS", "/nowhere"))
TABLE = tomllib.loads((HERE / "many_servers.toml").read_text(encoding="utf-8"))
ENTRIES = {entry["package"]: (kind, entry) for kind in ("npm", "pypi") for entry in TABLE[kind]}
OVER_HTTP = [package for package, (_, entry) in ENTRIES.items() if "http" in entry]

pytestmark = [
    pytest.mark.long,
    pytest.mark.node,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="OPERAD_MCP_SERVERS: see many_servers.py"),
]


def command(package: str) -> list[str]:
    kind, entry = ENTRIES[package]
    if kind == "pypi":
        name = re.split("[=<>]", package)[0]
        return [str(FOLDER / name / "bin" / entry.get("bin", name)), *entry.get("args", ())]
    folder = FOLDER / "node_modules" / package.rpartition("@")[0]
    found = json.loads((folder / "package.json").read_text(encoding="utf-8"))["bin"]
    script = found if isinstance(found, str) else next(iter(found.values()))
    return [str(NODE), str(folder / script), *entry.get("args", ())]


async def answers(registry: OperationRegistry, entry: dict[str, Any]) -> None:
    """The server pings, and answers its call."""
    await registry.execute("s.server.ping", timeout=60)
    if "call" in entry:
        tool, input = entry["call"]
        assert not (await registry.execute(f"s.{tool}", input, timeout=60)).meta.is_error


@pytest.mark.parametrize("package", list(ENTRIES))
async def test_a_server_over_stdio_loads_answers_and_survives_its_end(package: str) -> None:
    program, *arguments = command(package)
    entry = ENTRIES[package][1]
    before = set(psutil.Process().children(recursive=True))
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        specs = await registry.load(
            "mcp", namespace="s", command=program, args=arguments, env=entry.get("env", {}), connect_timeout=120,
            server_operations=True,
        )  # fmt: skip
        assert any(spec.metadata.get("mcp", {}).get("kind") == "tool" for spec in specs)
        await answers(registry, entry)
        (server,) = set(psutil.Process().children()) - before
        server.kill()
        await answers(registry, entry)
    async with asyncio.timeout(30):
        while any(child.is_running() for child in set(psutil.Process().children(recursive=True)) - before):
            await asyncio.sleep(0.05)


def process(package: str, port: int) -> AbstractAsyncContextManager[Any]:
    entry = ENTRIES[package][1]
    options = [argument.replace("PORT", str(port)) for argument in entry["http"]]
    loopback = {} if "--host" in options else {"NODE_OPTIONS": f"--require={HERE}/loopback.cjs"}
    env = {**entry.get("env", {}), "OPERAD_TEST_PORT": str(port), **loopback}
    return listener(port, *command(package), *options, **env)


@pytest.mark.parametrize("package", OVER_HTTP)
async def test_a_server_over_http_loads_answers_and_survives_a_restart(package: str) -> None:
    port = free_port()
    entry = ENTRIES[package][1]
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        async with process(package, port):
            # By its name, which is the only one that some of them take for their own.
            await registry.load(
                "mcp", namespace="s", url=f"http://localhost:{port}/mcp", headers=entry.get("header", {}),
                server_operations=True,
            )  # fmt: skip
            await answers(registry, entry)
        with pytest.raises(CallError) as caught:
            await registry.execute("s.server.ping", timeout=20)
        assert caught.value.code == ErrorCode.UNAVAILABLE
        async with process(package, port):
            await answers(registry, entry)

"""The example of a deployment runs: the commands of its units, a hub, a broker, three workers."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from operad import PendingRequestMap
from operad_testing import free_port
from operad_websocket import WebSocketTransport

Broker = Any  # see conftest.py, which tests cannot import
EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy"


def command_of(unit: str) -> list[str]:
    lines = (EXAMPLE / "systemd" / unit).read_text().splitlines()
    (line,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
    program, *arguments = shlex.split(line)
    return [str(Path(sys.executable).with_name(Path(program).name)), *arguments]


@asynccontextmanager
async def running(unit: str, word: bytes, environment: dict[str, str]) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *command_of(unit), cwd=EXAMPLE, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        assert word in line, (line + await asyncio.wait_for(process.stdout.read(2_000), 5)).decode()
        yield
    finally:
        process.terminate()
        async with asyncio.timeout(60):
            await process.communicate()
    assert process.returncode == 0


async def test_three_workers_behind_a_hub(broker: Broker) -> None:
    port = free_port()
    environment = {
        "OPERAD_TRANSPORT": broker.server.url,
        "OPERAD_HUB_PORT": str(port),
        "OPERAD_HUB_TOKEN": "secret",
    }
    async with AsyncExitStack() as stack:
        for unit, word in (*[("operad-worker@.service", b"serving")] * 3, ("operad-gateway.service", b"hub on")):
            await stack.enter_async_context(running(unit, word, environment))
        hub = WebSocketTransport(f"ws://127.0.0.1:{port}", token="secret")
        async with PendingRequestMap(hub) as calls, asyncio.timeout(60):
            assert (await calls.call("orders.total", {"prices": [1.5, 2]})).data == 3.5
            seen = set()
            while len(seen) < 3:
                seen.add((await calls.call("orders.worker")).data)


def test_the_compose_file_describes_the_same() -> None:
    services = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    assert set(services) == {"nats", "worker", "gateway"}
    assert services["worker"]["deploy"]["replicas"] == 3
    assert services["gateway"]["command"] == ["python", "gateway.py"]
    assert "ports" not in services["nats"]  # the broker is not reached from outside

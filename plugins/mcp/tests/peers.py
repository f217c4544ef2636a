"""Servers for tests of MCP, and what waits for them."""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import uvicorn

from operad import CallError, OperationRegistry, load_plugins
from plugins.mcp.tests import mcp_feature_server

HOSTILE = Path(__file__).with_name("mcp_hostile_server.py")
FEATURES = Path(__file__).with_name("mcp_feature_server.py")
MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@asynccontextmanager
async def hostile(*modes: str, **options: Any) -> AsyncIterator[OperationRegistry]:
    """A registry with the hostile server as namespace ``h``."""
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        options = {"mode": "legacy", **options}
        await registry.load("mcp", namespace="h", command=sys.executable, args=[str(HOSTILE), *modes], **options)
        yield registry


@asynccontextmanager
async def features(**options: Any) -> AsyncIterator[OperationRegistry]:
    """A registry with the feature server as namespace ``f``: a new one, in this process, unless options name one."""
    if not {"url", "server", "command"} & options.keys():
        options["server"] = feature_server()
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        await registry.load("mcp", namespace="f", **options)
        yield registry


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The URL of an ASGI application that is served in this event loop."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
        serving = asyncio.ensure_future(server.serve([listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


def feature_server() -> Any:
    """A new feature server in this process."""
    return importlib.reload(mcp_feature_server).server


class HttpServer:
    """The feature server as a process that listens on a port, and can be started again on the same."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(FEATURES), "http", str(self.port),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def fails(awaitable: Any) -> CallError:
    """Return the error of a call."""
    with pytest.raises(CallError) as caught:
        await awaitable
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, for at most ten seconds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def names(registry: OperationRegistry) -> set[str]:
    """Return the names of all operations, without their namespaces."""
    return {spec.name for spec in registry.specs()}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

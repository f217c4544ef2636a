"""Servers for tests of MCP, and what waits for them."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import uvicorn

from operad import CallError, OperationContext, OperationRegistry, OperationSpec, load_plugins
from operad_testing import free_port
from plugins.mcp.tests import mcp_feature_server

HOSTILE = Path(__file__).with_name("mcp_hostile_server.py")
FEATURES = Path(__file__).with_name("mcp_feature_server.py")
TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
Json = dict[str, Any]
Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


def table(name: str) -> pytest.MarkDecorator:
    """Return the parameters of a test: their names and its cases, which may have names too."""
    arguments, cases = TABLES[name]
    if isinstance(cases, dict):
        return pytest.mark.parametrize(arguments, cases.values(), ids=list(cases))
    return pytest.mark.parametrize(arguments, cases)


def plain() -> OperationRegistry:
    """A registry without a source."""
    return OperationRegistry(load_plugins(only=["mcp"]))


def raw(made: OperationRegistry, name: str, answer: Any, **spec: Any) -> OperationRegistry:
    """Register an operation that returns what it is given here, or raises it, or that is its handler."""

    async def handler(input: Any, context: OperationContext) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    made.register(OperationSpec(namespace="m", name=name, **spec), answer if callable(answer) else handler)
    return made


def watched(subscribe: Any, **spec: Any) -> OperationRegistry:
    """A registry with the resource ``up://x``, which can be watched with a subscription."""
    made, found = OperationRegistry(), [{"uri": "up://x", "name": "x"}]
    for name, answer, more in (
        ("list", found, {"type": "query"}),
        ("read", found, {"type": "query"}),
        ("subscribe", subscribe, {"type": "subscription", **spec}),
    ):
        raw(made, f"resources.{name}", answer, metadata={"mcp": {"kind": f"resources.{name}"}}, **more)
    return made


class Slow:
    """A handler that waits until it may go on."""

    def __init__(self) -> None:
        self.started, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, input: Any, context: OperationContext) -> Any:
        self.started.set()
        try:
            await self.go.wait()
        finally:
            self.ended.set()
        return "done"


@asynccontextmanager
async def loaded(namespace: str, **options: Any) -> AsyncIterator[OperationRegistry]:
    """A registry with one server, or with a file of them."""
    async with plain() as registry:
        await registry.load("mcp", namespace=namespace, **options)
        yield registry


def program(*modes: str, **options: Any) -> dict[str, Any]:
    """The options of the hostile server."""
    return {"command": sys.executable, "args": [str(HOSTILE), *modes], "mode": "legacy", **options}


def hostile(*modes: str, **options: Any) -> AbstractAsyncContextManager[OperationRegistry]:
    """A registry with the hostile server as namespace ``h``."""
    return loaded("h", **program(*modes, **options))


def features(**options: Any) -> AbstractAsyncContextManager[OperationRegistry]:
    """A registry with the feature server as namespace ``f``: a new one, in this process, unless options name one."""
    if not {"url", "server", "command"} & options.keys():
        options["server"] = feature_server()
    return loaded("f", **options)


@asynccontextmanager
async def listening(app: Any, port: int = 0) -> AsyncIterator[str]:
    """The URL of an ASGI application that is served in this event loop."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
        serving = asyncio.ensure_future(server.serve([listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def reached(port: int) -> None:
    """Wait until a server listens on a port."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return


def feature_server() -> Any:
    """A new feature server in this process."""
    return importlib.reload(mcp_feature_server).server


class HttpServer:
    """The feature server as a process that listens on a port, and can be started again on the same."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(FEATURES), "http", str(self.port),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await reached(self.port)

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Caller:
    """The client that waits for a call, and can be asked; `asked` has its questions."""

    capabilities: Mapping[str, Any] = {"elicitation": {}, "sampling": {}}

    def __init__(self, action: str = "accept") -> None:
        self.asked: list[Any] = []
        self._action = action

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, level: str, data: Any, logger: str | None) -> None: ...

    async def elicit(self, message: str, schema: Any, url: str | None, key: str | None) -> dict[str, Any]:
        self.asked.append((message, schema, url, key))
        return {"action": self._action, "content": {"name": "Ada"}}

    async def sample(self, request: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        self.asked.append((request, key))
        return {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "abacus"}

    async def roots(self, key: str | None) -> list[Any]:
        return [{"uri": "file:///a"}]


def answer_of(message: Json) -> Json | None:
    """What a server with the tools ``echo``, ``odd`` and ``hang`` answers to a request that it knows."""
    method, value = message.get("method"), None
    if method == "initialize":
        value = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p"}}
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "odd", "hang")]
        value = {"tools": tools}
    elif method == "tools/call":
        value = {"content": [], "structuredContent": message["params"]["arguments"]}
    return None if value is None else {"jsonrpc": "2.0", "id": message["id"], "result": value}


async def fails(awaitable: Any) -> Any:
    """Return the error of a call."""
    with pytest.raises(CallError) as caught:
        await awaitable
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, for at most ten seconds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def line(**answer: Any) -> dict[str, str]:
    """Return the input of the hostile server's ``raw`` that makes it answer this."""
    return {"text": json.dumps({"jsonrpc": "2.0", "id": 77, **answer}).replace("77", "ID", 1) + "\n"}


def spec_of(registry: OperationRegistry, operation_id: str) -> OperationSpec:
    """Return the spec of an operation, which has to be there."""
    spec = registry.get_spec(operation_id)
    assert spec is not None
    return spec


def names(registry: OperationRegistry) -> set[str]:
    """Return the names of all operations, without their namespaces."""
    return {spec.name for spec in registry.specs()}


def children() -> set[int]:
    """Return the processes that this process has started, by their ids."""
    return {child.pid for child in psutil.Process().children()}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

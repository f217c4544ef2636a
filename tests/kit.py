"""What several folders of tests use: servers, commands, documents, and requests of MCP."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from operad import OperationRegistry
from operad_auth import TokenRecord
from operad_serve import FrontDoor, Plan, ServeOptions

ROOT = Path(__file__).parents[1]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPERAD = Path(sys.executable).with_name("operad")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOCAL = '[sources.local]\ntype = "scanner"\npath = "ops.py"\n'
"""The table of a source with the functions of a file."""


def marked(*marks: pytest.MarkDecorator) -> Callable[[Any], Any]:
    """Return a decorator that gives several marks to a test."""
    return lambda test: reduce(lambda inner, mark: mark(inner), marks, test)


# --- documents -----------------------------------------------------------------------------------------

DOCUMENTS = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")).absolute()
GITHUB = ROOT / "tests/peers/prism/node_modules/@octokit/openapi/generated/api.github.com.json"


def document(name: str) -> Path:
    """Return the OpenAPI document of a well-known API, which may be missing."""
    return GITHUB if name == "github" else DOCUMENTS / "specs" / f"{name}.json"


def needed_document(name: str) -> Path:
    """Return the document of a well-known API; skip the test without it."""
    path = document(name)
    if not path.exists():
        pytest.skip(f"OPERAD_DOCUMENTS names no folder with {path.name}, or npm did not install it")
    return path


def openapi(paths: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return an OpenAPI document with these paths."""
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


# --- servers -------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(*routes: web.RouteDef | Handler) -> AsyncIterator[str]:
    """Serve routes, or a handler of every request; yield the URL."""
    app = web.Application(client_max_size=2**40)
    app.add_routes(r if isinstance(r, web.RouteDef) else web.route("*", "/{path:.*}", r) for r in routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def front_door(
    registry: OperationRegistry,
    users: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    http: Any = None,
    servers: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[str]:
    """Open a front door with HTTP API and MCP to users with tokens; yield its URL."""
    records = [TokenRecord(token=token, id=name) for name, token in (users or {}).items()]
    options = {"tokens": records, **options}
    plan = Plan(options=ServeOptions(**options), http=http or ("127.0.0.1", port), servers=servers or {})
    door = FrontDoor(registry, plan, asyncio.Event())
    async with door.open():
        yield str(door.url)


# --- processes -----------------------------------------------------------------------------------------


@asynccontextmanager
async def operad(
    folder: Path,
    *arguments: str,
    until: str,
    never: str = "Traceback",
    program: tuple[str | Path, ...] = (OPERAD,),
    **env: str,
) -> AsyncIterator[Any]:
    """Run a command of operad that serves, and end it as a service manager does.

    Yields its process and what it wrote to standard error, once that matches ``until``. It may not write ``never``.
    """
    # Not asyncio's: its thread that waits for the end, and a signal that is sent then, both collect the process.
    process = subprocess.Popen(
        [*program, *arguments], cwd=folder, env={**os.environ, **env},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        said = ""
        try:
            async with asyncio.timeout(60):
                while re.search(until, said) is None:
                    line = await asyncio.to_thread(process.stderr.readline)
                    assert line, said
                    said += line.decode()
            yield process, said
        finally:
            process.terminate()
            rest = (await asyncio.to_thread(process.stderr.read)).decode()
            await asyncio.to_thread(process.wait, 60)
        assert process.returncode == 0, said + rest
        assert never not in said + rest


def url_in(said: str) -> str:
    """Return the first URL that a command told that it serves at."""
    found = re.search(r"on ((?:https?|ws)://\S+?);", said)
    assert found is not None, said
    return found[1]


@asynccontextmanager
async def listener(port: int, *command: str | Path, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a server of others, which listens on a port; yield its process, and kill it."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **env},
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(600):
            while True:
                assert process.returncode is None, f"{command} ended with {process.returncode}"
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    break
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def output_of(
    *command: str | Path,
    given: str = "",
    code: int = 0,
    encoding: str = "utf-8",
    patience: float | None = 180,
    **options: Any,
) -> str:
    """Return what a program writes to standard output, or to standard error if its exit code shall not be 0."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    try:
        async with asyncio.timeout(patience):
            out, errors = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == code, out.decode()[-3000:] + errors.decode()[-3000:]
    return (errors if code else out).decode(encoding)


# --- MCP -----------------------------------------------------------------------------------------------

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


def tool_call(tool: str, arguments: Any = None, *, capabilities: Any = None, **params: Any) -> dict[str, Any]:
    """Return the options of a request that calls a tool in the stateless protocol."""
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}
    given = {"name": tool, "arguments": arguments or {}, "_meta": meta, **params}
    headers = {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    return {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}, "headers": headers}


async def session_headers(
    http: aiohttp.ClientSession, url: str, headers: Mapping[str, str], **capabilities: Any
) -> dict[str, str]:
    """Open a session of the handshake protocol; return the headers of its requests."""
    given = {**ACCEPT, **headers}
    info = {"name": "h", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with http.post(url, json=opening, headers=given) as response:
        session = response.headers["mcp-session-id"]
    given |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    async with http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=given):
        return given


def session_call(tool: str) -> dict[str, Any]:
    """Return a call of a tool within a session."""
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {}}}

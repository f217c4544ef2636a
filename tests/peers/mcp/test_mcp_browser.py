"""A page of an allowed origin, in a real browser, is a client of a served registry."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from operad import Identity, OperationRegistry, load_plugins, operation
from operad_auth import Credentials
from operad_mcp import to_mcp
from plugins.serve.tests.front_door import served
from tests.kit import CHROMIUM, listening

PAGE = Path(__file__).with_name("browser_client.html")

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@operation(namespace="b", type="query")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def authenticate(credentials: Credentials) -> Identity | None:
    return Identity("page") if credentials.bearer == "secret" else None


@asynccontextmanager
async def browsing(url: str, profile: Path) -> AsyncIterator[None]:
    """A browser without a window that shows a page."""
    assert CHROMIUM is not None
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
    ]
    quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
    process = await asyncio.create_subprocess_exec(CHROMIUM, *options, url, **quiet, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def read_by_a_page(profile: Path, *, is_allowed: bool) -> Any:
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def page(request: web.Request) -> web.StreamResponse:
        if request.path == "/page":
            return web.FileResponse(PAGE)
        seen.set_result(json.loads(await request.text()))
        return web.Response(status=204)

    registry = OperationRegistry(load_plugins(only=["mcp"]))
    registry.register(add)
    async with listening(page) as own:
        origin = own.replace("127.0.0.1", "localhost")
        allowed = {"allowed_origins": [origin]} if is_allowed else {}
        serving = to_mcp(registry, authenticate=authenticate, **allowed)
        async with served(serving.asgi(), lifespan="on") as url:
            page_url = f"{origin}/page?url=" + quote(f"{url}/mcp", safe="")
            async with browsing(page_url, profile), asyncio.timeout(60):
                return await seen


async def test_a_page_of_an_allowed_origin_lists_and_calls(tmp_path: Path) -> None:
    assert await read_by_a_page(tmp_path, is_allowed=True) == {
        "challenge": "Bearer", "session": True, "tools": ["b_add"], "text": "5", "ended": 200
    }  # fmt: skip


async def test_a_page_of_another_origin_reads_nothing(tmp_path: Path) -> None:
    assert await read_by_a_page(tmp_path, is_allowed=False) == {"raised": "TypeError: Failed to fetch"}

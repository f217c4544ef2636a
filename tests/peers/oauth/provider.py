"""The authorization server of this folder, which is certified: oidc-provider."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad_testing import free_port

HERE = Path(__file__).parent

needs_provider = [
    pytest.mark.node,
    pytest.mark.skipif(
        not (HERE / "node_modules" / "oidc-provider").is_dir(),
        reason=f"needs node and oidc-provider; run: npm install --prefix {HERE}",
    ),
]


@asynccontextmanager
async def node(*command: str | Path, cwd: Path = HERE, binary: str | Path = "node") -> AsyncIterator[Any]:
    """Run a program of Node that ends with its standard input, or with the test."""
    process = await asyncio.create_subprocess_exec(
        binary, *command, cwd=cwd, limit=1 << 20,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


async def line_of(process: Any, part: str = "") -> str:
    """Return the next line of a program that contains a text."""
    async with asyncio.timeout(90):
        while line := await process.stdout.readline():
            if part in line.decode():
                return str(line.decode().strip())
    raise AssertionError("the program has ended")


@asynccontextmanager
async def running(keys: str = "[]", *redirect_uri: str) -> AsyncIterator[str]:
    """Run the server, which knows public keys of a client; with a redirect URI it has the client ``gateway``."""
    port = free_port()
    async with node("server.mjs", str(port), keys, *redirect_uri) as process:
        await line_of(process, "ready")
        yield f"http://127.0.0.1:{port}"

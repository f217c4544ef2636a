"""Tasks of a server that other people wrote, over HTTP and stdio: results, questions, and calls resumed elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, OperationContext, OperationRegistry, load_plugins
from operad_testing import free_port
from tests.kit import listener
from tests.peers.mcp.installed import HERE, PYTHON, needs_python

SERVER = HERE / "fastmcp_tasks_server.py"
pytestmark = needs_python


@asynccontextmanager
async def loaded(**options: Any) -> AsyncIterator[OperationRegistry]:
    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"name": "Ada"}}

    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        await registry.load("mcp", namespace="t", elicitation=elicitation, **options)
        yield registry


async def results(registry: OperationRegistry) -> None:
    crunch, ask, fail = await asyncio.gather(
        *(registry.execute(f"t.{name}", input, timeout=30) for name, input in CALLS.items())
    )
    assert crunch.data == {"text": "ABC"}
    assert "Hello Ada" in str(ask.data)
    assert fail.meta.is_error
    assert "a hawk" in str(fail.data)


CALLS: dict[str, dict[str, Any]] = {"crunch": {"text": "abc"}, "ask": {}, "fail": {}}


async def test_calls_that_fastmcp_makes_tasks_of_answer_ask_and_are_resumed_by_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    long, keyed = {"text": "long", "seconds": 1.5}, OperationContext(idempotency_key="k")
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    async with listener(port, PYTHON, SERVER, "http", str(port)):
        async with loaded(url=url) as registry:
            await results(registry)
            with pytest.raises(CallError, match="TIMEOUT|deadline|in time"):
                await registry.execute("t.crunch", long, context=keyed, timeout=0.5)
        async with loaded(url=url) as registry:
            assert (await registry.execute("t.crunch", long, context=keyed, timeout=30)).data == {"text": "LONG"}
            assert "long" in str(ran := (await registry.execute("t.ran")).data)
            assert str(ran).count("long") == 1


@pytest.mark.long
async def test_calls_that_fastmcp_makes_tasks_of_answer_over_stdio() -> None:
    async with loaded(command=str(PYTHON), args=[str(SERVER), "stdio"]) as registry:
        await results(registry)

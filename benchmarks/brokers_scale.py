"""How `brokers.py` measures growth: more workers, more operations, more callers."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from typing import Any

import psutil

from operad import CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, load_plugins
from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer

OPERATIONS = 10_000
CALLERS = 1_000
MONITOR = 18_222
WORK_MS = 0.5
"""What a call of `workers` computes, so that there is something to share out."""


def workers(engine: str) -> None:
    """Throughput and shares with 1 to 4 workers; two callers, 64 calls in flight each."""
    print(f"\n{engine}: workers, each call computes {WORK_MS} ms; {psutil.cpu_count()} cores")
    print(f"{'workers':>8}{'calls/s':>10}   shares")
    with NATSServer() if engine == "nats" else RedisServer() as server:
        processes: list[subprocess.Popen[str]] = []
        try:
            for _ in range(4):
                command = [sys.executable, __file__, "work", server.url, str(len(processes))]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                processes.append(process)
                assert process.stdout is not None
                process.stdout.readline()
                rate, shares = asyncio.run(load(server.url, 6_000))
                spread = " ".join(f"{share / 6_000:.0%}" for _, share in sorted(shares.items()))
                print(f"{len(processes):>8}{rate:>10.0f}   {spread}")
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def load(url: str, count: int) -> tuple[float, Counter[str]]:
    shares: Counter[str] = Counter()
    left = iter(range(count))
    async with PendingRequestMap(load_plugins().transport(url)) as calls:
        await calls.call("bench.work")

        async def caller() -> None:
            for _ in left:
                shares[(await calls.call("bench.work")).data] += 1

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(64)))
        return count / (time.perf_counter() - started), shares


async def work(url: str, name: str) -> None:
    async def handler(input: Any, context: Any) -> str:
        until = time.thread_time() + WORK_MS / 1000
        while time.thread_time() < until:
            pass
        return name

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="bench", name="work", type="query"), handler)
    async with CallHandler(registry, load_plugins().transport(url)):
        print("ready", flush=True)
        await asyncio.Event().wait()


def scale(engine: str) -> None:
    """What 10,000 operations and 1,000 callers cost on the broker and in the processes."""
    with NATSServer(["-m", str(MONITOR)]) if engine == "nats" else RedisServer() as server:
        asyncio.run(_scale(engine, server))


async def _scale(engine: str, server: NATSServer | RedisServer) -> None:
    own, broker = psutil.Process(), psutil.Process(server.pid)

    def row(what: str, **figures: object) -> None:
        gc.collect()
        counted = broker_counts(engine, server)
        figures = {
            "broker MB": broker.memory_info().rss >> 20,
            "process MB": own.memory_info().rss >> 20,
        } | figures
        print(f"  {what:44}", *(f"{key} {value}" for key, value in (counted | figures).items()), sep="  ")

    print(f"\n{engine}")
    row("nothing")
    registry = OperationRegistry()

    async def handler(input: Any, context: Any) -> Any:
        return input

    for number in range(OPERATIONS):
        registry.register(OperationSpec(namespace="scale", name=f"op{number}", type="query"), handler)
    row(f"{OPERATIONS} operations in a registry")
    transport = load_plugins().transport(server.url)
    async with CallHandler(registry, transport):
        started = time.perf_counter()
        async with CallHandler(registry, transport):
            took = time.perf_counter() - started
            row("served by two workers", **{"second took s": f"{took:.2f}"})
            started = time.perf_counter()
            callers = [PendingRequestMap(transport) for _ in range(CALLERS)]
            for start in range(0, CALLERS, 50):
                await asyncio.gather(*(calls.open() for calls in callers[start : start + 50]))
            row(f"and {CALLERS} callers", **{"they took s": f"{time.perf_counter() - started:.2f}"})
            started = time.perf_counter()
            for number in range(5):
                name = f"scale.op{number * 97}"
                await asyncio.gather(*(calls.call(name, {"n": 1}, timeout=60) for calls in callers))
            rate = 5 * CALLERS / (time.perf_counter() - started)
            row(f"{5 * CALLERS} calls, one per caller at once", **{"calls/s": f"{rate:.0f}"})
            for start in range(0, CALLERS, 50):
                await asyncio.gather(*(calls.aclose() for calls in callers[start : start + 50]))
    row("all gone")


def broker_counts(engine: str, server: NATSServer | RedisServer) -> dict[str, object]:
    if engine == "nats":
        with urllib.request.urlopen(f"http://127.0.0.1:{MONITOR}/varz", timeout=10) as answer:
            figures = json.load(answer)
        return {"connections": figures["connections"], "subscriptions": figures["subscriptions"]}
    import redis

    with redis.Redis.from_url(server.url) as raw:
        clients, memory = raw.info("clients"), raw.info("memory")
        channels = len(raw.pubsub_channels())
        return {
            "connections": clients["connected_clients"] - 1,
            "keys": raw.dbsize(),
            "channels": channels,
            "used MB": round(memory["used_memory"] / 2**20, 1),
        }


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[2:4]))

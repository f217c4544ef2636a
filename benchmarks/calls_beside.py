"""Small calls beside large answers: what they wait, through a hub, NATS and Redis.

    python benchmarks/calls_beside.py [--engine hub|nats|redis] [--answers 256] [--items 2000] [--rows]

256 answers of 90 % of the largest payload are asked for at once, each dropped as it comes; then a stream of 2,000
items of 1 MB is read with default options; then both at once. All the while small calls are made one after the
other, on the same call map and on one of their own. Server, worker and caller are processes of their own on
127.0.0.1. ``--rows`` makes the large values of many small ones, instead of one text.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import time
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
from calls import free_port, wait_for_port

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, load_plugins
from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer
from operad_websocket import Hub

PAYLOADS = {"hub": 4 * 2**20, "nats": 2**20, "redis": 4 * 2**20}


def value(size: int, rows: bool) -> Any:
    if not rows:
        return "x" * size
    row = {"id": 12_345, "name": "a name of some length", "price": 1.25, "ok": True, "tags": ["a", "b"]}
    return [row] * (size // 90)


def run_hub(port: int) -> None:
    async def main() -> None:
        async with Hub(port=port):
            await asyncio.Event().wait()

    asyncio.run(main())


def run_worker(url: str, rows: bool) -> None:
    registry = OperationRegistry()
    made: dict[int, Any] = {}

    def get(size: int) -> Any:
        if size not in made:
            made[size] = value(size, rows)
        return made[size]

    async def big(input: Any, context: Any) -> Any:
        return get(input["size"])

    async def bigs(input: Any, context: Any) -> Any:
        for _ in range(input["count"]):
            yield get(input["size"])

    async def small(input: Any, context: Any) -> Any:
        return input["n"]

    for name, type_, handler in (("big", "query", big), ("bigs", "subscription", bigs), ("small", "query", small)):
        registry.register(OperationSpec(namespace="bench", name=name, type=type_), handler)

    async def main() -> None:
        async with CallHandler(registry, load_plugins().transport(url)):
            await asyncio.Event().wait()

    asyncio.run(main())


@contextmanager
def engine(name: str) -> Any:
    """The URL of a server, and its process."""
    if name == "hub":
        port = free_port()
        process = multiprocessing.get_context("spawn").Process(target=run_hub, args=(port,), daemon=True)
        process.start()
        wait_for_port(port)
        try:
            yield f"ws://127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            process.kill()
            process.join()
        return
    server: Any = NATSServer() if name == "nats" else RedisServer()
    with server:
        yield server.url, psutil.Process(server.pid)


async def small_calls(calls: PendingRequestMap, times: list[float]) -> None:
    number = 0
    while True:
        started = time.perf_counter()
        assert (await calls.call("bench.small", {"n": number})).data == number
        times.append((time.perf_counter() - started) * 1000)
        number += 1
        await asyncio.sleep(0.002)


class Load:
    """The large answers and items of one call map."""

    def __init__(self, calls: PendingRequestMap, size: int, options: Any) -> None:
        self._calls = calls
        self._size = size
        self._options = options

    async def answers(self) -> str:
        count, lost = self._options.answers, 0

        async def one() -> None:
            nonlocal lost
            try:
                await self._calls.call("bench.big", {"size": self._size})
            except CallError as error:
                lost += 1
                print("   lost:", repr(error)[:150])

        await asyncio.gather(*(one() for _ in range(count)))
        return f"{count} answers of {self._size / 2**20:.1f} MB, {lost} lost"

    async def items(self) -> str:
        count, wanted = 0, self._options.items
        async for _ in self._calls.subscribe("bench.bigs", {"size": min(2**20, self._size), "count": wanted}):
            count += 1
        return f"{count} of {wanted} items of {min(2**20, self._size) / 2**20:.1f} MB"

    async def both(self) -> str:
        return "; ".join(await asyncio.gather(self.answers(), self.items()))


async def measure(url: str, size: int, options: Any, server: psutil.Process) -> None:
    make = load_plugins().transport
    async with PendingRequestMap(make(url)) as calls, PendingRequestMap(make(url)) as other:
        for _ in range(200):
            try:
                await calls.call("bench.small", {"n": 1}, timeout=1)
                break
            except CallError:
                await asyncio.sleep(0.05)
        peak = 0

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, server.memory_info().rss)
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        load = Load(calls, size, options)
        for work in (load.answers, load.items, load.both):
            shared: list[float] = []
            own: list[float] = []
            small = (small_calls(calls, shared), small_calls(other, own))
            beside = [asyncio.create_task(task) for task in small]
            started = time.perf_counter()
            what = await work()
            took = time.perf_counter() - started
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            waits = f"same map {spread(shared)}, other map {spread(own)}"
            print(f"{options.current:6}{what}: {took:.1f} s\n{'':6}small calls, ms: {waits}", flush=True)
        watching.cancel()
        await asyncio.wait({watching})
        caller = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{'':6}memory: caller at most {caller:.0f} MB, server {peak / 2**20:.0f} MB", end="")


def spread(times: list[float]) -> str:
    times = sorted(times) or [float("nan")]
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    return f"p50 {p50:.0f}, p99 {p99:.0f}, worst {times[-1]:.0f} of {len(times)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=tuple(PAYLOADS))
    parser.add_argument("--answers", type=int, default=256)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--rows", action="store_true")
    options: Any = parser.parse_args()
    for name in [options.engine] if options.engine else PAYLOADS:
        options.current = name
        with ExitStack() as stack:
            url, server = stack.enter_context(engine(name))
            context = multiprocessing.get_context("spawn")
            worker = context.Process(target=run_worker, args=(url, options.rows), daemon=True)
            worker.start()
            stack.callback(worker.kill)
            asyncio.run(measure(url, PAYLOADS[name] * 9 // 10, options, server))
            print(f", worker now {psutil.Process(worker.pid).memory_info().rss / 2**20:.0f} MB", flush=True)
            worker.kill()
            worker.join()


if __name__ == "__main__":
    main()

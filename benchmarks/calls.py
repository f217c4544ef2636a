"""The call protocol: in process, and through a WebSocket hub beside its floor, in the same run.

``python benchmarks/calls.py [--quick]``

The floor of the hub is an echo of the same bytes over the same two hops (client, forwarding server, echo) on
aiohttp alone: no codec, no correlation. Each side of it, as of the hub, is a process of its own. Larger texts,
other transports, gRPC, WAMP and FastStream: `calls_peers.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import psutil
from aiohttp import WSMsgType, web

from operad import CallHandler, InProcessTransport, OperationRegistry, OperationSpec, PendingRequestMap
from operad_websocket import Hub, WebSocketTransport

INPUT = {"id": 7, "name": "a name of some length", "tags": ["a", "b", "c"], "at": 1.5, "text": "x" * 60}
OUTPUT = {"items": [{"id": n, "name": f"item {n}", "price": 1.25, "ok": True} for n in range(6)], "next": None}
FLOOR_REQUEST, FLOOR_ANSWER = b"x" * 350, b"y" * 535
ROUNDS = 5
HUB_ROUNDS = 5
Call = Callable[[], Awaitable[Any]]


def registry() -> OperationRegistry:
    async def read(input: Any, context: Any) -> Any:
        return OUTPUT

    async def count(input: Any, context: Any) -> Any:
        for number in range(input["to"]):
            yield number

    async def wait(input: Any, context: Any) -> Any:
        await asyncio.sleep(600)

    made = OperationRegistry()
    for name, type_, handler in (
        ("read", "query", read),
        ("count", "subscription", count),
        ("wait", "query", wait),
    ):
        made.register(OperationSpec(namespace="bench", name=name, type=type_), handler)
    return made


# --- measuring -------------------------------------------------------------------------------------


async def latency(call: Call, count: int) -> tuple[float, float]:
    """p50 and p99 of calls one after the other, in us."""
    for _ in range(count // 10):
        await call()
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await call()
        times.append(time.perf_counter() - started)
    times.sort()
    return times[count // 2] * 1e6, times[count * 99 // 100] * 1e6


async def throughput(call: Call, count: int, at_once: int = 64) -> float:
    """Calls per second with so many in flight."""

    async def lane() -> None:
        for _ in range(count // at_once):
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(at_once)))
    return count // at_once * at_once / (time.perf_counter() - started)


async def items_per_second(calls: PendingRequestMap, count: int) -> float:
    started = time.perf_counter()
    async for _ in calls.subscribe("bench.count", {"to": count}):
        pass
    return count / (time.perf_counter() - started)


def best(rows: list[dict[str, float]]) -> dict[str, float]:
    """The best of each figure over rounds: what disturbs a machine only ever makes it slower."""
    return {key: max(row[key] for row in rows) for key in rows[0]}


# --- the parts -------------------------------------------------------------------------------------


async def in_process(scale: int) -> dict[str, float]:
    transport = InProcessTransport()
    async with CallHandler(registry(), transport), PendingRequestMap(transport) as calls:

        async def call() -> None:
            await calls.call("bench.read", INPUT)

        rate = await throughput(call, 40_000 // scale)
        return {"rate": rate, "items": await items_per_second(calls, 200_000 // scale)}


async def beside_a_future(scale: int) -> dict[str, float]:
    """p50 in us of a call, and of one hand-off through a future, which any awaiting takes; in short turns."""
    loop, transport = asyncio.get_running_loop(), InProcessTransport()

    async def hand_off() -> None:
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future

    async with CallHandler(registry(), transport), PendingRequestMap(transport) as calls:

        async def call() -> None:
            await calls.call("bench.read", INPUT)

        rows = []
        for _ in range(100 // scale):
            floor, (p50, _), again = (
                await latency(hand_off, 400),
                await latency(call, 400),
                await latency(hand_off, 400),
            )
            future = (floor[0] + again[0]) / 2
            rows.append({"future": future, "p50": p50, "ratio": p50 / future})
        return median(rows)


async def processor_time(scale: int, rounds: int) -> dict[str, float]:
    """Processor time in us of both sides together: what does not depend on who else uses the machine."""
    transport = InProcessTransport()
    best_of: dict[str, float] = {}
    async with CallHandler(registry(), transport), PendingRequestMap(transport) as calls:

        async def call() -> None:
            await calls.call("bench.read", INPUT)

        count = 20_000 // scale
        for _ in range(2 * rounds):
            started = time.process_time()
            await throughput(call, count)
            per_call = time.process_time() - started
            started = time.process_time()
            await items_per_second(calls, count)
            per_item = time.process_time() - started
            for name, spent in (("call", per_call), ("item", per_item)):
                best_of[name] = min(best_of.get(name, 1e9), spent / count * 1e6)
    return best_of


async def idle_bytes() -> float:
    """Bytes that a pending call costs while it waits, on the calling side."""

    class Nowhere:
        """A transport whose requests nobody answers."""

        capabilities = InProcessTransport().capabilities
        inbox = "inbox:bench"

        async def open(self, on_event: Any, on_link: Any) -> Any:
            return self

        async def send(self, to: str, event: Any) -> str:
            return "inbox:nobody"

        async def close(self) -> None: ...

    async with PendingRequestMap(Nowhere(), max_pending=20_000, timeout=600) as calls:
        # The coroutine and task of the caller are the caller's; what the map adds is measured.
        futures = []
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tasks = [asyncio.create_task(calls.call("bench.wait", None)) for _ in range(10_000)]
        await asyncio.sleep(0.1)
        whole = tracemalloc.get_traced_memory()[0] - before
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        del tasks
        calls._requests.orphans.clear()

        async def bare() -> None:
            future = asyncio.get_running_loop().create_future()
            futures.append(future)
            await future

        before = tracemalloc.get_traced_memory()[0]
        tasks = [asyncio.create_task(bare()) for _ in range(10_000)]
        await asyncio.sleep(0.1)
        task_alone = tracemalloc.get_traced_memory()[0] - before
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        tracemalloc.stop()
    return (whole - task_alone) / 10_000


Spent = Callable[[], float]
"""Processor time in s that the servers of a measurement have taken so far."""


async def flood(call: Call, count: int, servers: Spent) -> dict[str, float]:
    """Calls per second with 64 in flight, and the processor time in us that each took, here and in all servers."""
    before, here = servers(), time.process_time()
    rate = await throughput(call, count)
    here, there = time.process_time() - here, servers() - before
    return {"rate": rate, "cpu": (here + there) / count * 1e6}


@asynccontextmanager
async def through_hub(url: str) -> AsyncIterator[tuple[Call, PendingRequestMap]]:
    async with PendingRequestMap(WebSocketTransport(url)) as calls:

        async def call() -> None:
            await calls.call("bench.read", INPUT)

        yield call, calls


@asynccontextmanager
async def two_hops(url: str) -> AsyncIterator[Call]:
    """The floor: the answer to each request is the oldest one that is waited for."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/client") as socket:
        waiting: list[asyncio.Future[None]] = []

        async def receive() -> None:
            async for _ in socket:
                waiting.pop(0).set_result(None)

        receiving = asyncio.create_task(receive())

        async def call() -> None:
            future = asyncio.get_running_loop().create_future()
            waiting.append(future)
            await socket.send_bytes(FLOOR_REQUEST)
            await future

        yield call
        receiving.cancel()
        await asyncio.wait({receiving})


# --- processes -------------------------------------------------------------------------------------


def run_hub(port: int) -> None:
    async def main() -> None:
        async with Hub(port=port):
            await asyncio.Event().wait()

    asyncio.run(main())


def run_worker(port: int) -> None:
    async def main() -> None:
        async with CallHandler(registry(), WebSocketTransport(f"ws://127.0.0.1:{port}")):
            await asyncio.Event().wait()

    asyncio.run(main())


def run_forwarder(port: int) -> None:
    """Passes what a client sends to the echo, and what the echo sends to the client."""
    ends: dict[str, web.WebSocketResponse] = {}

    async def on_request(request: web.Request) -> web.WebSocketResponse:
        own, other = ("echo", "client") if request.path == "/echo" else ("client", "echo")
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        ends[own] = socket
        while other not in ends:
            await asyncio.sleep(0.01)
        async for message in socket:
            await ends[other].send_bytes(message.data)
        return socket

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/{path}", on_request)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    asyncio.run(main())


def run_echo(port: int) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"ws://127.0.0.1:{port}/echo") as socket:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await socket.send_bytes(FLOOR_ANSWER)

    asyncio.run(main())


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def processes(*targets: tuple[Callable[..., None], int]) -> Any:
    context = multiprocessing.get_context("spawn")
    started = []
    try:
        for target, port in targets:
            process = context.Process(target=target, args=(port,), daemon=True)
            process.start()
            started.append(process)
            wait_for_port(port)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.join()


def spent_by(pids: list[int]) -> Spent:
    watched = [psutil.Process(pid) for pid in pids]
    return lambda: sum(times.user + times.system for times in (process.cpu_times() for process in watched))


def wait_for_port(port: int) -> None:
    import socket

    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on {port}")


@asynccontextmanager
async def served(url: str) -> Any:
    """Wait until the worker serves."""
    async with PendingRequestMap(WebSocketTransport(url)) as calls:
        limit = time.monotonic() + 30
        while True:
            try:
                await calls.call("bench.read", INPUT, timeout=1)
                break
            except Exception:
                if time.monotonic() > limit:
                    raise
                await asyncio.sleep(0.05)
    yield


async def measure_hub(starts: int) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Hub, floor and their ratio: the medians of many short rounds, in which they take turns.

    Which of two processors runs which of three processes changes from second to second, and with it all figures,
    by half and more. A best of a few long rounds compares a lucky one with an unlucky one. Some of it lasts as
    long as the processes do, so they are started anew.
    """
    rounds = [row for start in range(starts) for row in await one_start(start)]
    ratios = [{key: hub[key] / floor[key] for key in floor} for hub, floor in rounds]
    return median([hub for hub, _ in rounds]), median([floor for _, floor in rounds]), median(ratios)


async def one_start(number: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Hub and floor, in each round."""
    hub_port, floor_port = free_port(), free_port()
    parts = ((run_hub, hub_port), (run_worker, hub_port), (run_forwarder, floor_port), (run_echo, floor_port))
    with processes(*parts) as pids:
        hub, floor = f"ws://127.0.0.1:{hub_port}", f"ws://127.0.0.1:{floor_port}"
        of_hub, of_floor = spent_by(pids[:2]), spent_by(pids[2:])
        rows = []
        async with served(hub), two_hops(floor) as echo, through_hub(hub) as (call, calls):
            with placed(pids, number):
                alone = [(await latency(echo, 400), await latency(call, 400)) for _ in range(HUB_ROUNDS)]
            for (floor_p50, _), (p50, _) in alone:
                its = {"p50": floor_p50, **await flood(echo, 3_200, of_floor)}
                ours = {"p50": p50, **await flood(call, 3_200, of_hub)}
                rows.append(({**ours, "items": await items_per_second(calls, 6_000)}, its))
        return rows


@contextmanager
def placed(pids: list[int], number: int) -> Iterator[None]:
    """Hub and floor on the same two processors: those between, those at the far end, or the caller alone on one.

    For calls one after the other, and for them only. Left alone, a call that is waited for is a third quicker or
    slower by where the kernel has just put whom, and the floor of the same round is elsewhere. Where processors
    cannot be chosen, it is so.
    """
    free = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(free) < 2:
        yield
        return
    hub, worker, forwarder, echo = pids
    alone = ((hub, forwarder), (worker, echo), (os.getpid(),))[number % 3]
    try:
        for pid in (os.getpid(), *pids):
            os.sched_setaffinity(pid, free[:1] if pid in alone else free[1:2])
        yield
    finally:
        for pid in (os.getpid(), *pids):
            os.sched_setaffinity(pid, free)


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over rounds."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


# --- the report ------------------------------------------------------------------------------------


def line(name: str, value: str, ratio: str = "", target: str = "") -> None:
    print(f"{name:<44} {value:>16}  {ratio:<26} {target}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The call protocol: in process and through a WebSocket hub.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    options = parser.parse_args(arguments)
    scale, rounds = (10, 2) if options.quick else (1, ROUNDS)

    async def inside() -> tuple[dict[str, float], dict[str, float]]:
        return best([await in_process(scale) for _ in range(rounds)]), await beside_a_future(scale)

    load = os.getloadavg()[0]
    local, single = asyncio.run(inside())
    spent = asyncio.run(processor_time(scale, rounds))
    idle = asyncio.run(idle_bytes())
    hub, two, ratios = asyncio.run(measure_hub(1 if options.quick else 9))
    print(f"# calls: CPython {sys.version.split()[0]}, load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    line("one future, awaited", f"{single['future']:.1f} us")
    line("in process, p50", f"{single['p50']:.1f} us", f"{single['ratio']:.1f} x one future", "at most 6.5")
    line("in process, calls/s at 64", f"{local['rate']:,.0f}", "", "at least 55,000")
    line("in process, stream items/s", f"{local['items']:,.0f}", "", "at least 250,000")
    for what in ("call", "item"):
        rate = f"{1e6 / spent[what]:,.0f}/s if alone"
        line(f"in process, processor time of a{'n' * (what == 'item')} {what}", f"{spent[what]:.1f} us", rate)
    line("10,000 idle pending calls, each", f"{idle:,.0f} bytes", "beyond its task", "below 1,024")
    line("two-hop aiohttp echo, p50", f"{two['p50']:.0f} us")
    line("hub, p50, placed alike", f"{hub['p50']:.0f} us", f"{ratios['p50']:.2f} x the echo", "at most 1.6")
    line("two-hop aiohttp echo, calls/s at 64", f"{two['rate']:,.0f}")
    share = f"{100 * ratios['rate']:.0f} % of the echo"
    line("hub, calls/s at 64", f"{hub['rate']:,.0f}", share, "at least 35 %")
    line("two-hop aiohttp echo, processor time of one", f"{two['cpu']:.0f} us")
    share = f"{ratios['cpu']:.2f} x the echo"
    line("hub, processor time of a call", f"{hub['cpu']:.0f} us", share, "caller, hub and worker")
    line("hub, stream items/s", f"{hub['items']:,.0f}", "", "at least 40,000")


if __name__ == "__main__":
    main()

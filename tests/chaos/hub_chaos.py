"""Calls through a hub while processes are killed, sockets cut in the middle of a frame, and frames delayed.

``python tests/chaos/hub_chaos.py --calls 100000`` prints what became of every call, as JSON; it ends with 1 if one
of the promises is broken:

- each call ends exactly once, in a result or a `CallError`, and not long after its deadline;
- no mutation runs twice;
- afterwards nothing is pending: not in the caller, not in the hub, not in a worker;
- memory is flat: the caller's growth over the second half of the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from operad_websocket import Hub, WebSocketTransport

WORKERS = 3
IN_FLIGHT = 64


# --- the processes that are killed -------------------------------------------------------------------


async def serve_hub(port: int) -> None:
    registry = OperationRegistry()
    hub = Hub(port=port, ping=2.0)

    async def status(input, context):
        return {"pending": hub.pending - 1, "connections": hub.connections}

    registry.register(OperationSpec(namespace="hub", name="status", type="query"), status)
    async with hub, CallHandler(registry, hub.transport):
        await asyncio.Event().wait()


async def serve_worker(url: str, log: str, name: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    registry = OperationRegistry()

    async def work(input, context):
        os.write(descriptor, f"{input['name']}\n".encode())  # one short append: whole, or not at all
        await asyncio.sleep(random.random() * 0.002)
        return input["name"]

    async def slow(input, context):
        await asyncio.sleep(60)

    async def count(input, context):
        for number in range(input["to"]):
            yield number

    async def status(input, context):
        return {"active": handler.active - 1}

    def add(id: str, type: str, function) -> None:
        registry.register(OperationSpec(namespace="chaos", name=id, type=type), function)

    add("work", "mutation", work)
    add("read", "query", work)
    add("slow", "query", slow)
    add("count", "subscription", count)
    add(f"status.{name}", "query", status)
    handler = CallHandler(registry, WebSocketTransport(url, ping=2.0))
    while True:
        try:
            await handler.open()
            break
        except Exception:
            handler = CallHandler(registry, WebSocketTransport(url, ping=2.0))
            await asyncio.sleep(0.1)
    await asyncio.Event().wait()


# --- the bad network -------------------------------------------------------------------------------


class Proxy:
    """Between spokes and hub: delays one chunk in twenty, and cuts connections in the middle of one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pumps: set[asyncio.Task[None]] = set()
        self._cut: set[asyncio.StreamWriter] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        for task in tuple(self._pumps):
            task.cancel()
        if self._pumps:
            await asyncio.wait(self._pumps)

    def cut(self) -> None:
        """Cut a connection in the middle of what it carries next."""
        if self._writers:
            self._cut.add(random.choice(tuple(self._writers)))

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, target, writer, back))
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, source, target, *ends) -> None:
        self._writers.add(target)
        try:
            while data := await source.read(65_536):
                if random.random() < 0.05:
                    await asyncio.sleep(random.random() * 0.05)
                if target in self._cut:
                    target.write(data[: len(data) // 2])
                    break
                target.write(data)
                await target.drain()
        except (ConnectionError, OSError):
            pass
        finally:
            self._writers.discard(target)
            self._cut.discard(target)
            for end in ends:
                end.close()


# --- the caller ------------------------------------------------------------------------------------


class Chaos:
    def __init__(self, calls: int, seed: int) -> None:
        self.count = calls
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.endings = bytearray(calls)
        self.worst_overrun = 0.0
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.log = os.path.join(tempfile.mkdtemp(prefix="operad-chaos-"), "runs")
        self.kills: Counter[str] = Counter()
        self.memory: list[int] = []

    async def start_process(self, name: str, *arguments: str) -> None:
        self.processes[name] = await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments)

    async def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
        self.kills[name.split(" ")[0]] += 1

    async def start_worker(self, number: int) -> None:
        name = f"worker {number}"
        await self.start_process(name, "worker", self.url, self.log, str(number))

    async def one_call(self, calls: PendingRequestMap, number: int) -> None:
        kind = self.random.random()
        timeout = 0.3 if kind < 0.01 else 3.0
        started = time.monotonic()
        task = asyncio.create_task(self._make(calls, number, kind, timeout))
        if kind > 0.99:
            await asyncio.sleep(self.random.random() * 0.005)
            task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        self.endings[number] += 1
        self.worst_overrun = max(self.worst_overrun, time.monotonic() - started - timeout)
        if isinstance(outcome, CallError):
            self.outcomes[str(outcome.code)] += 1
        elif isinstance(outcome, asyncio.CancelledError):
            self.outcomes["cancelled"] += 1
        elif isinstance(outcome, BaseException):
            self.outcomes[f"BROKEN {outcome!r}"] += 1
        else:
            self.outcomes["result"] += 1

    async def _make(self, calls: PendingRequestMap, number: int, kind: float, timeout: float) -> None:
        name = f"{number}"
        if kind < 0.01:
            await calls.call("chaos.slow", timeout=timeout)
        elif kind < 0.02:
            items = [item.data async for item in calls.subscribe("chaos.count", {"to": 100}, timeout=timeout)]
            assert items == list(range(100)), items
        elif kind < 0.4:
            envelope = await calls.call("chaos.read", {"name": f"q{name}"}, timeout=timeout, retry=True)
            assert envelope.data == f"q{name}"
        else:
            envelope = await calls.call("chaos.work", {"name": name}, timeout=timeout)
            assert envelope.data == name

    async def break_things(self, calls: PendingRequestMap) -> None:
        while True:
            await asyncio.sleep(0.3 + self.random.random() * 0.7)
            with suppress(TimeoutError):  # a machine that is slow to start processes would only see them missing
                await asyncio.wait_for(self._until_served(calls), 20)
            what = self.random.random()
            if what < 0.5:
                self.proxy.cut()
                self.kills["sockets cut"] += 1
            elif what < 0.9:
                number = self.random.randrange(WORKERS)
                await self.kill(f"worker {number}")
                await self.start_worker(number)
            else:
                await self.kill("hub")
                await self.start_process("hub", "hub", str(self.hub_port))

    async def run(self) -> dict[str, object]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.hub_port = free.getsockname()[1]
        self.proxy = Proxy(self.hub_port)
        self.url = f"ws://127.0.0.1:{await self.proxy.start()}"
        await self.start_process("hub", "hub", str(self.hub_port))
        for number in range(WORKERS):
            await self.start_worker(number)
        started = time.monotonic()
        try:
            async with await self._connected() as calls:
                await self._until_served(calls)
                breaking = asyncio.create_task(self.break_things(calls))
                numbers = iter(range(self.count))

                async def lane() -> None:
                    for number in numbers:
                        await self.one_call(calls, number)
                        if self.outcomes.total() % 100 == 0:
                            self.memory.append(psutil.Process().memory_info().rss)
                        if not calls._requests.up.is_set():  # a caller that is told so does not hammer
                            await asyncio.sleep(0.05)

                await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
                breaking.cancel()
                await asyncio.wait({breaking})
                await self._restore()
                await self._until_served(calls)
                left = await self._left(calls)
                return self.report(time.monotonic() - started, left)
        finally:
            for name in tuple(self.processes):
                await self.kill(name)
            await self.proxy.close()

    async def _connected(self) -> PendingRequestMap:
        while True:
            calls = PendingRequestMap(WebSocketTransport(self.url, ping=2.0))
            try:
                await calls.open()
            except Exception:
                await asyncio.sleep(0.1)
            else:
                await calls.aclose()
                return calls

    async def _until_served(self, calls: PendingRequestMap) -> None:
        ids = [f"chaos.status.{number}" for number in range(WORKERS)]
        for operation_id in ids:
            while True:
                try:
                    await calls.call(operation_id, timeout=2.0)
                    break
                except CallError:
                    await asyncio.sleep(0.1)

    async def _restore(self) -> None:
        """Start what a cancelled breaking had just killed."""
        if "hub" not in self.processes:
            await self.start_process("hub", "hub", str(self.hub_port))
        for number in range(WORKERS):
            if f"worker {number}" not in self.processes:
                await self.start_worker(number)

    async def _left(self, calls: PendingRequestMap) -> dict[str, int]:
        """What is pending where, once what was on its way has come."""
        for _ in range(100):
            left = {"caller": calls.pending}
            left["hub"] = (await calls.call("hub.status")).data["pending"]
            for number in range(WORKERS):
                left[f"worker {number}"] = (await calls.call(f"chaos.status.{number}")).data["active"]
            if not any(left.values()):
                break
            await asyncio.sleep(0.1)
        return left

    def report(self, seconds: float, left: dict[str, int]) -> dict[str, object]:
        runs = Counter(Path(self.log).read_text().split())
        twice = [name for name, count in runs.items() if count > 1 and not name.startswith("q")]
        growth = 0
        if len(self.memory) >= 4:
            half = len(self.memory) // 2
            growth = max(self.memory[half:]) - max(self.memory[:half])
        return {
            "calls": self.count,
            "seconds": round(seconds, 1),
            "outcomes": dict(self.outcomes),
            "ended_once": self.endings == bytearray([1]) * self.count,
            "worst_overrun_ms": round(self.worst_overrun * 1000),
            "mutations_run": sum(1 for name in runs if not name.startswith("q")),
            "mutations_run_twice": twice,
            "pending_afterwards": left,
            "memory_growth_bytes": growth,
            "broken": dict(self.kills),
        }


def kept(report: dict[str, object], overrun_ms: float) -> bool:
    """Whether the promises were kept."""
    return (
        bool(report["ended_once"])
        and not report["mutations_run_twice"]
        and not any(report["pending_afterwards"].values())
        and not any(outcome.startswith("BROKEN") for outcome in report["outcomes"])
        and report["worst_overrun_ms"] <= overrun_ms
        and report["memory_growth_bytes"] < 16 * 2**20
    )


def main() -> None:
    if sys.argv[1:2] == ["hub"]:
        asyncio.run(serve_hub(int(sys.argv[2])))
    elif sys.argv[1:2] == ["worker"]:
        asyncio.run(serve_worker(*sys.argv[2:5]))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--calls", type=int, default=100_000)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--overrun-ms", type=float, default=250)
        arguments = parser.parse_args()
        report = asyncio.run(Chaos(arguments.calls, arguments.seed).run())
        print(json.dumps(report, indent=1))
        sys.exit(not kept(report, arguments.overrun_ms))


if __name__ == "__main__":
    main()

"""Calls through a hub, NATS or Redis while everything breaks: processes are killed, frozen and restarted, sockets are
cut in the middle of a frame, bytes delayed, and (on a hub) names taken by somebody else while their owner is away.

`Chaos.run` reports what became of every call, for test_calls_chaos.py. How late a call ended is told less how long the
caller's own process stood still meanwhile, which is the machine's.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from operad import (
    CallError,
    CallHandler,
    Identity,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    load_plugins,
)
from operad.plugin import TransportError
from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer
from operad_testing import ServerProcess
from operad_websocket import Hub, WebSocketTransport, bearer_tokens

WORKERS = 3
IN_FLIGHT = 64
LARGEST = {"hub": 3_600_000, "nats": 900_000, "redis": 3_600_000}
TICK = 0.01


def transport(url: str, who: str) -> Any:
    if url.startswith("ws:"):
        return WebSocketTransport(url, token=who, ping=2.0)
    return load_plugins().transport(url)


# --- the processes that are killed -------------------------------------------------------------------


async def serve_hub(port: int) -> None:
    registry = OperationRegistry()
    tokens = {name: Identity(id=name) for name in ("worker", "caller", "thief")}
    hub = Hub(bearer_tokens(tokens), port=port, ping=2.0)

    async def status(input, context):
        return {"pending": hub.pending - 1, "connections": hub.connections}

    registry.register(OperationSpec(namespace="hub", name="status", type="query"), status)
    async with hub, CallHandler(registry, hub.transport):
        await asyncio.Event().wait()


class HubServer(ServerProcess):
    """A hub, as the servers of brokers are."""

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, __file__, "hub", str(self.port)]

    def answers(self, probe: socket.socket) -> bool:
        return True


async def serve_worker(url: str, log: str, name: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    registry = OperationRegistry()

    async def work(input, context):
        os.write(descriptor, f"{input['name']}\n".encode())  # one short append: whole, or not at all
        await asyncio.sleep(random.random() * 0.002)
        return input["name"]

    async def big(input, context):
        return "x" * input["size"]

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
    add("big", "query", big)
    add("slow", "query", slow)
    add("count", "subscription", count)
    add(f"status.{name}", "query", status)
    while True:
        handler = CallHandler(registry, transport(url, "worker"))
        try:
            await handler.open()
            break
        except TransportError:  # the server is away, or a thief has the names
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
    def __init__(self, over: str, calls: int) -> None:
        self.over = over
        self.count = calls
        self.random = random.Random(1)
        self.outcomes: Counter[str] = Counter()
        self.endings = bytearray(calls)
        self.worst_overrun = 0.0
        self.stood = deque[tuple[float, float]]()
        self.server: Any = {"hub": HubServer, "nats": NATSServer, "redis": RedisServer}[over]()
        self.workers: dict[int, asyncio.subprocess.Process] = {}
        self.log = os.path.join(tempfile.mkdtemp(prefix="operad-chaos-"), "runs")
        self.broken: Counter[str] = Counter()
        self.memory: list[int] = []

    # --- what breaks

    async def start_worker(self, number: int) -> None:
        arguments = (sys.executable, __file__, "worker", self.url, self.log, str(number))
        self.workers[number] = await asyncio.create_subprocess_exec(*arguments)

    async def kill_worker(self, number: int) -> None:
        process = self.workers.pop(number)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()

    async def restart_server(self) -> None:
        end = self.server.kill if self.random.random() < 0.5 else self.server.stop
        await asyncio.to_thread(end)
        await asyncio.sleep(self.random.random())
        await asyncio.to_thread(self.server.start)

    async def freeze_worker(self) -> None:
        process = self.workers[self.random.randrange(WORKERS)]
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self.random.choice((0.3, 1.0, 4.0)))
        finally:
            process.send_signal(signal.SIGCONT)

    async def steal_names(self) -> None:
        """After a restart the hub knows no owner: somebody else is quicker, and the workers are refused."""
        await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)
        with suppress(TransportError):
            thief = PendingRequestMap(
                WebSocketTransport(self.server.url, token="thief"),
                on_request=lambda request: refusing.add(
                    asyncio.create_task(thief.emit_error(request.request_id, "STOLEN"))
                ),
            )
            refusing: set[asyncio.Task[None]] = set()
            async with thief:
                for name in ("work", "big"):
                    with suppress(TransportError):
                        await thief.serve(f"chaos.{name}")
                        self.broken["names stolen"] += 1
                await asyncio.sleep(1.0)
            await asyncio.gather(*refusing, return_exceptions=True)  # some are of requests that have ended

    async def break_things(self, calls: PendingRequestMap) -> None:
        while True:
            await asyncio.sleep(0.5 + self.random.random() * 2.5)
            with suppress(TimeoutError):  # a machine that is slow to start processes would only see them missing
                await asyncio.wait_for(self._until_served(calls), 20)
            what = self.random.random()
            if what < 0.4:
                self.proxy.cut()
                self.broken["sockets cut"] += 1
            elif what < 0.65:
                number = self.random.randrange(WORKERS)
                await self.kill_worker(number)
                await self.start_worker(number)
                self.broken["workers killed"] += 1
            elif what < 0.85:
                await self.freeze_worker()
                self.broken["workers frozen"] += 1
            elif what < 0.95 or self.over != "hub":
                await self.restart_server()
                self.broken["servers restarted"] += 1
            else:
                await self.steal_names()

    async def watch_clock(self) -> None:
        """How long this process stood still, and when."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK)
            behind = time.monotonic() - before - TICK
            if behind > TICK:
                self.stood.append((time.monotonic(), behind))
                while len(self.stood) > 1_000:
                    self.stood.popleft()

    # --- what is called

    async def one_call(self, calls: PendingRequestMap, number: int) -> None:
        kind = self.random.random()
        timeout = 0.3 if kind < 0.01 else 4.0
        started = time.monotonic()
        task = asyncio.create_task(self._make(calls, number, kind, timeout))
        if kind > 0.99:
            await asyncio.sleep(self.random.random() * 0.005)
            task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        self.endings[number] += 1
        limit = started + timeout
        stood = sum(behind for at, behind in self.stood if at > limit)
        self.worst_overrun = max(self.worst_overrun, time.monotonic() - limit - stood)
        end = "cancelled" if isinstance(outcome, asyncio.CancelledError) else "result"
        if isinstance(outcome, CallError):
            end = str(outcome.code)
        elif isinstance(outcome, Exception):
            end = f"BROKEN {outcome!r}"[:300]
        self.outcomes[end] += 1

    async def _make(self, calls: PendingRequestMap, number: int, kind: float, timeout: float) -> None:
        name, operation = f"{number}", "work"
        size = self.random.randrange(100_000, LARGEST[self.over]) if 0.02 <= kind < 0.04 else 0
        input: dict[str, Any] = {"name": name}
        if kind < 0.01:
            await calls.call("chaos.slow", timeout=timeout)
            return
        if kind < 0.02:
            items = [item.data async for item in calls.subscribe("chaos.count", {"to": 100}, timeout=timeout)]
            assert items == list(range(100)), items
            return
        if kind < 0.03:
            operation, input = "big", {"size": size}
        elif kind < 0.04:
            input["with"] = "y" * size
        elif kind < 0.4:
            operation, input = "read", {"name": f"q{name}"}
        envelope = await calls.call(f"chaos.{operation}", input, timeout=timeout, retry="safe")
        assert envelope.data == (input["name"] if "name" in input else "x" * size)

    async def run(self) -> dict[str, Any]:
        await asyncio.to_thread(self.server.start)
        self.proxy = Proxy(self.server.port)
        self.url = f"{self.server.url.partition(':')[0]}://127.0.0.1:{await self.proxy.start()}"
        for number in range(WORKERS):
            await self.start_worker(number)
        watching = asyncio.create_task(self.watch_clock())
        try:
            async with PendingRequestMap(transport(self.url, "caller")) as calls:
                await self._until_served(calls)
                breaking = asyncio.create_task(self.break_things(calls))
                numbers = iter(range(self.count))

                async def lane() -> None:
                    for number in numbers:
                        await self.one_call(calls, number)
                        if self.outcomes.total() % 100 == 0:
                            self.memory.append(psutil.Process().memory_info().rss)

                await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
                breaking.cancel()
                await asyncio.wait({breaking})
                if not breaking.cancelled() and (error := breaking.exception()) is not None:
                    raise error
                await self._restore()
                await self._until_served(calls)
                left = await self._left(calls)
                return self.report(left)
        finally:
            watching.cancel()
            await asyncio.wait({watching})
            for number in tuple(self.workers):
                await self.kill_worker(number)
            await self.proxy.close()
            await asyncio.to_thread(self.server.kill)

    async def _until_served(self, calls: PendingRequestMap) -> None:
        for operation_id in [f"chaos.status.{number}" for number in range(WORKERS)] + ["chaos.work"]:
            while True:
                try:
                    await calls.call(operation_id, {"name": "q"}, timeout=2.0)
                    break
                except CallError:
                    await asyncio.sleep(0.1)

    async def _restore(self) -> None:
        """Start what a cancelled breaking had just ended."""
        try:
            self.server.pid  # noqa: B018  # raises where it does not run
        except RuntimeError:
            await asyncio.to_thread(self.server.start)
        for number in range(WORKERS):
            if number not in self.workers:
                await self.start_worker(number)

    async def _left(self, calls: PendingRequestMap) -> dict[str, int]:
        """What is pending where, once what was on its way has come, and leases of streams have ended (30 s)."""
        left: dict[str, int] = {}
        for _ in range(350):
            left = {"caller": calls.pending}
            if self.over == "hub":
                left["hub"] = (await calls.call("hub.status")).data["pending"]
            try:
                for number in range(WORKERS):
                    left[f"worker {number}"] = (await calls.call(f"chaos.status.{number}")).data["active"]
            except CallError:  # one that stood still too long is about to serve again
                left[f"worker {number}"] = -1
            if not any(left.values()):
                break
            await asyncio.sleep(0.1)
        return left

    def report(self, left: dict[str, int]) -> dict[str, Any]:
        runs = Counter(name for name in Path(self.log).read_text().split() if not name.startswith("q"))
        half = len(self.memory) // 2
        growth = max(self.memory[half:]) - max(self.memory[:half]) if half > 1 else 0
        return {
            "outcomes": dict(self.outcomes),
            "ended_once": self.endings == bytearray([1]) * self.count,
            "worst_overrun": self.worst_overrun,
            "mutations_run_twice": [name for name, count in runs.items() if count > 1],
            "pending_afterwards": left,
            "memory_growth": growth,
            "broken": dict(self.broken),
        }


if __name__ == "__main__":
    asyncio.run(serve_hub(int(sys.argv[2])) if sys.argv[1] == "hub" else serve_worker(*sys.argv[2:5]))

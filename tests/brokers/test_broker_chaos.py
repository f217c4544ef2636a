"""Brokers and workers that die, freeze and dawdle under load: what the callers see, and what ran."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap

Broker = Hire = Log = Any  # see conftest.py, which tests cannot import

SLACK = 5.0
"""Seconds that a call may take beyond its deadline, where the machine is busy."""
PATIENCE = 30.0
"""Seconds for calls that have to be answered."""


class Callers:
    """Calls under way, and how each ended."""

    def __init__(self, calls: PendingRequestMap) -> None:
        self.calls = calls
        self.ends: dict[str, list[Any]] = {}
        self.late: list[float] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, operation: str, ids: Iterable[str], timeout: float = 4.0, **input: Any) -> None:
        for id in ids:
            self.tasks.append(asyncio.create_task(self._call(operation, id, timeout, input)))

    async def _call(self, operation: str, id: str, timeout: float, input: dict[str, Any]) -> None:
        started = time.monotonic()
        try:
            envelope = await self.calls.call(f"chaos.{operation}", {"id": id, **input}, timeout=timeout)
            end: Any = envelope.data
        except CallError as error:
            end = error
        self.ends.setdefault(id, []).append(end)
        self.late.append(time.monotonic() - started - timeout)

    async def finish(self) -> None:
        """All calls have ended, each once, none later than its deadline and the slack."""
        await asyncio.gather(*self.tasks)
        assert len(self.ends) == len(self.tasks)
        assert all(len(ends) == 1 for ends in self.ends.values())
        assert max(self.late) < SLACK
        assert self.calls.pending == 0

    def codes(self, prefix: str = "") -> Counter[str]:
        """How the calls whose ids begin with ``prefix`` ended: ``ok``, or the code of the error."""
        return Counter(
            str(ends[0].code) if isinstance(ends[0], CallError) else "ok"
            for id, ends in self.ends.items()
            if id.startswith(prefix)
        )


def ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


async def test_a_broker_that_is_killed_ends_every_call_once_and_runs_no_mutation_twice(
    broker: Broker, hire: Hire, log: Log
) -> None:
    for name in ("one", "two"):
        await hire(name)
    async with PendingRequestMap(broker.transport()) as calls:
        callers = Callers(calls)
        callers.start("change", ids("held", 40), timeout=PATIENCE, delay=60.0)
        await log.until(40)
        broker.server.kill()
        callers.start("change", ids("down", 40))
        await asyncio.sleep(0.2)
        broker.server.start()
        async with asyncio.timeout(60):
            while True:  # until a worker is back
                callers.start("change", ids(f"up{len(callers.tasks)}-", 10))
                await asyncio.sleep(0.1)
                if callers.codes("up").get("ok", 0) >= 50:
                    break
        await callers.finish()
    assert callers.codes("held") == {"UNAVAILABLE": 40}
    assert callers.codes("down") == {"UNAVAILABLE": 40}
    runs = Counter(log.of("change"))
    assert max(runs.values()) == 1
    assert not [id for id in runs if id.startswith("down")]  # what was never sent never ran


async def test_a_worker_that_is_killed_in_the_middle_of_calls(broker: Broker, hire: Hire, log: Log) -> None:
    """Queries run again where requests are redelivered; a mutation that may have run is not run again."""
    victim = await hire("victim", slow=60.0)
    await hire("other")
    limit = PATIENCE if broker.kind == "redis" else 4.0
    async with PendingRequestMap(broker.transport()) as calls:
        callers = Callers(calls)
        callers.start("change", ids("change", 30), timeout=limit)
        callers.start("read", ids("read", 30), timeout=limit)
        await log.until(60)
        victim.send(signal.SIGKILL)
        await victim.process.wait()
        await callers.finish()
        assert (await calls.call("chaos.read", {"id": "after"})).data == "other"
    assert max(Counter(log.of("change")).values()) == 1
    if broker.kind == "redis":
        assert callers.codes("read") == {"ok": 30}
        assert set(callers.codes("change")) == {"ok", "UNAVAILABLE"}
    else:  # nobody knows where a request is: it ends at its deadline
        assert set(callers.codes()) == {"ok", "TIMEOUT"}
        assert callers.codes()["ok"] >= 10


async def test_a_worker_that_freezes_does_not_hold_up_the_others(broker: Broker, hire: Hire, log: Log) -> None:
    frozen = await hire("frozen")
    await hire("other")
    limit = PATIENCE if broker.kind == "redis" else 3.0
    async with PendingRequestMap(broker.transport()) as calls:
        frozen.send(signal.SIGSTOP)
        callers = Callers(calls)
        callers.start("change", ids("change", 20), timeout=limit)
        callers.start("read", ids("read", 20), timeout=limit)
        await callers.finish()
        frozen.send(signal.SIGCONT)
        after = Callers(calls)
        after.start("change", ids("after", 20), timeout=PATIENCE)
        await after.finish()
    assert max(Counter(log.of("change")).values()) == 1
    assert after.codes() == {"ok": 20}
    if broker.kind == "redis":
        assert callers.codes("read") == {"ok": 20}
    else:
        assert set(callers.codes()) == {"ok", "TIMEOUT"}


async def test_a_slow_worker_keeps_its_order_and_loses_nothing(broker: Broker, hire: Hire, log: Log) -> None:
    await hire("quick")
    await hire("slow", slow=0.2)
    async with PendingRequestMap(broker.transport()) as calls:
        callers = Callers(calls)
        for round in range(30):
            callers.start("change", ids(f"{round}-", 5), timeout=PATIENCE)
            await asyncio.sleep(0.02)
        await callers.finish()
    assert callers.codes() == {"ok": 150}
    assert sorted(log.of("change")) == sorted(callers.ends)
    counts = log.by_worker()
    if broker.kind == "redis":  # the one with fewer unfinished requests gets the next
        assert counts["slow"] < counts["quick"] / 2


async def test_a_worker_that_is_told_to_stop_drains(broker: Broker, hire: Hire, log: Log) -> None:
    """No call fails while workers come and go one by one."""
    workers = [await hire("first")]
    async with PendingRequestMap(broker.transport()) as calls:
        callers = Callers(calls)
        running = True

        async def load() -> None:
            number = 0
            while running:
                callers.start("change", ids(f"{number}-", 4), timeout=PATIENCE, delay=0.05)
                number += 1
                await asyncio.sleep(0.02)

        loading = asyncio.create_task(load())
        for name in ("second", "third"):
            workers.append(await hire(name))
            await workers[-2].end(signal.SIGTERM)
        running = False
        await loading
        await callers.finish()
    assert set(callers.codes()) == {"ok"}
    assert max(Counter(log.of("change")).values()) == 1
    await workers[-1].end(signal.SIGTERM)
    await broker.nothing_left()


async def test_a_stream_of_a_killed_worker_ends(broker: Broker, hire: Hire) -> None:
    worker = await hire("only")
    async with PendingRequestMap(broker.transport(), lease=1.0) as calls:
        items: list[int] = []

        async def read() -> None:
            async for envelope in calls.subscribe("chaos.count", {"to": 1_000_000, "delay": 0.01}):
                items.append(envelope.data)
                if len(items) == 10:
                    worker.send(signal.SIGKILL)

        with pytest.raises(CallError, match="UNAVAILABLE"):
            await asyncio.wait_for(read(), 60)
        assert items == list(range(len(items)))
        assert calls.pending == 0


async def test_nothing_is_left_on_the_broker(broker: Broker, hire: Hire, log: Log) -> None:
    worker = await hire("one")
    killed = await hire("killed")
    async with PendingRequestMap(broker.transport()) as calls:
        callers = Callers(calls)
        callers.start("change", ids("change", 50))
        callers.start("read", ids("read", 20), delay=0.3, timeout=2.0)
        await log.until(60)
        await killed.end(signal.SIGKILL)
        await callers.finish()
        assert [item.data async for item in calls.subscribe("chaos.count", {"to": 200})] == list(range(200))
        if broker.kind == "redis":
            await asyncio.sleep(1.5)  # a sign of life of the one that is left, which cleans up
    await worker.end(signal.SIGTERM)
    await broker.nothing_left()


async def test_requests_are_spread_evenly_over_one_to_four_workers(broker: Broker, hire: Hire, log: Log) -> None:
    async with PendingRequestMap(broker.transport()) as calls:
        turns = (
            24 if broker.kind == "nats" else 8
        )  # NATS chooses at random: its shares need more calls to even out
        for size in range(1, 5):
            await hire(f"worker{size}")
            before = log.by_worker()
            for turn in range(turns):
                batch = ids(f"{size}-{turn}-", 64)
                await asyncio.gather(*(calls.call("chaos.change", {"id": id}) for id in batch))
            share = {name: count - before.get(name, 0) for name, count in log.by_worker().items()}
            assert len(share) == size
            assert min(share.values()) > 0.8 * turns * 64 / size
            assert max(share.values()) < 1.2 * turns * 64 / size


async def test_ten_thousand_operations_can_be_served(broker: Broker) -> None:
    broker.options.pop("lease", None)  # the default: registering them keeps a busy machine longer than a short one
    registry = OperationRegistry()

    async def handler(input: Any, context: Any) -> int:
        return int(input["number"])

    for number in range(10_000):
        registry.register(OperationSpec(namespace="scale", name=f"op{number}", type="query"), handler)
    async with asyncio.timeout(180):
        async with CallHandler(registry, broker.transport()), PendingRequestMap(broker.transport()) as calls:
            answers = await asyncio.gather(
                *(calls.call(f"scale.op{number}", {"number": number}) for number in range(0, 10_000, 100))
            )
            assert [answer.data for answer in answers] == list(range(0, 10_000, 100))
    await broker.nothing_left()

"""What interceptors, views, typed calls and the synchronous face cost, in units of an awaited future.

    python benchmarks/embedding.py [--batches N]

All take turns in one run, and the best of many small batches counts: what is above it is somebody else's work.
A unit is what `asyncio` takes to await a future that is done at the next turn of the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from operad import OperationRegistry, OperationSpec, operation

Call = Callable[[], Awaitable[Any]]

BOUNDS = {
    "an interceptor that matches": ("execute", 0.4),
    "one that does not": ("execute", 0.03),
    "a view": ("execute", 0.03),
    "call, two integers": ("execute of the same", 0.4),
}
"""At most so many units above another call."""


async def best_of(calls: dict[str, Call], batches: int, size: int = 200) -> dict[str, float]:
    """Microseconds of a call each: the best of many small batches, taken in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(batches):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(size):
                await call()
            best[name] = min(best[name], (time.perf_counter() - started) / size * 1e6)
    return best


async def future() -> None:
    """The unit."""
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()
    loop.call_soon(waiting.set_result, None)
    await waiting


async def echo(input: Any, context: Any) -> Any:
    return input


async def tap(call: Any, proceed: Any) -> Any:
    return await proceed(call)


@operation(namespace="bench")
async def add(a: int, b: int) -> int:
    return a + b


def plain() -> OperationRegistry:
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="bench", name="echo"), echo)
    return registry


def sides() -> dict[str, Call]:
    """What is compared, each on a registry of its own."""
    bare, matched, unmatched = plain(), plain(), plain()
    matched.use(tap)
    unmatched.use(tap, match="other.*")
    view = bare.view(include="bench.*")
    typed = OperationRegistry()
    typed.register(add)
    return {
        "future": future,
        "execute": lambda: bare.execute("bench.echo", {}),
        "an interceptor that matches": lambda: matched.execute("bench.echo", {}),
        "one that does not": lambda: unmatched.execute("bench.echo", {}),
        "a view": lambda: view.execute("bench.echo", {}),
        "execute of the same": lambda: typed.execute("bench.add", {"a": 1, "b": 2}),
        "call, two integers": lambda: typed.call(add, a=1, b=2),
    }


def waiting(batches: int) -> tuple[float, float]:
    """Microseconds of a call through operad.sync, and of a bare `run_coroutine_threadsafe`, in turn.

    Both wake threads, which take twice as long where the system puts them ill, and seldom are awake: of many
    small batches the first decile counts.
    """
    from operad.sync import OperationRegistry as Waiting

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    inner = plain()
    with Waiting() as registry:
        registry.register(OperationSpec(namespace="bench", name="echo"), echo)
        took: list[tuple[float, float]] = []
        for _ in range(batches * 3):
            started = time.perf_counter()
            for _ in range(20):
                registry.execute("bench.echo", {})
            middle = time.perf_counter()
            for _ in range(20):
                asyncio.run_coroutine_threadsafe(inner.execute("bench.echo", {}), loop).result()
            took.append(((middle - started) / 20 * 1e6, (time.perf_counter() - middle) / 20 * 1e6))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    ours, bare = (statistics.quantiles(side, n=10)[0] for side in zip(*took, strict=True))
    return ours, bare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    batches = parser.parse_args().batches
    took = asyncio.run(best_of(sides(), batches))
    unit, base = took["future"], took["execute"]
    print(f"an awaited future: {unit:.2f} us; execute: {base:.2f} us = {base / unit:.2f}")
    failed = False
    for name, (other, bound) in BOUNDS.items():
        extra = (took[name] - took[other]) / unit
        failed |= extra > bound
        print(f"{name}: {extra:+.3f} futures above {other}, at most {bound}")
    ours, bare = waiting(batches)
    failed |= ours > bare * 1.3
    print(f"operad.sync: {ours:.1f} us, {ours / bare:.2f} of a bare run_coroutine_threadsafe, at most 1.3")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

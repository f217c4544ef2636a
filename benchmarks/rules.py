"""What a rule costs: a call with a rule that matches, beside the same call without, less the library's own work.

    python benchmarks/rules.py

Bounds: at most 2 us beside the library; nothing for operations that no rule matches.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cachetools import TTLCache
from limits import parse
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from operad import Identity, OperationContext, OperationRegistry, OperationSpec
from operad_rules import Rule, add_rules

ROUNDS, CALLS = 15, 3_000
CALLER = OperationContext(identity=Identity("ann"))
INPUT = {"id": 7, "name": "tea"}


def registry_of(rules: list[Rule]) -> OperationRegistry:
    async def look(input: Any, context: OperationContext) -> Any:
        return {"id": 7, "price": {"net": 3, "tax": 1}}

    registry = OperationRegistry()
    add_rules(registry, *rules)
    registry.register(OperationSpec(namespace="shop", name="look", type="query"), look)
    return registry


async def us(run: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        await run()
    return (time.perf_counter() - start) / CALLS * 1e6


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    limiter, item = MovingWindowRateLimiter(MemoryStorage()), parse("100000000/hour")
    cache: Any = TTLCache(1_000, 60)
    cache["a"] = b""

    async def hit() -> None:
        await limiter.hit(item, "a", "b")

    async def get() -> None:
        cache.get("a")

    cases: dict[str, tuple[list[Rule], Callable[[], Awaitable[None]] | None]] = {
        "no rule": ([], None),
        "a rule for other operations": ([Rule(match="other.*", rate="1/hour")], None),
        "rate": ([Rule(match="*", rate="100000000/hour")], hit),
        "concurrency": ([Rule(match="*", concurrency=5)], None),
        "timeout": ([Rule(match="*", timeout=60)], None),
        "retry": ([Rule(match="*", retry=2)], None),
        "cache (kept)": ([Rule(match="*", cache=60)], get),
        "select": ([Rule(match="*", select="price.net")], None),
        "redact": ([Rule(match="*", redact=["*secret*"])], None),
        "max_bytes": ([Rule(match="*", max_bytes=10_000)], None),
        "audit": ([Rule(match="*", audit=str(folder / "audit.jsonl"))], None),
    }
    registries = {name: registry_of(rules) for name, (rules, _) in cases.items()}
    found: dict[str, list[float]] = {name: [] for name in cases}
    library: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, registry in registries.items():
            found[name].append(await us(lambda registry=registry: registry.execute("shop.look", INPUT, CALLER)))
            if (own := cases[name][1]) is not None:
                library[name].append(await us(own))
    base = statistics.median(found["no rule"])
    print(f"{'':32}{'call':>9}{'rule':>9}{'library':>9}{'beside':>9}  (us, median of {ROUNDS} rounds)")
    for name, times in found.items():
        call = statistics.median(times)
        own_time = statistics.median(library[name]) if library[name] else 0.0
        print(f"{name:32}{call:9.2f}{call - base:9.2f}{own_time:9.2f}{call - base - own_time:9.2f}")


if __name__ == "__main__":
    asyncio.run(main())

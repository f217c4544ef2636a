"""The cost of each rule: a call that it matches, minus the same call without rules, minus the libraries' own work.

    python benchmarks/rules.py

Bounds: at most 2 us besides the libraries; nothing for operations that no rule matches. The two rows in brackets
are what the kernel needs: an audit is an observer, because it sees calls that were rejected; each other rule is a
step. Each figure is the least of many rounds: other programs on the machine only add to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable
from fnmatch import translate
from pathlib import Path
from typing import Any

import jmespath
import msgspec
from cachetools import TTLCache
from limits import parse
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from operad import Identity, OperationContext, OperationRegistry, OperationSpec
from operad.plugin import InterceptedCall
from operad.wire import from_json, to_json
from operad_rules import Rule, add_rules

ROUNDS, CALLS = 200, 300
CALLER = OperationContext(identity=Identity("ann"))
INPUT = {"id": 7, "name": "tea"}
DATA = {"id": 7, "price": {"net": 3, "tax": 1}}


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


def libraries(folder: Path) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the work that each rule leaves to a library, without anything around it."""
    limiter, item = MovingWindowRateLimiter(MemoryStorage()), parse("100000000/hour")
    places = asyncio.Semaphore(5)
    cache: Any = TTLCache(1_000_000, 60, getsizeof=len)
    identity, envelope = ["ann", [], {}], to_json({"data": DATA, "meta": {"source": "local", "timestamp": 1}})
    cache[hashlib.sha256(to_json([identity, {}, "shop.look", INPUT])).hexdigest()] = envelope
    expression = jmespath.compile("price.net")
    secret = re.compile(translate("*secret*"), re.IGNORECASE).match
    file = os.open(folder / "library", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    line = {"time": 1_700_000_000_000, "requestId": "0123456789abcdef-1234", "caller": "ann", "outcome": "ok",
            "operation": "shop.look", "ms": 0.123, "input": "0" * 64}  # fmt: skip
    encode = msgspec.json.Encoder().encode

    async def rate() -> None:
        await limiter.hit(item, "a", "b")

    async def concurrency() -> None:
        async with places:
            pass

    async def timeout() -> None:
        async with asyncio.timeout(60):
            pass

    async def kept() -> None:
        key = hashlib.sha256(to_json([identity, {}, "shop.look", INPUT])).hexdigest()
        from_json(cache.get(key))

    async def select() -> None:
        expression.search(DATA)

    async def redact() -> None:
        for key in ("id", "price", "net", "tax"):
            secret(key)

    async def max_bytes() -> None:
        to_json(DATA)

    async def audit() -> None:
        hashlib.sha256(encode(INPUT)).hexdigest()
        os.write(file, encode(line) + b"\n")

    return {
        "rate": rate, "concurrency": concurrency, "timeout": timeout, "cache (kept)": kept, "select": select,
        "redact": redact, "max_bytes": max_bytes, "audit": audit,
    }  # fmt: skip


async def nothing(call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[Any]]) -> Any:
    return await proceed(call)


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    cases: dict[str, list[Rule]] = {
        "no rule": [],
        "rules for other operations": [Rule(match="other.*", rate="1/hour", audit=str(folder / "other.jsonl"))],
        "rate": [Rule(match="*", rate="100000000/hour")],
        "concurrency": [Rule(match="*", concurrency=5)],
        "timeout": [Rule(match="*", timeout=60)],
        "retry": [Rule(match="*", retry=2)],
        "cache (kept)": [Rule(match="*", cache=60)],
        "select": [Rule(match="*", select="price.net")],
        "redact": [Rule(match="*", redact=["*secret*"])],
        "max_bytes": [Rule(match="*", max_bytes=10_000)],
        "audit": [Rule(match="*", audit=str(folder / "audit.jsonl"))],
    }
    registries = {name: registry_of(rules) for name, rules in cases.items()}
    registries["(a step that does nothing)"] = registry_of([])
    registries["(a step that does nothing)"].use(nothing)
    registries["(observers that do nothing)"] = registry_of([])
    registries["(observers that do nothing)"].observe(lambda call: None, lambda call, outcome: None)
    library = libraries(folder)
    found: dict[str, list[float]] = {name: [] for name in registries}
    alone: dict[str, list[float]] = {name: [] for name in library}
    for _ in range(ROUNDS):
        for name, registry in registries.items():
            found[name].append(await us(lambda registry=registry: registry.execute("shop.look", INPUT, CALLER)))
            if name in library:
                alone[name].append(await us(library[name]))
    least = {name: min(times) for name, times in found.items()}
    print(f"{'':32}{'call':>9}{'rule':>9}{'library':>9}{'besides':>9}  (us, least of {ROUNDS} rounds)")
    for name, call in least.items():
        cost = call - least["no rule"]
        own = min(alone[name]) if name in alone else 0.0
        print(f"{name:32}{call:9.2f}{cost:9.2f}{own:9.2f}{cost - own:9.2f}")
    for registry in registries.values():
        await registry.aclose()


if __name__ == "__main__":
    asyncio.run(main())

"""What the core costs: a call, a registration, a search, the import; beside its peers where there are any.

    python benchmarks/core.py [--rounds N] [--no-peers]

A call is an async function of five fields that answers five fields, in process. Peers (FastMCP, LangChain) are
installed by uv into an environment of their own and take turns with ours, so that what else the machine does
falls on all alike. Every figure is the best of its rounds: what is above it is somebody else's work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

FIELDS = {"id": "integer", "name": "string", "price": "number", "active": "boolean", "note": "string"}
ORDER = {
    "type": "object",
    "properties": {name: {"type": kind} for name, kind in FIELDS.items()},
    "required": list(FIELDS),
    "additionalProperties": False,
}
VALUE = {"id": 1, "name": "tea", "price": 2.5, "active": True, "note": "green"}
OPERATIONS = 100_000

Call = Callable[[], Awaitable[Any]]


# --- one call ----------------------------------------------------------------------------------------


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


def ours() -> dict[str, Call]:
    """Our calls; the imports are here, so that peers can run this file without operad."""
    from operad import OperationRegistry, OperationSpec, operation

    async def order(input: Any, context: Any) -> Any:
        return input

    @operation(namespace="bench", name="hinted")
    async def hinted(id: int, name: str, price: float, active: bool, note: str) -> dict[str, Any]:
        return {"id": id, "name": name, "price": price, "active": active, "note": note}

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="bench", name="unknown"), order)
    registry.register(
        OperationSpec(namespace="bench", name="checked", input_schema=ORDER, output_schema=ORDER), order
    )
    registry.register(hinted)
    execute = registry.execute
    return {
        "raw await": lambda: order(VALUE, None),
        "execute, unknown schemas": lambda: execute("bench.unknown", VALUE),
        "execute, unknown, deadline": lambda: execute("bench.unknown", VALUE, timeout=30),
        "execute, 5 fields in and out": lambda: execute("bench.checked", VALUE),
        "execute, 5 fields, deadline": lambda: execute("bench.checked", VALUE, timeout=30),
        "execute, typed function": lambda: execute("bench.hinted", VALUE),
    }


def fastmcp() -> dict[str, Call]:
    from fastmcp import FastMCP  # type: ignore[import-not-found]  # a peer's environment has it
    from fastmcp.tools import Tool  # type: ignore[import-not-found]  # the same

    tool = Tool.from_function(_peer_order)
    server = FastMCP("bench")
    server.add_tool(tool)
    return {
        "FastMCP tool.run": lambda: tool.run(VALUE),
        "FastMCP server.call_tool": lambda: server.call_tool("_peer_order", VALUE),
    }


def langchain() -> dict[str, Call]:
    from langchain_core.tools import StructuredTool  # type: ignore[import-not-found]  # a peer's environment

    tool = StructuredTool.from_function(coroutine=_peer_order, description="bench")
    return {"LangChain StructuredTool.ainvoke": lambda: tool.ainvoke(VALUE)}


async def _peer_order(id: int, name: str, price: float, active: bool, note: str) -> dict[str, Any]:
    """The same function, as the peers want it."""
    return {"id": id, "name": name, "price": price, "active": active, "note": note}


SIDES: dict[str, tuple[Callable[[], dict[str, Call]], list[str]]] = {
    "ours": (ours, []),
    "fastmcp": (fastmcp, ["fastmcp"]),
    "langchain": (langchain, ["langchain-core"]),
}


def uv() -> list[str] | None:
    """The command, or how to run it as a module; None where it is not installed."""
    if found := shutil.which("uv"):
        return [found]
    for python in (sys.executable, shutil.which("python3")):
        command = [python or "python3", "-m", "uv"]
        if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def environment(folder: Path, side: str) -> str | None:
    """The interpreter of an environment with a peer in it; None where it cannot be made."""
    command = uv()
    if command is None:
        return None
    python = str(folder / side / "bin" / "python")
    for step in (
        ["venv", "-q", str(folder / side)],
        ["pip", "install", "-q", "--python", python, *SIDES[side][1]],
    ):
        done = subprocess.run([*command, *step], capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            print(f"  {side} is left out: {done.stderr.strip().splitlines()[-1:]}")
            return None
    return python


def compare_calls(rounds: int, *, peers: bool) -> None:
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        pythons = {"ours": sys.executable}
        for side in ("fastmcp", "langchain") if peers else ():
            if python := environment(Path(name), side):
                pythons[side] = python
        for _ in range(rounds):
            for side, python in pythons.items():
                done = subprocess.run(
                    [python, "-P", __file__, "--side", side],
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=300,
                )
                for call, figure in json.loads(done.stdout.splitlines()[-1]).items():
                    best[call] = min(best.get(call, float("inf")), figure)
    from results import compared  # of this folder; the peers' environments do not see it

    compared("A call of a function with five fields", "us", best)
    raw = best["raw await"]
    print(f"{'a call':36} {'us':>8} {'above raw':>10} {'x raw':>8} {'x tool.run':>11}")
    reference = best.get("FastMCP tool.run")
    for call, figure in best.items():
        ratio = f"{figure / reference:11.2f}" if reference else f"{'-':>11}"
        print(f"{call:36} {figure:8.2f} {figure - raw:10.2f} {figure / raw:8.1f} {ratio}")


# --- many operations ---------------------------------------------------------------------------------

VERBS = ["get", "list", "create", "update", "delete", "search", "cancel", "retry"]
NOUNS = [
    *("user", "pull_request", "issue", "repo", "team", "org", "invoice", "payment", "customer", "order", "file"),
    *("folder", "message", "channel", "event", "webhook", "token", "key", "secret", "policy", "role", "group"),
    *("member", "comment", "review", "branch", "commit", "tag", "release", "deployment"),
]
PROSE = [
    *(
        "the",
        "a",
        "of",
        "to",
        "in",
        "for",
        "with",
        "by",
        "id",
        "returns",
        "one",
        "all",
        "given",
        "new",
        "existing",
    ),
    *("item", "from", "and", "or", "which", "belongs", "account", "object", "details", "information", "current"),
    *("status", "page", "limit", "sort", "filter"),
]
QUERIES = (
    "get user", "create pull request", "list", "delete invoice payment", "usr", "pul req", "getUserOrder",
    "retry webhook in channel", "ns7 cancel order", "nothing_at_all", "pullrequest review", "99999",
    "the given id of one item from account", "get list create update delete user issue",
    "return all details of the current status page", "deploy", "team member role",
)  # fmt: skip


def specs(count: int) -> list[dict[str, Any]]:
    chance = random.Random(7)  # the same operations in every run
    made = []
    for number in range(count):
        verb, noun, other = chance.choice(VERBS), chance.choice(NOUNS), chance.choice(NOUNS)
        name = verb + "".join(part.title() for part in f"{noun}_{other}".split("_")) + str(number)
        words = [verb, noun, "of", other, *chance.choices(PROSE, k=10)]
        made.append(
            {"namespace": f"ns{number % 50}", "name": name, "description": " ".join(words), "tags": (noun,)}
        )
    return made


def measure_registry() -> None:
    from operad import OperationRegistry, OperationSpec, load_plugins

    async def handler(input: Any, context: Any) -> None: ...

    plugins = load_plugins(only=["search"])  # the core's own search looks at each operation

    def fill() -> OperationRegistry:
        registry = OperationRegistry(plugins)
        for fields in described:
            registry.register(OperationSpec(**fields), handler)
        return registry

    described = specs(OPERATIONS)
    started = time.perf_counter()
    for fields in described:
        dict(fields)
    floor = time.perf_counter() - started
    started = time.perf_counter()
    registry = fill()
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    registry.search("warm up")
    built = time.perf_counter() - started
    took = []
    for query in QUERIES:
        best = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            registry.search(query)
            best = min(best, (time.perf_counter() - started) * 1000)
        took.append(best)
    started = time.perf_counter()
    registry.register(OperationSpec(namespace="late", name="comer"), handler)
    registry.search("late comer")
    followed = (time.perf_counter() - started) * 1000
    tracemalloc.start()
    kept = fill()
    register_bytes = tracemalloc.get_traced_memory()[0] / len(kept)
    kept.search("warm up")
    index_bytes = tracemalloc.get_traced_memory()[0] / len(kept) - register_bytes
    tracemalloc.stop()
    print(f"{OPERATIONS:,} operations{'':20} figure")
    print(
        f"  spec and registration          {seconds:8.2f} s   ({seconds / floor:.0f} x a dict of the same fields)"
    )
    print(f"  memory of each                 {register_bytes:8.0f} B   (its description is the caller's)")
    print(f"  first search, builds the index {built:8.2f} s")
    print(f"  memory of the index, each      {index_bytes:8.0f} B")
    print(f"  search, median of {len(QUERIES)} queries   {statistics.median(took):8.2f} ms")
    print(f"  search, worst                  {max(took):8.2f} ms  ({QUERIES[took.index(max(took))]!r})")
    print(f"  add one and search             {followed:8.2f} ms")


# --- import ------------------------------------------------------------------------------------------

IMPORTS = {
    "import attrs, pluggy": "import attrs, pluggy",
    "import operad": "import operad",
    "a plugin module": "from operad import hookimpl",
    "a registry": "from operad import OperationRegistry, operation, load_plugins",
    "import attrs, pluggy, asyncio": "import attrs, pluggy, asyncio",
}


def measure_import(rounds: int) -> None:
    codes = {"": "pass", **IMPORTS}
    best = dict.fromkeys(codes, float("inf"))
    for _ in range(rounds):
        for name, code in codes.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            best[name] = min(best[name], (time.perf_counter() - started) * 1000)
    floor = best["import attrs, pluggy"] - best[""]
    print(f"{'import, over bare Python':36} {'ms':>8} {'x floor':>10}")
    for name in IMPORTS:
        figure = best[name] - best[""]
        print(f"{name:36} {figure:8.1f} {figure / floor:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true", help="install nothing, compare with nobody")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(asyncio.run(best_of(SIDES[options.side][0](), batches=100))))
        return
    compare_calls(options.rounds, peers=not options.no_peers)
    print()
    measure_registry()
    print()
    measure_import(max(5, options.rounds * 5))


if __name__ == "__main__":
    main()

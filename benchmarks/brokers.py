"""Calls over NATS and Redis beside the raw client of the same engine, in the same run.

    python benchmarks/brokers.py [--engine nats|redis] [--rounds 3] [--faststream PYTHON]
    python benchmarks/brokers.py workers      # throughput and shares with 1 to 4 workers
    python benchmarks/brokers.py scale        # 10,000 operations, 1,000 callers: what they cost on the broker

Server, worker and caller are processes of their own on 127.0.0.1. Each round measures all parties one after the
other; the table has the median of the rounds and its ratio to the raw client's. ``--faststream`` is the Python of
an environment with ``faststream[nats,redis]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import brokers_scale

from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer

PEERS = str(Path(__file__).with_name("brokers_peers.py"))
RAW = {"nats": "nats-py request/reply", "redis": "redis-py publish/listen"}


@contextmanager
def serving(python: str, role: str, url: str) -> Iterator[None]:
    process = subprocess.Popen(
        [python, PEERS, "serve", role, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the {role} worker did not start")
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def calling(python: str, role: str, url: str, sequential: int, concurrent: int) -> dict[str, float] | None:
    command = [python, PEERS, "call", role, url, str(sequential), str(concurrent), "64"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
        print(f"  {role}: failed: {reason[0][:150]}")
        return None
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(engine: str, rounds: int, faststream: str | None, sequential: int, concurrent: int) -> None:
    roles = [("raw", sys.executable), ("operad", sys.executable)]
    if faststream:
        roles.append(("faststream", faststream))
    figures: dict[str, list[dict[str, float]]] = {role: [] for role, _ in roles}
    with NATSServer() if engine == "nats" else RedisServer() as server:
        for _ in range(rounds):
            for role, python in roles:
                few = 10 if role == "faststream" else 1
                with serving(python, role, server.url):
                    result = calling(python, role, server.url, sequential // few, concurrent // few)
                if result:
                    figures[role].append(result)
    print(f"\n{engine}: 1 worker, 1 caller, {rounds} rounds (median)")
    print(f"{'':28}{'p50 us':>9}{'p99 us':>9}{'x raw':>7}{'calls/s at 64':>15}{'x raw':>7}")
    base = medians(figures["raw"])
    for role, _ in roles:
        if not figures[role]:
            continue
        own = medians(figures[role])
        name = RAW[engine] if role == "raw" else role
        slower, faster = own["p50"] / base["p50"], own["rate"] / base["rate"]
        print(f"{name:28}{own['p50']:9.0f}{own['p99']:9.0f}{slower:7.2f}{own['rate']:15.0f}{faster:7.2f}")


def medians(figures: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(item[key] for item in figures) for key in figures[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("compare", "workers", "scale"), default="compare")
    parser.add_argument("--engine", choices=("nats", "redis"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequential", type=int, default=2_000)
    parser.add_argument("--concurrent", type=int, default=10_000)
    parser.add_argument("--faststream", metavar="PYTHON")
    options: Any = parser.parse_args()
    for engine in [options.engine] if options.engine else ["nats", "redis"]:
        if options.what == "compare":
            compare(engine, options.rounds, options.faststream, options.sequential, options.concurrent)
        elif options.what == "workers":
            brokers_scale.workers(engine)
        else:
            brokers_scale.scale(engine)


if __name__ == "__main__":
    main()

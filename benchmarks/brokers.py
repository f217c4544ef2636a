"""Calls over NATS and Redis beside the raw client of the same engine, in the same run.

    python benchmarks/brokers.py [--engine nats|redis] [--rounds 15] [--durable]
    python benchmarks/brokers.py workers      # throughput and shares with 1 to 4 workers
    python benchmarks/brokers.py scale        # 10,000 operations, 1,000 callers: what they cost on the broker

Server, workers and caller are processes of their own on 127.0.0.1. Raw client and operad take turns in one
caller, and the ratios are those of neighbouring turns, so that a busy machine meets both. ``--durable`` adds calls
whose requests NATS stores as a third one. Others, FastStream among them, are in `calls_peers.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import brokers_scale
from results import compared

from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer

PEERS = str(Path(__file__).with_name("brokers_peers.py"))
RAW = {"nats": "nats-py request/reply", "redis": "redis-py publish/listen"}


@contextmanager
def serving(role: str, url: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, PEERS, "serve", role, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


def calling(roles: str, url: str, rounds: int) -> list[dict[str, Any]]:
    command = [sys.executable, PEERS, "call", roles, url, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
        print(f"  {roles}: failed with 64 in flight: {reason[0][:150]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(engine: str, rounds: int, durable: bool) -> None:
    roles = ["raw", "operad", "durable"] if durable and engine == "nats" else ["raw", "operad"]
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        server: NATSServer | RedisServer = RedisServer()
        if engine == "nats":
            server = NATSServer(["-js", "-sd", folder] if durable else [])
        stack.enter_context(server)
        with ExitStack() as workers:
            for role in roles:
                workers.enter_context(serving(role, server.url))
            figures = calling(",".join(roles), server.url, rounds)
    raw = [item for item in figures if item["role"] == "raw"]
    medians = {}
    print(f"\n{engine}: 1 worker, 1 caller, medians of {len(raw)} rounds")
    print(f"{'':28}{'p50 us':>9}{'p99 us':>9}{'x raw':>7}{'calls/s at 64':>15}{'x raw':>7}{'caller CPU us':>15}")
    for role in ("raw", "operad", "durable"):
        own = [item for item in figures if item["role"] == role]
        if own:
            name = {"raw": RAW[engine], "durable": "operad, durable"}.get(role, role)
            p50, p99, rate, cpu = (
                statistics.median(item[key] for item in own) for key in ("p50", "p99", "rate", "cpu")
            )
            medians[name] = p50
            slower = statistics.median(one["p50"] / base["p50"] for one, base in zip(own, raw, strict=False))
            faster = statistics.median(one["rate"] / base["rate"] for one, base in zip(own, raw, strict=False))
            print(f"{name:28}{p50:9.0f}{p99:9.0f}{slower:7.2f}{rate:15.0f}{faster:7.2f}{cpu:15.0f}")
    compared(f"A call over {engine.upper() if engine == 'nats' else 'Redis'}", "us, p50", medians)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("compare", "workers", "scale"), default="compare")
    parser.add_argument("--engine", choices=("nats", "redis"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--durable", action="store_true")
    options: Any = parser.parse_args()
    for engine in [options.engine] if options.engine else ["nats", "redis"]:
        if options.what == "compare":
            compare(engine, options.rounds, options.durable)
        elif options.what == "workers":
            brokers_scale.workers(engine)
        else:
            brokers_scale.scale(engine)


if __name__ == "__main__":
    main()

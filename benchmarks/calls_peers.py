"""Echoes of 100 B, 10 KB and 1 MB: through a hub, NATS and Redis, beside gRPC, WAMP, FastStream and bare sockets.

    python benchmarks/calls_peers.py [--rounds 7] [--only NAME …] [--environments FOLDER]

Every caller, worker, hub, broker and router is a process of its own on 127.0.0.1. In each round all callers take
their turn at the same texts, one after the other, so that whatever else the machine does meets all of them; the
figures are medians of the rounds, the ratios those of neighbouring turns. Peers run in environments that uv makes
(once, if they are given a folder); one that cannot be installed is left out, and that is said.

What a peer does is not the same: gRPC has no hub, its caller talks to its worker; the bare sockets and nats-py
pass bytes on, and ``JSON`` is the same with each text encoded and decoded at both ends, as all others do.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from calls import free_port, wait_for_port
from results import compared

from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer

PARTY = Path(__file__).with_name("calls_party.py")
PACKAGES = {
    "grpc": ["grpcio==1.85.1", "protobuf==7.36.2"],
    "wamp": ["crossbar==26.10.1"],
    "faststream": ["faststream[nats,redis]==0.7.8"],
}
SIZES = {100: (300, 64), 10_000: (150, 64), 1_000_000: (12, 4)}
"""Characters: how many calls, and how many at once."""
NAMES = {
    "hops": "two hops, bytes",
    "hops-json": "two hops, JSON",
    "operad-hub": "operad, hub",
    "wamp": "WAMP, crossbar",
    "nats": "nats-py, bytes",
    "nats-json": "nats-py, JSON",
    "operad-nats": "operad, NATS",
    "faststream-nats": "FastStream, NATS",
    "operad-redis": "operad, Redis",
    "faststream-redis": "FastStream, Redis",
    "grpc": "grpc.aio, one hop",
}
BASES = {"operad-hub": "hops", "operad-nats": "nats"}
Figures = dict[tuple[str, int], list[Any]]


def interpreter(name: str, folder: Path) -> Path | str:
    """The interpreter of a peer, or why there is none."""
    python = folder / name / "bin" / "python"
    uv = [shutil.which("uv")] if shutil.which("uv") else [sys.executable, "-m", "uv"]
    steps = [["venv", "-q", "-p", sys.executable, str(folder / name)]]
    steps.append(["pip", "install", "-q", "--python", str(python), *PACKAGES[name]])
    for step in () if python.exists() else steps:
        # From elsewhere: the pins of this workspace are not theirs.
        done = subprocess.run([*map(str, uv), *step], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["?"])[-1][:120]
    return python


@contextmanager
def party(python: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [python, PARTY, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving(python: Path, role: str, url: str) -> Iterator[None]:
    with party(python, "serve", role, url) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{role} does not serve")
        yield


@contextmanager
def crossbar(python: Path, port: int) -> Iterator[None]:
    """A router of WAMP."""
    allowed = {"uri": "", "match": "prefix", "allow": {"call": True, "register": True}}
    realm = {"name": "bench", "roles": [{"name": "anonymous", "permissions": [allowed]}]}
    endpoint = {"type": "tcp", "interface": "127.0.0.1", "port": port}
    worker = {"type": "router", "realms": [realm], "transports": [{"type": "websocket", "endpoint": endpoint}]}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps({"version": 2, "workers": [worker]}))
        command = [str(python.with_name("crossbar")), "start", "--cbdir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_port(port)
            yield
        finally:
            process.terminate()
            process.wait(20)


class Field:
    """All who take part, and their callers."""

    def __init__(self, stack: ExitStack, folder: Path, only: list[str]) -> None:
        self.callers: dict[str, subprocess.Popen[str]] = {}
        self.out: dict[str, str] = {}
        self._stack = stack
        self._folder = folder
        self._only = only
        self._urls: dict[str, str] = {}

    def enter(self, role: str) -> None:
        """Start a worker and a caller; what does not start is out."""
        if self._only and role not in self._only:
            return
        kind = role.partition("-")[0]
        python: Path | str = interpreter(kind, self._folder) if kind in PACKAGES else Path(sys.executable)
        if isinstance(python, str):
            self.out[role] = f"cannot be installed: {python}"
            return
        try:
            url = self._url(role, python)
            self._stack.enter_context(serving(python, role, url))
            self.callers[role] = self._stack.enter_context(party(python, "call", role, url))
        except (OSError, RuntimeError) as error:
            self.out[role] = str(error)

    def _url(self, role: str, python: Path) -> str:
        """What it goes through, started when it is first needed."""
        kind, _, suffix = role.partition("-")
        through = kind if kind in ("hops", "nats", "grpc", "wamp") else suffix
        if through not in self._urls:
            port = free_port()
            self._urls[through] = f"ws://127.0.0.1:{port}"
            if through in ("hops", "hub"):
                name = "forwarder" if through == "hops" else "hub"
                self._stack.enter_context(serving(python, name, self._urls[through]))
            elif through == "wamp":
                self._stack.enter_context(crossbar(python, port))
            elif through in ("nats", "redis"):
                broker: Any = NATSServer() if through == "nats" else RedisServer()
                self._urls[through] = self._stack.enter_context(broker).url
        return self._urls[through]

    def ask(self, role: str, *order: int) -> Any:
        """Have a caller measure."""
        caller = self.callers[role]
        assert caller.stdin is not None
        assert caller.stdout is not None
        caller.stdin.write(json.dumps(order) + "\n")
        caller.stdin.flush()
        line = caller.stdout.readline()
        return json.loads(line) if line else "its process ended"


def measure(field: Field, rounds: int) -> Figures:
    figures: Figures = {(role, size): [] for role in field.callers for size in SIZES}
    for number in range(rounds + 1):
        for size, (count, at_once) in SIZES.items():
            for role in field.callers:
                if role in field.out:
                    continue
                answer = field.ask(role, size, count, at_once)
                if isinstance(answer, str):
                    field.out[role] = f"{size:,} B, {at_once} at once: {answer}"
                elif number:  # the first round warms up
                    figures[role, size].append(answer)
    return figures


def ratio(figures: Figures, role: str, base: str, size: int, key: str) -> str:
    pairs = zip(figures.get((role, size), ()), figures.get((base, size), ()), strict=False)
    ratios = [own[key] / its[key] for own, its in pairs]
    return f"{statistics.median(ratios):.2f}" if ratios else ""


def report(field: Field, figures: Figures) -> None:
    for size, (_, at_once) in SIZES.items():
        rows = {NAMES[role]: figures[role, size] for role in NAMES if figures.get((role, size))}
        p50 = {name: statistics.median(row["p50"] for row in found) for name, found in rows.items()}
        compared(f"An echo of {size:,} B", "us, p50", p50)
        print(
            f"\n| echo of {size:,} B | p50, us | to the hub's | calls/s, {at_once} at once | to the hub's", end=""
        )
        print(" | CPU of the caller, us |")
        print("|---|---|---|---|---|---|")
        for role in NAMES:
            rows = figures.get((role, size))
            if rows:
                p50, rate, cpu = (statistics.median(row[key] for row in rows) for key in ("p50", "rate", "cpu"))
                to = [ratio(figures, role, "operad-hub", size, key) for key in ("p50", "rate")]
                print(f"| {NAMES[role]} | {p50:,.0f} | {to[0]} | {rate:,.0f} | {to[1]} | {cpu:,.0f} |")
    print()
    for role, base in BASES.items():
        for floor in (base, f"{base}-json"):
            p50 = ", ".join(f"{ratio(figures, role, floor, size, 'p50') or '-'} at {size:,} B" for size in SIZES)
            print(f"{NAMES[role]}, p50 to {NAMES[floor]}: {p50}")
    for role, why in field.out.items():
        print(f"{NAMES[role]} left out: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=tuple(NAMES), default=[], metavar="NAME")
    parser.add_argument("--environments", type=Path, metavar="FOLDER")
    options: Any = parser.parse_args()
    with ExitStack() as stack:
        folder = options.environments or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        field = Field(stack, folder.absolute(), options.only)
        for role in NAMES:
            field.enter(role)
        report(field, measure(field, options.rounds))


if __name__ == "__main__":
    main()

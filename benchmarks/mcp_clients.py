"""Calls to MCP servers, and ten of them at start-up, beside the Python SDK, FastMCP, langchain and UTCP.

    python benchmarks/mcp_clients.py [--rounds 5] [--starts 9] [--calls 200] [--servers 10] [--environments FOLDER]

Each library runs in a process of its own, the peers in environments of their own, which uv makes (once, if they
are given a folder). In each round all of them take their turn at the same work; the tables have the medians of the
rounds: milliseconds per call, with the ratio to operad's, and the processor time of the client.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results import compared

HERE = Path(__file__).parent
SERVERS, PARTY = HERE / "mcp_servers.py", HERE / "mcp_party.py"
PEERS = {
    "fastmcp": ["fastmcp==4.1.2"],
    "langchain": ["langchain-mcp-adapters==0.3.2", "mcp==1.30.0"],
    "utcp": ["utcp==1.2.0", "utcp-mcp==1.2.0", "mcp==1.30.0", "mcp-use==1.3.11"],
}
NAMES = {
    "operad": "operad, a registry", "from_mcp": "operad, `from_mcp`", "sdk": "`mcp.Client` 2.3.0",
    "fastmcp": "FastMCP 4.1.2", "langchain": "langchain-mcp-adapters 0.3.2", "utcp": "UTCP 1.2.0",
}  # fmt: skip
WORK = [(tool, at_once) for tool in ("text", "record") for at_once in (1, 64)]
Figures = dict[tuple[str, str], list[tuple[float, float]]]


def interpreters(folder: Path) -> dict[str, Path]:
    """The interpreter of each library; a peer that cannot be installed is left out, and that is said."""
    found = {name: Path(sys.executable) for name in ("operad", "from_mcp", "sdk")}
    uv = [shutil.which("uv")] if shutil.which("uv") else [sys.executable, "-m", "uv"]
    for name, packages in PEERS.items():
        python = folder / name / "bin" / "python"
        steps = [["venv", "-q", "-p", sys.executable, str(folder / name)]]
        steps.append(["pip", "install", "-q", "--python", str(python), *packages])
        for step in () if python.exists() else steps:
            # From elsewhere: the pins of this workspace are not theirs.
            done = subprocess.run([*map(str, uv), *step], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name} is left out: {done.stderr.strip().splitlines()[-1:]}")
                break
        else:
            found[name] = python
    return found


class Party:
    """A library in its process."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, PARTY, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, *order: Any) -> Any:
        """Give an order, and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        return json.loads(line) if line else "its process ended"

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def program(name: str) -> dict[str, Any]:
    """A server over stdio. UTCP loses a server that has a tool without an output schema."""
    only = ["record"] if name == "utcp" else []
    return {"command": sys.executable, "args": [str(SERVERS), "stdio", *only]}


@contextmanager
def http_servers(number: int, *only: str) -> Iterator[list[dict[str, Any]]]:
    """Servers over HTTP."""
    command = [sys.executable, SERVERS, "http", str(number), *only]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        yield [{"url": f"http://127.0.0.1:{port}/mcp"} for port in ports]
        process.kill()


def calls(pythons: dict[str, Path], transport: str, rounds: int, times: int) -> None:
    """Calls of a text and of a record, one after the other and 64 at once."""
    parties = [Party(name, python) for name, python in pythons.items() if name != "from_mcp"]
    figures: Figures = {}
    with http_servers(1) as both, http_servers(1, "record") as record:
        for party in parties:
            over_http = (record if party.name == "utcp" else both)[0]
            answer = party.ask("open", over_http if transport == "HTTP" else program(party.name))
            if answer is not None:
                print(f"{party.name}, {transport}: {answer}")
        for number in range(rounds + 1):
            for tool, at_once in WORK:
                for party in parties[number % len(parties) :] + parties[: number % len(parties)]:
                    answer = party.ask("call", tool, times if number else 20, at_once)
                    if isinstance(answer, list) and number:  # the first round is for warming up
                        figures.setdefault((party.name, f"{tool}, {at_once}"), []).append((answer[0], answer[1]))
        for party in parties:
            party.ask("shut")
            party.end()
    columns = [f"{tool}, {at_once}" for tool, at_once in WORK]
    table(f"{transport}: ms per call", columns, [party.name for party in parties], figures)


def starts(pythons: dict[str, Path], transport: str, rounds: int, servers: int) -> None:
    """Many servers, connected and listed: by a program from its start, and by one that runs."""
    figures: Figures = {}
    memory: dict[str, list[float]] = {}
    with http_servers(servers) as both, http_servers(servers, "record") as record:
        for number in range(rounds):
            order = list(pythons)
            for name in order[number % len(order) :] + order[: number % len(order)]:
                over_http = record if name == "utcp" else both
                many = over_http if transport == "HTTP" else [program(name)] * servers
                started = time.time()
                party = Party(name, pythons[name])
                first = party.ask("many", many)
                again = [party.ask("many", many) for _ in range(3)]
                party.end()
                if not isinstance(first, list) or not first[2]:
                    print(f"{name}, {transport}: {first}")
                    continue
                figures.setdefault((name, "from nothing"), []).append((first[3] - started, first[4]))
                memory.setdefault(name, []).append(first[5])
                figures.setdefault((name, "running"), []).extend((one[0], one[1]) for one in again)
    table(f"{transport}: ms for {servers} servers", ["from nothing", "running"], list(pythons), figures)
    megabytes = (f"{NAMES[name]} {statistics.median(found):.0f}" for name, found in memory.items())
    print(f"megabytes, from nothing: {', '.join(megabytes)}")


def table(title: str, columns: list[str], names: list[str], figures: Figures) -> None:
    """Print the medians as a table."""
    print(f"\n| {title} | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    for column in columns:
        spent = {  # by the clock it says more about what else the machine does
            NAMES[name].replace("`", ""): statistics.median(cpu for _, cpu in figures[name, column]) * 1000
            for name in names
            if figures.get((name, column))
        }
        what = title.replace(": ms per call", ", a call").replace(": ms for", ",")
        compared(f"{what}: {column}{' at once' if column[-1].isdigit() else ''}", "ms of the client's CPU", spent)
    for name in names:
        cells = []
        for column in columns:
            found, ours = figures.get((name, column)), figures.get(("operad", column))
            if not found or not ours:
                cells.append("does not work")
                continue
            wall, cpu = (statistics.median(pair[place] for pair in found) for place in (0, 1))
            ratio = wall / statistics.median(pair[0] for pair in ours)
            cells.append(f"{wall * 1000:.3g} ({ratio:.2f}), cpu {cpu * 1000:.3g}")
        print(f"| {NAMES[name]} | {' | '.join(cells)} |", flush=True)


def imports() -> None:
    """What `load_plugins` imports of what is heavy."""
    heavy = "{'mcp', 'mcp_types', 'pydantic', 'httpx2'}"
    code = f"import sys, operad; operad.load_plugins(); print(sorted({heavy} & {{*sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    print(f"imported by load_plugins, of mcp, mcp_types, pydantic, httpx2: {loaded.strip()}")


def main() -> None:
    """Run all of it, or what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=9, help="rounds of ten servers at start-up")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--environments", type=Path, help="a folder for the peers' environments, to keep them")
    parser.add_argument("--only", choices=("calls", "start"))
    parser.add_argument("--transports", nargs="*", default=["stdio", "HTTP"])
    parser.add_argument("--parties", nargs="*", default=list(NAMES))
    options = parser.parse_args()
    imports()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.environments or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        pythons = {name: python for name, python in interpreters(folder).items() if name in options.parties}
        for transport in options.transports:
            if options.only != "start":
                calls(pythons, transport, options.rounds, options.calls)
            if options.only != "calls":
                starts(pythons, transport, options.starts, options.servers)


if __name__ == "__main__":
    main()

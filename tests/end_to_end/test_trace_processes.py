"""One trace over six processes: command line, HTTP front door, hub, worker, and from there an HTTP API and an MCP server.

Each is the real command; what runs it sets OpenTelemetry up, as ``opentelemetry-instrument`` does, with an exporter
that writes a line for each span.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from operad_testing import free_port
from tests.kit import LOCAL

TRACED = """
import json, os, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class Lines(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                parent = span.parent and f"{span.parent.span_id:x}"
                own, of = f"{span.context.span_id:x}", f"{span.context.trace_id:x}"
                file.write(json.dumps({"id": own, "trace": of, "parent": parent, "name": span.name}) + chr(10))
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
trace.set_tracer_provider(provider)
from operad_cli.main import main
main()
"""
LEAF = """
from operad import operation

@operation(namespace="{name}", type="query")
async def leaf(n: int) -> int:
    return n + 1
"""
WORK = """
from operad import OperationContext, operation

@operation(namespace="work", type="query")
async def both(n: int, context: OperationContext) -> list[int]:
    api = await context.env["api.api.leaf"]({"n": n})
    tool = await context.env["tool.tool.leaf"]({"n": n})
    return [api.data, tool.data["result"] if isinstance(tool.data, dict) else tool.data]
"""


class Processes:
    """The processes of one test, each in a folder of its own."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack
        (place / "traced.py").write_text(TRACED)

    def folder(self, name: str, configuration: str, functions: str = "") -> Path:
        """The folder of a process, with its configuration and its functions."""
        folder = self._place / name
        folder.mkdir()
        (folder / "ops.py").write_text(functions)
        (folder / "operad.toml").write_text(configuration)
        return folder

    def command(self, *arguments: str) -> list[str]:
        """``operad …``, traced."""
        return [sys.executable, str(self._place / "traced.py"), *arguments]

    def environment(self, name: str) -> dict[str, str]:
        """Where a process writes its spans, and its cache."""
        spans, cache = self._place / f"{name}.spans", self._place / "cache"
        return {**os.environ, "SPANS": str(spans), "XDG_CACHE_HOME": str(cache)}

    def start(self, name: str, *arguments: str) -> None:
        """Start one that serves until the test ends."""
        folder, log = self._place / name, self._place / f"{name}.log"
        self._stack.enter_context(running(self.command(*arguments), folder, self.environment(name), log))

    def spans(self, name: str) -> list[dict[str, str]]:
        """What a process wrote."""
        return [json.loads(line) for line in (self._place / f"{name}.spans").read_text().splitlines()]


@contextmanager
def running(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> Iterator[None]:
    """A process that is ended as a service manager ends it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(url: str, wanted: bytes = b"") -> None:
    """Wait until a server answers with what is wanted."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with urlopen(url, timeout=5) as response:
                if wanted in response.read():
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} does not answer with {wanted!r}")


@pytest.mark.slow
def test_one_trace_spans_six_processes_and_each_call_has_the_one_before_it_as_its_parent(tmp_path: Path) -> None:
    hub, api, gateway = free_port(), free_port(), free_port()
    with ExitStack() as stack:
        processes = Processes(tmp_path, stack)
        processes.folder("hub", "")
        processes.folder("api", LOCAL, LEAF.format(name="api"))
        tool = processes.folder("tool", LOCAL, LEAF.format(name="tool"))
        processes.start("hub", "hub", "--listen", f"127.0.0.1:{hub}")
        processes.start("api", "serve", "--http", f"127.0.0.1:{api}")
        answers(f"http://127.0.0.1:{api}/openapi.json", b"leaf")
        serve = processes.command("serve", "--mcp", "stdio", "-c", str(tool / "operad.toml"))
        sources = (
            f'[sources.api]\ntype = "openapi"\nspec = "http://127.0.0.1:{api}/openapi.json"\n'
            f'[sources.tool]\ntype = "mcp"\ncommand = {json.dumps(serve[0])}\nargs = {json.dumps(serve[1:])}\n'
            f"env = {{ SPANS = {json.dumps(str(tmp_path / 'tool.spans'))} }}\n"
        )
        processes.folder("worker", LOCAL + sources, WORK)
        processes.start("worker", "serve", "--transport", f"ws://127.0.0.1:{hub}")
        processes.folder("gateway", f'[sources.far]\ntype = "remote"\nurl = "ws://127.0.0.1:{hub}"\n')
        processes.start("gateway", "serve", "--http", f"127.0.0.1:{gateway}")
        answers(f"http://127.0.0.1:{gateway}/openapi.json", b"work.both")
        client = processes.folder(
            "client", f'[sources.door]\ntype = "openapi"\nspec = "http://127.0.0.1:{gateway}/openapi.json"\n'
        )
        done = subprocess.run(
            processes.command("call", "door.far.work.both", "n=1", "--data"),
            cwd=client, env=processes.environment("client"), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + (tmp_path / "gateway.log").read_text()
        assert json.loads(done.stdout) == [2, 2]
    spans = {name: processes.spans(name) for name in ("client", "gateway", "worker", "api", "tool")}
    (root,) = spans["client"]
    assert (root["name"], root["parent"]) == ("door.far.work.both", None)
    # The MCP SDK traces what its sessions say to one another besides calls, each in a trace of its own.
    spans = {name: [span for span in each if span["trace"] == root["trace"]] for name, each in spans.items()}
    known = {span["id"] for each in spans.values() for span in each}
    assert {span["parent"] for each in spans.values() for span in each} <= known | {None}
    came_from = {
        name: {owner for span in spans[name] for owner, each in spans.items() if owner != name
               for one in each if one["id"] == span["parent"]}
        for name in spans
    }  # fmt: skip
    assert came_from == {
        "client": set(), "gateway": {"client"}, "worker": {"gateway"}, "api": {"worker"}, "tool": {"worker"},
    }  # fmt: skip

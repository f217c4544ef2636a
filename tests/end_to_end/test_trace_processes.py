"""One trace over six processes: command line, HTTP front door, hub, worker, and from there an HTTP API and an MCP server.

Each is the real command; what runs it sets OpenTelemetry up, as ``opentelemetry-instrument`` does, with an exporter
that writes a line for each span.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.kit import LOCAL, operad, output_of, url_in

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


@pytest.mark.slow
async def test_one_trace_spans_six_processes_and_each_call_has_the_one_before_it_as_its_parent(
    tmp_path: Path,
) -> None:
    (tmp_path / "traced.py").write_text(TRACED)
    program = (sys.executable, str(tmp_path / "traced.py"))

    def folder(name: str, configuration: str, functions: str = "") -> Path:
        """Make the folder of a process, with its configuration and its functions."""
        made = tmp_path / name
        made.mkdir()
        (made / "ops.py").write_text(functions)
        (made / "operad.toml").write_text(configuration)
        return made

    def environment(name: str) -> dict[str, str]:
        return {"SPANS": str(tmp_path / f"{name}.spans"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    async with AsyncExitStack() as stack:

        async def started(place: Path, *arguments: str) -> str:
            """Start one that serves until the test ends; return what it said."""
            options = {"until": r" on \w+://\S+", "program": program, **environment(place.name)}
            _, said = await stack.enter_async_context(operad(place, *arguments, **options))
            return said

        hub = url_in(await started(folder("hub", ""), "hub", "--listen", "127.0.0.1:0"))
        leaf = folder("api", LOCAL, LEAF.format(name="api"))
        api = url_in(await started(leaf, "serve", "--http", "127.0.0.1:0"))
        tool = folder("tool", LOCAL, LEAF.format(name="tool"))
        arguments = [program[1], "serve", "--mcp", "stdio", "-c", str(tool / "operad.toml")]
        sources = (
            f'[sources.api]\ntype = "openapi"\nspec = "{api}/openapi.json"\n'
            f'[sources.tool]\ntype = "mcp"\ncommand = {json.dumps(program[0])}\nargs = {json.dumps(arguments)}\n'
            f"env = {{ SPANS = {json.dumps(environment('tool')['SPANS'])} }}\n"
        )
        await started(folder("worker", LOCAL + sources, WORK), "serve", "--transport", hub)
        far = f'[sources.far]\ntype = "remote"\nurl = "{hub}"\n'
        gateway = url_in(await started(folder("gateway", far), "serve", "--http", "127.0.0.1:0"))
        client = folder("client", f'[sources.door]\ntype = "openapi"\nspec = "{gateway}/openapi.json"\n')
        env = {**os.environ, **environment("client")}
        shown = await output_of(*program, "call", "door.far.work.both", "n=1", "--data", cwd=client, env=env)
        assert json.loads(shown) == [2, 2]
    spans = {
        name: [json.loads(line) for line in (tmp_path / f"{name}.spans").read_text().splitlines()]
        for name in ("client", "gateway", "worker", "api", "tool")
    }
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

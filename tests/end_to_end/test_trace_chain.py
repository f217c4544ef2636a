"""One trace over an MCP server, an HTTP API and a bus: each call is a child of the one that made it."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from operad import (
    CallHandler,
    InProcessTransport,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    from_remote,
    load_plugins,
    operation,
)
from operad_mcp import to_mcp
from operad_opentelemetry import Telemetry
from operad_serve import to_openapi
from plugins.serve.tests.front_door import served


class Party:
    """A registry as another process would have it, with the spans that ended there."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        plugins = load_plugins(only=["operad-mcp", "operad-openapi"])
        plugins.register(Telemetry(provider), "telemetry")
        self.registry = OperationRegistry(plugins)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@operation(namespace="w", type="query")
async def leaf(n: int) -> int:
    """The end of the chain."""
    return n + 1


async def test_a_trace_goes_through_mcp_http_and_a_bus() -> None:
    caller, gateway, api, worker = Party(), Party(), Party(), Party()
    worker.registry.register(leaf)
    bus = InProcessTransport(strict=True)

    async def forward(input: Any, context: OperationContext) -> Any:
        return (await context.env.far["w.leaf"]({"n": input["n"]})).data

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    api.registry.register(OperationSpec(namespace="a", name="forward", input_schema=schema), forward)
    async with (
        CallHandler(worker.registry, bus, identity="delegate"),
        await from_remote(bus, "far") as far,
        caller.registry,
        gateway.registry,
        api.registry,
        served(to_openapi(api.registry)) as url,
    ):
        for one in far.operations:
            api.registry.register(one)
        await gateway.registry.load("openapi", namespace="h", spec=f"{url}/openapi.json")
        await caller.registry.load("mcp", namespace="g", server=to_mcp(gateway.registry).server())
        assert (await caller.registry.execute("g.h.a.forward", {"n": 1})).data == 2
    chain = [
        caller.spans["g.h.a.forward"],
        gateway.spans["h.a.forward"],
        api.spans["a.forward"],
        api.spans["far.w.leaf"],
        worker.spans["w.leaf"],
    ]
    assert len({span.context.trace_id for span in chain}) == 1
    assert chain[0].parent is None
    parents = [None if span.parent is None else span.parent.span_id for span in chain[1:]]
    assert parents == [span.context.span_id for span in chain[:-1]]

"""What spans and metrics add to a call, beside what the SDK takes for a span and two measurements alone.

    python benchmarks/opentelemetry_spans.py [--rounds 9] [--calls 3000]

The spans are recorded and dropped: what exporting costs is the exporter's. Each round measures all parties, one
after the other; the table has the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from operad import OperationRegistry, OperationSpec, load_plugins
from operad_opentelemetry import Telemetry


async def nothing(input: Any, context: Any) -> None: ...


def registry(*plugins: Any, installed: Collection[str] = ()) -> OperationRegistry:
    loaded = load_plugins(only=list(installed))
    for plugin in plugins:
        loaded.register(plugin, "telemetry")
    made = OperationRegistry(loaded)
    made.register(OperationSpec(namespace="m", name="nothing"), nothing)
    return made


def bare(tracer_provider: TracerProvider, meter_provider: MeterProvider) -> Callable[[], Awaitable[None]]:
    """A span with as many attributes as a call has, current meanwhile, and what is measured of a call."""
    tracer = trace.get_tracer("bare", tracer_provider=tracer_provider)
    meter = meter_provider.get_meter("bare")
    duration, active = meter.create_histogram("d", "s"), meter.create_up_down_counter("a")
    attributes = {"rpc.system.name": "operad", "rpc.method": "m.nothing"}
    details = {"operad.request.id": "r", "operad.operation.type": "mutation"}

    async def call() -> None:
        active.add(1, attributes)
        with tracer.start_as_current_span("m.nothing", attributes={**attributes, **details}):
            await nothing(None, None)
        active.add(-1, attributes)
        duration.record(0.001, attributes)

    return call


async def microseconds(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        await call()
    return (time.perf_counter() - started) / calls * 1e6


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=3_000)
    options = parser.parse_args()
    tracers, meters = TracerProvider(), MeterProvider()
    plain, watched = registry(), registry(Telemetry(tracers, meters))
    unset = registry(installed=["opentelemetry"])
    parties: dict[str, Callable[[], Awaitable[Any]]] = {
        "a call": lambda: plain.execute("m.nothing"),
        "a call, plugin, no SDK set up": lambda: unset.execute("m.nothing"),
        "a call with its span": lambda: watched.execute("m.nothing"),
        "a bare span of the SDK": bare(tracers, meters),
    }
    times: dict[str, list[float]] = {name: [] for name in parties}
    for _ in range(options.rounds):
        for name, call in parties.items():
            times[name].append(await microseconds(call, options.calls))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"  {name:32} {median:7.1f} us")
    added = medians["a call with its span"] - medians["a call"]
    print(f"  the plugin adds {added:.1f} us: x{added / medians['a bare span of the SDK']:.2f} of a bare span")


if __name__ == "__main__":
    asyncio.run(main())

"""A worker process: serves the operations of the chaos tests, and writes down what it ran.

Usage: worker.py URL OPTIONS-AS-JSON NAME LOG [SLOW]; prints "ready" when it serves, drains on SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from operad import CallHandler, OperationContext, OperationRegistry, OperationSpec, load_plugins


def main() -> None:
    url, options, name, log = sys.argv[1:5]
    slow = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    asyncio.run(serve(url, json.loads(options), name, log, slow))


def chaos_registry(name: str, log: str, slow: float = 0.0) -> OperationRegistry:
    """The operations ``chaos.change`` (a mutation), ``chaos.read`` (a query) and ``chaos.count`` (a stream)."""
    registry = OperationRegistry()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(operation: str, type: str, handler: Any) -> None:
        registry.register(OperationSpec(namespace="chaos", name=operation, type=type), handler)

    def work(operation: str) -> Any:
        async def handler(input: Any, context: OperationContext) -> str:
            os.write(file, f"{operation} {input['id']} {name}\n".encode())
            await asyncio.sleep(input.get("delay", 0) + slow)
            return name

        return handler

    async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
        for number in range(input["to"]):
            yield number
            await asyncio.sleep(input.get("delay", 0))

    add("change", "mutation", work("change"))
    add("read", "query", work("read"))
    add("count", "subscription", count)
    return registry


async def serve(url: str, options: dict[str, Any], name: str, log: str, slow: float) -> None:
    scheme = url.partition("://")[0]
    transport = load_plugins(only=[scheme], strict=True).transport(url, **options)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with chaos_registry(name, log, slow) as registry, CallHandler(registry, transport):
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()

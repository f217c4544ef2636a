"""A worker process: serves ``work.put`` (an idempotent mutation) and ``work.post``, and writes down what it ran.

Usage: durable_worker.py URL OPTIONS-AS-JSON NAME LOG; prints "ready" when it serves. The first run of an operation
waits ``delay`` seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from operad import CallHandler, OperationContext, OperationRegistry, OperationSpec
from operad_nats import NATSTransport


async def main() -> None:
    url, options, name, log = sys.argv[1:5]
    runs = Path(log)
    registry = OperationRegistry()

    def add(operation: str, idempotent: bool) -> None:
        async def run(input: Any, context: OperationContext) -> str:
            line = f"{operation} {input['n']} "
            is_first = not runs.exists() or line not in runs.read_text()
            with runs.open("a") as file:
                file.write(f"{line}{name}\n")
            await asyncio.sleep(input["delay"] if is_first else 0)
            return name

        spec = OperationSpec(namespace="work", name=operation, type="mutation", idempotent=idempotent)
        registry.register(spec, run)

    add("put", True)
    add("post", False)
    async with CallHandler(registry, NATSTransport(servers=url, **json.loads(options))):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

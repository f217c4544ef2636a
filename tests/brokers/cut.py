"""Cuts the network under calls, in a network namespace of its own: `unshare -rn python cut.py nats|redis`.

Unlike a process that dies, a cut closes no connection: both sides have to notice by themselves. Prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from worker import chaos_registry

from operad import CallError, CallHandler, PendingRequestMap, load_plugins
from operad_nats.testing import NATSServer
from operad_redis.testing import RedisServer


def loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


async def main(kind: str) -> dict[str, Any]:
    loopback("up")
    with tempfile.NamedTemporaryFile("r") as log, NATSServer() if kind == "nats" else RedisServer() as server:
        registry = chaos_registry("done", log.name)
        quick = {"ping_interval": 0.3} if kind == "nats" else {"lease": 1.0}
        transport = load_plugins().transport(server.url, connect_timeout=2.0, reconnect_wait=0.1, **quick)
        async with CallHandler(registry, transport, drain_timeout=1.0), PendingRequestMap(transport) as calls:
            late: list[float] = []

            async def call(id: str, timeout: float, **input: Any) -> str:
                started = time.monotonic()
                try:
                    return str((await calls.call("chaos.change", {"id": id, **input}, timeout=timeout)).data)
                except CallError as error:
                    return str(error.code)
                finally:
                    late.append(time.monotonic() - started - timeout)

            before = await call("before", 30.0)
            held = [asyncio.create_task(call(f"held{number}", 4.0, delay=60.0)) for number in range(20)]
            async with asyncio.timeout(30):
                while len(Path(log.name).read_text().splitlines()) < 21:
                    await asyncio.sleep(0.01)
            loopback("down")
            during = [asyncio.create_task(call(f"during{number}", 2.0)) for number in range(20)]
            ended = set(await asyncio.gather(*held, *during))
            loopback("up")
            after = ""
            async with asyncio.timeout(60):
                while after != "done":
                    await asyncio.sleep(0.05)
                    after = await call(f"after{len(late)}", 1.0)
            runs = Path(log.name).read_text().splitlines()
            return {
                "before": before,
                "ended": sorted(ended),
                "after": after,
                "twice": len(runs) - len(set(runs)),
                "pending": calls.pending,
                "late": max(late),
            }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))

"""One attacker, one bystander: how long the bystander's calls take while somebody misuses the hub.

    python benchmarks/hub_attacks.py [--seconds 5] [--only NAME]

The hub has 1,024 descriptors, and a token for each of them; attacker, worker and caller are processes of their
own on 127.0.0.1. The last line is the size of the hub's log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import resource
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from calls import free_port, registry, wait_for_port

from operad import CallError, CallHandler, Identity, PendingRequestMap
from operad_websocket import Hub, WebSocketTransport, bearer_tokens


def run_hub(port: int, log: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 2)
    os.dup2(file, 1)

    logging.basicConfig()

    async def main() -> None:
        tokens = {name: Identity(id=name) for name in ("attacker", "bystander")}
        async with Hub(bearer_tokens(tokens), port=port):
            await asyncio.Event().wait()

    asyncio.run(main())


def spoke(port: int) -> WebSocketTransport:
    return WebSocketTransport(f"ws://127.0.0.1:{port}", token="bystander")


def run_worker(port: int) -> None:
    async def main() -> None:
        async with CallHandler(registry(), spoke(port)):
            await asyncio.Event().wait()

    asyncio.run(main())


# --- the attacks -----------------------------------------------------------------------------------

TOKEN = {"Authorization": "Bearer attacker"}
Attack = Callable[[int, float], Awaitable[None]]


async def frames(port: int, until: float, make: Callable[[int], bytes | str], sockets: int = 1) -> None:
    """Send frames as fast as the hub takes them, and connect again where it does not want more."""

    async def one() -> None:
        number = 0
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < until:
                try:
                    async with session.ws_connect(f"ws://127.0.0.1:{port}/", headers=TOKEN) as connection:
                        while time.monotonic() < until and not connection.closed:
                            data = make(number)
                            number += 1
                            if isinstance(data, str):
                                await connection.send_str(data)
                            else:
                                await connection.send_bytes(data)
                            if number % 64 == 0:
                                await asyncio.sleep(0)
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.05)

    await asyncio.gather(*(one() for _ in range(sockets)))


async def idle_sockets(port: int, until: float) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    held: list[socket.socket] = []
    for _ in range(3_000):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        held.append(one)
        if len(held) % 100 == 0:
            await asyncio.sleep(0.01)
    await asyncio.sleep(max(0.0, until - time.monotonic()))


async def unfinished(port: int, until: float) -> None:
    """Messages of 3 MB whose end does not come."""
    handshake = (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Authorization: Bearer attacker\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()
    writers = []
    for _ in range(200):
        if time.monotonic() > until:
            break
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(handshake)
            writer.write(b"\x82\xff" + (3_500_000).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 3_000_000)
            writers.append(writer)
            await writer.drain()
        except OSError:
            await asyncio.sleep(0.01)
    await asyncio.sleep(max(0.0, until - time.monotonic()))


def register(count: int, topic: str = "") -> str:
    return json.dumps({"type": "link.register", "id": "1", "payload": {"topics": [topic] * count}})


def request(input: str, operation: str = "bench.read", id: str = "a") -> str:
    about = f'"requestId":"{id}","operationId":"{operation}","input":{input}'
    return '{"type":"call.requested","id":"","payload":{' + about + "}}"


def sending(data: bytes | str) -> Attack:
    return lambda port, until: frames(port, until, lambda number: data)


def requests(operation: str) -> Attack:
    return lambda port, until: frames(port, until, lambda number: request("{}", operation, f"r{number}"))


_TOPICS = register(1_000_000)
_OWN = json.dumps(
    {"type": "link.register", "id": "1", "payload": {"topics": [f"op:mine.t{n}" for n in range(100_000)]}}
)
_DIGITS = request("[" + ",".join(["9" * 4_000] * 900) + "]")
_SPACED = request("[" + ", ".join(['{"a": 1}'] * 300_000) + "]")
_ROWS = request("[" + ",".join(['{"a":1}'] * 450_000) + "]")
_STRAY = json.dumps(
    {
        "type": "call.responded",
        "payload": {"requestId": "nobody", "output": {"data": 1, "meta": {"source": "local"}}},
    }
)

ATTACKS: dict[str, Attack] = {
    "idle sockets": idle_sockets,
    "a million topics in a frame": sending(_TOPICS),
    "100,000 topics of its own": sending(_OWN),
    "stray answers": sending(_STRAY),
    "no frames": sending("{]"),
    "calls of nobody": requests("no.body"),
    "calls of the bystander's worker": requests("bench.read"),
    "unfinished frames": unfinished,
    "huge integers": sending(_DIGITS),
    "rows with spaces": sending(_SPACED),
    "rows": sending(_ROWS),
    "changes": sending('{"type":"operad.changed","to":"all:operad.changed","id":"","payload":{"instance":"x"}}'),
}


def run_attack(name: str, port: int, seconds: float) -> None:
    asyncio.run(ATTACKS[name](port, time.monotonic() + seconds))


# --- the bystander ---------------------------------------------------------------------------------


async def bystander(port: int, name: str, seconds: float) -> str:
    context = multiprocessing.get_context("spawn")
    times: list[float] = []
    failed: list[str] = []
    async with PendingRequestMap(spoke(port)) as calls:
        for _ in range(100):
            try:
                await calls.call("bench.read", {}, timeout=2)
                break
            except CallError:
                await asyncio.sleep(0.1)
        attacker = context.Process(target=run_attack, args=(name, port, seconds), daemon=True)
        attacker.start()
        until = time.monotonic() + seconds + 2
        while time.monotonic() < until:
            started = time.monotonic()
            try:
                await calls.call("bench.read", {}, timeout=30)
            except CallError as error:
                failed.append(str(error)[:80])
            times.append((time.monotonic() - started) * 1000)
            await asyncio.sleep(0.005)
        attacker.kill()
        attacker.join()
    times.sort()
    p99, worst = times[len(times) * 99 // 100], times[-1]
    ends = f"{len(failed)} failed {failed[:1] or ''}"
    return f"{name:34}{len(times):6} calls, p99 {p99:6.0f} ms, worst {worst:6.0f} ms, {ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=tuple(ATTACKS))
    options: Any = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    log = Path(tempfile.mkdtemp(prefix="operad-attack-")) / "log"
    port = free_port()
    started: list[Any] = []
    try:
        for target, arguments in ((run_hub, (port, str(log))), (run_worker, (port,))):
            process = context.Process(target=target, args=arguments, daemon=True)
            process.start()
            started.append(process)
            wait_for_port(port)
        for name in [options.only] if options.only else ATTACKS:
            print(asyncio.run(bystander(port, name, options.seconds)), flush=True)
        print(f"the hub's log: {log.stat().st_size / 1000:.0f} kB")
    finally:
        for process in started:
            process.kill()
            process.join()


if __name__ == "__main__":
    main()

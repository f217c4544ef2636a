"""The parties of `brokers.py`, each in a process of its own, by roles: operad, durable and raw.

    python brokers_peers.py serve ROLE URL
    python brokers_peers.py call ROLES URL ROUNDS      -> a line of JSON for each role and round

A caller of several roles (``raw,operad``) takes turns, so that whatever else the machine does meets all of them.

A call carries about 350 bytes there and 535 bytes back, JSON both ways.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

REQUEST = {"text": "x" * 250, "numbers": [1, 2, 3], "flag": True}
RESPONSE = {"text": "y" * 430, "numbers": [1.5, 2.5], "flag": False}
OPERATIONS = {"operad": "bench.echo", "durable": "bench.put"}
Call = Callable[[], Awaitable[Any]]


async def serve(role: str, url: str) -> None:
    if role in OPERATIONS:
        from operad import CallHandler, OperationRegistry, OperationSpec, load_plugins

        async def echo(input: Any, context: Any) -> Any:
            return RESPONSE

        registry = OperationRegistry()
        registry.register(OperationSpec(namespace="bench", name="echo", type="query"), echo)
        registry.register(OperationSpec(namespace="bench", name="put", idempotent=True), echo)
        served = OPERATIONS[role]
        transport = load_plugins().transport(url, **({"durable": True} if role == "durable" else {}))
        async with CallHandler(registry, transport, operations=lambda spec: spec.id == served):
            await ready()
    elif url.startswith("nats:"):
        import nats

        async def answer(message: Any) -> None:
            json.loads(message.data)
            await message.respond(json.dumps(RESPONSE).encode())

        client = await nats.connect(url)
        await client.subscribe("bench.echo", queue="workers", cb=answer)
        while client.pending_data_size:  # the ping of flush() would overtake it
            await asyncio.sleep(0)
        await client.flush()
        await ready()
        await client.close()
    else:
        import redis.asyncio

        client = redis.asyncio.Redis.from_url(url)
        async with client.pubsub() as channels:
            await channels.subscribe("bench.echo")

            async def pump() -> None:
                async for message in channels.listen():
                    if message["type"] == "message":
                        asked = json.loads(message["data"])
                        answer = json.dumps({"id": asked["id"], "output": RESPONSE})
                        await client.publish(asked["replyTo"], answer)

            task = asyncio.create_task(pump())
            await ready()
            task.cancel()


async def ready() -> None:
    """Say so, and stay until standard input closes."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def client(role: str, url: str) -> AsyncIterator[Call]:
    """What makes one call, and awaits its answer."""
    if role in OPERATIONS:
        from operad import PendingRequestMap, load_plugins

        transport = load_plugins().transport(url, **({"durable": True} if role == "durable" else {}))
        async with PendingRequestMap(transport) as calls:
            yield lambda: calls.call(OPERATIONS[role], REQUEST)
    elif url.startswith("nats:"):
        import nats

        connection = await nats.connect(url)

        async def request() -> Any:
            answer = await connection.request("bench.echo", json.dumps(REQUEST).encode(), timeout=30)
            return json.loads(answer.data)

        yield request
        await connection.close()
    else:
        async with redis_client(url) as ping:
            yield ping


@asynccontextmanager
async def redis_client(url: str) -> AsyncIterator[Call]:
    """What redis-py offers for this: publish, and listen at a channel of one's own."""
    import redis.asyncio

    connection = redis.asyncio.Redis.from_url(url)
    waiting: dict[int, asyncio.Future[Any]] = {}
    numbers = itertools.count()
    async with connection.pubsub() as channels:
        await channels.subscribe("bench.replies")

        async def pump() -> None:
            async for message in channels.listen():
                if message["type"] == "message":
                    answer = json.loads(message["data"])
                    waiting.pop(answer["id"]).set_result(answer["output"])

        async def ping() -> Any:
            number = next(numbers)
            future = waiting[number] = asyncio.get_running_loop().create_future()
            asked = {"id": number, "replyTo": "bench.replies", "input": REQUEST}
            await connection.publish("bench.echo", json.dumps(asked))
            return await asyncio.wait_for(future, 30)

        task = asyncio.create_task(pump())
        yield ping
        task.cancel()


async def call(roles: list[str], url: str, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        clients = {role: await stack.enter_async_context(client(role, url)) for role in roles}
        for once in clients.values():
            for _ in range(200):
                await once()
        for _ in range(rounds):
            for role, once in clients.items():
                print(json.dumps({"role": role, **await measure(once, 400, 3_000)}), flush=True)


async def measure(once: Call, sequential: int, concurrent: int) -> dict[str, float]:
    """p50 and p99 of single calls in us, calls per second with 64 in flight, CPU of this process in us a call."""
    took = []
    for _ in range(sequential):
        started = time.perf_counter()
        await once()
        took.append(time.perf_counter() - started)
    took.sort()

    left = iter(range(concurrent))

    async def caller() -> None:
        for _ in left:
            await once()

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(64)))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    p50, p99 = took[len(took) // 2] * 1e6, took[len(took) * 99 // 100] * 1e6
    return {"p50": p50, "p99": p99, "rate": concurrent / seconds, "cpu": cpu / concurrent * 1e6}


def main() -> None:
    what, role, url = sys.argv[1:4]
    if what == "serve":
        asyncio.run(serve(role, url))
    else:
        asyncio.run(call(role.split(","), url, int(sys.argv[4])))


if __name__ == "__main__":
    main()

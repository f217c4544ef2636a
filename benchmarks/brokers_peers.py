"""The parties of `brokers.py`, each in a process of its own, by roles: ``operad``, ``raw`` and ``faststream``.

    python brokers_peers.py serve ROLE URL
    python brokers_peers.py call ROLE URL SEQUENTIAL CONCURRENT IN_FLIGHT   -> one line of JSON

A call carries about 350 bytes there and 535 bytes back, JSON both ways. FastStream runs in an environment of its
own, so this file imports nothing but the standard library before it knows its role.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

REQUEST = {"text": "x" * 250, "numbers": [1, 2, 3], "flag": True}
RESPONSE = {"text": "y" * 430, "numbers": [1.5, 2.5], "flag": False}
Call = Callable[[], Awaitable[Any]]


async def serve(role: str, url: str) -> None:
    if role == "operad":
        from operad import CallHandler, OperationRegistry, OperationSpec, load_plugins

        async def echo(input: Any, context: Any) -> Any:
            return RESPONSE

        registry = OperationRegistry()
        registry.register(OperationSpec(namespace="bench", name="echo", type="query"), echo)
        async with CallHandler(registry, load_plugins().transport(url)):
            await ready()
    elif role == "faststream":
        await serve_faststream(url)
    elif url.startswith("nats:"):
        import nats

        async def answer(message: Any) -> None:
            json.loads(message.data)
            await message.respond(json.dumps(RESPONSE).encode())

        client = await nats.connect(url)
        await client.subscribe("bench.echo", queue="workers", cb=answer)
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


async def call(role: str, url: str, sequential: int, concurrent: int, in_flight: int) -> None:
    if role == "operad":
        from operad import PendingRequestMap, load_plugins

        async with PendingRequestMap(load_plugins().transport(url)) as calls:
            await measure(lambda: calls.call("bench.echo", REQUEST), sequential, concurrent, in_flight)
    elif role == "faststream":
        await call_faststream(url, sequential, concurrent, in_flight)
    elif url.startswith("nats:"):
        import nats

        client = await nats.connect(url)

        async def once() -> Any:
            answer = await client.request("bench.echo", json.dumps(REQUEST).encode(), timeout=30)
            return json.loads(answer.data)

        await measure(once, sequential, concurrent, in_flight)
        await client.close()
    else:
        await call_redis(url, sequential, concurrent, in_flight)


async def call_redis(url: str, sequential: int, concurrent: int, in_flight: int) -> None:
    """What redis-py offers for this: publish, and listen at a channel of one's own."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)
    waiting: dict[int, asyncio.Future[Any]] = {}
    numbers = itertools.count()
    async with client.pubsub() as channels:
        await channels.subscribe("bench.replies")

        async def pump() -> None:
            async for message in channels.listen():
                if message["type"] == "message":
                    answer = json.loads(message["data"])
                    waiting.pop(answer["id"]).set_result(answer["output"])

        async def once() -> Any:
            number = next(numbers)
            future = waiting[number] = asyncio.get_running_loop().create_future()
            asked = {"id": number, "replyTo": "bench.replies", "input": REQUEST}
            await client.publish("bench.echo", json.dumps(asked))
            return await asyncio.wait_for(future, 30)

        task = asyncio.create_task(pump())
        await measure(once, sequential, concurrent, in_flight)
        task.cancel()


async def measure(once: Call, sequential: int, concurrent: int, in_flight: int) -> None:
    """Print p50 and p99 of single calls in us, and calls per second with some in flight."""
    for _ in range(200):
        await once()
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

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    rate = concurrent / (time.perf_counter() - started)
    p50, p99 = took[len(took) // 2] * 1e6, took[len(took) * 99 // 100] * 1e6
    print(json.dumps({"p50": p50, "p99": p99, "rate": rate}), flush=True)


def faststream_broker(url: str) -> Any:
    if url.startswith("nats:"):
        from faststream.nats import NatsBroker

        return NatsBroker(url, logger=None)
    from faststream.redis import RedisBroker

    return RedisBroker(url, logger=None)


async def serve_faststream(url: str) -> None:
    broker = faststream_broker(url)

    @broker.subscriber("bench.echo")  # type: ignore[untyped-decorator]  # FastStream lives in another environment
    async def echo(message: dict) -> dict:  # type: ignore[type-arg]  # FastStream reads these annotations
        return RESPONSE

    await broker.start()
    await ready()
    await broker.stop()


async def call_faststream(url: str, sequential: int, concurrent: int, in_flight: int) -> None:
    broker = faststream_broker(url)
    await broker.connect()
    await broker.start()

    async def once() -> Any:
        answer = await broker.request(REQUEST, "bench.echo", timeout=30)
        return await answer.decode()

    await measure(once, sequential, concurrent, in_flight)
    await broker.stop()


def main() -> None:
    what, role, url = sys.argv[1:4]
    if what == "serve":
        asyncio.run(serve(role, url))
    else:
        asyncio.run(call(role, url, *(int(argument) for argument in sys.argv[4:7])))


if __name__ == "__main__":
    main()

"""The parties of `calls_peers.py`, each in a process of its own.

    python calls_party.py serve ROLE URL     says "ready", and stays until standard input closes
    python calls_party.py call ROLE URL      reads orders [size, calls, at_once], answers a line of JSON each

Each call is an echo: a text of so many characters there, and the same text back. gRPC, WAMP and FastStream run in
environments of their own, so this file imports nothing but the standard library before it knows its role.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

Call = Callable[[str], Awaitable[Any]]
LARGEST = 8 * 2**20


async def until_closed() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


# --- the floor: the same bytes over the same two hops ------------------------------------------------


async def serve_forwarder(url: str) -> None:
    """Passes what a client sends to the echo of its name, and what the echo sends to the client."""
    from aiohttp import web

    ends: dict[str, web.WebSocketResponse] = {}

    async def on_request(request: web.Request) -> web.WebSocketResponse:
        _, name, own = request.path.split("/")
        other = f"{name}/{'client' if own == 'echo' else 'echo'}"
        socket = web.WebSocketResponse(compress=False, max_msg_size=LARGEST)
        await socket.prepare(request)
        ends[f"{name}/{own}"] = socket
        while other not in ends:
            await asyncio.sleep(0.01)
        async for message in socket:
            await ends[other].send_bytes(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/{name}/{end}", on_request)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", urlsplit(url).port).start()
    await until_closed()
    await runner.cleanup()


def coding(role: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """How a floor makes bytes of a text, and a text of bytes."""
    if role.endswith("-json"):
        import msgspec

        return msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    return (lambda text: text), (lambda data: data)


async def serve_hops(role: str, url: str) -> None:
    from aiohttp import ClientSession

    write, read = coding(role)
    async with (
        ClientSession() as session,
        session.ws_connect(f"{url}/{role}/echo", max_msg_size=LARGEST) as socket,
    ):

        async def echo() -> None:
            async for message in socket:
                await socket.send_bytes(write(read(message.data)))

        echoing = asyncio.create_task(echo())
        await until_closed()
        echoing.cancel()


@asynccontextmanager
async def hops(role: str, url: str) -> AsyncIterator[Call]:
    """The answer to each request is the oldest one that is waited for."""
    from aiohttp import ClientSession

    write, read = coding(role)
    url = f"{url}/{role}/client"
    async with ClientSession() as session, session.ws_connect(url, max_msg_size=LARGEST) as socket:
        waiting: deque[asyncio.Future[Any]] = deque()

        async def receive() -> None:
            async for message in socket:
                waiting.popleft().set_result(read(message.data))

        async def call(text: str) -> Any:
            future = asyncio.get_running_loop().create_future()
            waiting.append(future)
            await socket.send_bytes(write(text))
            return await future

        receiving = asyncio.create_task(receive())
        yield call
        receiving.cancel()


async def serve_nats(role: str, url: str) -> None:
    import nats

    write, read = coding(role)

    async def answer(message: Any) -> None:
        await message.respond(write(read(message.data)))

    client = await nats.connect(url)
    await client.subscribe(role, queue="workers", cb=answer)
    while client.pending_data_size:  # the ping of flush() would overtake it
        await asyncio.sleep(0)
    await client.flush()
    await until_closed()
    await client.close()


@asynccontextmanager
async def nats_client(role: str, url: str) -> AsyncIterator[Call]:
    import nats

    write, read = coding(role)
    connection = await nats.connect(url)

    async def call(text: str) -> Any:
        answer = await connection.request(role, write(text), timeout=30)
        return read(answer.data)

    yield call
    await connection.close()


# --- operad ------------------------------------------------------------------------------------------


async def serve_hub(url: str) -> None:
    from operad_websocket import Hub

    async with Hub(port=urlsplit(url).port or 0):
        await until_closed()


async def serve_operad(url: str) -> None:
    from operad import CallHandler, OperationRegistry, OperationSpec, load_plugins

    async def echo(input: Any, context: Any) -> Any:
        return input

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="bench", name="echo", type="query"), echo)
    async with CallHandler(registry, load_plugins().transport(url)):
        await until_closed()


@asynccontextmanager
async def operad_client(url: str) -> AsyncIterator[Call]:
    from operad import PendingRequestMap, load_plugins

    async with PendingRequestMap(load_plugins().transport(url)) as calls:

        async def call(text: str) -> Any:
            return (await calls.call("bench.echo", {"text": text})).data["text"]

        yield call


# --- others ------------------------------------------------------------------------------------------


async def serve_grpc(url: str) -> None:
    import grpc
    from google.protobuf.wrappers_pb2 import StringValue

    async def echo(request: Any, context: Any) -> Any:
        return request

    method = grpc.unary_unary_rpc_method_handler(echo, StringValue.FromString, StringValue.SerializeToString)
    server = grpc.aio.server(options=GRPC)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"echo": method}),))
    server.add_insecure_port(urlsplit(url).netloc)
    await server.start()
    await until_closed()
    await server.stop(0)


GRPC = [("grpc.max_receive_message_length", LARGEST), ("grpc.max_send_message_length", LARGEST)]


@asynccontextmanager
async def grpc_client(url: str) -> AsyncIterator[Call]:
    import grpc
    from google.protobuf.wrappers_pb2 import StringValue

    async with grpc.aio.insecure_channel(urlsplit(url).netloc, options=GRPC) as channel:
        stub = channel.unary_unary("/bench/echo", StringValue.SerializeToString, StringValue.FromString)

        async def call(text: str) -> Any:
            return (await stub(StringValue(value=text), timeout=30)).value

        yield call


@asynccontextmanager
async def wamp_session(url: str) -> AsyncIterator[Any]:
    """A session of autobahn with JSON, as operad's."""
    from autobahn.asyncio.component import Component

    transport = {"type": "websocket", "url": url, "serializers": ["json"], "max_retries": 60}
    component = Component(realm="bench", transports=[transport])
    loop = asyncio.get_running_loop()
    joined: asyncio.Future[Any] = loop.create_future()
    component.on_join(lambda session, details: joined.set_result(session))  # type: ignore[no-untyped-call]  # autobahn has no types
    component.start(loop=loop)
    session = await asyncio.wait_for(joined, 60)
    yield session
    session.leave()
    await asyncio.sleep(0.2)


async def serve_wamp(url: str) -> None:
    async def echo(value: Any) -> Any:
        return value

    async with wamp_session(url) as session:
        await session.register(echo, "bench.echo")
        await until_closed()


@asynccontextmanager
async def wamp_client(url: str) -> AsyncIterator[Call]:
    async with wamp_session(url) as session:
        yield lambda text: session.call("bench.echo", text)


def faststream_broker(url: str) -> Any:
    if url.startswith("nats:"):
        from faststream.nats import NatsBroker

        return NatsBroker(url, logger=None)
    from faststream.redis import RedisBroker

    # Each call takes a connection of its own out of a pool of 100, and fails where none is left.
    return RedisBroker(url, logger=None, max_connections=1_000)


async def serve_faststream(url: str) -> None:
    broker = faststream_broker(url)

    @broker.subscriber("bench.faststream")  # type: ignore[untyped-decorator]  # it lives in another environment
    async def echo(message: dict) -> dict:  # type: ignore[type-arg]  # FastStream reads these annotations
        return message

    await broker.start()
    await until_closed()
    await broker.stop()


@asynccontextmanager
async def faststream_client(url: str) -> AsyncIterator[Call]:
    broker = faststream_broker(url)
    await broker.start()

    async def call(text: str) -> Any:
        answer = await broker.request({"text": text}, "bench.faststream", timeout=30)
        return (await answer.decode())["text"]

    yield call
    await broker.stop()


# --- what they do ------------------------------------------------------------------------------------


def server(role: str, url: str) -> Any:
    return {
        "forwarder": lambda: serve_forwarder(url),
        "hub": lambda: serve_hub(url),
        "operad": lambda: serve_operad(url),
        "hops": lambda: serve_hops(role, url),
        "nats": lambda: serve_nats(role, url),
        "grpc": lambda: serve_grpc(url),
        "wamp": lambda: serve_wamp(url),
        "faststream": lambda: serve_faststream(url),
    }[role.partition("-")[0]]()


def client(role: str, url: str) -> Any:
    return {
        "operad": lambda: operad_client(url),
        "hops": lambda: hops(role, url),
        "nats": lambda: nats_client(role, url),
        "grpc": lambda: grpc_client(url),
        "wamp": lambda: wamp_client(url),
        "faststream": lambda: faststream_client(url),
    }[role.partition("-")[0]]()


async def measure(call: Call, text: Any, count: int, at_once: int) -> dict[str, float]:
    """p50 of calls one after the other in us, calls per second with so many at once, processor time here in us."""
    took = []
    for _ in range(count):
        started = time.perf_counter()
        assert len(await call(text)) == len(text)
        took.append(time.perf_counter() - started)
    lanes = range(count // at_once)

    async def lane() -> None:
        for _ in lanes:
            await call(text)

    started, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(lane() for _ in range(at_once)))
    seconds, spent = time.perf_counter() - started, time.process_time() - spent
    done = len(lanes) * at_once
    return {"p50": sorted(took)[count // 2] * 1e6, "rate": done / seconds, "cpu": spent / done * 1e6}


async def obey(role: str, url: str) -> None:
    """Do what each line of standard input says."""
    async with client(role, url) as call:
        while line := await asyncio.to_thread(sys.stdin.readline):
            size, count, at_once = json.loads(line)
            text: Any = "x" * size
            if role in ("hops", "nats"):
                text = text.encode()
            try:
                answer: Any = await measure(call, text, count, at_once)
            except Exception as error:  # whatever a peer raises is said, and the others go on
                answer = f"{type(error).__name__}: {error}"[:150]
            print(json.dumps(answer), flush=True)


def main() -> None:
    what, role, url = sys.argv[1:4]
    asyncio.run(server(role, url) if what == "serve" else obey(role, url))


if __name__ == "__main__":
    main()

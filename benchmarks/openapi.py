"""operad-openapi beside its floors and peers; every figure is a ratio, printed with what it compares.

    python benchmarks/openapi.py [load] [call] [sse]

Floors: ``json.loads`` of the same bytes, a bare aiohttp request with JSON decoding. Peers, where installed:
FastMCP's ``from_openapi``, UTCP's converter, httpx-sse. Documents, where they are: Stripe's from
../shared/data/specs and GitHub's from npm ``@octokit/openapi`` (package.json of tests/peers/prism).
"""

import asyncio
import gc
import importlib.util
import json
import logging
import multiprocessing
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / "tests/peers/prism/node_modules/@octokit/openapi/generated/api.github.com.json"
STRIPE = ROOT.parent / "shared/data/specs/stripe.json"
BASE = "http://127.0.0.1:9"


def best(function, rounds=5):
    """The shortest time of a function in s, its garbage collected before each round."""
    times = []
    for _ in range(rounds):
        gc.collect()
        started = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - started)
        del result
    return min(times)


def interleaved(floor, ours, rounds=11):
    """Processor times of two functions in s and their ratio: medians over rounds that run both in turn."""
    pairs = []
    for _ in range(rounds):
        pair = []
        for function in (floor, ours):
            gc.collect()
            started = time.process_time()
            result = function()
            pair.append(time.process_time() - started)
            del result
        pairs.append(pair)
    return (*map(statistics.median, zip(*pairs, strict=True)), statistics.median(b / a for a, b in pairs))


def kept(function):
    """The bytes that a function's result holds."""
    gc.collect()
    tracemalloc.start()
    result = function()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return size


# --- loading -----------------------------------------------------------------------------------------


def load(path):
    from operad_openapi import HTTPServiceConfig, from_openapi_file

    return asyncio.run(from_openapi_file(path, HTTPServiceConfig(namespace="api", base_url=BASE)))


def first_call(path):
    """The processor time of the first use of each operation: its plan and its schemas, in s.

    Without the very first, which imports what all of them need, and without the passes of Python's collector over
    the whole document, which fall on any operation.
    """
    times = []
    operations = load(path)
    gc.collect()
    gc.disable()
    for operation in operations:
        started = time.process_time()
        _ = operation.spec.input_schema.validator, operation.spec.output_schema.validator
        times.append(time.process_time() - started)
    gc.enable()
    return times[1:]


def bench_loading():
    for name, path in (("GitHub", GITHUB), ("Stripe", STRIPE)):
        if not path.exists():
            print(f"{name:8} not here: {path}")
            continue
        data = path.read_bytes()
        floor, ours, ratio = interleaved(lambda data=data: json.loads(data), lambda path=path: load(path))
        floor_bytes, our_bytes = kept(lambda data=data: json.loads(data)), kept(lambda path=path: load(path))
        print(
            f"{name:8} load {len(load(path))} operations: json.loads {floor * 1e3:.0f} ms, "
            f"ours {ours * 1e3:.0f} ms, ratio {ratio:.2f} (at most 1.5); "
            f"memory {floor_bytes / 1e6:.1f} MB, ours {our_bytes / 1e6:.1f} MB, "
            f"ratio {our_bytes / floor_bytes:.2f} (at most 1.3)"
        )
        times = first_call(path)
        print(
            f"{name:8} first use of an operation (plan, schemas, validators): median "
            f"{statistics.median(times) * 1e3:.1f} ms, worst {max(times) * 1e3:.1f} ms, "
            f"{sum(t < 0.02 for t in times)} of {len(times)} under 20 ms"
        )
        for peer in ("fastmcp", "utcp_http"):
            print(f"{name:8} {peer}: {peer_load(peer, path)}")


PEERS = {
    "fastmcp": """
import httpx
from fastmcp import FastMCP
client = httpx.AsyncClient(base_url="http://127.0.0.1:9")
started = time.perf_counter()
document = json.loads(open(path, "rb").read())
result = FastMCP.from_openapi(openapi_spec=document, client=client)
""",
    "utcp_http": """
from utcp_http.openapi_converter import OpenApiConverter
started = time.perf_counter()
document = json.loads(open(path, "rb").read())
result = OpenApiConverter(document).convert()
""",
}


def peer_load(peer, path):
    """Load a document with a peer, in a process of its own, bounded in time."""
    if importlib.util.find_spec(peer) is None:
        return "not installed"
    code = f"import json, resource, time\npath = {str(path)!r}\n" + PEERS[peer] + (
        "seconds = time.perf_counter() - started\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3\n"
        'print(f"{seconds * 1e3:.0f} ms, peak {peak:.0f} MB")'
    )  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return "more than 300 s"
    return done.stdout.strip() or f"failed: {done.stderr.strip().splitlines()[-1:]}"


# --- calling -----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "price": {"type": "number"},
        "active": {"type": "boolean"},
    },
}
PAYLOAD = {"id": 7, "name": "seven", "tags": ["a", "b"], "price": 1.5, "active": True}


def document():
    parameters = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
        {"name": "limit", "in": "query", "schema": {"type": "integer"}},
    ]
    responses = {"200": {"description": "ok", "content": {"application/json": {"schema": SCHEMA}}}}
    node = {"operationId": "get", "parameters": parameters, "responses": responses}
    return {"openapi": "3.1.0", "info": {"title": "b", "version": "1"}, "paths": {"/items/{id}": {"get": node}}}


def serve(ready):
    """A server in a process of its own: the client's costs are the question."""

    class Protocol(asyncio.Protocol):
        body = json.dumps(PAYLOAD).encode()
        answer = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            + str(len(body)).encode() + b"\r\nServer: b\r\nDate: now\r\n\r\n" + body
        )  # fmt: skip

        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            for _ in range(data.count(b"\r\n\r\n")):
                self.transport.write(self.answer)

    async def main():
        server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0)
        ready.put(server.sockets[0].getsockname()[1])
        await asyncio.sleep(600)

    asyncio.run(main())


ROUNDS = 60


async def timed(call, count, width):
    """Processor and wall time of this process per call in s, ``width`` calls at a time."""
    left = count

    async def worker():
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(width)))
    return (time.process_time() - processor) / count, (time.perf_counter() - wall) / count


async def bench_calls(port):
    """The three in turn, in many short rounds: what else the machine does meets all of them.

    A ratio is the median of the rounds' own ratios. Processor time decides; wall time stands beside it.
    """
    import aiohttp

    from operad import OperationRegistry, load_plugins

    base = f"http://127.0.0.1:{port}"
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry, aiohttp.ClientSession() as session:
        await registry.load("openapi", namespace="api", spec=document(), base_url=base)

        async def raw():
            async with session.get(f"{base}/items/7", params={"limit": "5"}) as response:
                return await response.json()

        operation = registry.get_handler("api.get")

        async def handler():
            return await operation({"id": 7, "limit": 5}, None)

        async def ours():
            return await registry.execute("api.get", {"id": 7, "limit": 5})

        assert await raw() == (await ours()).data
        functions = [raw, handler, ours]
        for width, count in ((1, 200), (64, 960)):
            for function in functions:  # connections, caches, and the interpreter's own adaptation
                await timed(function, count, width)
            rounds = {function: [] for function in functions}
            for number in range(ROUNDS):
                turn = number % len(functions)
                for function in functions[turn:] + functions[:turn]:
                    rounds[function].append(await timed(function, count, width))

            def median(function, kind, rounds=rounds):
                return statistics.median(times[kind] for times in rounds[function]) * 1e6

            def ratio(function, kind, rounds=rounds):
                pairs = zip(rounds[raw], rounds[function], strict=True)
                return statistics.median(own[kind] / floor[kind] for floor, own in pairs)

            print(
                f"call, {width:2} at a time: aiohttp {median(raw, 0):.0f} us, handler alone "
                f"{median(handler, 0):.0f} us ({ratio(handler, 0):.2f}), through the registry "
                f"{median(ours, 0):.0f} us: ratio {ratio(ours, 0):.2f} (at most 1.25); "
                f"by the clock {median(raw, 1):.0f} and {median(ours, 1):.0f} us, {ratio(ours, 1):.2f}"
            )


def bench_calling():
    ready = multiprocessing.get_context("spawn").Queue()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(ready,), daemon=True)
    server.start()
    try:
        asyncio.run(bench_calls(ready.get(timeout=20)))
    finally:
        server.kill()
        server.join()


# --- server-sent events ------------------------------------------------------------------------------


def chunks(event, count, size):
    stream = event * count
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def bench_sse():
    from operad_openapi.sse import SSEParser

    def ours(pieces):
        parser = SSEParser()
        return sum(len(parser.feed(piece)) for piece in pieces)

    theirs = None
    if importlib.util.find_spec("httpx_sse") is not None:
        import httpx
        import httpx_sse

        class Stream(httpx.SyncByteStream):
            def __init__(self, pieces):
                self.pieces = pieces

            def __iter__(self):
                return iter(self.pieces)

        def theirs(pieces):
            headers = {"content-type": "text/event-stream"}
            response = httpx.Response(200, headers=headers, stream=Stream(pieces))
            return sum(1 for _ in httpx_sse.EventSource(response).iter_sse())

    small = b'event: delta\ndata: {"delta":"hello","n":1}\n\n'
    cases = {
        "data only": chunks(b'data: {"delta":"hello","n":1}\n\n', 20_000, 16_384),
        "event and data": chunks(small, 20_000, 16_384),
        "id, event and data": chunks(b"id: 17\n" + small, 20_000, 16_384),
        "CRLF": chunks(small.replace(b"\n", b"\r\n"), 20_000, 16_384),
        "one event per chunk": [small] * 20_000,
        "4 KB": chunks(b"data: " + b"x" * 4096 + b"\n\n", 4_000, 65_536),
        "4 KB, small chunks": chunks(b"data: " + b"x" * 4096 + b"\n\n", 4_000, 1_024),
    }
    for name, pieces in cases.items():
        count, mine = ours(pieces), best(lambda pieces=pieces: ours(pieces), 9)
        line = f"SSE {name:20} ours {mine / count * 1e6:.2f} us per event"
        if theirs is not None:
            peer = best(lambda pieces=pieces: theirs(pieces), 9)
            line += f", httpx-sse {peer / count * 1e6:.2f} us: {peer / mine:.2f} times as fast"
        print(line)


def main():
    logging.disable(logging.CRITICAL)
    wanted = sys.argv[1:] or ["load", "call", "sse"]
    for name, bench in (("load", bench_loading), ("call", bench_calling), ("sse", bench_sse)):
        if name in wanted:
            bench()


if __name__ == "__main__":
    main()

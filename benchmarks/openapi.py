"""operad-openapi beside its floors and peers; every figure is a ratio, printed with what it compares.

    python benchmarks/openapi.py [load] [paths] [call] [sse]

Floors: ``json.loads`` of the same bytes, a bare aiohttp request with JSON decoding. Peers, each in an environment
of its own that uv makes: FastMCP's ``from_openapi``, UTCP's converter, httpx-sse. Documents, where they are:
Stripe's (specs/stripe.json in the folder
that OPERAD_DOCUMENTS names) and GitHub's from npm ``@octokit/openapi`` (package.json of tests/peers/prism).
"""

import asyncio
import contextlib
import gc
import importlib.util
import json
import logging
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / "tests/peers/prism/node_modules/@octokit/openapi/generated/api.github.com.json"
STRIPE = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")) / "specs" / "stripe.json"
BASE = "http://127.0.0.1:9"
SOURCES = ("core/src", "schema/src", "plugins/auth/src")


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

    Without the very first, which imports what all of them need, without the passes of Python's collector over the
    whole document, which fall on any operation, and without freeing another document that a cache still holds.
    """
    from operad_schema import compiling

    times = []
    operations = load(path)
    compiling._cache.clear()
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
    compare_loading()


def many_paths(count):
    """A document of many small operations: 520 bytes each, 100,000 of them are 52 MB."""

    def operation(number):
        answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}
        return {
            "operationId": f"things/get-thing-{number}",
            "summary": f"Get thing {number}",
            "description": f"Gets the thing with the number {number}, if there is one.",
            "tags": ["things"],
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
                {"$ref": "#/components/parameters/page"},
            ],
            "responses": {
                "200": {"description": "The thing", "content": answer},
                "404": {"$ref": "#/components/responses/missing"},
            },
        }

    components = {
        "parameters": {"page": {"name": "page", "in": "query", "schema": {"type": "integer"}}},
        "schemas": {"Thing": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        "responses": {"missing": {"description": "none"}},
    }
    paths = {f"/things{number}/{{id}}": {"get": operation(number)} for number in range(count)}
    return {"openapi": "3.1.0", "info": {"title": "b", "version": "1"}, "components": components, "paths": paths}


def bench_many_paths():
    """Whether the time to load grows as the document does."""
    each = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (50_000, 100_000):
            path = Path(folder) / f"{count}.json"
            path.write_text(json.dumps(many_paths(count)))
            data = path.read_bytes()
            floor, ours, ratio = interleaved(lambda data=data: json.loads(data), lambda path=path: load(path), 5)
            each[count] = ours / count
            print(
                f"{count:8,} paths: json.loads {floor * 1e3:.0f} ms, ours {ours * 1e3:.0f} ms, "
                f"ratio {ratio:.2f} (at most 2 for 100,000)"
            )
    growth = each[100_000] / each[50_000]
    print(f"twice as many paths take {2 * growth:.2f} times as long (at most 2.3)")


LOADERS = {
    "operad-openapi": """
import asyncio
from operad_openapi import HTTPServiceConfig, from_openapi_file
def load(path):
    config = HTTPServiceConfig(namespace="api", base_url="http://127.0.0.1:9")
    return asyncio.run(from_openapi_file(path, config))
""",
    "operad-openapi, every schema used": """
import asyncio
from operad_openapi import HTTPServiceConfig, from_openapi_file
def load(path):
    config = HTTPServiceConfig(namespace="api", base_url="http://127.0.0.1:9")
    operations = asyncio.run(from_openapi_file(path, config))
    for operation in operations:
        _ = operation.spec.input_schema.validator, operation.spec.output_schema.validator
    return operations
""",
    "FastMCP from_openapi": """
from fastmcp import FastMCP
try:
    import httpx2 as httpx
except ImportError:
    import httpx
def load(path):
    client = httpx.AsyncClient(base_url="http://127.0.0.1:9")
    document = json.loads(open(path, "rb").read())
    return FastMCP.from_openapi(openapi_spec=document, client=client)
""",
    "UTCP OpenApiConverter": """
from utcp_http.openapi_converter import OpenApiConverter
def load(path):
    return OpenApiConverter(json.loads(open(path, "rb").read())).convert()
""",
}
"""What defines ``load``, which is given the path of a document; run in a process of its own."""
PACKAGES = {"FastMCP from_openapi": ["fastmcp"], "UTCP OpenApiConverter": ["utcp-http", "httpx"]}
MEASURE = """
def peak():
    # Not ru_maxrss: a process begins with that of the one which started it.
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return math.nan
before, started = peak(), time.process_time()
result = load(sys.argv[1])
spent = time.process_time() - started
print(json.dumps([spent, peak() - before]))
"""


def compare_loading(rounds=3):
    """Processor time and growth of memory of a load: the best of rounds that run all of them in turn."""
    from results import compared  # of this folder; an environment with other packages does not see it

    with contextlib.ExitStack() as stack:
        pythons = {}
        for name in LOADERS:
            python = stack.enter_context(environment(PACKAGES[name])) if name in PACKAGES else sys.executable
            if python.startswith("/"):
                pythons[name] = python
            else:
                print(f"load     {name}: {python}")
        for document, path in (("GitHub", GITHUB), ("Stripe", STRIPE)):
            if not path.exists():
                continue
            best_of = {}
            for _ in range(rounds):
                for name, python in list(pythons.items()):
                    found = loaded(python, LOADERS[name], path)
                    if isinstance(found, str):
                        print(f"{document:8} {name}: {found}")
                        del pythons[name]
                        continue
                    best_of[name] = [min(pair) for pair in zip(best_of.get(name, found), found, strict=True)]
            compared(
                f"Load {document}'s document", "ms", {name: spent * 1e3 for name, (spent, _) in best_of.items()}
            )
            reference = best_of["operad-openapi"][0]
            for name, (spent, grown) in best_of.items():
                print(
                    f"{document:8} {name:34} {spent * 1e3:6.0f} ms, {spent / reference:5.1f} times ours; "
                    f"{grown:4.0f} MB more at the peak"
                )


def loaded(python, loader, path):
    """What `MEASURE` prints, or why it does not."""
    code = f"import json, math, sys, time\n{loader}{MEASURE}"
    try:
        done = subprocess.run(
            [python, "-P", "-c", code, str(path)], capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return "more than 300 s"
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def environment(packages):
    """The interpreter of an environment of its own that uv makes for peers, or why there is none."""
    uv = shutil.which("uv")
    if uv is None:
        yield "left out: there is no uv to install it"
        return
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/env/bin/python"
        for step in (
            ["venv", "-q", "-p", sys.executable, f"{folder}/env"],
            ["pip", "install", "-q", "--python", python, *packages],
        ):
            # In the repository, uv would apply its pins to the peers.
            done = subprocess.run([uv, *step], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                yield f"left out: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
                return
        yield python


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
    """In an environment with httpx-sse: both parse the same chunks in turn, in one process."""
    with environment(["httpx", "httpx-sse", "msgspec"]) as python:
        if not python.startswith("/"):
            print(f"SSE      httpx-sse: {python}")
            python = sys.executable
        source = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in SOURCES)}
        subprocess.run([python, "-P", __file__, "sse-here"], env=source, check=True)


def bench_sse_here():
    from operad_auth.http import SSEParser

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
        count = ours(pieces)
        if theirs is None:
            mine = best(lambda pieces=pieces: ours(pieces), 9)
            print(f"SSE {name:20} ours {mine / count * 1e6:.2f} us per event")
            continue
        assert theirs(pieces) == count
        mine, peer, ratio = interleaved(lambda pieces=pieces: ours(pieces), lambda pieces=pieces: theirs(pieces))
        least = 1 if name.startswith("4 KB") else 2
        print(
            f"SSE {name:20} ours {mine / count * 1e6:.2f} us per event, httpx-sse {peer / count * 1e6:.2f} us: "
            f"{ratio:.1f} times as fast (at least {least})"
        )


BENCHES = {
    "load": bench_loading,
    "paths": bench_many_paths,
    "call": bench_calling,
    "sse": bench_sse,
    "sse-here": bench_sse_here,
}


def main():
    logging.disable(logging.CRITICAL)
    for name in sys.argv[1:] or ["load", "paths", "call", "sse"]:
        BENCHES[name]()


if __name__ == "__main__":
    main()

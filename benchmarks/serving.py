"""A served call beside the same handler in bare starlette and in FastAPI, in one run, in turn.

One keep-alive connection and a raw client, so that little but the server is measured; each server in a process of
its own. Figures are medians, and ratios to bare starlette. FastAPI is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from results import compared

BODY = json.dumps({"a": 1, "b": 2}).encode()
SERVERS = ("starlette", "operad", "fastapi")
MOST = 1.25
"""What is asked for: the served call, to bare starlette."""


def serve(name: str) -> None:
    """Run one server on a free port, and print the port."""
    import uvicorn

    # Said to be TCP: asyncio switches Nagle's algorithm off for nothing else, and an answer would take 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    bound.listen(2048)
    print(bound.getsockname()[1], flush=True)
    config = uvicorn.Config(
        {"starlette": starlette, "operad": operad, "fastapi": fastapi}[name](),
        log_level="error",
        timeout_keep_alive=600,
    )
    uvicorn.Server(config).run(sockets=[bound])


def starlette() -> object:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def add(request: Request) -> JSONResponse:
        value = await request.json()
        return JSONResponse(value["a"] + value["b"])

    return Starlette(routes=[Route("/operations/math.add", add, methods=["POST"])])


def operad() -> object:
    from operad import OperationRegistry, operation
    from operad_serve import to_openapi

    @operation(namespace="math", type="query")
    async def add(a: int, b: int) -> int:
        return a + b

    registry = OperationRegistry()
    registry.register(add)
    return to_openapi(registry)


def fastapi() -> object:
    import pydantic
    from fastapi import FastAPI

    app = FastAPI()
    pair = pydantic.create_model("Pair", a=(int, ...), b=(int, ...))

    async def add(value: object) -> int:
        return value.a + value.b  # type: ignore[attr-defined,no-any-return]  # the model made above

    add.__annotations__["value"] = pair
    app.post("/operations/math.add")(add)
    return app


class Connection:
    """A keep-alive connection that does no more than it must."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = "POST /operations/math.add HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY

    def call(self) -> float:
        """Seconds of one call."""
        started = time.perf_counter()
        self._socket.sendall(self._request)
        got = b""
        while not got.endswith(b"\r\n\r\n3"):
            part = self._socket.recv(65_536)
            if not part:
                raise ConnectionError(f"the server closed the connection after {got!r}")
            got += part
        return time.perf_counter() - started

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def running(name: str) -> Iterator[Connection]:
    with subprocess.Popen([sys.executable, __file__, "--serve", name], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            time.sleep(1.5)
            connection = Connection(port)
            yield connection
            connection.close()
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=50, help="of each server, in each round")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    names = [name for name in SERVERS if name != "fastapi" or importlib.util.find_spec("fastapi")]
    with contextlib.ExitStack() as stack:
        connections = {name: stack.enter_context(running(name)) for name in names}
        times: dict[str, list[float]] = {name: [] for name in names}
        for each in connections.values():
            for _ in range(100):
                each.call()
        for _ in range(options.rounds):
            for name, each in connections.items():
                times[name] += [each.call() for _ in range(options.calls)]
    floor = statistics.median(times["starlette"])
    compared("One call over HTTP", "ms, p50", {name: statistics.median(times[name]) * 1000 for name in names})
    print(f"{'one call over HTTP':<28}{'p50 ms':>9}{'ratio':>8}")
    for name in names:
        median = statistics.median(times[name])
        print(f"{name:<28}{median * 1000:>9.3f}{median / floor:>8.2f}")
    ratio = statistics.median(times["operad"]) / floor
    print(f"asked: at most {MOST}; {'met' if ratio <= MOST else 'missed'} ({ratio:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A registry behind a real HTTP server, and operations of many shapes to serve."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import aiohttp
import uvicorn
from annotated_types import Le
from yarl import URL

from operad import (
    AccessControl,
    CallError,
    EnvelopeKind,
    Identity,
    OperationContext,
    OperationSpec,
    Plugins,
    ResponseEnvelope,
    load_plugins,
    operation,
)
from operad.plugin import Source, SourceContext, SourceSession, hookimpl, record

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):
        yield


@contextlib.asynccontextmanager
async def served(app: Any, lifespan: str = "off") -> AsyncIterator[str]:
    """The base URL of an ASGI application on a free port of 127.0.0.1."""
    # Said to be TCP: asyncio switches Nagle's algorithm off for nothing else, and an answer would take 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    server = Server(uvicorn.Config(app, lifespan=lifespan, log_config=None, timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        while not server.started:
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        # Not by should_exit, which is looked at ten times a second.
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        await server.shutdown(sockets=[bound])


@record
class WebMeta:
    """Metadata of results of an upstream, in the form of those of HTTP."""

    source: ClassVar[str] = "web"

    status_code: int = 200
    content_type: str = ""
    url: str | None = None
    method: str | None = None
    event_type: str | None = None
    last_event_id: str | None = None
    is_error: bool = False


@record
class NoOptions:
    """A source without options."""


class WebPlugin:
    """The envelope kind of these results, and a source without operations."""

    @hookimpl
    def operad_sources(self) -> list[Source]:
        async def load(config: Any, context: SourceContext) -> SourceSession:
            return SourceSession()

        return [Source("empty", load, NoOptions)]

    @hookimpl
    def operad_envelope_kinds(self) -> list[EnvelopeKind]:
        return [EnvelopeKind("web", WebMeta, lambda meta: bool(meta.is_error))]


def web_envelope(data: Any, **meta: Any) -> ResponseEnvelope[Any]:
    """A result of an upstream."""
    return ResponseEnvelope(data, WebMeta(**meta))


def plugins() -> Plugins:
    """Only the plugin of these tests, and operad-serve."""
    found = load_plugins(only=["serve"])
    found.register(WebPlugin(), "web")
    return found


class Event(NamedTuple):
    """A server-sent event."""

    id: str
    event: str
    data: str


def events(body: bytes) -> list[Event]:
    """The events of a stream. Comments are left out."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            last = found[-1].id if found else ""
            found.append(Event(fields.get("id", last), fields.get("event", "message"), fields["data"]))
    return found


class Answer(NamedTuple):
    """A response, read."""

    status: int
    headers: Mapping[str, str]
    content_type: str
    body: bytes

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


class Client:
    """Requests to one server."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def __call__(self, method: str, path: str, **options: Any) -> Answer:
        async with self.session.request(method, URL(self.base + path, encoded=True), **options) as response:
            return Answer(response.status, response.headers, response.content_type, await response.read())

    async def problem(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """The problem that a request ends with."""
        answer = await self(method, path, **options)
        assert answer.content_type == "application/problem+json", answer.body
        problem: dict[str, Any] = answer.json()
        assert problem["status"] == answer.status
        return problem


@contextlib.asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[Client]:
    """A client of an application behind a server."""
    async with served(app) as base, aiohttp.ClientSession() as session:
        yield Client(session, base)


@contextlib.asynccontextmanager
async def connected(base: str, request: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """The reader of a connection on which a request was sent. It takes little at once."""
    url = URL(base)
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1_000)
    writer.write(request)
    try:
        async with asyncio.timeout(20):
            yield reader
    finally:
        writer.close()


async def asked(
    app: Any, method: str, path: str, body: bytes = b"", query: bytes = b"", root: str = "", **headers: str
) -> Answer:
    """The response of an application in this process, without a server. Underscores in headers become hyphens."""
    found = {"host": "127.0.0.1", "content-type": "application/json", **headers}
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query, "root_path": root,
        "server": ("127.0.0.1", 80),
        "headers": [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in found.items()],
    }  # fmt: skip
    requests = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return requests.pop() if requests else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert [bool(message.get("more_body")) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    content = b"".join(message["body"] for message in sent[1:])
    return Answer(sent[0]["status"], answered, answered.get("content-type", ""), content)


@operation(namespace="shop", type="query", tags=["math"])
async def add(a: Annotated[int, "The first."], b: int = 2) -> int:
    """Add two integers."""
    return a + b


@operation(namespace="shop", type="query")
async def find(
    names: list[str],
    ratio: float | None = None,
    text: str | None = None,
    on: bool = False,
    where: dict[str, int] | None = None,
) -> dict[str, Any]:
    return {"names": names, "ratio": ratio, "text": text, "on": on, "where": where}


@operation(namespace="shop")
async def order(items: list[dict[str, int]], note: str = "") -> dict[str, Any]:
    return {"items": len(items), "note": note}


@operation(namespace="shop")
async def crash() -> None:
    raise KeyError("the password is hunter2")


@operation(
    namespace="shop",
    error_schemas=[
        {"code": "SOLD_OUT", "description": "Nothing is left.", "httpStatus": 409, "schema": {"type": "object"}}
    ],
)
async def buy() -> None:
    raise CallError("SOLD_OUT", "sold out", {"left": 0})


@operation(namespace="shop")
async def upstream(status: int) -> None:
    raise CallError("EXECUTION_ERROR", f"GET /x: {status}", {"statusCode": status, "body": "no"})


@operation(namespace="shop", type="query")
async def picture() -> Any:
    return web_envelope(b"\x89PNG", content_type="image/png")


FEW = Annotated[int, Le(1_000)]
"""Bounded: who reads whole answers would read for ever what counts to the largest number there is."""


@operation(namespace="shop", type="subscription")
async def count(n: FEW = 3) -> AsyncIterator[int]:
    for number in range(n):
        yield number


@operation(namespace="shop", type="subscription")
async def growing(n: FEW = 3) -> AsyncIterator[str]:
    """A short word and one of n letters."""
    yield "a"
    yield "a" * n


@operation(namespace="shop", type="subscription")
async def breaks(n: FEW = 1) -> AsyncIterator[int]:
    for number in range(n):
        yield number
    raise CallError("EXECUTION_ERROR", "it broke")


@operation(
    namespace="admin", type="query", access_control=AccessControl(required_scopes=["admin"]), description="Secret."
)
async def secret() -> str:
    return "42"


async def who(input: Any, context: OperationContext) -> Any:
    return context.identity and context.identity.to_wire()


SLASHED = OperationSpec(namespace="gh", name="pulls/create ".strip() + "?%é", type="query")
TOKENS = {"root-token-123456": Identity("root", ["admin"]), "joe-token-123456": Identity("joe")}


def everything() -> list[Any]:
    return [add, find, order, crash, buy, upstream, picture, count, growing, breaks, secret]

"""``operad demo``: a real HTTP API, a real MCP server and a folder of functions in one registry."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from operad import OperationContext, OperationRegistry, OperationSpec, PluginError, load_plugins
from operad_cli import plain, render

if TYPE_CHECKING:
    from aiohttp import web

OPERATIONS = Path(__file__).parent / "demo_operations"

_NEEDED = {
    "aiohttp": "operad-openapi",
    "operad_openapi": "operad-openapi",
    "operad_mcp": "operad-mcp",
    "operad_scanner": "operad-scanner",
    "mcp_server_time": "mcp-server-time",
    "operad_serve": "operad-serve",
}

_BOOKS = [
    {"id": 1, "title": "The Left Hand of Darkness", "author": "Ursula K. Le Guin", "price": 12.5},
    {"id": 2, "title": "Roadside Picnic", "author": "Arkady and Boris Strugatsky", "price": 9.0},
    {"id": 3, "title": "Solaris", "author": "Stanisław Lem", "price": 11.0},
]

_BOOK = {
    "type": "object",
    "required": ["id", "title", "author", "price"],
    "properties": {
        "id": {"type": "integer"},
        "title": {"type": "string"},
        "author": {"type": "string"},
        "price": {"type": "number", "description": "In euros."},
    },
}

_BOOK_ID = {"name": "bookId", "in": "path", "required": True, "schema": {"type": "integer"}}


def _json(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"200": {"description": description, "content": {"application/json": {"schema": schema}}}}


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "A small bookshop", "version": "1.0.0"},
    "paths": {
        "/books": {
            "get": {
                "operationId": "listBooks",
                "summary": "The books in stock",
                "parameters": [
                    {
                        "name": "maxPrice",
                        "in": "query",
                        "description": "Only books that cost at most this, in euros.",
                        "schema": {"type": "number"},
                    }
                ],
                "responses": _json({"type": "array", "items": {"$ref": "#/components/schemas/Book"}}, "Books"),
            }
        },
        "/books/{bookId}": {
            "get": {
                "operationId": "getBook",
                "summary": "One book",
                "parameters": [_BOOK_ID],
                "responses": {
                    **_json({"$ref": "#/components/schemas/Book"}, "The book"),
                    "404": {"description": "No such book"},
                },
            }
        },
        "/orders": {
            "post": {
                "operationId": "placeOrder",
                "summary": "Order a book",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["bookId"],
                                "properties": {
                                    "bookId": {"type": "integer"},
                                    "copies": {"type": "integer", "minimum": 1},
                                },
                            }
                        }
                    },
                },
                "responses": _json(
                    {"type": "object", "properties": {"order": {"type": "integer"}, "total": {"type": "number"}}},
                    "The order",
                ),
            }
        },
        "/orders/events": {
            "get": {
                "operationId": "orderEvents",
                "summary": "What happens to an order, as it happens",
                "responses": {
                    "200": {
                        "description": "Events",
                        "content": {"text/event-stream": {"schema": {"type": "object"}}},
                    }
                },
            }
        },
    },
    "components": {"schemas": {"Book": _BOOK}},
}


def bookshop() -> web.Application:
    """The HTTP API of the demo: an aiohttp application."""
    from aiohttp import web

    async def document(request: web.Request) -> web.Response:
        return web.json_response({**DOCUMENT, "servers": [{"url": str(request.url.origin())}]})

    async def books(request: web.Request) -> web.Response:
        limit = float(request.query.get("maxPrice", "inf"))
        return web.json_response([book for book in _BOOKS if float(str(book["price"])) <= limit])

    async def book(request: web.Request) -> web.Response:
        found = next((b for b in _BOOKS if str(b["id"]) == request.match_info["id"]), None)
        if found is None:
            return web.json_response({"title": "no such book", "status": 404}, status=404)
        return web.json_response(found)

    async def order(request: web.Request) -> web.Response:
        wanted = await request.json()
        price = next((float(str(b["price"])) for b in _BOOKS if b["id"] == wanted["bookId"]), 0.0)
        return web.json_response({"order": 1001, "total": price * wanted.get("copies", 1)})

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, state in enumerate(("accepted", "packed", "shipped"), start=1):
            data = json.dumps({"order": 1001, "state": state})
            await response.write(f"id: {number}\nevent: order\ndata: {data}\n\n".encode())
            await asyncio.sleep(0.1)
        return response

    application = web.Application()
    application.router.add_get("/openapi.json", document)
    application.router.add_get("/books", books)
    application.router.add_get("/books/{id}", book)
    application.router.add_post("/orders", order)
    application.router.add_get("/orders/events", events)
    return application


@asynccontextmanager
async def serve_bookshop() -> AsyncIterator[str]:
    """The API on a free port of 127.0.0.1, for as long as the context lasts; its URL."""
    from aiohttp import web

    runner = web.AppRunner(bookshop(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def run_demo(*, keep: bool, as_json: bool) -> int:
    """Run the demo; the exit code."""
    missing = sorted({dist for module, dist in _NEEDED.items() if importlib.util.find_spec(module) is None})
    if missing:
        raise PluginError(
            f"the demo needs {', '.join(missing)}; install what it needs: pip install 'operad-cli[demo]'"
        )
    show = _Show(as_json)
    async with serve_bookshop() as url:
        show.step("1", f"Load three sources into one registry: the API at {url}, an MCP server, a folder")
        async with OperationRegistry(load_plugins(only=["openapi", "mcp", "scanner", "serve"])) as registry:
            await asyncio.gather(
                registry.load("openapi", namespace="shop", spec=f"{url}/openapi.json", base_url=url),
                registry.load(
                    "mcp",
                    namespace="time",
                    command=sys.executable,
                    args=["-m", "mcp_server_time", "--local-timezone", "UTC"],
                ),
                registry.load("scanner", namespace="demo", path=OPERATIONS),
            )
            show.specs(list(registry.specs()))

            show.step("2", "Call one of each: the answer is always an envelope, and its meta tells the source")
            await _call(show, registry, "demo.greet", {"name": "reader"})
            await _call(show, registry, "shop.getBook", {"bookId": 3})
            await _call(
                show,
                registry,
                "time.convert_time",
                {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"},
            )

            show.step("3", "Subscribe to a stream (server-sent events of the API)")
            async for envelope in registry.subscribe("shop.orderEvents", {}):
                show.envelope("shop.orderEvents", envelope)

            show.step("4", "Nest calls: demo.offer, a local function, asks the API and the MCP server")
            await _call(show, registry, "demo.offer", {"max_price": 11.5, "timezone": "Asia/Tokyo"})
            show.end(keep=keep)
            if keep:
                await _keep(registry, url)
    return 0


async def _call(show: _Show, registry: OperationRegistry, operation_id: str, input: dict[str, Any]) -> None:
    context = OperationContext(trusted=True)
    show.envelope(operation_id, await registry.execute(operation_id, input, context, timeout=30), input)


async def _keep(registry: OperationRegistry, url: str) -> None:
    """Leave the API up, and the registry served at every door, until Ctrl-C."""
    from operad.service import until_stopped
    from operad_cli.mcp_config import url_entry
    from operad_serve import FrontDoor, Plan, ServeOptions

    plan = Plan(options=ServeOptions(title="The demo of operad"), http=("127.0.0.1", 0))
    out = render.console()
    with until_stopped() as stopped:
        door = FrontDoor(registry, plan, stopped)
        async with door.open():
            entry = json.dumps(url_entry("cursor", "operad", f"{door.url}/mcp"))
            lines = (
                f"The API stays up at {url}, and all operations at {door.url}, until Ctrl-C:",
                "",
                f"  explorer   {door.url}/",
                f"  OpenAPI    {door.url}/openapi.json",
                f"  MCP        {door.url}/mcp",
                f"             {entry}",
                "",
                "In another terminal, try:",
                "",
                f"  curl '{door.url}/operations/shop.listBooks?maxPrice=10'",
                f"  curl -N {door.url}/operations/shop.orderEvents",
                f"  operad serve --mcp stdio --openapi {url}/openapi.json    # for an MCP host to start",
                "",
            )
            out.print()
            for line in lines:
                out.print(line, markup=False, highlight=False, soft_wrap=True)
            out.file.flush()  # into a pipe nothing goes by itself
            await stopped.wait()


class _Show:
    """Prints the demo's steps for people, or collects them as one JSON document."""

    def __init__(self, as_json: bool) -> None:
        self._json: dict[str, Any] | None = {"operations": [], "calls": []} if as_json else None

    def step(self, number: str, text: str) -> None:
        if self._json is None:
            render.console().print(f"\n[bold]{number}. {escape(text)}[/]\n")

    def specs(self, specs: list[OperationSpec]) -> None:
        if self._json is None:
            render.print_specs(specs)
        else:
            self._json["operations"] = [spec.to_wire(schemas=False) for spec in specs]

    def envelope(self, operation_id: str, envelope: Any, input: dict[str, Any] | None = None) -> None:
        if self._json is not None:
            self._json["calls"].append({"operationId": operation_id, "envelope": envelope.to_wire()})
            return
        if input is not None:
            arguments = " ".join(f"{key}={json.dumps(value)}" for key, value in input.items())
            render.console().print(
                f"[dim]$[/] operad call {escape(f'{operation_id} {arguments}')}", soft_wrap=True
            )
        plain.print_envelope(envelope, as_json=False)

    def end(self, *, keep: bool) -> None:
        if self._json is not None:
            plain.print_json(self._json)
        else:
            render.console().print(
                "\nThat was one registry, one way to call, one kind of answer."
                + ("" if keep else " `operad demo --keep` leaves the API up to play with.")
            )

"""The HTTP API of the demo, a small bookshop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

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
    """Return the HTTP API of the demo, an aiohttp application."""
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
    """Serve the API on a free port of 127.0.0.1 while the context is open. Yield the URL."""
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

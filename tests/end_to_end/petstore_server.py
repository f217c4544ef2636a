"""A live server for the petstore documents: pets in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


@asynccontextmanager
async def serve_petstore() -> AsyncIterator[str]:
    """The petstore on a free port of 127.0.0.1; its base URL. Wants ``api_key: secret`` for deletion."""
    pets: dict[int, dict[str, Any]] = {
        1: {"id": 1, "name": "Rex", "photoUrls": [], "status": "available"},
        2: {"id": 2, "name": "Tom", "photoUrls": [], "status": "sold"},
    }

    async def by_id(request: web.Request) -> web.Response:
        pet = pets.get(int(request.match_info["id"]))
        return web.json_response(pet) if pet else web.json_response({"message": "Pet not found"}, status=404)

    async def by_status(request: web.Request) -> web.Response:
        wanted = request.query.getall("status", ["available"])
        return web.json_response([pet for pet in pets.values() if pet["status"] in wanted])

    async def add(request: web.Request) -> web.Response:
        pet = await request.json()
        pet.setdefault("id", max(pets) + 1)
        pets[pet["id"]] = pet
        return web.json_response(pet)

    async def delete(request: web.Request) -> web.Response:
        if request.headers.get("api_key") != "secret":
            return web.json_response({"message": "forbidden"}, status=403)
        pets.pop(int(request.match_info["id"]), None)
        return web.Response(status=200)

    application = web.Application()
    application.router.add_get("/api/v3/pet/findByStatus", by_status)
    application.router.add_get("/api/v3/pet/{id}", by_id)
    application.router.add_post("/api/v3/pet", add)
    application.router.add_delete("/api/v3/pet/{id}", delete)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/api/v3"
    finally:
        await runner.cleanup()

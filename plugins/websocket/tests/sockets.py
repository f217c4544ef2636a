"""Sockets, clients and servers that are no spokes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, web
from aiohttp.test_utils import RawTestServer

from operad_websocket import Hub

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def port_of(hub: Hub) -> int:
    return int(hub.url.rsplit(":", 1)[1])


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def dialled(hub: Hub, **options: Any) -> AsyncIterator[ClientWebSocketResponse[Any]]:
    """A WebSocket of another client."""
    async with ClientSession() as session, session.ws_connect(hub.url, **options) as socket:
        yield socket


async def heard(socket: Any, *sent: str) -> Any:
    """The next event that comes, after these frames were sent."""
    for text in sent:
        await socket.send_str(text)
    return json.loads((await socket.receive(timeout=10)).data)


@asynccontextmanager
async def connected(hub: Hub, sent: bytes = b"", **options: Any) -> AsyncIterator[Streams]:
    """A connection on which nothing is sent but what a test sends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(hub), **options)
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def upgraded(hub: Hub, sent: bytes = b"", **options: Any) -> AsyncIterator[Streams]:
    """A connection that is a WebSocket's already."""
    async with connected(hub, UPGRADE + sent, **options) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


def masked(text: bytes) -> bytes:
    """A frame of a client, masked with zeros."""
    return bytes((0x81, 0x80 | len(text), 0, 0, 0, 0)) + text


@asynccontextmanager
async def server_of(talk: Callable[[web.WebSocketResponse], Awaitable[Any]]) -> AsyncIterator[str]:
    """The URL of a server that does with each WebSocket what a test says."""

    async def accept(request: web.BaseRequest) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        await talk(socket)
        return socket

    async with RawTestServer(accept) as server:
        yield f"ws://127.0.0.1:{server.port}"

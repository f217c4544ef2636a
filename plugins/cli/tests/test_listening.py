"""What a listening `operad serve` does with clients that do not come to the point."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from operad_cli.listening import listen, serving

WHOLE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connected(head_timeout: float) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with listen(("127.0.0.1", 0), is_guarded=False, option="--http") as bound:
        async with serving(app, bound, head_timeout=head_timeout):
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            async with asyncio.timeout(20):
                yield reader, writer
            writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_a_connection_on_which_no_whole_head_comes_is_closed() -> None:
    for begun in (b"", b"GET / HTTP/1.1\r\nHost: 127.0"):
        async with connected(0.1) as (reader, writer):
            writer.write(begun)
            assert await ended(reader)


async def test_the_head_after_an_answer_has_to_come_in_time_as_well() -> None:
    async with connected(0.3) as (reader, writer):
        writer.write(WHOLE)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(WHOLE[:20])
        assert await ended(reader)


async def test_a_client_that_comes_in_time_is_answered_after_that_time_as_well() -> None:
    async with connected(0.2) as (reader, writer):
        for _ in range(3):
            writer.write(WHOLE)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.15)


def test_a_connection_whose_client_takes_nothing_ends_by_itself() -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    with listen(("127.0.0.1", 0), is_guarded=False, option="--http") as bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()):
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0

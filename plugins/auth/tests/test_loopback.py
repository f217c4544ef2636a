"""The address to which a browser returns: only the answer that is awaited ends the wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from operad import CallError, ConfigError
from operad_auth import LoopbackListener

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
STATE = "the-right-state"


async def ask(listener: LoopbackListener, request: bytes) -> bytes:
    parts = urlsplit(listener.redirect_uri)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_the_right_answer_ends_the_wait_and_the_page_says_so() -> None:
    async with LoopbackListener(STATE) as listener:
        page = await ask(listener, get(f"/callback?state={STATE}&code=c%26d&iss=https%3A%2F%2Fid.example"))
        assert await listener.wait(1) == {"state": STATE, "code": "c&d", "iss": "https://id.example"}
    assert page.startswith(b"HTTP/1.1 200")
    assert b"close this window" in page
    assert b"no-store" in page
    assert b"c&d" not in page


@pytest.mark.parametrize(("request_", "status"), TABLES["other requests"])
async def test_anything_else_is_turned_away_and_the_wait_goes_on(request_: str, status: str) -> None:
    async with LoopbackListener(STATE) as listener:
        page = await ask(listener, request_.encode("latin-1"))
        assert page.split(b" ")[1] == status.encode()
        assert b"evil" not in page
        with pytest.raises(CallError, match="did not log in"):
            await listener.wait(0.01)
        await ask(listener, get(f"/callback?state={STATE}&code=good"))
        assert (await listener.wait(1))["code"] == "good"


async def test_the_first_answer_counts_and_a_second_one_changes_nothing() -> None:
    async with LoopbackListener(STATE) as listener:
        for code in ("first", "second"):
            await ask(listener, get(f"/callback?state={STATE}&code={code}"))
        assert (await listener.wait(1))["code"] == "first"


async def test_one_that_sends_nothing_or_too_much_holds_nobody_up() -> None:
    async with LoopbackListener(STATE) as listener:
        port = urlsplit(listener.redirect_uri).port
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        assert await ask(listener, b"GET /" + b"a" * 100_000) == b""
        await ask(listener, get(f"/callback?state={STATE}&code=good"))
        assert (await listener.wait(1))["code"] == "good"
    silent.close()


ELSEWHERE = ["https://127.0.0.1/callback", "http://example.com/callback", "http://127.0.0.1:0/callback?x=1"]


@pytest.mark.parametrize("uri", [*ELSEWHERE, "callback", ""])
def test_a_redirect_uri_elsewhere_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"expected http://127\.0\.0\.1:PORT/PATH"):
        LoopbackListener(STATE, uri)


async def test_a_port_that_is_taken_is_said() -> None:
    async with LoopbackListener(STATE) as listener:
        with pytest.raises(ConfigError, match="cannot listen on 127.0.0.1"):
            async with LoopbackListener(STATE, listener.redirect_uri):
                raise AssertionError("both listen")
    async with LoopbackListener(STATE, "http://localhost:0/a") as listener:
        assert listener.redirect_uri.startswith("http://localhost:")

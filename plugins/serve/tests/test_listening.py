"""What a listening `operad serve` does with clients that do not come to the point."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from operad import ConfigError
from operad_auth import HostRules
from operad_serve.listening import listen, parse_address, serving, url_of
from plugins.serve.tests.front_door import TABLES

WHOLE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connected(
    head_timeout: float, app: Any = app
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with listen(("127.0.0.1", 0), is_guarded=False) as bound:
        async with serving(app, bound, head_timeout=head_timeout):
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            try:
                async with asyncio.timeout(20):
                    yield reader, writer
            finally:
                writer.close()


LOST = (asyncio.IncompleteReadError, ConnectionError)
"""What a client meets that was too slow: this process may stand still for longer than a server waits."""


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
    for head_timeout in (0.3, 3.0):
        async with connected(head_timeout) as (reader, writer):
            writer.write(WHOLE)
            with suppress(*LOST):
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
                writer.write(WHOLE[:20])
                assert await ended(reader)
                return
    raise AssertionError("no whole head is answered")


async def test_a_client_that_comes_in_time_is_answered_after_that_time_as_well() -> None:
    for head_timeout in (0.2, 4.0):
        async with connected(head_timeout) as (reader, writer):
            with suppress(*LOST):
                for _ in range(3):
                    writer.write(WHOLE)
                    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
                    await asyncio.sleep(0.75 * head_timeout)
                return
    raise AssertionError("it is not answered")


def test_a_connection_whose_client_takes_nothing_ends_by_itself() -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    with listen(("127.0.0.1", 0), is_guarded=False) as bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()):
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0


async def test_what_is_no_request_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    for sent in (b"\0\xff\r\n\r\n", WHOLE[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"):
        async with connected(5) as (reader, writer):
            writer.write(sent)
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    assert caplog.records == []


@pytest.mark.parametrize(("text", "address"), TABLES["addresses"])
def test_an_address_is_a_host_and_a_port(text: str, address: list[Any] | None) -> None:
    if address is None:
        with pytest.raises(ConfigError, match="expected HOST:PORT"):
            parse_address(text)
    else:
        assert parse_address(text) == tuple(address)


def refused(address: Any, complaint: str, *, is_guarded: bool = False) -> None:
    with pytest.raises(ConfigError, match=complaint), listen(address, is_guarded=is_guarded):
        pass


def test_a_host_without_an_address_is_refused_and_one_of_ipv6_is_in_brackets() -> None:
    refused(
        ("nowhere.invalid", 1), r"cannot listen on nowhere.invalid:1: .*choose another address", is_guarded=True
    )
    for host, shown in (("::1", "[::1]"), ("127.0.0.1", "127.0.0.1")) if socket.has_ipv6 else ():
        with listen((host, 0), is_guarded=False) as bound:
            assert url_of(bound, "https") == f"https://{shown}:{bound.getsockname()[1]}"


def test_an_address_is_refused_if_others_could_call_unasked_or_it_is_taken() -> None:
    refused(("0.0.0.0", 0), "callers are not authenticated")
    with listen(("127.0.0.1", 0), is_guarded=False) as bound:
        bound.listen()
        refused(bound.getsockname(), r"cannot listen on [\d.:]+: Address already in use; choose another address")


# --- Unix sockets --------------------------------------------------------------------------------------


async def asked(path: Path, *headers: str) -> bytes:
    """The whole answer to a request at a Unix socket."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    lines = ["GET / HTTP/1.1", "Connection: close", *headers]
    writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_path_is_an_address_from_the_folder_of_its_configuration(tmp_path: Path) -> None:
    assert parse_address("unix:run/o.sock", tmp_path) == tmp_path / "run/o.sock"
    assert parse_address("unix:/run/o.sock", tmp_path) == Path("/run/o.sock")
    with pytest.raises(ConfigError, match=r'or unix:PATH, got "unix:"'):
        parse_address("unix:")


async def test_a_unix_socket_is_served_and_its_file_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "o.sock"
    for _ in range(2):
        with listen(path, is_guarded=False) as bound:
            assert url_of(bound) == f"http://unix:{path}:"
            async with serving(app, bound):
                assert (await asked(path, "Host: localhost")).endswith(b"\r\n\r\nok")
        assert not path.exists()


@pytest.mark.parametrize(("is_guarded", "mode"), [(False, 0o770), (True, 0o777)])
def test_where_nobody_is_asked_who_calls_other_users_cannot_reach_a_unix_socket(
    tmp_path: Path, is_guarded: bool, mode: int
) -> None:
    before = os.umask(0)
    try:
        with listen(tmp_path / "o.sock", is_guarded=is_guarded):
            assert stat.S_IMODE((tmp_path / "o.sock").stat().st_mode) == mode
    finally:
        os.umask(before)


def test_what_a_server_left_behind_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    path, file = tmp_path / "o.sock", tmp_path / "file"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    file.write_text("kept")
    with listen(path, is_guarded=False) as bound:
        bound.listen()
        refused(path, "cannot listen on .*o.sock: Address already in use")
        path.rename(tmp_path / "moved")
        path.write_text("another server's")
    assert path.read_text() == "another server's"
    for where, words in (
        (file, "File exists"),
        (tmp_path / "no/o.sock", "No such"),
        (tmp_path / ("x" * 120), "long"),
    ):
        refused(where, f"cannot listen on .*{words}.*choose another file")
    assert file.read_text() == "kept"


async def tell(scope: Any, receive: Any, send: Any) -> None:
    """Answers where a request came from, and by what rule it would be refused."""
    found = dict(scope["headers"])
    refusal = HostRules().refusal(scope["server"], found[b"host"].decode(), None)
    body = json.dumps([scope["client"], scope["scheme"], refusal and refusal[0]]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("proxy_headers", "client"), [(False, [None, "http"]), (True, [["203.0.113.9", 0], "https"])]
)
async def test_a_proxy_at_a_unix_socket_is_believed_where_that_is_said(
    tmp_path: Path, proxy_headers: bool, client: Any
) -> None:
    path = tmp_path / "o.sock"
    # The first address is the caller's own.
    forwarded = ("X-Forwarded-For: 198.51.100.1, 203.0.113.9", "X-Forwarded-Proto: https")
    with listen(path, is_guarded=False) as bound:
        async with serving(tell, bound, proxy_headers=proxy_headers):
            for host, status in (("localhost", None), ("evil.example", 421)):
                answer = await asked(path, f"Host: {host}", *forwarded)
                assert json.loads(answer.partition(b"\r\n\r\n")[2].split(b"\r\n")[1]) == [*client, status]


@pytest.mark.parametrize("begins", [False, True])
async def test_a_malformed_body_is_answered_once_and_writes_nothing_into_the_log(
    begins: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    async def streaming(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async with connected(20, streaming if begins else app) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        if begins:
            await begun.wait()
        writer.write(b"zz\r\n{}\r\n")
        found = await reader.read()
    assert found.count(b"HTTP/1.1") == 1
    assert (b"HTTP/1.1 200" in found) is begins
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []

"""Connections over HTTP: how many are kept and for how long, and what a server may send by them."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import pytest

from operad_mcp.wire.stdio import ServerProcess
from operad_mcp.wire.transport import Transport
from plugins.mcp.tests.peers import Json, Patch, answer_of, hostile, loaded, until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def http(body: Json, *headers: str) -> bytes:
    """A JSON answer by a connection that is kept."""
    content = json.dumps(body).encode()
    lines = ["HTTP/1.1 200 OK", "content-type: application/json", f"content-length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


class Server:
    """A server that keeps its connections.

    Args:
        answer: from the body of a request; ``None`` closes the connection.
    """

    def __init__(self, answer: Callable[[bytes], bytes | None] = lambda _: OK) -> None:
        self.answer = answer
        self.connections: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.requests: list[tuple[int, bytes]] = []
        """The number of its connection, and the body of each."""
        self.hold: asyncio.Event | None = None
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.connections)
        self.connections.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                body = await reader.readexactly(size)
                self.requests.append((number, body))
                if self.hold is not None:
                    await self.hold.wait()
                answer = self.answer(body)
                if answer is None:
                    return
                writer.write(answer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended += 1
            writer.close()


@asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server."""
    async with await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls) as listener:
        scheme = "http" if tls is None else "https"
        server.url = f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        try:
            yield server.url
        finally:
            for writer in server.connections:
                writer.close()


@asynccontextmanager
async def client(
    tls: ssl.SSLContext | None = None, *, proxy: str | None = None, idle: float = 60, **timeouts: float
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with connections of its own."""
    transport = Transport(tls or ssl.create_default_context(), proxy, idle=idle)
    async with httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(5, **timeouts)) as made:
        yield made


async def test_as_many_connections_are_kept_as_there_were_requests_at_once() -> None:
    server = Server()
    async with serving(server) as url, client() as asking:
        for _ in range(4):
            server.hold = asyncio.Event()
            at_once = [asyncio.create_task(asking.post(url, content=b"x")) for _ in range(64)]
            asked = len(server.requests)
            await until(lambda asked=asked: len(server.requests) == asked + 64)  # type: ignore[misc]  # bound at once
            server.hold.set()
            await asyncio.gather(*at_once)
        assert len(server.connections) == 64


async def test_connections_that_nobody_uses_are_closed_and_the_one_in_use_is_kept() -> None:
    server = Server()
    async with serving(server) as url, client(idle=0.02) as asking:
        await asyncio.gather(*(asking.post(url, content=b"x") for _ in range(5)))
        await until(lambda: server.ended == len(server.connections))
        assert (await asking.post(url, content=b"x")).text == "ok"


async def test_a_connection_is_left_before_the_server_that_says_when_ends_it() -> None:
    for said, connections in ((b"timeout=1, max=100", 3), (b"timeout=5", 1), (b"max=100", 1)):
        server = Server(lambda _, said=said: OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: " + said + b"\r\n\r\n"))  # type: ignore[misc]  # bound at once
        async with serving(server) as url, client() as asking:
            for _ in range(3):
                assert (await asking.post(url, content=b"x")).text == "ok"
            assert len(server.connections) == connections


async def test_a_proxy_that_does_not_speak_http_is_refused_with_the_way_out(monkeypatch: Patch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    server, said = Server(), "got socks5:// from the environment; set proxy, or add 127.0.0.1"
    async with serving(server) as url, client() as asking:
        with pytest.raises(httpx2.ProxyError, match=said):
            await asking.post(url, content=b"x")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with serving(server) as url, client() as asking:
        assert (await asking.post(url, content=b"x")).text == "ok"


FORGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"


@pytest.mark.parametrize("by_proxy", [False, True])
async def test_an_answer_after_a_body_ends_its_connection_and_the_next_goes_by_another(by_proxy: bool) -> None:
    server = Server(lambda _: OK + FORGED)
    async with serving(server) as url, client(proxy=url if by_proxy else None) as asking:
        for _ in range(3):
            assert (await asking.post(url, content=b"x")).text == "ok"
        assert [number for number, _ in server.requests] == [0, 1, 2]
        await until(lambda: server.ended >= 2)


@pytest.mark.parametrize("by_proxy", [False, True])
async def test_an_answer_that_noise_follows_is_refused_and_the_next_goes_by_another(by_proxy: bool) -> None:
    server = Server(lambda body: OK + b"garbage\r\n\r\n" if body == b"noise" else OK)
    async with serving(server) as url, client(proxy=url if by_proxy else None) as asking:
        with pytest.raises(httpx2.RemoteProtocolError, match="is not HTTP"):
            await asking.post(url, content=b"noise")
        assert (await asking.post(url, content=b"x")).text == "ok"
        assert [number for number, _ in server.requests] == [0, 1]


@pytest.mark.parametrize("pause", [0, 0.05], ids=["at once", "later"])
@pytest.mark.parametrize("by_proxy", [False, True])
async def test_bytes_that_nobody_asked_for_end_an_unused_connection(by_proxy: bool, pause: float) -> None:
    server = Server()
    async with serving(server) as url, client(proxy=url if by_proxy else None) as asking:
        await asking.post(url, content=b"x")
        server.connections[0].write(FORGED)
        await asyncio.sleep(pause)
        assert (await asking.post(url, content=b"x")).text == "ok"
        await until(lambda: server.ended == 1)
        assert len(server.connections) == 2


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    server = Server()
    async with serving(server) as url, client() as asking:
        for number in range(3):
            assert (await asking.post(url, content=b"x")).text == "ok"
            server.connections[number].close()
            await until(lambda number=number: server.ended == number + 1)  # type: ignore[misc]  # bound at once
        assert len(server.connections) == 3


def test_a_connection_that_was_closed_while_the_event_loop_was_busy_is_not_used_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)

        def answer_once() -> socket.socket:
            side, _ = listener.accept()
            side.recv(65536)
            side.sendall(OK)
            return side

        async def ask() -> None:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            async with client() as asking:
                for _ in range(2):
                    answering = asyncio.get_running_loop().run_in_executor(None, answer_once)
                    assert (await asking.post(url, content=b"x")).text == "ok"
                    side = await answering
                    side.close()  # without an await: the event loop must not learn of it before the next request

        asyncio.run(ask())


async def test_a_body_that_is_not_read_to_its_end_ends_its_connection() -> None:
    server = Server(lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 500000\r\n\r\n" + b"x" * 400_000)
    async with serving(server) as url, client() as asking:
        async with asking.stream("POST", url, content=b"x") as response:
            async for _ in response.aiter_raw():
                break
        await until(lambda: server.ended == 1)


async def test_a_large_body_is_handed_on_in_small_pieces() -> None:
    server = Server(lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 500000\r\n\r\n" + b"x" * 500_000)
    async with serving(server) as url, client() as asking, asking.stream("POST", url, content=b"x") as response:
        sizes = [len(piece) async for piece in response.aiter_raw()]
    assert sum(sizes) == 500_000
    assert max(sizes) <= 32 * 1024


@pytest.mark.parametrize("header", [("authorization", "hush\n"), ("x-key", " hush"), ("x key", "hush")])
async def test_a_header_that_cannot_be_sent_is_named_and_not_quoted(header: tuple[str, str]) -> None:
    server, said = Server(), r"^((?!hush).)*headers with invalid characters cannot be sent((?!hush).)*$"
    async with serving(server) as url, client() as asking:
        with pytest.raises(httpx2.LocalProtocolError, match=said):
            await asking.post(url, content=b"x", headers=[header])
        await until(lambda: server.ended == len(server.connections))
    assert server.requests == []


async def test_a_request_that_is_cancelled_ends_its_connection_and_no_other() -> None:
    server = Server()
    async with serving(server) as url, client() as asking:
        server.hold = asyncio.Event()
        first, second = (asyncio.create_task(asking.post(url, content=b"x")) for _ in range(2))
        await until(lambda: len(server.requests) == 2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        server.hold.set()
        assert (await second).text == "ok"
        await until(lambda: server.ended == 1)


async def test_what_a_server_does_in_its_body_is_read_as_it_comes() -> None:
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n" + b"0\r\n\r\n"
    until_end = b"HTTP/1.0 200 OK\r\n\r\nto the end"
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n" + OK
    for answer, text in ((chunks, "abc"), (hints, "ok"), (until_end, "to the end")):
        server = Server(lambda body, answer=answer: answer if body == b"x" else None)  # type: ignore[misc]  # same
        async with (
            serving(server) as url,
            client() as asking,
            asking.stream("POST", url, content=b"x") as response,
        ):
            if answer is until_end:
                server.connections[0].close()
            assert await response.aread() == text.encode()


FAILURES = {
    "nothing": None,
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a long head": b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,
    "silence": b"HTTP/1.1 200 OK\r\n",
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_what_is_no_answer_raises_what_httpx_would(failure: str) -> None:
    server = Server(lambda _: FAILURES[failure])
    async with serving(server) as url, client(read=0.3) as asking:
        with pytest.raises(httpx2.ReadTimeout if failure == "silence" else httpx2.RemoteProtocolError):
            await asking.post(url, content=b"x")
        await until(lambda: server.ended == 1)


async def test_a_name_is_reached_by_whichever_of_its_addresses_is_there() -> None:
    server = Server()
    async with serving(server) as url, client() as asking:
        assert (await asking.post(url.replace("127.0.0.1", "localhost"), content=b"x")).text == "ok"


class Foreign:
    """A transport of another event loop than asyncio's own, such as uvloop's: none by type."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._transport, name)
        return (lambda fd: Foreign(found(fd))) if name == "get_pipe_transport" else found


async def test_transports_of_another_event_loop_will_do(monkeypatch: Patch) -> None:
    made: Any = ServerProcess.connection_made
    monkeypatch.setattr(ServerProcess, "connection_made", lambda self, transport: made(self, Foreign(transport)))
    async with hostile() as registry:
        assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}


async def test_who_cannot_be_reached_is_told_as_not_sent() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    async with client() as asking:
        lookup = mock.patch.object(asyncio.get_running_loop(), "getaddrinfo", side_effect=unknown)
        with lookup, pytest.raises(httpx2.ConnectError):
            await asking.post("http://no.such.host.invalid/", content=b"x")
        for url in ("http://127.0.0.1:9/", "https://127.0.0.1:9/"):
            with pytest.raises(httpx2.ConnectError):
                await asking.post(url, content=b"x")
        with pytest.raises(httpx2.UnsupportedProtocol):
            await asking.get("ftp://127.0.0.1/")


async def test_connections_over_tls_are_kept_too_and_a_certificate_is_looked_at(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, server = trustme.CA(), Server()
    issued, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(issued)
    authority.configure_trust(trusting)
    async with serving(server, issued) as url:
        async with client(trusting) as asking:
            for _ in range(3):
                assert (await asking.post(url, content=b"x" * 100_000)).text == "ok"
        assert len(server.requests) == 3
        assert len({number for number, _ in server.requests}) == 1
        async with client() as asking:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await asking.post(url, content=b"x")


async def test_a_server_that_does_not_read_a_large_request_is_still_heard() -> None:
    class Refusing(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
            await self.closed.wait()

        closed = asyncio.Event()

    server = Refusing()
    async with serving(server) as url, client() as asking:
        assert (await asking.post(url, content=b"x" * 20_000_000)).status_code == 413
        server.closed.set()


class MCP(Server):
    """A server over streamable HTTP, without the SDK; ``after`` is what it sends after each answer to a call."""

    def __init__(self, after: bytes = b"") -> None:
        super().__init__(self.respond)
        self.after = after

    def respond(self, body: bytes) -> bytes:
        message = json.loads(body or b"{}")
        answer = answer_of(message)
        if answer is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        return http(answer) + (self.after if message["method"] == "tools/call" else b"")


@pytest.mark.parametrize("by_proxy", [False, True])
async def test_a_forged_second_answer_is_taken_for_no_other_call(by_proxy: bool) -> None:
    forged = http({"jsonrpc": "2.0", "id": 9, "result": {"content": [], "structuredContent": {"forged": True}}})
    server = MCP(forged)
    async with serving(server) as url:
        proxy = url.removesuffix("/mcp") if by_proxy else None
        async with loaded("p", url=url, mode="legacy", proxy=proxy) as registry:
            for number in range(5):
                assert (await registry.execute("p.echo", {"a": number})).data == {"a": number}


async def test_calls_beside_a_proxy_of_the_environment_reach_the_server_itself(monkeypatch: Patch) -> None:
    server, proxy = MCP(), Server()
    async with serving(server) as url, serving(proxy):
        for variables in ({"HTTPS_PROXY": proxy.url}, {"ALL_PROXY": proxy.url, "NO_PROXY": "127.0.0.1"}):
            with monkeypatch.context() as environment:
                for name, value in variables.items():
                    environment.setenv(name, value)
                async with loaded("p", url=url, mode="legacy") as registry:
                    assert (await registry.execute("p.echo", {"a": 1})).data == {"a": 1}
    assert proxy.requests == []

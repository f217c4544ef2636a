"""Servers over HTTP, good and bad: a request fails alone, and with what HTTP said."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad import ErrorCode, OperationContext, OperationRegistry, SourceError
from plugins.mcp.tests.peers import Json, Log, Patch, answer_of, fails, loaded, table, until

Script = Callable[["Peer", Json], bytes | None]


def http(status: int = 200, body: Any = b"", *headers: str, kind: str = "application/json") -> bytes:
    """An HTTP response."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = f"content-length: {len(content)}"
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", size, "connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + content


def error(code: int, message: str, request_id: Any = None) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def result(request: Json, value: Any) -> Json:
    """The message with the result of a call."""
    return {"jsonrpc": "2.0", "id": request["id"], "result": {"content": [], "structuredContent": value}}


def event(message: Json, start: str = "") -> bytes:
    """A stream with one event."""
    return http(200, f"{start}data: {json.dumps(message)}\n\n".encode(), kind="text/event-stream")


class Peer:
    """A server over streamable HTTP, without the SDK.

    Args:
        script: answers a request in place of the server, if it returns something.
        sessions: whether it keeps any.
    """

    otherwise = http(405)
    no_session = http(400, error(-32000, "Bad Request: No valid session ID provided"))

    def __init__(self, script: Script | None = None, *, sessions: bool = True) -> None:
        self.script = script
        self.sessions: set[str] | None = set() if sessions else None
        self.seen: list[Json] = []
        self.heads: list[str] = []
        self.executed = 0
        self.hold_delete = False
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            if head.startswith("DELETE") and self.hold_delete:
                await reader.read()
            answer = self.answer(fields, json.loads(body)) if head.startswith("POST") else self.otherwise
            if answer is None:
                await reader.read()  # until the client leaves
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def answer(self, fields: dict[str, str], message: Json) -> bytes | None:
        self.seen.append(message)
        method, session = message.get("method"), fields.get("mcp-session-id")
        if self.script is not None and (scripted := self.script(self, message)) is not None:
            return scripted
        if method == "initialize":
            return self.begin(message)
        if self.sessions is not None and session not in self.sessions:
            return self.no_session
        if "id" not in message:
            return http(202)
        if method == "tools/call":
            self.executed += 1
            if message["params"]["name"] == "hang":
                return None
        return http(200, answer_of(message) or error(-32601, "Method not found", message["id"]))

    def begin(self, message: Json) -> bytes:
        headers = []
        if self.sessions is not None:
            self.sessions.add(name := f"s{len(self.seen)}")
            headers = [f"mcp-session-id: {name}"]
        return http(200, answer_of(message), *headers)

    def forget(self) -> None:
        assert self.sessions is not None
        self.sessions.clear()


@asynccontextmanager
async def listening(peer: Peer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a peer that listens."""
    async with await asyncio.start_server(peer.handle, "127.0.0.1", 0, ssl=tls) as listener:
        peer.port = listener.sockets[0].getsockname()[1]
        yield f"127.0.0.1:{peer.port}"


@asynccontextmanager
async def serving(peer: Peer, **options: Any) -> AsyncIterator[OperationRegistry]:
    """A registry with the peer as namespace ``p``."""
    async with (
        listening(peer) as address,
        loaded("p", **{"url": f"http://{address}/mcp", "mode": "legacy", **options}) as registry,
    ):
        yield registry


async def works(registry: OperationRegistry) -> None:
    """Check that the server is called, and answers."""
    assert (await registry.execute("p.echo", {"a": 1})).data == {"a": 1}


@asynccontextmanager
async def hanging(registry: OperationRegistry) -> AsyncIterator[None]:
    """Hold a call that gets no answer, and check that it still waits in the end."""
    call = asyncio.create_task(registry.execute("p.hang"))
    try:
        yield
        assert not call.done()
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


def odd(answer: Callable[[Json], bytes]) -> Script:
    """A script that answers calls of the tool ``odd``."""

    def script(peer: Peer, message: Json) -> bytes | None:
        if message.get("method") != "tools/call" or message["params"]["name"] != "odd":
            return None
        peer.executed += 1
        return answer(message)

    return script


class Uninitialised(Peer):
    """Wants ``initialize`` first, in the words of the TypeScript SDK."""

    no_session = http(400, error(-32000, "Bad Request: Server not initialized"))


class Versioned(Peer):
    """Knows its own protocol versions only."""

    def answer(self, fields: dict[str, str], message: Json) -> bytes | None:
        if fields.get("mcp-protocol-version") == "2026-07-28":
            return http(400, error(-32000, "Bad Request: Unsupported protocol version: 2026-07-28"))
        return super().answer(fields, message)


class Missing(Peer):
    """Answers 404 with no JSON to whom it does not know."""

    no_session = http(404, b"Not Found", kind="text/plain")


@pytest.mark.parametrize("kind", [Peer, Uninitialised, Versioned, Missing])
async def test_a_refused_question_is_no_lost_connection_and_the_handshake_follows(kind: type[Peer]) -> None:
    async with serving(kind(), mode="auto") as registry:
        await works(registry)


@table("broken_off")
async def test_a_server_that_breaks_off_its_answer_to_the_question_is_shaken_hands_with(sent: str) -> None:
    def breaking(peer: Peer, message: Json) -> bytes | None:
        return sent.encode() if message.get("method") == "server/discover" else None

    async with serving(Peer(breaking), mode="auto") as registry:
        await works(registry)


@pytest.mark.parametrize("kind", ["text/plain", "application/json-rpc", "text/html", ""])
async def test_an_answer_with_another_type_is_an_answer_all_the_same(kind: str) -> None:
    async with serving(Peer(odd(lambda message: http(200, result(message, 3), kind=kind)))) as registry:
        assert (await registry.execute("p.odd")).data == 3


async def test_who_closes_the_connection_without_an_answer_is_told_in_words() -> None:
    async with serving(Peer(odd(lambda _: b""))) as registry:
        lost = await fails(registry.execute("p.odd"))
        assert lost.code == ErrorCode.UNAVAILABLE
        assert "the server closed the connection without a response" in lost.message


async def test_a_stream_of_notifications_that_ends_at_once_is_not_opened_again_without_a_pause() -> None:
    peer = Peer()
    peer.otherwise = http(200, b"retry: 0\n\n", kind="text/event-stream")
    async with serving(peer) as registry:
        for _ in range(30):
            await registry.execute("p.echo", {"a": 1})
    assert 1 <= sum(head.startswith("GET") for head in peer.heads) < 10


@pytest.mark.parametrize("kind", [Peer, Uninitialised, Missing])
async def test_a_forgotten_session_is_made_again_and_the_call_runs_once(kind: type[Peer]) -> None:
    peer = kind()
    async with serving(peer) as registry:
        for number in range(3):
            peer.forget()
            assert (await registry.execute("p.echo", {"a": number})).data == {"a": number}
        assert peer.executed == 3


@pytest.mark.parametrize("body", [{"error": "paid, but your browser session has ended"}, b"no session here"])
async def test_a_response_of_an_operation_about_a_session_makes_no_call_run_twice(body: Any) -> None:
    peer = Peer(odd(lambda _: http(400, body)))
    async with serving(peer) as registry:
        lost = await fails(registry.execute("p.odd"))
        assert (lost.code, peer.executed) == (ErrorCode.UNAVAILABLE, 1)
        assert "session" in lost.message
        await works(registry)


async def test_a_forgotten_session_ends_no_call_that_is_under_way() -> None:
    peer = Peer()
    async with serving(peer) as registry, hanging(registry):
        await until(lambda: peer.executed > 0)
        peer.forget()
        await works(registry)


@table("errors_over_http")
async def test_no_answer_to_a_call_makes_it_run_twice(status: int, code: int, said: str) -> None:
    peer = Peer(odd(lambda message: http(status, error(code, said, message["id"]))))
    async with serving(peer) as registry:
        refused = await fails(registry.execute("p.odd"))
        assert refused.code == ErrorCode.EXECUTION_ERROR
        assert refused.details["jsonrpcCode"] == code
        assert peer.executed == 1
        assert [message["method"] for message in peer.seen].count("initialize") == 1


@table("cut_off")
async def test_an_answer_that_is_cut_off_fails_its_own_call_alone(sent: str) -> None:
    peer = Peer(odd(lambda _: sent.encode()))
    async with serving(peer) as registry, hanging(registry):
        lost = await fails(registry.execute("p.odd"))
        assert lost.code == ErrorCode.UNAVAILABLE
        assert peer.executed == 2
        await works(registry)


@table("garbage")
async def test_what_is_no_answer_is_told_in_one_line(sent: str, said: str, caplog: Log) -> None:
    async with serving(Peer(odd(lambda _: sent.encode()))) as registry:
        told = await fails(registry.execute("p.odd"))
        assert told.code == ErrorCode.EXECUTION_ERROR
        assert said in told.message
        assert "\n" not in told.message
        assert "hush" not in told.message + str(told.details)
        assert "Traceback" not in caplog.text
        await works(registry)


async def test_the_handshake_answered_by_null_says_so() -> None:
    with pytest.raises(SourceError, match="expected an object as the result of initialize, got None"):
        async with serving(Peer(lambda *_: http(200, {"jsonrpc": "2.0", "id": 1, "result": None}))):
            pass


async def test_a_server_that_does_not_answer_the_end_of_its_session_holds_nothing_up() -> None:
    peer = Peer()
    peer.hold_delete = True
    async with asyncio.timeout(20), serving(peer, shutdown_timeout=0.2):
        pass
    assert peer.heads[-1].startswith("DELETE")


class Unheeding(Peer):
    """Never answers a notification."""

    def answer(self, fields: dict[str, str], message: Json) -> bytes | None:
        return None if "id" not in message else super().answer(fields, message)


async def test_a_server_that_never_answers_a_notification_is_used_all_the_same(monkeypatch: Patch) -> None:
    monkeypatch.setattr("operad_mcp.wire.exchange._HEARD", 0.05)
    async with asyncio.timeout(10), serving(Unheeding(), shutdown_timeout=0.2) as registry:
        await works(registry)


async def test_the_end_of_a_call_waits_for_nobody_to_hear_of_it(monkeypatch: Patch) -> None:
    async with serving(Unheeding(), shutdown_timeout=0.2) as registry:
        monkeypatch.setattr("operad_mcp.wire.exchange._HEARD", 60)
        async with asyncio.timeout(20):
            assert (await fails(registry.execute("p.hang", timeout=0.1))).code == ErrorCode.TIMEOUT


@pytest.mark.parametrize("streams", [True, False])
async def test_a_call_gets_no_answer_that_has_the_id_of_another_call(streams: bool) -> None:
    def mixed_up(peer: Peer, message: Json) -> bytes | None:
        if message.get("params", {}).get("name") != "odd":
            return None
        other = next(each for each in peer.seen if each.get("params", {}).get("name") == "hang")
        answers = [result(each, {"of": each["params"]["name"]}) for each in (other, message)]
        if not streams:
            return http(200, json.dumps(answers).encode())
        events = "".join(f"data: {json.dumps(each)}\n\n" for each in answers)
        return http(200, events.encode(), kind="text/event-stream")

    peer = Peer(mixed_up)
    async with serving(peer) as registry, asyncio.timeout(20):
        other = asyncio.create_task(registry.execute("p.hang"))
        await until(lambda: peer.executed > 0)
        assert (await registry.execute("p.odd")).data == {"of": "odd"}
        if streams:
            assert (await other).data == {"of": "hang"}
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


async def test_an_event_that_is_no_message_is_logged_and_the_answer_after_it_counts(caplog: Log) -> None:
    async with serving(Peer(odd(lambda message: event(result(message, {"a": 1}), "data: {oops\n\n")))) as registry:
        assert (await registry.execute("p.odd")).data == {"a": 1}
    assert "the server sent an invalid message: '{oops'" in caplog.text


async def test_a_result_above_the_limit_within_a_stream_fails_alone() -> None:
    large = odd(lambda message: event(result(message, "x" * 100_000)))
    async with serving(Peer(large), max_message_bytes=20_000) as registry:
        assert (await fails(registry.execute("p.odd"))).code == ErrorCode.PAYLOAD_TOO_LARGE
        await works(registry)


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", None])
async def test_a_proxy_of_the_configuration_or_else_of_the_environment_is_used(
    variable: str | None, transport: str, monkeypatch: Patch
) -> None:
    peer = OldPeer() if transport == "sse" else Peer()
    async with listening(peer) as address:
        monkeypatch.setenv(variable or "HTTP_PROXY", f"http://{address if variable else '127.0.0.1:9'}")
        options = {} if variable else {"proxy": f"http://user:hush@{address}"}
        options |= {"url": "http://far.invalid/mcp", "mode": "legacy", "transport": transport}
        async with loaded("p", **options) as registry:
            await works(registry)
    assert all("http://far.invalid/" in head.partition("\r\n")[0] for head in peer.heads)
    assert transport == "http" or {head.split(" ")[0] for head in peer.heads} == {"GET", "POST"}
    assert variable or "proxy-authorization: basic" in peer.heads[0].lower()


async def test_certificates_of_the_configuration_are_trusted_and_shown(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, peer = trustme.CA(), Peer()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    async with listening(peer, server) as address:
        options = {"url": f"https://{address}/mcp", "mode": "legacy"}
        trusting = {**options, "tls_ca": str(tmp_path / "ca.pem")}
        async with loaded("p", tls_cert=str(tmp_path / "me.pem"), **trusting) as registry:
            await works(registry)
            with pytest.raises(SourceError):
                await registry.load("mcp", namespace="q", **trusting)
            with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
                await registry.load("mcp", namespace="r", **options)


def busy(times: int) -> Script:
    """Refuses so many calls with 429, and takes the next."""
    calls: list[Json] = []

    def answer(message: Json) -> bytes:
        calls.append(message)
        if len(calls) <= times:
            return http(429, b"slow down", "retry-after: 0", kind="text/plain")
        return http(200, result(message, "at last"))

    return odd(answer)


async def test_a_query_that_is_asked_again_after_429_tells_the_observers_of_the_call() -> None:
    peer, told = Peer(busy(1)), list[tuple[Any, ...]]()
    async with serving(peer, overrides={"odd": {"type": "query"}}) as registry:
        registry.observe(reported=lambda call, report: told.append((call, report)))
        assert (await registry.execute("p.odd")).data == "at last"
    assert peer.executed == 2
    ((call, report),) = told
    found = (call.operation_id, report.kind, report.level, report.attributes["attempt"])
    assert found == ("p.odd", "retry", "warning", 1)
    assert "429" in report.message


async def test_a_mutation_is_asked_again_after_429_only_where_that_is_said_to_be_safe() -> None:
    async with serving(Peer(busy(1))) as registry:
        assert (await fails(registry.execute("p.odd"))).details["statusCode"] == 429
    async with serving(Peer(busy(2)), retries={"attempts": 2, "also": {"POST": [429]}}) as registry:
        assert (await registry.execute("p.odd")).data == "at last"


async def test_a_wrong_path_is_told_with_its_url_its_status_and_what_to_look_at() -> None:
    with pytest.raises(SourceError, match=r"http://127.*/mcp.* HTTP 404 .*check the path"):
        async with serving(Peer(lambda *_: http(404, b"Not Found", kind="text/plain")), mode="auto"):
            pass


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("auth", "hint"),
    [(None, "set auth, or correct headers"), ({"token": "quiet"}, "the server does not accept its auth")],
)
async def test_the_status_of_a_refusal_is_kept_and_no_secret_that_was_sent(
    mode: str, auth: Any, hint: str, status: str
) -> None:
    peer = Peer(lambda *_: http(401, b"nope").replace(b"401 X", status.encode()))
    with pytest.raises(SourceError, match=f"HTTP {status}; {hint}") as caught:
        async with serving(peer, mode=mode, headers={"X-Key": "hush"}, auth=auth):
            pass
    head, said = peer.heads[0].lower(), str(caught.value)
    assert "x-key: hush" in head
    assert ("authorization: bearer quiet" in head) is (auth is not None)
    assert "hush" not in said
    assert "quiet" not in said


async def test_headers_of_a_call_go_with_it_and_leave_those_of_the_protocol_alone() -> None:
    peer = Peer()
    async with serving(peer) as registry:
        mine = {"X-Tenant": "blue", "Mcp-Session-Id": "stolen", "Host": "evil.invalid"}
        await registry.execute("p.echo", {"a": 1}, OperationContext(metadata={"mcp": {"headers": mine}}))
        await registry.execute("p.echo", {"a": 2})
    first, second = [head.lower() for head in peer.heads if head.startswith("POST")][-2:]
    assert "x-tenant: blue" in first
    assert not any(word in first for word in ("stolen", "evil.invalid"))
    assert "x-tenant" not in second


# --- the transport of 2024-11-05 -----------------------------------------------------------------------


STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
"""The head of a stream that does not end."""


class OldPeer(Peer):
    """A server over HTTP+SSE, without the SDK."""

    endpoint = "/post"
    line = "\n"

    def __init__(self, script: Script | None = None, refuse: bytes | None = None) -> None:
        super().__init__(script, sessions=False)
        self.refuse = refuse
        self._stream: asyncio.StreamWriter | None = None

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        if head.startswith("GET"):
            if self.refuse is not None:
                writer.write(self.refuse)
            else:
                self._stream, end = writer, self.line
                writer.write(f"{STREAM}event: endpoint{end}data: {self.endpoint}{end}{end}".encode())
                await reader.read()
            writer.close()
            return
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        message = json.loads(await reader.readexactly(int(fields["content-length"])))
        answer = self.answer(fields, message) or b""
        assert self._stream is not None
        if answer.startswith(b"HTTP/1.1 200"):
            self._stream.write(b"data: " + answer.partition(b"\r\n\r\n")[2] + 2 * self.line.encode())
            answer = http(202)
        writer.write(answer)
        writer.close()


async def test_a_refusal_over_sse_keeps_its_status_and_its_hint() -> None:
    with pytest.raises(SourceError, match=r"HTTP 401 .*set auth or headers"):
        async with serving(OldPeer(refuse=http(401, b"who are you")), transport="sse"):
            pass


async def test_another_origin_for_messages_is_refused_in_words() -> None:
    class Elsewhere(OldPeer):
        endpoint = "http://other.invalid/post"

    with pytest.raises(SourceError, match=r"another origin, http://other\.invalid"):
        async with serving(Elsewhere(), transport="sse"):
            pass


async def test_a_refused_post_over_sse_fails_its_own_call_alone() -> None:
    async with serving(OldPeer(odd(lambda _: http(503, b"x" * 3_000))), transport="sse") as registry:
        details = (await fails(registry.execute("p.odd"))).details
        assert (details["statusCode"], details["body"]) == (503, "x" * 2_000)
        await works(registry)


async def test_over_sse_2_mb_arrive_and_what_is_above_the_limit_fails_its_call() -> None:
    large = odd(lambda message: http(200, result(message, "x" * message["params"]["arguments"]["size"])))
    async with serving(OldPeer(large), transport="sse", max_message_bytes=3_000_000) as registry:
        assert len((await registry.execute("p.odd", {"size": 2_000_000})).data) == 2_000_000
        assert (await fails(registry.execute("p.odd", {"size": 4_000_000}))).code == ErrorCode.PAYLOAD_TOO_LARGE
        await works(registry)


async def test_an_event_that_ends_with_two_carriage_returns_is_taken_at_once() -> None:
    class Mac(OldPeer):
        line = "\r"

    async with serving(Mac(), transport="sse") as registry:
        await works(registry)


CUT = f'{STREAM}id: 7\nretry: 10\ndata:\n\ndata: {{"jsonrpc": "2.0", "id": 1, "resu'.encode()


async def test_a_stream_that_is_cut_off_each_time_is_resumed_twice() -> None:
    peer = Peer(odd(lambda _: CUT), sessions=False)
    peer.otherwise = CUT
    async with serving(peer) as registry:
        assert (await fails(registry.execute("p.odd"))).code == ErrorCode.UNAVAILABLE
    assert [head.partition(" ")[0] for head in peer.heads].count("GET") == 2


async def test_a_stream_that_was_cut_within_an_event_is_resumed_without_the_half_event() -> None:
    def cut(message: Json) -> bytes:
        peer.otherwise = event(result(message, 5))
        return CUT

    peer = Peer(odd(cut), sessions=False)
    async with serving(peer) as registry:
        assert (await registry.execute("p.odd")).data == 5
    assert "last-event-id: 7" in peer.heads[-1].lower()

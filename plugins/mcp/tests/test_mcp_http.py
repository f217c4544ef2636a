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
from plugins.mcp.tests.peers import Json, answer_of, fails, loaded, until

Script = Callable[["Peer", Json], bytes | None]


def http(status: int = 200, body: Any = b"", *headers: str, kind: str = "application/json") -> bytes:
    """An HTTP response."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = f"content-length: {len(content)}"
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", size, "connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + content


def error(code: int, message: str, request_id: Any = None) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def result(request: Json, value: Json) -> Json:
    return {"jsonrpc": "2.0", "id": request["id"], "result": value}


class Peer:
    """A server over streamable HTTP, without the SDK.

    Args:
        script: answers a request in place of the server, if it returns something.
        sessions: whether it keeps any.
    """

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
            answer = self.answer(fields, json.loads(body)) if head.startswith("POST") else self.otherwise()
            if answer is None:
                await reader.read()  # until the client leaves
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def otherwise(self) -> bytes:
        return http(405)

    def answer(self, fields: dict[str, str], message: Json) -> bytes | None:
        self.seen.append(message)
        method, session = message.get("method"), fields.get("mcp-session-id")
        if method == "initialize":
            return self.begin(message)
        if self.sessions is not None and session not in self.sessions:
            return self.no_session()
        scripted = self.script(self, message) if self.script is not None else None
        if scripted is not None:
            return scripted
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

    def no_session(self) -> bytes:
        return http(400, error(-32000, "Bad Request: No valid session ID provided"))

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


def always(answer: bytes) -> Peer:
    """A server that gives one answer to whatever it is asked."""
    peer = Peer()
    peer.answer = lambda fields, message: answer  # type: ignore[method-assign]  # the one thing that it does
    return peer


class Uninitialised(Peer):
    """Wants ``initialize`` first, in the words of the TypeScript SDK."""

    said = "Bad Request: Server not initialized"

    def no_session(self) -> bytes:
        return http(400, error(-32000, self.said))


class Versioned(Peer):
    """Knows its own protocol versions only."""

    def answer(self, fields: dict[str, str], message: Json) -> bytes | None:
        if fields.get("mcp-protocol-version") == "2026-07-28":
            return http(400, error(-32000, "Bad Request: Unsupported protocol version: 2026-07-28"))
        return super().answer(fields, message)


class Missing(Peer):
    """Answers 404 with no JSON to whom it does not know."""

    def no_session(self) -> bytes:
        return http(404, b"Not Found", kind="text/plain")


@pytest.mark.parametrize("kind", [Peer, Uninitialised, Versioned, Missing])
async def test_a_refused_question_is_no_lost_connection_and_the_handshake_follows(kind: type[Peer]) -> None:
    async with serving(kind(), mode="auto") as registry:
        await works(registry)


BROKEN_OFF = {
    "no answer at all": b"",
    "cut off": http(200, b"{").replace(b"length: 1", b"length: 9"),
    "an empty stream": http(200, b"", kind="text/event-stream"),
    "no chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "what cannot be decoded": http(200, b"plain", "content-encoding: gzip"),
}


@pytest.mark.parametrize("answer", BROKEN_OFF.values(), ids=list(BROKEN_OFF))
async def test_a_server_that_breaks_off_its_answer_to_the_question_is_shaken_hands_with(answer: bytes) -> None:
    class Breaking(Peer):
        def answer(self, fields: dict[str, str], message: Json) -> bytes | None:
            return answer if message.get("method") == "server/discover" else super().answer(fields, message)

    async with serving(Breaking(), mode="auto") as registry:
        await works(registry)


@pytest.mark.parametrize("kind", ["text/plain", "application/json-rpc", "text/html", ""])
async def test_an_answer_with_another_type_is_an_answer_all_the_same(kind: str) -> None:
    script = odd(lambda message: http(200, result(message, {"content": [], "structuredContent": 3}), kind=kind))
    async with serving(Peer(script)) as registry:
        assert (await registry.execute("p.odd")).data == 3


async def test_who_closes_the_connection_without_an_answer_is_told_in_words() -> None:
    async with serving(Peer(odd(lambda _: b""))) as registry:
        lost = await fails(registry.execute("p.odd"))
        assert lost.code == ErrorCode.UNAVAILABLE
        assert "the server closed the connection without a response" in lost.message


async def test_a_stream_of_notifications_that_ends_at_once_is_not_opened_again_without_a_pause() -> None:
    class Ending(Peer):
        def otherwise(self) -> bytes:
            return http(200, b"retry: 0\n\n", kind="text/event-stream")

    peer = Ending()
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


REFUSALS = {
    "Session not found": lambda m: http(200, error(-32600, "Session not found", m["id"])),
    "Session terminated, 400": lambda m: http(400, error(-32600, "Session terminated", m["id"])),
    "a code of a transport": lambda m: http(200, error(-32803, "no", m["id"])),
    "a closed connection": lambda m: http(500, error(-32000, "Connection closed", m["id"])),
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=list(REFUSALS))
async def test_no_answer_to_a_call_makes_it_run_twice(answer: Callable[[Json], bytes]) -> None:
    peer = Peer(odd(answer))
    async with serving(peer) as registry:
        refused = await fails(registry.execute("p.odd"))
        assert refused.code == ErrorCode.EXECUTION_ERROR
        assert refused.details is not None
        assert refused.details["jsonrpcCode"] < 0
        assert peer.executed == 1
        assert [message["method"] for message in peer.seen].count("initialize") == 1


CUT = {
    "in the body": http(200, b'{"jsonrpc": "2.0"').replace(b"content-length: 17", b"content-length: 500"),
    "before the headers": b"HTTP/1.1 200 OK\r\ncontent-",
    "in a stream": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {",
}


@pytest.mark.parametrize("cut", CUT.values(), ids=list(CUT))
async def test_an_answer_that_is_cut_off_fails_its_own_call_alone(cut: bytes) -> None:
    peer = Peer(odd(lambda _: cut))
    async with serving(peer) as registry, hanging(registry):
        lost = await fails(registry.execute("p.odd"))
        assert lost.code == ErrorCode.UNAVAILABLE
        assert peer.executed == 2
        await works(registry)


GARBAGE = {
    "a page": (http(200, b"<html>hello</html>", kind="text/html"), "text/html: '<html>hello"),
    "no JSON": (http(200, b"{oops"), "{oops"),
    "nothing": (http(200), "expected a JSON-RPC response"),
    "what cannot be decoded": (http(200, b"plain", "content-encoding: gzip"), "the response cannot be decoded"),
    "a status whose body is cut off": (http(503, b"busy").replace(b"length: 4", b"length: 9"), "HTTP 503"),
    "a status whose body cannot be decoded": (http(503, b"busy", "content-encoding: gzip"), "HTTP 503"),
    "accepted": (http(202), "HTTP 202"),
    "a redirect elsewhere": (http(307, b"", "location: http://other.invalid/mcp?key=hush"), "http://other.invalid/mcp"),
    "redirects in circles": (http(307, b"", "location: /mcp?key=hush"), "/mcp, after 5 others"),
    "a status": (http(429, b"slow down", "retry-after: 7", kind="text/plain"), "HTTP 429"),
}  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=list(GARBAGE))
async def test_what_is_no_answer_is_told_in_one_line(
    garbage: tuple[bytes, str], caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(odd(lambda _: garbage[0]))
    async with serving(peer) as registry:
        told = await fails(registry.execute("p.odd"))
        assert told.code == ErrorCode.EXECUTION_ERROR
        assert garbage[1] in told.message
        assert "\n" not in told.message
        assert "hush" not in told.message + str(told.details)
        assert "Traceback" not in caplog.text
        await works(registry)


async def test_the_handshake_answered_by_null_says_so() -> None:
    with pytest.raises(SourceError, match="expected an object as the result of initialize, got None"):
        async with serving(always(http(200, {"jsonrpc": "2.0", "id": 1, "result": None}))):
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


async def test_a_server_that_never_answers_a_notification_is_used_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("operad_mcp.wire.exchange._HEARD", 0.05)
    async with asyncio.timeout(10), serving(Unheeding(), shutdown_timeout=0.2) as registry:
        await works(registry)


async def test_the_end_of_a_call_waits_for_nobody_to_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
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
        answers = [
            result(each, {"content": [], "structuredContent": {"of": each["params"]["name"]}})
            for each in (other, message)
        ]
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


async def test_a_result_above_the_limit_within_a_stream_fails_alone() -> None:
    def large(message: Json) -> bytes:
        event = json.dumps(result(message, {"content": [{"type": "text", "text": "x" * 100_000}]}))
        return http(200, f"data: {event}\n\n".encode(), kind="text/event-stream")

    async with serving(Peer(odd(large)), max_message_bytes=20_000) as registry:
        assert (await fails(registry.execute("p.odd"))).code == ErrorCode.PAYLOAD_TOO_LARGE
        await works(registry)


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", None])
async def test_a_proxy_of_the_configuration_or_else_of_the_environment_is_used(
    variable: str | None, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = OldPeer() if transport == "sse" else Peer()
    async with listening(peer) as address:
        monkeypatch.setenv(variable or "HTTP_PROXY", f"http://{address if variable else '127.0.0.1:9'}")
        options = {} if variable else {"proxy": f"http://user:hush@{address}"}
        url = "http://far.invalid/mcp"
        async with loaded("p", url=url, mode="legacy", transport=transport, **options) as registry:
            await works(registry)
    assert all("http://far.invalid/" in head.partition("\r\n")[0] for head in peer.heads)
    assert transport == "http" or {head.split(" ")[0] for head in peer.heads} == {"GET", "POST"}
    assert variable or "proxy-authorization: basic" in peer.heads[0].lower()


async def test_certificates_of_the_configuration_are_trusted_and_shown(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, peer = trustme.CA(), Peer()
    for name, issued in (
        ("ca", authority.cert_pem),
        ("me", authority.issue_cert("me").private_key_and_cert_chain_pem),
    ):
        issued.write_to_path(str(tmp_path / f"{name}.pem"))
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
        return http(200, result(message, {"content": []}))

    return odd(answer)


async def test_a_query_waits_and_asks_again_after_429() -> None:
    peer = Peer(busy(1))
    async with serving(peer, overrides={"odd": {"type": "query"}}) as registry:
        assert (await registry.execute("p.odd")).data == []
    assert peer.executed == 2


async def test_what_is_asked_again_is_told_to_the_observers_of_the_call() -> None:
    told: list[tuple[Any, ...]] = []
    async with serving(Peer(busy(1)), overrides={"odd": {"type": "query"}}) as registry:
        registry.observe(
            reported=lambda call, report: told.append(
                (call.operation_id, report.kind, report.level, report.message, report.attributes["attempt"])
            )
        )
        await registry.execute("p.odd")
    ((operation_id, *kind, message, attempt),) = told
    assert (operation_id, kind, attempt) == ("p.odd", ["retry", "warning"], 1)
    assert "429" in message


async def test_a_mutation_is_asked_again_after_429_only_where_that_is_said_to_be_safe() -> None:
    async with serving(Peer(busy(1))) as registry:
        refused = await fails(registry.execute("p.odd"))
        assert refused.details is not None
        assert refused.details["statusCode"] == 429
    async with serving(Peer(busy(2)), retries={"attempts": 2, "also": {"POST": [429]}}) as registry:
        assert (await registry.execute("p.odd")).data == []


async def test_a_wrong_path_is_told_with_its_url_its_status_and_what_to_look_at() -> None:
    with pytest.raises(SourceError, match=r"http://127.*/mcp.* HTTP 404 .*check the path"):
        async with serving(always(http(404, b"Not Found", kind="text/plain")), mode="auto"):
            pass


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("auth", "hint"),
    [(None, "set auth, or correct headers"), ({"token": "quiet"}, "the server does not accept its auth")],
)
async def test_the_status_of_a_refusal_is_kept_and_no_secret_that_was_sent(
    mode: str, auth: Any, hint: str
) -> None:
    peer = always(http(401, b"nope").replace(b"401 X", b"401 Unauthorized"))
    with pytest.raises(SourceError, match=f"HTTP 401 Unauthorized; {hint}") as caught:
        async with serving(peer, mode=mode, headers={"X-Key": "hush"}, auth=auth):
            pass
    assert "x-key: hush" in peer.heads[0].lower()
    assert ("authorization: bearer quiet" in peer.heads[0].lower()) is (auth is not None)
    assert "hush" not in str(caught.value)
    assert "quiet" not in str(caught.value)


async def test_headers_of_a_call_go_with_it_and_leave_those_of_the_protocol_alone() -> None:
    peer = Peer()
    async with serving(peer) as registry:
        mine = {"X-Tenant": "blue", "Mcp-Session-Id": "stolen", "Host": "evil.invalid"}
        await registry.execute("p.echo", {"a": 1}, OperationContext(metadata={"mcp": {"headers": mine}}))
        await registry.execute("p.echo", {"a": 2})
    calls = [head for head in peer.heads if head.startswith("POST")][-2:]
    assert "x-tenant: blue" in calls[0].lower()
    assert "stolen" not in calls[0]
    assert "evil.invalid" not in calls[0]
    assert "x-tenant" not in calls[1].lower()


# --- the transport of 2024-11-05 -----------------------------------------------------------------------


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
                self._stream = writer
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                end = self.line
                writer.write(f"event: endpoint{end}data: {self.endpoint}{end}{end}".encode())
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
    async with serving(OldPeer(odd(lambda _: http(503, b"busy"))), transport="sse") as registry:
        told = await fails(registry.execute("p.odd"))
        assert told.details is not None
        assert told.details["statusCode"] == 503
        await works(registry)


async def test_over_sse_2_mb_arrive_and_what_is_above_the_limit_fails_its_call() -> None:
    def large(message: Json) -> bytes:
        text = "x" * message["params"]["arguments"]["size"]
        return http(200, result(message, {"content": [], "structuredContent": text}))

    async with serving(OldPeer(odd(large)), transport="sse", max_message_bytes=3_000_000) as registry:
        assert len((await registry.execute("p.odd", {"size": 2_000_000})).data) == 2_000_000
        assert (await fails(registry.execute("p.odd", {"size": 4_000_000}))).code == ErrorCode.PAYLOAD_TOO_LARGE
        await works(registry)


async def test_an_event_that_ends_with_two_carriage_returns_is_taken_at_once() -> None:
    class Mac(OldPeer):
        line = "\r"

    async with serving(Mac(), transport="sse") as registry:
        await works(registry)


async def test_a_stream_that_was_cut_within_an_event_is_resumed_without_the_half_event() -> None:
    def events(text: str) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + text.encode()

    class Cut(Peer):
        rest = b""

        def otherwise(self) -> bytes:
            return self.rest

    def cut(peer: Peer, message: Json) -> bytes | None:
        if message.get("method") != "tools/call":
            return None
        assert isinstance(peer, Cut)
        peer.rest = events(f"data: {json.dumps(result(message, {'content': [], 'structuredContent': 5}))}\n\n")
        return events('id: 7\nretry: 10\ndata:\n\ndata: {"jsonrpc": "2.0", "id": 1, "resu')

    peer = Cut(cut, sessions=False)
    async with serving(peer) as registry:
        assert (await registry.execute("p.odd")).data == 5
    assert "last-event-id: 7" in peer.heads[-1].lower()

"""Calls against real servers that behave, and that do not: each failure has its own error, nothing stays open."""

import asyncio
import json
import resource
import socket
from contextlib import ExitStack
from http import HTTPStatus

import pytest
from aiohttp import web
from multidict import CIMultiDict

from operad import CallError, ErrorCode, OperationContext
from operad_openapi._http.responses import decode_body
from plugins.openapi.tests.data import GET, JSON, TABLES
from plugins.openapi.tests.handlers import ENCODINGS, echo, packed, redirect, replying, result_of
from plugins.openapi.tests.making import answers, body, parameter, path_parameter

POST = {"post /x": body({"type": "array"})}
OCTETS = body({}, media="application/octet-stream")
JSON_HEAD = f"Content-Type: {JSON}\r\n"


def raw(head, body=b""):
    """A response as bytes."""
    return f"HTTP/1.1 {head}\r\n".encode() + body


def method(name, **operation):
    return {f"{name} /x": operation}


def failing(requests, times, status):
    """A handler that fails so many times."""
    return lambda request: replying(status=status if len(requests) <= times else 200, Retry_After="0")(request)


# --- what a good server answers ----------------------------------------------------------------------


async def test_the_envelope_tells_where_the_answer_came_from(serve, call):
    async def handler(request):
        link = ("Link", '</x?page=2>; rel="next"')
        headers = [("X-A", "1"), link, ("X-A", "2"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2, 3")]
        return web.json_response({"a": 1}, status=201, headers=CIMultiDict(headers))

    base = await serve(handler)
    envelope = await call(base)
    meta = envelope.meta
    assert envelope.data == {"a": 1}
    assert (meta.source, meta.status_code, meta.method, meta.url) == ("http", 201, "GET", f"{base}/x")
    assert (meta.headers["x-a"], meta.headers["link"]) == ("1, 2", '</x?page=2>; rel="next"')
    assert meta.set_cookie == ["a=1", "b=2, 3"]
    assert "set-cookie" not in meta.headers
    assert meta.content_type == "application/json; charset=utf-8"
    assert meta.elapsed_ms > 0


@pytest.mark.parametrize(("content_type", "octets", "expected"), TABLES["bodies by content type"])
async def test_bodies_by_content_type(call, content_type, octets, expected):
    assert (await call(replying(octets.encode("latin-1"), content_type))).data == expected


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [("", b"[1]", ([1], b"[1]")), ("text/plain", b"[1]", ([1], "[1]")), ("text/plain", b"[1", ("[1", "[1")),
     ("text/html", b"[1]", ("[1]", "[1]")), ("application/octet-stream", b"[1]", (b"[1]", b"[1]")),
     ("text/plain", b"", (None, "")), ("", b"", (None, None))],
)  # fmt: skip
def test_a_body_without_the_type_of_json_is_json_where_the_document_says_so(kind, content, expected):
    assert tuple(decode_body(content, kind, "x", expects_json=said) for said in (True, False)) == expected


@pytest.mark.parametrize(("status", "is_error"), [(200, False), (299, False), (300, True), (304, True)])
async def test_statuses_from_200_to_299_are_results(call, fails, status, is_error):
    handler = replying(b"1", JSON, status=status)
    if is_error:
        details = (await fails(handler)).details
        assert (details["statusCode"], "attempts" in details) == (status, False)
    else:
        assert (await call(handler)).data == 1


@pytest.mark.parametrize("content_type", ["application/octet-stream", ""])
async def test_a_body_of_no_known_type_is_bytes(call, content_type):
    assert (await call(replying(b"\x00\xff", content_type))).data == b"\x00\xff"


async def test_an_empty_body_of_declared_text_is_an_empty_string(call):
    text = answers({"type": "string"}, "text/plain")
    for name, expected in (("get", ""), ("head", None)):
        assert (await call(replying(b"", "text/plain"), method(name, responses=text))).data == expected


@pytest.mark.parametrize(("name", "status"), [("get", 204), ("get", 205), ("head", 200)])
async def test_no_content_is_none(call, name, status):
    assert (await call(replying(status=status), method(name))).data is None


async def test_no_content_of_the_type_of_a_stream_is_none(call):
    assert (await call(replying(b"", "text/event-stream", 204))).data is None


async def test_bytes_are_base64_on_the_wire_beside_their_content_type(call):
    wire = (await call(replying(b"\x89PNG", "image/png"))).to_wire()
    assert wire["data"] == "iVBORw=="
    assert (wire["meta"]["encoding"], wire["meta"]["contentType"]) == ("base64", "image/png")


@pytest.mark.parametrize("headers", [{"Content-Length": "6"}, {"Transfer-Encoding": "chunked"}])
async def test_a_body_in_pieces_is_put_together(call, headers):
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": JSON, **headers})
        await response.prepare(request)
        for piece in (b"[1", b",2", b"2]"):
            await asyncio.sleep(0.01)  # so that the head is read before the body is there
            await response.write(piece)
        return response

    assert (await call(handler)).data == [1, 22]


async def test_a_connection_serves_one_call_after_another(serve, operations, api):
    peer = result_of(lambda request: request.transport.get_extra_info("peername"))
    x = operations(api(GET), await serve(peer))["x"].handler
    assert len({tuple((await x({}, None)).data) for _ in range(5)}) == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_compressed_answers_are_unpacked(call, requests, encoding):
    body = packed(b'{"a": 1}', encoding)
    assert (await call(replying(body, JSON, Content_Encoding=encoding))).data == {"a": 1}
    assert encoding in requests[0].headers["Accept-Encoding"]


async def test_accept_names_the_declared_types_json_first(call, requests):
    responses = {"200": {"description": "", "content": {"text/csv": {}, JSON: {"schema": {}}}}}
    await call(replying(), method("get", responses=responses))
    assert requests[0].headers["Accept"] == "application/json, text/csv"


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "string", "enum": ["identity", "gzip"]}, "gzip"),
        ({"$ref": "#/components/schemas/Coding"}, "identity"),
        ({"type": "string", "enum": ["snappy"]}, "gzip, deflate"),
        ({"type": "string"}, "gzip, deflate"),
    ],
    ids=["of two", "by reference", "unknown", "any"],
)
async def test_a_document_that_declares_accept_encoding_gets_one_of_its_values(call, api, requests, schema, sent):
    operation = method("get", parameters=[parameter("Accept-Encoding", "header", schema)])
    document = api(operation, components={"schemas": {"Coding": {"enum": ["identity"]}}})
    for input in ({}, {"Accept-Encoding": "br"}):
        await call(replying(), document, input)
    assert requests[0].headers["Accept-Encoding"].startswith(sent)
    assert requests[1].headers["Accept-Encoding"] == "br"


# --- what a bad one answers --------------------------------------------------------------------------


async def test_a_problem_is_an_execution_error_with_all_that_is_known(fails):
    problem = json.dumps({"type": "about:blank", "title": "No", "detail": "not this one"})
    error = await fails(replying(problem, "application/problem+json", 403, Retry_After="120"))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "403 not this one" in error.message
    known = [error.details[key] for key in ("statusCode", "retryAfter", "contentType")]
    assert known == [403, 120, "application/problem+json"]
    assert error.details["problem"]["detail"] == "not this one"


@pytest.mark.parametrize(("status", "body"), [(500, "<h1>oops</h1>"), (304, None)])
async def test_other_statuses_than_2xx_are_execution_errors_with_their_body(fails, status, body):
    error = await fails(replying(body or "", "text/html", status))
    found = (error.code, error.details["statusCode"], error.details["body"])
    assert found == (ErrorCode.EXECUTION_ERROR, status, body)


@pytest.mark.parametrize("encoding", ["identity", *ENCODINGS])
async def test_the_body_of_an_error_is_capped(fails, encoding):
    body = b"x" * 20_000_000 if encoding == "identity" else packed(b"x" * 20_000_000, encoding)
    error = await fails(replying(body, "text/plain", 500, Content_Encoding=encoding), limits={"error_bytes": 1000})
    assert error.details["body"] == "x" * 1000


async def test_a_redirect_that_is_not_followed_is_an_error_with_its_headers(fails):
    error = await fails(replying(status=302, Location="/y?token=secret", X_A="1"), method("put"))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert (error.details["statusCode"], error.details["headers"]["x-a"]) == (302, "1")
    assert "a redirect to /y that is not followed" in error.message
    assert "secret" not in error.message


@pytest.mark.parametrize("body", [b'{"a": ', b"NaN", b'{"a": NaN}', b"\xff\xfe\xff", b"[" * 100_000])
async def test_broken_json_is_an_execution_error_with_an_excerpt(fails, body):
    error = await fails(replying(body, JSON))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "expected JSON, as the content type states" in error.message
    assert error.details["body"] == body[:500].decode("utf-8", "replace")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "does-not-exist.invalid"])
async def test_a_refused_connection_and_a_host_without_an_address_are_unavailable(fails, host):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        base = f"http://{host.format(port=probe.getsockname()[1])}"
    error = await fails(base, retries=0)
    assert error.code == ErrorCode.UNAVAILABLE
    assert "cannot connect" in error.message


async def test_a_dead_host_ends_with_the_connect_timeout(fails):
    # A listener whose backlog is full answers no further SYN: the nearest thing to a dead host on loopback.
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        error = await fails(base, retries=0, connect_timeout=0.2)
    assert error.code == ErrorCode.TIMEOUT
    assert "could not connect in time" in error.message


async def test_the_deadline_of_a_call_ends_it_before_the_timeout(registry, serve_raw, load):
    come, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader, writer):
        come.set()
        assert await reader.read() == b""
        gone.set()

    await load(await serve_raw(talk))
    for timeout in (0.2, 2, 10):
        with pytest.raises(CallError, match="TIMEOUT"):
            await registry.execute("api.x", timeout=timeout)
        if come.is_set():  # it was under way by then
            break
    await asyncio.wait_for(gone.wait(), 20)  # the connection is closed, not left to its 30 s


async def silent(reader, writer):
    await asyncio.sleep(30)


async def slow_loris(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def endless_headers(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000)
    await writer.drain()
    await asyncio.sleep(10)


@pytest.mark.parametrize(
    ("talk", "code", "message"),
    [
        (silent, ErrorCode.TIMEOUT, "0.3 s"),
        (slow_loris, ErrorCode.TIMEOUT, "0.3 s"),
        (raw(f"200 OK\r\n{JSON_HEAD}Content-Length: 100\r\n", b"{"), ErrorCode.UNAVAILABLE, "connection was lost"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ErrorCode.EXECUTION_ERROR, "not HTTP"),
        (raw("200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n", b"hello"), ErrorCode.EXECUTION_ERROR, "encoding \"gzip\", got invalid"),
        (raw(f"200 OK\r\n{JSON_HEAD}Content-Encoding: unheard-of\r\nContent-Length: 2\r\n", b"\x01\x02"), ErrorCode.EXECUTION_ERROR, ""),
        (raw(f"200 OK\r\n{JSON_HEAD}Content-Encoding: {'gzip, ' * 4}\r\nContent-Length: 1\r\n", b"1"), ErrorCode.EXECUTION_ERROR, "expected the content encoding"),
        (b"", ErrorCode.UNAVAILABLE, "closed the connection"),
    ],
    ids=["silent", "slow loris", "broken off", "not HTTP", "not what its encoding says", "unknown encoding", "too many encodings", "closed"],
)  # fmt: skip
async def test_a_server_that_does_not_keep_to_http_is_an_error_of_its_kind(serve_raw, fails, talk, code, message):
    base, timeout = await serve_raw(talk), 0.3 if callable(talk) else 20
    error = await fails(base, POST, {"body": []}, timeout=timeout, retries=0)
    assert error.code == code
    assert message in error.message


async def test_an_error_whose_body_breaks_off_keeps_its_status(serve_raw, fails):
    talk = raw("500 Oops\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n", b"part")
    error = await fails(await serve_raw(talk))
    assert (error.details["statusCode"], error.details["body"]) == (500, "part")


async def test_headers_without_end_are_refused(serve_raw, fails):
    error = await fails(await serve_raw(endless_headers), retries=0)
    assert (error.code, error.details["limit"]) == (ErrorCode.PAYLOAD_TOO_LARGE, "header_bytes")


async def test_a_large_body_is_refused_by_its_length(fails):
    error = await fails(replying(b" " * 70_000_000))
    assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
    assert error.details == {"limit": "response_bytes", "bytes": 64 * 1024 * 1024}


async def test_a_large_body_of_unknown_length_is_refused_on_its_way(fails):
    def handler(request):
        response = web.Response(body=b" " * 10_000_000)
        response.enable_chunked_encoding()
        return response

    assert (await fails(handler, limits={"response_bytes": 1_000_000})).details["limit"] == "response_bytes"


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_compression_bomb_is_refused_before_it_fills_memory(fails, encoding):
    bomb = packed(b"\0" * 1_000_000, encoding, 150)
    assert len(bomb) < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handler = replying(bomb, "text/plain", Content_Encoding=encoding)
    error = await fails(handler, limits={"response_bytes": 10_000_000})
    assert error.details["limit"] == "response_bytes"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 75_000  # KiB; the bomb holds 150 MB


# --- input that must not get through -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "value"),
    [(parameter("v", "header"), "a\r\nX-Evil: 1"), (parameter("v", "cookie", style="cookie"), "a; admin=1")],
)
async def test_a_value_cannot_split_the_request(fails, requests, declared, value):
    error = await fails(replying(), method("get", parameters=[declared]), {"v": value})
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert not requests


@pytest.mark.parametrize("value", ["..", ".", "../../admin", "..%2f", "a/../../b"])
async def test_a_path_value_cannot_leave_its_segment(call, fails, requests, value):
    document = {"get /users/{id}/keys": {"parameters": [path_parameter("id")]}}
    if value in (".", ".."):
        assert (await fails(replying(), document, {"id": value})).code == ErrorCode.VALIDATION_ERROR
    else:
        await call(replying(), document, {"id": value})
        users, _, keys = requests[0].rel_url.raw_path.removeprefix("/").split("/")
        assert (users, keys) == ("users", "keys")


async def test_unknown_input_is_refused_not_sent(fails, requests):
    error = await fails(replying(), GET, {"admin": True})
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert "'admin'" in error.message
    assert not requests


# --- redirects ---------------------------------------------------------------------------------------


def moved(location, status=302, then=echo):
    """A handler that redirects from /x."""
    return lambda request: redirect(location, status) if request.path == "/x" else then(request)


async def test_a_redirect_is_followed_with_credentials_within_its_origin(call, requests):
    await call(moved("/y"), auth={"type": "bearer", "token": "t"})
    assert [request.headers["Authorization"] for request in requests] == ["Bearer t"] * 2


async def test_credentials_do_not_follow_a_redirect_to_another_origin(serve, call, api, requests):
    elsewhere = await serve(replying())
    parameters = [parameter("X-Param", "header"), parameter("c", "cookie")]
    key = {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
    components = {"securitySchemes": {"b": {"type": "http", "scheme": "bearer"}, "k": key}}
    document = api(method("get", parameters=parameters), components=components, security=[{"b": [], "k": []}])
    envelope = await call(
        moved(f"{elsewhere}/y", 307),
        document,
        {"X-Param": "p", "c": "v"},
        credentials={"b": {"type": "bearer", "token": "t"}, "k": {"type": "apiKey", "token": "k"}},
        headers={"X-Config": "secret", "Proxy-Authorization": "secret"},
    )
    first, second = (request.headers for request in requests)
    secret = {"Authorization", "Cookie", "X-Api-Key", "X-Config", "Proxy-Authorization", "X-Param"}
    assert (secret <= {*first}, secret & {*second}, second["Accept"]) == (True, set(), JSON)
    assert envelope.meta.url == f"{elsewhere}/y"


@pytest.mark.parametrize("name", ["get", "head", "post", "put", "patch", "delete"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_becomes_a_get_or_is_an_error(serve, call, fails, requests, name, status):
    """RFC 9110, 15.4: 303 is a GET for all, 301 and 302 for POST, as all clients have it; 307 and 308 repeat."""
    base = await serve(moved("/y", status))
    if status in (301, 302) and name in ("put", "patch", "delete"):
        assert (await fails(base, method(name))).details["statusCode"] == status
        return
    assert (await call(base, method(name))).meta.url == f"{base}/y"
    second = name.upper() if status in (307, 308) or name == "head" else "GET"
    assert [(request.method, request.path) for request in requests] == [(name.upper(), "/x"), (second, "/y")]


def once():
    """The input of a body that can be read once."""

    async def content():
        yield b"once"

    return {"body": {"stream": content()}}


@pytest.mark.parametrize(
    ("name", "status", "headers"), [("post", 307, {"Location": "/y"}), ("put", 503, {"Retry_After": "0"})]
)
async def test_a_body_that_can_be_read_once_is_not_sent_again(fails, name, status, headers):
    seen = []

    async def handler(request):
        seen.append(await request.read())
        return replying(status=status, **headers)(request)

    assert (await fails(handler, {f"{name} /x": OCTETS}, once())).details["statusCode"] == status
    assert seen == [b"once"]


async def test_redirects_share_the_time_of_the_call(fails):
    async def handler(request):
        await asyncio.sleep(0.3)
        return moved("/y", then=replying())(request)

    assert (await fails(handler, timeout=0.5)).code == ErrorCode.TIMEOUT


async def test_redirects_end(fails, requests):
    error = await fails(lambda request: redirect(f"/{len(requests)}"))
    assert "limit redirects" in error.message
    assert len(requests) == 6


@pytest.mark.parametrize(("status", "expected"), [(302, ["GET", ""]), (303, ["GET", ""]), (307, ["POST", "[1]"])])
async def test_the_body_of_a_post_goes_along_by_307_alone(call, status, expected):
    data = (await call(moved("/y", status), POST, {"body": [1]})).data
    assert [data["method"], data["body"]] == expected


async def test_a_body_goes_to_no_other_origin_than_the_configured_ones(serve, call, fails, requests):
    elsewhere = await serve(replying(b'"there"', JSON))
    base = await serve(moved(f"{elsewhere}/y", 307))
    error = await fails(base, POST, {"body": {"password": "s3cret"}})
    assert error.details["statusCode"] == 307
    assert elsewhere in error.message
    assert len(requests) == 1
    assert (await call(base, POST, {"body": 1}, origins=[elsewhere])).data == "there"


async def test_a_redirect_to_a_link_local_address_is_refused_from_a_private_one_too(fails):
    assert "link-local" in (await fails(moved("http://169.254.169.254/latest/"), trusted=True)).message


@pytest.mark.parametrize("location", ["file:///etc/passwd", "javascript:1", "http://[", "ftp://127.0.0.1/"])
async def test_a_redirect_to_no_http_is_refused(fails, location):
    assert (await fails(moved(location))).code == ErrorCode.EXECUTION_ERROR


# --- retries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "times"),
    [
        *((name, status, 3) for name in ("get", "put", "delete") for status in (408, 429, 502, 503, 504)),
        ("head", 503, 3),
        *((name, 503, 1) for name in ("post", "patch", "options")),
        *(("get", status, 1) for status in (400, 401, 404, 409, 500, 501)),
    ],
)
async def test_what_may_be_repeated_is_tried_again_after_a_passing_failure(
    call, fails, requests, name, status, times
):
    handler = failing(requests, 2, status)
    if times == 1:
        assert (await fails(handler, method(name))).details["statusCode"] == status
    else:
        assert (await call(handler, method(name))).meta.status_code == 200
    assert len(requests) == times


async def test_the_wait_is_random_up_to_a_bound_that_doubles(fails, monkeypatch):
    bounds = []
    monkeypatch.setattr("operad_auth.http.retries.random.uniform", lambda *bound: bounds.append(bound) or 0)
    await fails(replying(status=503), retries={"attempts": 4, "backoff": 0.25, "max_delay": 1.5})
    assert bounds == [(0, 0.25), (0, 0.5), (0, 1), (0, 1.5)]


async def test_a_wait_may_be_as_long_as_the_policy_says(fails, requests):
    await fails(replying(status=503, Retry_After="0"), retries={"attempts": 1, "max_delay": 0})
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("of_source", "of_call"), [(5, None), (None, 5)], ids=["timeout of the source", "deadline of the call"]
)
async def test_a_wait_beyond_the_deadline_is_not_begun(registry, load, of_source, of_call):
    await load(replying(status=503, Retry_After="8"), timeout=of_source)
    with pytest.raises(CallError) as caught:
        await registry.execute("api.x", timeout=of_call)
    assert (caught.value.details["statusCode"], caught.value.details["retryAfter"]) == (503, 8)


@pytest.mark.parametrize(
    ("status", "config"),
    [(503, {"headers": {"Idempotency-Key": "k"}}), (429, {"retries": {"also": {"POST": [429]}}})],
    ids=["with an idempotency key", "after a status that the policy allows it"],
)
async def test_a_post_is_tried_again(call, requests, status, config):
    await call(failing(requests, 1, status), POST, {"body": []}, **config)
    assert len(requests) == 2


async def test_the_idempotency_key_of_a_call_is_sent_with_requests_that_change_something(serve, operations, api):
    put = {"operationId": "put", "parameters": [parameter("Idempotency-Key", "header")]}
    document = api({"get /x": {"operationId": "get"}, "post /x": {"operationId": "post"}, "put /x": put})
    keys = result_of(lambda request: request.headers.getall("Idempotency-Key", []))
    made, context = operations(document, await serve(keys)), OperationContext(idempotency_key="k1")
    sent = {name: (await operation.handler({}, context)).data for name, operation in made.items()}
    assert sent == {"get": [], "post": ["k1"], "put": ["k1"]}
    assert (await made["put"].handler({"Idempotency-Key": "mine"}, context)).data == ["mine"]
    assert (await made["post"].handler({}, OperationContext())).data == []


async def test_a_long_retry_after_is_handed_to_the_caller(fails, requests):
    error = await fails(replying(status=429, Retry_After="3600"))
    assert (len(requests), error.details["retryAfter"]) == (1, 3600)


async def test_a_call_can_be_cancelled_and_the_server_sees_it(serve, call):
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(request):
        arrived.set()
        try:
            await asyncio.sleep(30)
        finally:
            gone.set()

    task = asyncio.create_task(call(await serve(handler, handler_cancellation=True)))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize(("body", "said"), TABLES["messages of errors"])
async def test_the_message_of_an_error_is_what_the_api_says(fails, body, said):
    error = await fails(replying(json.dumps(body), JSON, 422))
    phrase = HTTPStatus(422).phrase  # which Python 3.13 says in new words
    assert error.message.endswith(f"422 {phrase}" + (f": {said}" if said else ""))
    assert error.details["body"] == body


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [(None, b'{"a": 1}', {"a": 1}), ("application/x-json", b"[1]", [1]), ("text/plain", b"5", 5),
     ("text/plain", b"words", "words"), (None, b"\x00\x01", b"\x00\x01")],
)  # fmt: skip
async def test_json_without_its_content_type_is_json_where_nothing_else_is_declared(
    serve_raw, call, content_type, body, expected
):
    head = f"Content-Type: {content_type}\r\n" if content_type else ""
    base = await serve_raw(raw(f"200 OK\r\n{head}Content-Length: {len(body)}\r\n", body))
    assert (await call(base)).data == expected

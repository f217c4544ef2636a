"""Calls against real servers that behave, and that do not: each failure has its own error, nothing stays open."""

import asyncio
import json
import resource
import socket
import zlib
from http import HTTPStatus

import pytest
from aiohttp import web

from operad import CallError, ErrorCode, OperationRegistry, load_plugins

ENCODINGS = ["gzip", "deflate", "br", "zstd"]
"""The last two where aiohttp finds the packages that unpack them."""
GET = {"get /x": {"operationId": "x"}}
POST = {
    "post /x": {
        "operationId": "x",
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "array"}}}},
    }
}


UPLOAD = {
    "post /x": {
        "operationId": "x",
        "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
    }
}


def packed(data, encoding, times=1):
    """``times`` times ``data``, compressed."""
    if encoding == "br":
        packer = pytest.importorskip("brotli").Compressor(quality=2)  # 11 takes a minute for a bomb
        return b"".join(packer.process(data) for _ in range(times)) + packer.finish()
    if encoding == "zstd":
        packer = pytest.importorskip("backports.zstd").ZstdCompressor()
    else:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    return b"".join(packer.compress(data) for _ in range(times)) + packer.flush()


async def failure(call) -> CallError:
    with pytest.raises(CallError) as caught:
        await call
    return caught.value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- what a good server answers ----------------------------------------------------------------------


async def test_the_envelope_tells_where_the_answer_came_from(serve, operations, api):
    async def handler(request):
        response = web.json_response({"a": 1}, status=201, headers={"X-A": "1"})
        response.headers.add("X-A", "2")
        response.headers.add("Set-Cookie", "a=1")
        response.headers.add("Set-Cookie", "b=2, 3")
        return response

    base = await serve(handler)
    envelope = await operations(api(GET), base)["x"].handler({}, None)
    meta = envelope.meta
    assert envelope.data == {"a": 1}
    assert (meta.source, meta.status_code, meta.method, meta.url) == ("http", 201, "GET", f"{base}/x")
    assert meta.headers["x-a"] == "1, 2"
    assert meta.set_cookie == ["a=1", "b=2, 3"]
    assert "set-cookie" not in meta.headers
    assert meta.content_type == "application/json; charset=utf-8"
    assert meta.elapsed_ms > 0


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/vnd.x+json; charset=utf-8", b"[1]", [1]),
        ("application/json", b'\xef\xbb\xbf"bom"', "bom"),
        ("application/json; charset=latin-1", '"é"'.encode("latin-1"), "é"),
        ("application/json", b"1180591620717411303424", 2**70),
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=latin-1", "é".encode("latin-1"), "é"),
        ("text/plain; charset=unknown", b"a", "a"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/octet-stream", b"\x00\xff", b"\x00\xff"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
        ("", b"\x00", b"\x00"),
        ("application/json", b"", None),
        ("APPLICATION/JSON ; charset=utf-8", b"[1]", [1]),
        ("application/json-seq", b"\x1e[1]\n\x1e2", [[1], 2]),
        ("application/jsonl", b"[1]\n2\n", [[1], 2]),
        ("text/json", b"[1]", [1]),
    ],
)
async def test_bodies_by_content_type(serve, operations, api, content_type, body, expected):
    async def handler(request):
        return web.Response(body=body, headers={"Content-Type": content_type})

    envelope = await operations(api(GET), await serve(handler))["x"].handler({}, None)
    assert envelope.data == expected


@pytest.mark.parametrize("status", [204, 205])
async def test_no_content_is_none(serve, operations, api, status):
    async def handler(request):
        return web.Response(status=status)

    assert (await operations(api(GET), await serve(handler))["x"].handler({}, None)).data is None


async def test_head_is_none(serve, operations, api):
    async def handler(request):
        return web.json_response({"a": 1})

    found = operations(api({"head /x": {"operationId": "x"}}), await serve(handler))
    assert (await found["x"].handler({}, None)).data is None


async def test_bytes_are_base64_on_the_wire_beside_their_content_type(serve, operations, api):
    async def handler(request):
        return web.Response(body=b"\x89PNG", content_type="image/png")

    wire = (await operations(api(GET), await serve(handler))["x"].handler({}, None)).to_wire()
    assert wire["data"] == "iVBORw=="
    assert (wire["meta"]["encoding"], wire["meta"]["contentType"]) == ("base64", "image/png")


async def test_the_metadata_keep_what_pages_are_told_by(serve, operations, api):
    async def handler(request):
        return web.json_response([], headers={"Link": '</x?page=2>; rel="next"', "X-Next-Cursor": "c"})

    headers = (await operations(api(GET), await serve(handler))["x"].handler({}, None)).meta.headers
    assert headers["link"] == '</x?page=2>; rel="next"'
    assert headers["x-next-cursor"] == "c"


async def test_a_body_in_pieces_is_put_together(serve, operations, api):
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "6"})
        await response.prepare(request)
        for piece in (b"[1", b",2", b"2]"):
            await asyncio.sleep(0.01)  # so that the head is read before the body is there
            await response.write(piece)
        return response

    assert (await operations(api(GET), await serve(handler))["x"].handler({}, None)).data == [1, 22]


async def test_a_chunked_body_is_put_together(serve, operations, api):
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in (b"[1", b",2]"):
            await response.write(piece)
            await asyncio.sleep(0.01)
        return response

    assert (await operations(api(GET), await serve(handler))["x"].handler({}, None)).data == [1, 2]


async def test_a_connection_serves_one_call_after_another(serve, operations, api):
    peers = set()

    async def handler(request):
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response(1)

    call = operations(api(GET), await serve(handler))["x"].handler
    for _ in range(5):
        assert (await call({}, None)).data == 1
    assert len(peers) == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_compressed_answers_are_unpacked(serve, operations, api, encoding):
    body = packed(b'{"a": 1}', encoding)

    async def handler(request):
        assert encoding in request.headers["Accept-Encoding"]
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        return web.Response(body=body, headers=headers)

    assert (await operations(api(GET), await serve(handler))["x"].handler({}, None)).data == {"a": 1}


async def test_accept_names_the_declared_types_json_first(serve, operations, api):
    async def handler(request):
        return web.json_response(request.headers["Accept"])

    responses = {"200": {"description": "", "content": {"text/csv": {}, "application/json": {"schema": {}}}}}
    found = operations(api({"get /x": {"operationId": "x", "responses": responses}}), await serve(handler))
    assert (await found["x"].handler({}, None)).data == "application/json, text/csv"


# --- what a bad one answers --------------------------------------------------------------------------


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
async def test_a_document_that_declares_accept_encoding_gets_one_of_its_values(
    serve, operations, api, schema, sent
):
    async def handle(request):
        return web.json_response(request.headers["Accept-Encoding"])

    node = {"operationId": "a", "parameters": [{"name": "Accept-Encoding", "in": "header", "schema": schema}]}
    components = {"schemas": {"Coding": {"enum": ["identity"]}}}
    a = operations(api({"get /a": node}, components=components), await serve(handle))["a"]
    assert (await a.handler({}, None)).data.startswith(sent)
    assert (await a.handler({"Accept-Encoding": "br"}, None)).data == "br"


async def test_a_problem_is_an_execution_error_with_all_that_is_known(serve, operations, api):
    async def handler(request):
        problem = {"type": "about:blank", "title": "No", "detail": "not this one"}
        headers = {"Content-Type": "application/problem+json", "Retry-After": "120"}
        return web.Response(status=403, body=json.dumps(problem), headers=headers)

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "403 not this one" in error.message
    assert error.details["statusCode"] == 403
    assert error.details["problem"]["detail"] == "not this one"
    assert error.details["retryAfter"] == 120
    assert error.details["contentType"] == "application/problem+json"


async def test_500_with_html(serve, operations, api):
    async def handler(request):
        return web.Response(status=500, text="<h1>oops</h1>", content_type="text/html")

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert (error.code, error.details["statusCode"]) == (ErrorCode.EXECUTION_ERROR, 500)
    assert error.details["body"] == "<h1>oops</h1>"


async def test_the_body_of_an_error_is_capped(serve, operations, api):
    async def handler(request):
        return web.Response(status=500, text="x" * 1_000_000)

    found = operations(api(GET), await serve(handler), limits={"error_bytes": 1000})
    error = await failure(found["x"].handler({}, None))
    assert len(error.details["body"]) == 1000


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_the_compressed_body_of_an_error_is_capped(serve, operations, api, encoding):
    body = packed(b"x" * 20_000_000, encoding)

    async def handler(request):
        headers = {"Content-Encoding": encoding, "Content-Type": "text/plain"}
        return web.Response(status=500, body=body, headers=headers)

    found = operations(api(GET), await serve(handler), limits={"error_bytes": 1000})
    assert (await failure(found["x"].handler({}, None))).details["body"] == "x" * 1000


async def test_a_redirect_that_is_not_followed_is_an_error_with_its_headers(serve, operations, api):
    async def handler(request):
        return web.Response(status=302, headers={"Location": "/y?token=secret", "X-A": "1"})

    document = api({"put /x": POST["post /x"]})
    error = await failure(operations(document, await serve(handler))["x"].handler({"body": []}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert (error.details["statusCode"], error.details["headers"]["x-a"]) == (302, "1")
    assert "a redirect to /y that is not followed" in error.message
    assert "secret" not in error.message


async def test_an_error_whose_body_breaks_off_keeps_its_status(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\npart")
        await writer.drain()

    error = await failure(operations(api(GET), await serve_raw(talk))["x"].handler({}, None))
    assert error.details["statusCode"] == 500
    assert error.details["body"] == "part"


async def test_304_is_no_success(serve, operations, api):
    async def handler(request):
        return web.Response(status=304)

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert error.details["statusCode"] == 304


@pytest.mark.parametrize("body", [b'{"a": ', b"NaN", b'{"a": NaN}', b"\xff\xfe\xff", b"[" * 100_000])
async def test_broken_json_is_an_execution_error_with_an_excerpt(serve, operations, api, body):
    async def handler(request):
        return web.Response(body=body, content_type="application/json")

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "not the JSON" in error.message
    assert len(error.details["body"]) <= 1500


async def test_html_instead_of_json_is_text_not_an_exception(serve, operations, api):
    async def handler(request):
        return web.Response(text="<html>", content_type="text/html")

    assert (await operations(api(GET), await serve(handler))["x"].handler({}, None)).data == "<html>"


async def test_a_refused_connection_is_unavailable(operations, api):
    found = operations(api(GET), f"http://127.0.0.1:{free_port()}", retries=0)
    error = await failure(found["x"].handler({}, None))
    assert error.code == ErrorCode.UNAVAILABLE
    assert "cannot connect" in error.message


async def test_a_host_without_an_address_is_unavailable(operations, api):
    found = operations(api(GET), "http://does-not-exist.invalid", retries=0)
    assert (await failure(found["x"].handler({}, None))).code == ErrorCode.UNAVAILABLE


async def test_a_dead_host_ends_with_the_connect_timeout(operations, api):
    # A listener whose backlog is full answers no further SYN: the nearest thing to a dead host on loopback.
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    clients = []
    try:
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            clients.append(client)
        port = listener.getsockname()[1]
        found = operations(api(GET), f"http://127.0.0.1:{port}", retries=0, connect_timeout=0.2)
        error = await failure(found["x"].handler({}, None))
        assert error.code == ErrorCode.TIMEOUT
        assert "connection was not made" in error.message
    finally:
        for opened in (*clients, listener):
            opened.close()


async def test_a_server_that_never_answers_ends_with_the_timeout(serve_raw, operations, api):
    async def talk(reader, writer):
        await asyncio.sleep(30)

    found = operations(api(GET), await serve_raw(talk), timeout=0.2)
    error = await failure(found["x"].handler({}, None))
    assert error.code == ErrorCode.TIMEOUT
    assert "0.2 s" in error.message


async def test_the_deadline_of_a_call_ends_it_before_the_timeout(serve_raw, api):
    come, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader, writer):
        come.set()
        assert await reader.read() == b""
        gone.set()

    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        await registry.load("openapi", namespace="api", spec=api(GET), base_url=await serve_raw(talk))
        for timeout in (0.2, 2, 10):
            error = await failure(registry.execute("api.x", timeout=timeout))
            assert error.code == ErrorCode.TIMEOUT
            if come.is_set():  # it was under way by then
                break
        await asyncio.wait_for(gone.wait(), 20)  # the connection is closed, not left to its 30 s


async def test_slow_loris_ends_with_the_timeout(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    found = operations(api(GET), await serve_raw(talk), timeout=0.3)
    error = await failure(found["x"].handler({}, None))
    assert error.code == ErrorCode.TIMEOUT
    assert "0.3 s" in error.message


async def test_a_server_that_closes_within_the_body(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()

    error = await failure(operations(api(GET), await serve_raw(talk))["x"].handler({}, None))
    assert error.code == ErrorCode.UNAVAILABLE
    assert "broke off" in error.message


async def test_a_server_that_closes_before_answering(serve_raw, operations, api):
    async def talk(reader, writer):
        return

    found = operations(api(POST), await serve_raw(talk))
    error = await failure(found["x"].handler({"body": []}, None))
    assert error.code == ErrorCode.UNAVAILABLE
    assert "closed the connection" in error.message


async def test_an_answer_that_is_not_http(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()

    error = await failure(operations(api(GET), await serve_raw(talk), retries=0)["x"].handler({}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "not HTTP" in error.message


async def test_headers_without_end_are_refused(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000)
        await writer.drain()
        await asyncio.sleep(10)

    error = await failure(operations(api(GET), await serve_raw(talk), retries=0)["x"].handler({}, None))
    assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
    assert error.details["limit"] == "header_bytes"


async def test_a_large_body_is_refused_by_its_length(serve, operations, api):
    async def handler(request):
        return web.Response(body=b" " * 100_000_000)

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
    assert error.details == {"limit": "response_bytes", "bytes": 64 * 1024 * 1024}


async def test_a_large_body_of_unknown_length_is_refused_on_its_way(serve, operations, api):
    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" " * 100_000)
        return response

    found = operations(api(GET), await serve(handler), limits={"response_bytes": 1_000_000})
    assert (await failure(found["x"].handler({}, None))).details["limit"] == "response_bytes"


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_compression_bomb_is_refused_before_it_fills_memory(serve, operations, api, encoding):
    bomb = packed(b"\0" * 1_000_000, encoding, 300)
    assert len(bomb) < 2_000_000

    async def handler(request):
        return web.Response(body=bomb, headers={"Content-Encoding": encoding, "Content-Type": "text/plain"})

    found = operations(api(GET), await serve(handler), limits={"response_bytes": 10_000_000})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = await failure(found["x"].handler({}, None))
    assert error.details["limit"] == "response_bytes"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB; the bomb holds 300 MB


async def test_an_unknown_encoding_is_an_error(serve, operations, api):
    async def handler(request):
        headers = {"Content-Type": "application/json", "Content-Encoding": "unheard-of"}
        return web.Response(body=b"\x01\x02", headers=headers)

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR


async def test_a_body_that_is_not_what_its_encoding_says(serve_raw, operations, api):
    async def talk(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()

    error = await failure(operations(api(GET), await serve_raw(talk))["x"].handler({}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "compressed" in error.message


# --- input that must not get through -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ({"name": "v", "in": "header", "schema": {"type": "string"}}, "a\r\nX-Evil: 1"),
        ({"name": "v", "in": "cookie", "style": "cookie", "schema": {"type": "string"}}, "a; admin=1"),
    ],
)
async def test_a_value_cannot_split_the_request(serve, operations, api, parameter, value):
    seen = []

    async def handler(request):
        seen.append(request)
        return web.json_response(None)

    found = operations(api({"get /x": {"operationId": "x", "parameters": [parameter]}}), await serve(handler))
    error = await failure(found["x"].handler({"v": value}, None))
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert not seen


@pytest.mark.parametrize("value", ["..", ".", "../../admin", "..%2f", "a/../../b"])
async def test_a_path_value_cannot_leave_its_segment(serve, operations, api, value):
    async def handler(request):
        return web.json_response(request.rel_url.raw_path)

    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    document = api({"get /users/{id}/keys": {"operationId": "x", "parameters": [parameter]}})
    call = operations(document, await serve(handler))["x"].handler({"id": value}, None)
    if value in (".", ".."):
        assert (await failure(call)).code == ErrorCode.VALIDATION_ERROR
    else:
        path = (await call).data
        assert path.startswith("/users/")
        assert path.endswith("/keys")
        assert path.count("/") == 3


async def test_unknown_input_is_refused_not_sent(serve, operations, api):
    async def handler(request):
        raise AssertionError

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({"admin": True}, None))
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert "'admin'" in error.message


# --- redirects ---------------------------------------------------------------------------------------


async def test_a_redirect_is_followed_with_credentials_within_its_origin(serve, operations, api):
    async def handler(request):
        if request.path == "/x":
            raise web.HTTPFound("/y")
        return web.json_response(request.headers.get("Authorization"))

    found = operations(api(GET), await serve(handler), auth={"type": "bearer", "token": "t"})
    assert (await found["x"].handler({}, None)).data == "Bearer t"


async def test_credentials_do_not_follow_a_redirect_to_another_origin(serve, operations, api):
    async def other(request):
        return web.json_response({name: request.headers.get(name) for name in
                                  ("Authorization", "Cookie", "X-Api-Key", "X-Config", "Proxy-Authorization", "X-Param",
                                   "Accept")})  # fmt: skip

    elsewhere = await serve(other)

    async def handler(request):
        assert request.headers["Authorization"] == "Bearer t"
        raise web.HTTPTemporaryRedirect(f"{elsewhere}/y")

    parameters = [
        {"name": "X-Param", "in": "header", "schema": {"type": "string"}},
        {"name": "c", "in": "cookie", "schema": {"type": "string"}},
    ]
    schemes = {
        "b": {"type": "http", "scheme": "bearer"},
        "k": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    }
    document = api(
        {"get /x": {"operationId": "x", "parameters": parameters}},
        components={"securitySchemes": schemes},
        security=[{"b": [], "k": []}],
    )
    found = operations(
        document,
        await serve(handler),
        credentials={"b": {"type": "bearer", "token": "t"}, "k": {"type": "apiKey", "token": "k"}},
        headers={"X-Config": "secret", "Proxy-Authorization": "secret"},
    )
    envelope = await found["x"].handler({"X-Param": "p", "c": "v"}, None)
    assert envelope.data == {"Authorization": None, "Cookie": None, "X-Api-Key": None, "X-Config": None,
                             "Proxy-Authorization": None, "X-Param": None, "Accept": "application/json"}  # fmt: skip
    assert envelope.meta.url == f"{elsewhere}/y"


@pytest.mark.parametrize("method", ["get", "head"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_get_and_head_follow_every_redirect(serve, operations, api, method, status):
    seen = []

    async def handler(request):
        seen.append((request.method, request.path))
        if request.path == "/x":
            return web.Response(status=status, headers={"Location": "/y"})
        return web.json_response(1)

    base = await serve(handler)
    envelope = await operations(api({f"{method} /x": {"operationId": "x"}}), base)["x"].handler({}, None)
    assert seen == [(method.upper(), "/x"), (method.upper(), "/y")]
    assert envelope.meta.url == f"{base}/y"


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_other_methods_become_get_or_are_repeated_or_stop(serve, operations, api, method, status):
    """RFC 9110, 15.4: 303 is a GET for all, 301 and 302 for POST, as all clients have it; 307 and 308 repeat."""

    async def handler(request):
        if request.path == "/x":
            return web.Response(status=status, headers={"Location": "/y"})
        return web.json_response(request.method)

    call = operations(api({f"{method} /x": {"operationId": "x"}}), await serve(handler))["x"].handler({}, None)
    if status in (307, 308):
        assert (await call).data == method.upper()
    elif status == 303 or method == "post":
        assert (await call).data == "GET"
    else:
        assert (await failure(call)).details["statusCode"] == status


async def test_a_body_that_can_be_read_once_is_not_sent_after_a_redirect(serve, operations, api):
    seen = []

    async def handler(request):
        seen.append(await request.read())
        return web.Response(status=307, headers={"Location": "/y"})

    async def content():
        yield b"once"

    call = operations(api(UPLOAD), await serve(handler))["x"].handler({"body": {"stream": content()}}, None)
    assert (await failure(call)).details["statusCode"] == 307
    assert seen == [b"once"]


async def test_redirects_share_the_time_of_the_call(serve, operations, api):
    async def handler(request):
        await asyncio.sleep(0.6)
        if request.path == "/x":
            raise web.HTTPFound("/y")
        return web.json_response(1)

    found = operations(api(GET), await serve(handler), timeout=1)
    assert (await failure(found["x"].handler({}, None))).code == ErrorCode.TIMEOUT


async def test_redirects_end(serve, operations, api):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        raise web.HTTPFound(f"/{count}")

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert "limit redirects" in error.message
    assert count == 6


@pytest.mark.parametrize(
    ("status", "expected"), [(302, ["GET", None]), (303, ["GET", None]), (307, ["POST", [1]])]
)
async def test_the_body_of_a_post_goes_along_by_307_alone(serve, operations, api, status, expected):
    async def handler(request):
        if request.path == "/x":
            return web.Response(status=status, headers={"Location": "/y"})
        return web.json_response([request.method, await request.json() if request.can_read_body else None])

    found = operations(api(POST), await serve(handler))
    assert (await found["x"].handler({"body": [1]}, None)).data == expected


async def test_a_body_goes_to_no_other_origin_than_the_configured_ones(serve, operations, api):
    seen = []

    async def other(request):
        seen.append(await request.read())
        return web.json_response("there")

    async def handler(request):
        raise web.HTTPTemporaryRedirect(f"{elsewhere}/y")

    elsewhere, base = await serve(other), await serve(handler)
    error = await failure(operations(api(POST), base)["x"].handler({"body": {"password": "s3cret"}}, None))
    assert error.details["statusCode"] == 307
    assert elsewhere in error.message
    assert seen == []
    found = operations(api(POST), base, origins=[elsewhere])
    assert (await found["x"].handler({"body": 1}, None)).data == "there"


async def test_a_redirect_to_a_link_local_address_is_refused_from_a_private_one_too(serve, operations, api):
    async def handler(request):
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data/")

    found = operations(api(GET), await serve(handler), trusted=True)
    error = await failure(found["x"].handler({}, None))
    assert "link-local" in error.message


@pytest.mark.parametrize("location", ["file:///etc/passwd", "javascript:1", "http://[", "ftp://127.0.0.1/"])
async def test_a_redirect_to_no_http_is_refused(serve, operations, api, location):
    async def handler(request):
        return web.Response(status=302, headers={"Location": location})

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert error.code == ErrorCode.EXECUTION_ERROR


# --- retries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
@pytest.mark.parametrize("method", ["get", "put", "delete"])
async def test_what_may_be_repeated_is_tried_again_after_a_passing_failure(serve, operations, api, method, status):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        if count < 3:
            return web.Response(status=status, headers={"Retry-After": "0"})
        return web.json_response(count)

    found = operations(api({f"{method} /x": {"operationId": "x"}}), await serve(handler))
    assert (await found["x"].handler({}, None)).data == 3


async def test_head_is_tried_again(serve, operations, api):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return web.Response(status=503 if count < 2 else 200, headers={"Retry-After": "0"})

    found = operations(api({"head /x": {"operationId": "x"}}), await serve(handler))
    assert (await found["x"].handler({}, None)).meta.status_code == 200
    assert count == 2


@pytest.mark.parametrize("method", ["post", "patch", "options"])
async def test_other_methods_are_not_tried_again(serve, operations, api, method):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return web.Response(status=503, headers={"Retry-After": "0"})

    found = operations(api({f"{method} /x": {"operationId": "x"}}), await serve(handler))
    await failure(found["x"].handler({}, None))
    assert count == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500, 501])
async def test_other_statuses_are_not_tried_again(serve, operations, api, status):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return web.Response(status=status, headers={"Retry-After": "0"})

    await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert count == 1


async def test_a_lost_connection_is_tried_again(serve_raw, operations, api):
    count = 0

    async def talk(reader, writer):
        nonlocal count
        count += 1
        if count > 2:  # aiohttp's own second try, on a connection that was open, is not enough
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n1")
            await writer.drain()

    found = operations(api(GET), await serve_raw(talk), retries={"attempts": 2, "backoff": 0})
    assert (await found["x"].handler({}, None)).data == 1


async def test_a_put_whose_body_can_be_read_once_is_not_tried_again(serve, operations, api):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        await request.read()
        return web.Response(status=503, headers={"Retry-After": "0"})

    async def content():
        yield b"once"

    document = api({"put /x": UPLOAD["post /x"]})
    call = operations(document, await serve(handler))["x"].handler({"body": {"stream": content()}}, None)
    await failure(call)
    assert count == 1


async def test_the_wait_is_random_up_to_a_bound_that_doubles(serve, operations, api, monkeypatch):
    bounds = []

    def uniform(low, high):
        bounds.append((low, high))
        return low

    monkeypatch.setattr("operad_auth.http.retries.random.uniform", uniform)

    async def handler(request):
        return web.Response(status=503)

    policy = {"attempts": 4, "backoff": 0.25, "max_delay": 1.5}
    await failure(operations(api(GET), await serve(handler), retries=policy)["x"].handler({}, None))
    assert bounds == [(0, 0.25), (0, 0.5), (0, 1), (0, 1.5)]


@pytest.mark.parametrize("bound", ["timeout of the source", "deadline of the call"])
async def test_a_wait_beyond_the_deadline_is_not_begun(serve, api, bound):
    async def handler(request):
        return web.Response(status=503, headers={"Retry-After": "8"})

    of_source = bound == "timeout of the source"
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        timeout = 5 if of_source else None
        base = await serve(handler)
        await registry.load("openapi", namespace="api", spec=api(GET), base_url=base, timeout=timeout)
        error = await failure(registry.execute("api.x", timeout=None if of_source else 5))
    assert (error.details["statusCode"], error.details["retryAfter"]) == (503, 8)


async def test_a_post_with_an_idempotency_key_is(serve, operations, api):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return web.Response(status=503, headers={"Retry-After": "0"}) if count < 2 else web.json_response(1)

    found = operations(api(POST), await serve(handler), headers={"Idempotency-Key": "k"})
    assert (await found["x"].handler({"body": []}, None)).data == 1


async def test_a_long_retry_after_is_handed_to_the_caller(serve, operations, api):
    count = 0

    async def handler(request):
        nonlocal count
        count += 1
        return web.Response(status=429, headers={"Retry-After": "3600"})

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    assert (count, error.details["retryAfter"]) == (1, 3600)


async def test_a_call_can_be_cancelled_and_the_server_sees_it(serve, operations, api):
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(request):
        arrived.set()
        try:
            await asyncio.sleep(30)
        finally:
            gone.set()

    found = operations(api(GET), await serve(handler, handler_cancellation=True))
    task = asyncio.create_task(found["x"].handler({}, None))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"message": "Validation Failed", "errors": [{"field": "x"}]}, "Validation Failed"),
        ({"error": "invalid"}, "invalid"),
        ({"error": {"code": 5, "message": "no such model"}}, "no such model"),
        ({"detail": [{"loc": ["a"], "msg": "field required"}]}, "field required"),
        ({"errors": [{"message": "first"}, {"message": "second"}]}, "first"),
        ({"errors": ["first", "second"]}, "first"),
        ({"message": "a\nb\x1b[31m"}, "a b [31m"),
        ({"other": 1}, None),
    ],
)
async def test_the_message_of_an_error_is_what_the_api_says(serve, operations, api, body, said):
    async def handler(request):
        return web.json_response(body, status=422)

    error = await failure(operations(api(GET), await serve(handler))["x"].handler({}, None))
    expected = f"422 {HTTPStatus(422).phrase}" + (
        f": {said}" if said else ""
    )  # which Python 3.13 says in new words
    assert error.message.endswith(expected)
    assert error.details["body"] == body


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (None, b'{"a": 1}', {"a": 1}),
        ("application/x-json", b"[1]", [1]),
        ("text/plain", b"5", 5),
        ("text/plain", b"words", "words"),
        (None, b"\x00\x01", b"\x00\x01"),
    ],
)
async def test_json_without_its_content_type_is_json_where_nothing_else_is_declared(
    serve_raw, operations, api, content_type, body, expected
):
    async def talk(reader, writer):
        head = f"Content-Type: {content_type}\r\n" if content_type else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    assert (await operations(api(GET), await serve_raw(talk))["x"].handler({}, None)).data == expected

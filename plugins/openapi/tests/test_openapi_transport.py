"""How requests travel: as often as asked, whole, through a proxy, under the TLS of the configuration."""

import asyncio
import base64
import gc
import gzip
import threading
import warnings
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import aiohttp
import pytest
import trustme
from aiohttp import web

from operad import CallError, ConfigError, ErrorCode
from operad_openapi import HTTPServiceConfig
from operad_openapi._http import session as session_module
from operad_openapi._http.failures import network_failure
from operad_openapi._http.resolving import is_link_local, is_private
from plugins.openapi.tests.data import GET
from plugins.openapi.tests.handlers import ENCODINGS, echo, packed, replying, result_of, server_context
from plugins.openapi.tests.making import api as api_of
from plugins.openapi.tests.making import made

JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "get"])
async def test_a_request_without_a_body_has_no_content_type(call, method):
    data = (await call(echo, {f"{method} /x": {}})).data
    assert ("Content-Type" in data["headers"], data["body"]) == (False, "")


@pytest.mark.parametrize(
    ("method", "retries", "expected"),
    [("get", 0, 1), ("put", 0, 1), ("delete", 0, 1), ("options", 2, 1), ("get", 2, 3), ("post", 2, 1)],
)
async def test_a_lost_connection_is_tried_as_often_as_the_policy_says(
    serve_raw, fails, requests, method, retries, expected
):
    async def talk(reader, writer):
        writer.transport.abort()

    policy = {"attempts": retries, "backoff": 0}
    error = await fails(await serve_raw(talk), {f"{method} /x": {}}, retries=policy)
    assert (error.code, len(requests)) == (ErrorCode.UNAVAILABLE, expected)


async def test_a_response_whose_body_breaks_off_is_an_error_and_not_requested_again(serve_raw, fails, requests):
    base = await serve_raw(JSON_HEAD + b"Content-Length: 99\r\n\r\n[1,")
    error = await fails(base, retries={"attempts": 2, "backoff": 0})
    assert (error.code, len(requests)) == (ErrorCode.UNAVAILABLE, 1)


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_compressed_body_that_was_cut_off_is_no_answer(call, fails, encoding):
    data = "\n".join(f"row {n},{n * n % 977}" for n in range(5000))
    whole = packed(data.encode(), encoding)
    assert (await call(replying(whole, "text/csv", Content_Encoding=encoding))).data == data
    half = replying(whole[: len(whole) // 2], "text/csv", Content_Encoding=encoding)
    assert (await fails(half, retries=0)).code == ErrorCode.UNAVAILABLE


async def test_gzip_of_several_members_is_read_to_its_end(call):
    body = gzip.compress(b"first,") + gzip.compress(b"second") + b"\0" * 8
    assert (await call(replying(body, "text/plain", Content_Encoding="gzip"))).data == "first,second"


async def test_long_headers_are_read_up_to_a_limit_with_a_name(serve, call, fails):
    base = await serve(replying(b"1", Link="x" * 20_000))
    assert len((await call(base)).meta.headers["link"]) == 20_000
    error = await fails(base, limits={"header_bytes": 10_000})
    assert (error.code, error.details["limit"]) == (ErrorCode.PAYLOAD_TOO_LARGE, "header_bytes")
    assert "xxx" not in error.message


async def test_a_request_waits_where_the_server_has_said_that_nothing_is_left(serve, operations, api, monkeypatch):
    slept = []
    real = asyncio.sleep

    async def sleep(seconds, *args):
        slept.append(seconds)
        await real(0, *args)

    base = await serve(replying(X_RateLimit_Remaining="0", X_RateLimit_Reset="4"))
    found = operations(api(GET), base, retries={"rate_limit": True})
    monkeypatch.setattr("operad_openapi._http.client.asyncio.sleep", sleep)
    await found["x"].handler({}, None)
    assert not [seconds for seconds in slept if seconds > 1]
    await found["x"].handler({}, None)
    [waited] = [seconds for seconds in slept if seconds > 1]
    assert waited <= 4


async def test_a_stream_that_broke_off_is_resumed_without_retries(serve, operations, api, events_ok, requests):
    async def handler(request):
        count = len(requests)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"retry: 1\nid: {count}\ndata: {count}\n\n".encode())
        if count == 1:
            request.transport.abort()
        elif count == 2:
            await response.write(b"data: [DONE]\n\n")
        return response

    document = api({"get /x": {"operationId": "x", "responses": events_ok}})
    found = operations(document, await serve(handler), reconnect=True, retries=0)
    assert [envelope.data async for envelope in found["x"].handler({}, None)] == [1, 2]


async def test_a_stream_that_cannot_be_opened_again_fails_as_any_request(serve, fails, events_ok, requests):
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if len(requests) == 1:
            await response.prepare(request)
            await response.write(b"retry: 1\ndata: 1\n\n")
        request.transport.abort()
        return response

    base, options = await serve(handler), {"reconnect": True, "retries": {"attempts": 1, "backoff": 0}}
    (found,) = made(api_of({"get /x": {"responses": events_ok}}), base_url=base, **options)
    got = []
    with pytest.raises(CallError, match="UNAVAILABLE"):
        got += [envelope.data async for envelope in found.handler({}, None)]
    assert len(requests) == 5  # the stream, and twice a request that is tried twice


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_may_be_as_large_as_its_limit(serve, call, fails, chunked):
    def handler(request):
        response = web.Response(body=b"[10]", status=int(request.path[1:]), content_type="application/json")
        if chunked:
            response.enable_chunked_encoding()
        return response

    base, missing = await serve(handler), {"get /404": {}}
    assert (await call(base, {"get /200": {}}, limits={"response_bytes": 4})).data == [10]
    assert (await fails(base, {"get /200": {}}, limits={"response_bytes": 3})).code == ErrorCode.PAYLOAD_TOO_LARGE
    bodies = [(await fails(base, missing, limits={"error_bytes": n})).details["body"] for n in (5, 4, 3)]
    assert bodies == [[10], [10], "[10"]


async def test_a_session_of_the_application_is_used_and_stays_open(serve, operations, api):
    packed_one = packed(b'"packed"', "gzip")
    base = await serve(replying(packed_one, "application/json", Content_Encoding="gzip", X_A="x" * 20_000))
    async with aiohttp.ClientSession() as session:
        found = made(api(GET), base_url=base, session=session, limits={"header_bytes": 30_000})
        assert (await found[0].handler({}, None)).data == "packed"
        await found.aclose()
        assert not session.closed


REQUEST = SimpleNamespace(real_url="http://h")


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (aiohttp.ClientHttpProxyError(REQUEST, (), status=407, message="no"), "UNAVAILABLE", ": the proxy rejected the request: 407 no"),
        (aiohttp.ClientOSError(104, "reset"), "UNAVAILABLE", ": the connection was lost: Connection reset by peer"),
        (ConnectionError("gone"), "UNAVAILABLE", ": the connection was lost: gone"),
        (OSError(5, "broken"), "UNAVAILABLE", ": broken"),
        (OSError("odd"), "UNAVAILABLE", ": odd"),
        (ValueError("odd"), "EXECUTION_ERROR", ": ValueError: odd"),
        (TimeoutError(), "TIMEOUT", " did not respond in time"),
        (aiohttp.ClientPayloadError("cut"), "UNAVAILABLE", ": the connection was lost during the response"),
        (aiohttp.ServerDisconnectedError(), "UNAVAILABLE", ": the server closed the connection"),
        (aiohttp.ServerTimeoutError(), "TIMEOUT", ": no data was received in time"),
        (aiohttp.ConnectionTimeoutError(), "TIMEOUT", ": could not connect in time"),
        (aiohttp.ClientResponseError(REQUEST, (), message="a\n b"), "EXECUTION_ERROR", ": the response is not HTTP: a b"),
    ],
)  # fmt: skip
def test_a_failure_of_the_network_is_told_without_the_path(error, code, reason):
    found = network_failure(error, "GET", "https://h.test/secret?key=s")
    assert (found.code, found.message) == (code, f"GET https://h.test:443{reason}")
    assert (found.details["method"], found.details["reason"]) == ("GET", reason.lstrip(": "))
    assert "key=s" not in str(found.details)


async def test_names_are_private_if_an_address_of_theirs_is():
    names = ("localhost", "127.0.0.1", "93.184.216.34", "a" * 64)
    assert [await is_private(name) for name in names] == [True, True, False, False]
    assert [await is_link_local(name) for name in ("169.254.1.1", "localhost")] == [True, False]


# --- proxies -----------------------------------------------------------------------------------------


@pytest.fixture
async def proxy(serve_raw):
    """The address of an HTTP proxy that answers itself."""
    base = await serve_raw(JSON_HEAD + b'Content-Length: 7\r\n\r\n"proxy"')
    return base.removeprefix("http://")


async def test_a_configured_proxy_gets_the_requests_and_its_own_credential(call, proxy, requests):
    assert (await call("http://api.example.test", proxy=f"http://user:pass@{proxy}")).data == "proxy"
    assert requests[0].startswith("GET http://api.example.test/x HTTP/1.1")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'user:pass').decode()}" in requests[0]


async def test_the_environment_names_the_proxy_if_it_is_asked(proxy, serve, call, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{proxy}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    base = await serve(result_of(lambda request: "direct"))
    assert (await call("http://api.example.test", proxy="environment")).data == "proxy"
    assert (await call(base, proxy="environment")).data == "direct"
    assert (await call(base)).data == "direct"


async def test_a_proxy_that_is_not_there_is_unavailable_and_its_password_in_no_message(fails):
    error = await fails("http://api.example.test", proxy="http://u:s3cret@127.0.0.1:1", retries=0)
    assert (error.code, "proxy" in error.message) == (ErrorCode.UNAVAILABLE, True)
    assert "s3cret" not in error.message
    assert "s3cret" not in repr(HTTPServiceConfig(namespace="a", proxy="http://u:s3cret@127.0.0.1:1"))


def test_a_proxy_of_another_kind_is_refused_when_it_is_configured():
    with pytest.raises(ConfigError, match="proxy: expected an http or https URL, or .*, got the scheme socks5$"):
        HTTPServiceConfig(namespace="a", proxy="socks5://127.0.0.1:1")


# --- answers as old and odd servers give them --------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[1]",
        JSON_HEAD + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3;a=b\r\n[1]\r\n0\r\nX-T: v\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + JSON_HEAD + b"Content-Length: 3\r\n\r\n[1]",
        JSON_HEAD + b"Content-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json, application/json\r\nContent-Length: 3\r\n\r\n[1]",
    ],
)
async def test_answers_of_old_and_odd_servers_are_read(serve_raw, call, answer):
    assert (await call(await serve_raw(answer))).data == [1]


async def test_a_header_that_is_no_utf_8_is_latin_1(serve_raw, call):
    answer = JSON_HEAD + b"X-A: gr\xfc\xdfe\r\nX-B: gr\xc3\xbc\xc3\x9fe\r\nContent-Length: 3\r\n\r\n[1]"
    envelope = await call(await serve_raw(answer))
    assert (envelope.meta.headers["x-a"], envelope.meta.headers["x-b"]) == ("grüße", "grüße")


# --- TLS ---------------------------------------------------------------------------------------------


async def test_files_say_whom_to_trust_and_what_to_show(serve, call, fails, tmp_path):
    authority = trustme.CA()
    shows = result_of(lambda request: request.transport.get_extra_info("peercert") is not None)
    base = await serve(shows, server_context(authority, asks=True))
    own = authority.issue_cert("client@example.test")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    own.private_key_pem.write_to_path(tmp_path / "own.key")
    shown = {"tls_cert": str(tmp_path / "own.pem"), "tls_key": str(tmp_path / "own.key")}
    assert (await call(base, tls_ca=str(tmp_path / "ca.pem"), **shown)).data is True
    assert (await call(base, tls_verify=False, **shown)).data is True
    assert "certificate is not valid" in (await fails(base, retries=0, **shown)).message


def test_a_file_of_tls_that_is_not_there_is_named_when_the_source_is_made(api):
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        made(api(GET), tls_ca="/nowhere.pem")


# --- event loops -------------------------------------------------------------------------------------


def test_one_event_loop_after_another_leaves_no_session_open(api, tmp_path):
    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

    async def once():
        assert (await found[0].handler({}, None)).data == b"1"

    (tmp_path / "x").write_text("1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    found = made(api(GET), base_url=f"http://127.0.0.1:{server.server_port}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            for _ in range(3):
                asyncio.run(once())
            gc.collect()
        asyncio.run(found.aclose())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(("idle", "connections"), [(session_module.IDLE, 1), (0.001, 2)])
async def test_a_connection_that_its_server_may_be_closing_is_not_used_again(
    serve, operations, api, monkeypatch, idle, connections
):
    """A POST that met the closing connection would be lost, and could not be sent again."""
    monkeypatch.setattr(session_module, "IDLE", idle)
    peer = result_of(lambda request: request.transport.get_extra_info("peername"))
    found = operations(api({"post /x": {"operationId": "x"}}), await serve(peer))
    first = await found["x"].handler({}, None)
    await asyncio.sleep(0.05)
    assert len({tuple(each.data) for each in (first, await found["x"].handler({}, None))}) == connections
    assert session_module.IDLE < 5  # what Node, uvicorn and Apache wait


@pytest.mark.parametrize("head", [b"HTTP/1.1 204 No Content", b"HTTP/1.1 200 OK"])
async def test_a_body_where_http_has_none_is_refused_in_one_line(serve_raw, fails, head):
    base = await serve_raw(head + b'\r\nContent-Length: 7\r\n\r\n{"a":1}')
    error = await fails(base, {f"{'get' if b'204' in head else 'head'} /x": {}}, retries=0)
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert "is not HTTP: Bad status line" in error.message
    assert "\n" not in error.message

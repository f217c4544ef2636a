"""What the servers of this folder send."""

import ssl
import zlib

import pytest
from aiohttp import web

ENCODINGS = ["gzip", "deflate", "br", "zstd"]
"""The last two where aiohttp finds the packages that unpack them."""


def replying(body=b"", content_type=None, status=200, **headers):
    """A handler that always sends the same response."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if content_type is not None:
        named["Content-Type"] = content_type
    return lambda request: web.Response(body=body, status=status, headers=named)


def result_of(function):
    """A handler that sends the result of a function of the request, as JSON."""
    return lambda request: web.json_response(function(request))


async def echo(request):
    """Send what came."""
    url, body = request.rel_url, (await request.read()).decode("latin-1")
    seen = {"path": url.raw_path, "query": url.raw_query_string, "headers": dict(request.headers), "body": body}
    return web.json_response({"method": request.method, **seen})


def redirect(url, status=302):
    return web.Response(status=status, headers={"Location": str(url)})


def packed(data, encoding, times=1):
    """``times`` times ``data``, compressed."""
    if encoding == "br":
        packer = pytest.importorskip("brotli").Compressor(quality=2)  # 11 takes a minute for a bomb
        return b"".join(packer.process(data) for _ in range(times)) + packer.finish()
    if encoding == "zstd":
        packer = pytest.importorskip("backports.zstd").ZstdCompressor()
    else:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    return b"".join(packer.compress(data) for _ in range(times)) + packer.flush()


def server_context(authority, *, asks=False):
    """The TLS of a server of localhost, which may demand a certificate of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context

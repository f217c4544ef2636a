"""Responses from envelopes: the data with scalar metadata in headers, or the whole envelope."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from operad import CallError, ErrorCode, ResponseEnvelope
from operad.wire import to_json
from operad_serve.asgi import Header
from operad_serve.problems import Problem

ENVELOPE_TYPE = "application/vnd.operad.envelope+json"
JSON_TYPE = b"application/json"
BINARY_TYPE = "application/octet-stream"
_INNER = ("url", "method", "setCookie")
"""Metadata about the request to an upstream, and its cookies."""
MAX_META = 4_096
"""The largest value of the header ``Operad-Meta``, in bytes."""


def wants_envelope(accept: str | None) -> bool:
    """Return True if ``accept``, the header, names the type of envelopes but not ``application/json``.

    Return False for a client that accepts both types, and for a client without the header (None).
    """
    return accept is not None and ENVELOPE_TYPE in accept and "application/json" not in accept


def data_response(
    envelope: ResponseEnvelope[Any], *, expose_upstream: bool = False
) -> tuple[bytes, bytes, list[Header]]:
    """Return body, content type and headers for the data alone. Raises `CallError` if JSON cannot hold them."""
    headers = meta_headers(envelope, expose_upstream=expose_upstream)
    data = envelope.data
    if isinstance(data, (bytes, bytearray, memoryview)):
        declared = getattr(envelope.meta, "content_type", None)
        return bytes(data), _content_type(declared), headers
    return to_json(data), JSON_TYPE, headers


def check_size(body: bytes, limit: int, what: str) -> None:
    """Raise `CallError` ``PAYLOAD_TOO_LARGE`` if a body, named by ``what``, has more than ``limit`` bytes."""
    if len(body) > limit:
        size = f"the {what} has {len(body)} bytes, more than {limit} (result_bytes)"
        message = f"{size}; the operation has run, so ask for less in the next call"
        raise CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {"limit": "result_bytes", "bytes": limit})


def envelope_response(
    envelope: ResponseEnvelope[Any], *, expose_upstream: bool = False
) -> tuple[bytes, bytes, list[Header]]:
    """Return body, content type and headers for a whole envelope. Raises `CallError` if JSON cannot hold it."""
    return to_json(envelope_wire(envelope, expose_upstream)), ENVELOPE_TYPE.encode(), []


def envelope_wire(envelope: ResponseEnvelope[Any], expose_upstream: bool) -> dict[str, Any]:
    """Return an envelope as JSON, without an upstream's addresses and headers unless they are exposed."""
    wire = envelope.to_wire()
    if not expose_upstream:
        meta = {name: value for name, value in wire["meta"].items() if name not in _INNER}
        if "headers" in meta:
            meta["headers"] = {}
        return {**wire, "meta": meta}
    return wire


def error_response(envelope: ResponseEnvelope[Any]) -> Problem:
    """Return the problem for an envelope that represents an error (MCP's ``isError``)."""
    source = str(envelope.meta.source)
    data = envelope.to_wire()["data"]
    return Problem(
        502,
        f"the operation returned an error of its {source} source; details.data has its content",
        code=ErrorCode.EXECUTION_ERROR,
        details={"source": source, "data": data},
    )


def meta_headers(envelope: ResponseEnvelope[Any], *, expose_upstream: bool = False) -> list[Header]:
    """Return ``Operad-Source``, and ``Operad-Meta``: the scalar metadata as JSON, up to `MAX_META` bytes."""
    meta = envelope.meta
    source = str(meta.source)
    headers = [(b"operad-source", source.encode("ascii", "replace"))]
    if source == "local":  # the metadata of every local call: a faster way pays off
        text = b'{"operationId":%b,"timestamp":%d}' % (_quoted(meta.operation_id), meta.timestamp)
        if len(text) <= MAX_META:
            headers.append((b"operad-meta", text))
        return headers
    wire = ResponseEnvelope(None, meta).to_wire()["meta"]
    kept: list[str] = []
    size = 2
    for name, value in wire.items():
        if name == "source" or isinstance(value, (dict, list)) or (name in _INNER and not expose_upstream):
            continue
        # ASCII, so that any value is a valid header.
        pair = f"{json.dumps(name)}:{json.dumps(value)}"
        if size + len(pair) + 1 <= MAX_META:
            kept.append(pair)
            size += len(pair) + 1
    headers.append((b"operad-meta", f"{{{','.join(kept)}}}".encode("ascii")))
    return headers


@lru_cache(maxsize=1_024)
def _quoted(operation_id: str) -> bytes:
    return json.dumps(operation_id).encode()


def _content_type(declared: Any) -> bytes:
    """Return the content type of binary data: the one that the upstream declared, if it is valid."""
    if (
        not isinstance(declared, str)
        or not declared.isascii()
        or not declared.isprintable()
        or "/" not in declared
    ):
        return BINARY_TYPE.encode()
    return declared.encode()

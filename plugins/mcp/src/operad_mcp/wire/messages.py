"""JSON-RPC messages: what a server wrote, as the SDK wants it; leniently, because a server is untrusted.

Imported with the first connection: it needs the SDK.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from operad_mcp.errors import Fault, Said, TooLarge, Unreadable
from operad_mcp.wire.incoming import EDGE

RequestId = int | str
_decode = msgspec.json.Decoder().decode
_SHOWN = 200

_ID = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
_ANSWERS = rb'"(?:result|error)"'
_ID_FIRST = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*' + _ID + rb"\s*,\s*" + _ANSWERS)
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")
_ANSWER_FIRST = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*' + _ANSWERS)


def parse(text: bytes) -> list[SessionMessage]:
    """The messages of a text: one, those of a batch, or none.

    An answer's result is not checked here: that is the work of who asked. An answer of which no more than the id
    can be read is a failure of the request.
    """
    value = _json(text)
    if value is msgspec.UNSET:
        found = answered_id(text[:EDGE], text[-EDGE:])
        return [] if found is None else [failure(found, Unreadable(f"the answer cannot be read: {_shown(text)}"))]
    items = value if isinstance(value, list) else [value]
    return [message for message in map(_message, items) if message is not None]


def is_json(text: bytes) -> bool:
    """Whether a text is whole, in the lenient reading of `parse`."""
    return _json(text) is not msgspec.UNSET


def failure(request_id: RequestId, fault: Fault) -> SessionMessage:
    """The answer to a request that this process has to give itself."""
    return _error(request_id, 0, str(fault), fault)


def too_large(size: int, limit: int) -> TooLarge:
    """The fault of an answer above the limit."""
    return TooLarge(f"the answer has {size} bytes, max_message_bytes is {limit}")


def answered_id(head: bytes, tail: bytes) -> RequestId | None:
    """The id of an answer of which only the beginning and the end are known, where it can be told for sure."""
    found = _ID_FIRST.match(head)
    if found is None and _ANSWER_FIRST.match(head):
        found = _ID_LAST.search(tail)
    if found is None:
        return None
    try:
        value: RequestId = json.loads(found[1])
    except ValueError:
        return None
    return value


def marked(item: SessionMessage) -> SessionMessage:
    """A message with the mark that it is the server's, where it is an error."""
    message = item.message
    if isinstance(message, JSONRPCError) and not isinstance(message.error.data, (Fault, Said)):
        message.error.data = Said(message.error.data)
    return item


def _json(text: bytes) -> Any:
    """The value of a JSON text; ``UNSET`` if it is none."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):  # msgspec's own error is a ValueError, and so is one of UTF-8
        pass
    try:  # takes what is no strict JSON: NaN, lone surrogates, 1e400, and bytes that are no UTF-8
        return json.loads(text.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return msgspec.UNSET


def _message(value: Any) -> SessionMessage | None:
    if not isinstance(value, dict):
        return None
    if "method" in value:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
        except ValueError:
            return None
    request_id = _request_id(value.get("id"))
    if "error" in value and value["error"] is not None and "result" not in value:
        # An error without an id is for nobody here; who knows the request from elsewhere (HTTP) sets it.
        return _said(request_id, value["error"])
    if request_id is None:
        return None
    if "result" not in value:
        return failure(request_id, Unreadable(f"the answer has neither result nor error: {_shown(value)}"))
    # The SDK's model would check, and copy, every part of the result.
    return SessionMessage(JSONRPCResponse.model_construct(jsonrpc="2.0", id=request_id, result=value["result"]))


def _request_id(value: Any) -> RequestId | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None


def _said(request_id: RequestId | None, error: Any) -> SessionMessage:
    """An error of the server, in whatever form it came."""
    fields = error if isinstance(error, dict) else {"message": error}
    code, message = fields.get("code"), fields.get("message")
    text = message if isinstance(message, str) else _shown(error)
    is_code = isinstance(code, int) and not isinstance(code, bool)
    return _error(request_id, code if is_code else 0, text, Said(fields.get("data")))


def _error(request_id: RequestId | None, code: Any, message: str, data: Any) -> SessionMessage:
    error = ErrorData.model_construct(code=code, message=message, data=data)
    return SessionMessage(JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=error))


def _shown(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

"""The reading and writing of JSON-RPC messages. Reading is lenient, because servers deviate from the protocol."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from operad_mcp.errors import Fault, ServerError, TooLarge, Unreadable

Json = dict[str, Any]
RequestId = int | str
EDGE = 512
"""The bytes at the start and the end of an unreadable message that are searched for its id."""
_decode = msgspec.json.Decoder().decode
_SHOWN = 200
_MOST = 1_000
"""The maximum number of messages of a batch that are read.

This client sends no batches, and only revision 2025-03-26 has them.
"""

_ID = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
_ANSWERS = rb'"(?:result|error)"'
_ID_FIRST = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*' + _ID + rb"\s*,\s*" + _ANSWERS)
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")
_ANSWER_FIRST = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*' + _ANSWERS)


class Request(NamedTuple):
    """A request that the server sent."""

    id: RequestId
    method: str
    params: Json


class Notice(NamedTuple):
    """A notification that the server sent."""

    method: str
    params: Json


class Answer(NamedTuple):
    """The response to a request: a result, an error from the server, or a fault that this process detected.

    ``id`` is ``None`` for an error that names no request.
    """

    id: RequestId | None
    result: Any = None
    error: ServerError | Fault | None = None


Message = Request | Notice | Answer


def parse(text: bytes) -> list[Message]:
    """Return the messages of a text: one, or those of a batch (at most 1,000); empty if it is not a message.

    If only the id of a response can be read, the message is a failed response with that id.
    """
    value = _json(text)
    if value is msgspec.UNSET:
        found = answered_id(text[:EDGE], text[-EDGE:])
        return (
            [] if found is None else [failure(found, Unreadable(f"the response cannot be read: {_shown(text)}"))]
        )
    items = value[:_MOST] if isinstance(value, list) else [value]
    return [message for message in map(message_of, items) if message is not None]


def is_json(text: bytes) -> bool:
    """Return True if a text is JSON that `parse` can read."""
    return _json(text) is not msgspec.UNSET


def encode(message: Json) -> bytes:
    """Return a message as JSON text in UTF-8. Raises `TypeError` or `ValueError` if it has no JSON form."""
    try:
        return msgspec.json.encode(message)
    except (ValueError, OverflowError):  # a number or a text that strict JSON does not allow
        return json.dumps(message).encode()


def failure(request_id: RequestId, fault: Fault) -> Answer:
    """Return the failed response for a fault that this process detected."""
    return Answer(request_id, error=fault)


def too_large(limit: int) -> TooLarge:
    """Return the fault of a response of more than ``limit`` bytes."""
    return TooLarge(f"expected a response of at most {limit} bytes (max_message_bytes), got more")


def answered_id(head: bytes, tail: bytes) -> RequestId | None:
    """Return the id of a response from its first and last bytes; ``None`` if they do not certainly contain it."""
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


def message_of(value: Any) -> Message | None:
    """Return the message for a JSON value; ``None`` if the value is not a JSON-RPC message."""
    if not isinstance(value, dict):
        return None
    if "method" in value:
        return _asked(value)
    request_id = _request_id(value.get("id"))
    if "error" in value and value["error"] is not None and "result" not in value:
        # An error without an id has no request here; HTTP knows the request from elsewhere and sets it.
        return Answer(request_id, error=error_of(value["error"]))
    if request_id is None:
        return None
    if "result" not in value:
        return failure(request_id, Unreadable(f"the response has neither result nor error: {_shown(value)}"))
    return Answer(request_id, value["result"])


def error_of(error: Any) -> ServerError:
    """Return the `ServerError` for the ``error`` of a message. If its code is not an integer, the code is 0."""
    fields = error if isinstance(error, dict) else {"message": error}
    code, message = fields.get("code"), fields.get("message")
    text = message if isinstance(message, str) else _shown(error)
    is_code = isinstance(code, int) and not isinstance(code, bool)
    return ServerError(code if is_code else 0, text, fields.get("data"))  # type: ignore[arg-type]  # just tested


def _json(text: bytes) -> Any:
    """Return the value of a JSON text; ``UNSET`` if it is not JSON."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):  # msgspec's own error is a ValueError, and so is one of UTF-8
        pass
    try:  # accepts values outside strict JSON: NaN, lone surrogates, 1e400, and bytes that are not UTF-8
        return json.loads(text.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return msgspec.UNSET


def _asked(value: Json) -> Request | Notice | None:
    method, params = value["method"], value.get("params")
    if not isinstance(method, str) or not isinstance(params, dict | None):
        return None
    if "id" not in value:
        return Notice(method, params or {})
    request_id = _request_id(value["id"])
    return None if request_id is None else Request(request_id, method, params or {})


def _request_id(value: Any) -> RequestId | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None


def _shown(value: Any) -> str:
    try:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else json.dumps(value, default=str)
    except RecursionError:
        text = "a value that is nested too deeply"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

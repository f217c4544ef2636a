"""Error replies for messages that cannot be decoded."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from operad.errors import ErrorCode
from operad.transports import Event
from operad_calls import protocol

_ID_TEXT = '"requestId"'
_ID = _ID_TEXT.encode()
_LARGEST = 64 * 1024
"""The size in bytes above which a text is not parsed a second time."""


class _Glimpse(msgspec.Struct):
    """An event with unparsed values, so that one bad value does not hide the others."""

    type: str
    payload: dict[str, msgspec.Raw]


_glimpses = msgspec.json.Decoder(_Glimpse)
_strings = msgspec.json.Decoder(str)


class Unreadable(NamedTuple):
    """The error reply for a message that belongs to a request and cannot be used."""

    is_request: bool
    """Whether the message is a request. If so, the reply goes to the peer, else to the call of this process."""
    reply_to: str | None
    """The address for responses in the message; ``None`` if it is missing or cannot be read."""
    event: Event
    """A ``call.error`` with the id of the request."""


def unreadable(
    data: bytes | bytearray | str, why: object, code: str = ErrorCode.SERIALIZATION_ERROR
) -> Unreadable | None:
    """Return the error reply to a message; ``None`` if it is not an event of a call with a readable id.

    Args:
        data: the message.
        why: the reason, for the text of the error.
        code: the code of the error.
    """
    if (_ID_TEXT if isinstance(data, str) else _ID) not in data:  # type: ignore[operator]  # one of its own kind
        return None  # a flood of unrelated data takes no more time
    found = _glimpse(data)
    if found is None:
        return None
    type_, request_id, reply_to = found
    if not type_.startswith("call.") or len(request_id) > protocol.MAX_ID_LENGTH:
        return None
    message = f"the {type_} cannot be used: {why}"
    return Unreadable(type_ == protocol.REQUESTED, reply_to, protocol.error_event(request_id, code, message))


def _glimpse(data: bytes | bytearray | str) -> tuple[str, str, str | None] | None:
    """Return type, request id and reply address of a message; ``None`` if type or request id is unreadable."""
    try:
        found = _glimpses.decode(data)
        request_id = _strings.decode(found.payload["requestId"])
    except (ValueError, RecursionError, KeyError):
        return _lenient_glimpse(data)
    try:
        reply_to = _strings.decode(found.payload["replyTo"])
    except (ValueError, KeyError):
        reply_to = None
    return found.type, request_id, reply_to


def _lenient_glimpse(data: bytes | bytearray | str) -> tuple[str, str, str | None] | None:
    """As `_glimpse`, but with the parser of Python, which accepts NaN, infinity and half of a surrogate pair."""
    if len(data) > _LARGEST:
        return None
    try:
        event = json.loads(data)
        type_, request_id, reply_to = event["type"], event["payload"]["requestId"], event["payload"].get("replyTo")
        msgspec.json.encode((type_, request_id, reply_to))  # a reply cannot hold half of a pair either
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    if type(type_) is not str or type(request_id) is not str:
        return None
    return type_, request_id, reply_to if type(reply_to) is str else None

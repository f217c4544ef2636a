"""Messages of a transport that are of no use: whom to tell."""

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
"""Bytes of a text up to which it is worth reading once more."""


class _Glimpse(msgspec.Struct):
    """An event whose values are text still, so that one that cannot be read does not hide the others."""

    type: str
    payload: dict[str, msgspec.Raw]


_glimpses = msgspec.json.Decoder(_Glimpse)
_strings = msgspec.json.Decoder(str)


class Unreadable(NamedTuple):
    """What to do about a message that is of a request, but of no use."""

    is_request: bool
    """Whether it is the request itself: then who asked is told. Else it is for whoever waits here."""
    reply_to: str | None
    """Where it says that answers go."""
    event: Event
    """A ``call.error`` with the id of the request."""


def unreadable(
    data: bytes | bytearray | str, why: object, code: str = ErrorCode.SERIALIZATION_ERROR
) -> Unreadable | None:
    """What to do about a message that cannot be used, if the id of its request can be read."""
    if (_ID_TEXT if isinstance(data, str) else _ID) not in data:  # type: ignore[operator]  # one of its own kind
        return None  # a flood of rubbish is not looked at any further
    found = _glimpse(data)
    if found is None:
        return None
    type_, request_id, reply_to = found
    if not type_.startswith("call.") or len(request_id) > protocol.MAX_ID_LENGTH:
        return None
    message = f"the {type_} cannot be used: {why}"
    return Unreadable(type_ == protocol.REQUESTED, reply_to, protocol.error_event(request_id, code, message))


def _glimpse(data: bytes | bytearray | str) -> tuple[str, str, str | None] | None:
    """Type, request id and reply address of a message that cannot be used, if the first two can be read."""
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
    """The same of a text that only Python's own parser reads: NaN, infinity, half of a surrogate pair."""
    if len(data) > _LARGEST:
        return None
    try:
        event = json.loads(data)
        type_, request_id, reply_to = event["type"], event["payload"]["requestId"], event["payload"].get("replyTo")
        msgspec.json.encode((type_, request_id, reply_to))  # half of a pair is no part of an answer either
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    if type(type_) is not str or type(request_id) is not str:
        return None
    return type_, request_id, reply_to if type(reply_to) is str else None

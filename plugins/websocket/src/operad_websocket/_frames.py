"""Frames as a hub reads them, without decoding the values that the hub only passes on.

The hub checks that such a value is JSON in valid Unicode, and copies its text. The receiver checks the rest, such
as numbers that do not fit a double. So a large response costs the hub little more than a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from operad.plugin import Event
from operad_calls.transport import ProtocolError

Payload = dict[str, msgspec.Raw]

NOBODY = msgspec.Raw(b"null")
"""The ``to`` of a frame without this field."""


class Frame(msgspec.Struct):
    """An event whose values are still encoded as JSON. Unknown fields are left out."""

    type: str
    payload: Payload
    id: msgspec.Raw = msgspec.Raw(b'""')
    to: msgspec.Raw = NOBODY


_frame = msgspec.json.Decoder(Frame).decode
_value = msgspec.json.Decoder().decode
text_of = msgspec.json.Decoder(str).decode
"""Returns the string of a raw value. Raises ``ValueError`` (`msgspec.DecodeError`) if it is not a string."""
integer_of = msgspec.json.Decoder(int).decode
"""Returns the integer of a raw value. Raises ``ValueError`` (`msgspec.DecodeError`) if it is not an integer."""
_encode = msgspec.json.Encoder().encode


def read(data: bytes) -> Frame:
    """Return the frame in a message. Raises `ProtocolError` if the message is not a frame."""
    try:
        if not data.isascii():
            data.decode()  # other bytes in a text frame would end the connection of its receiver
        return _frame(data)
    except RecursionError:
        raise ProtocolError("the JSON is nested too deeply") from None
    except ValueError as error:  # msgspec.DecodeError, UnicodeError
        raise ProtocolError(f"expected an event as JSON of the strict profile: {error}") from None


def value(payload: Mapping[str, msgspec.Raw], name: str) -> Any:
    """Return a decoded value of a payload; None if it is missing, null or cannot be decoded."""
    raw = payload.get(name)
    if raw is None:
        return None
    try:
        return _value(raw)
    except (ValueError, RecursionError):
        return None


def string(raw: msgspec.Raw | None) -> str | None:
    """Return the string of a raw value, or None if it is missing or not a string."""
    if raw is None or raw is NOBODY:
        return None
    try:
        return text_of(raw)
    except ValueError:
        return None


def raw(value: Any) -> msgspec.Raw:
    """Return a Python value encoded as JSON, for a payload."""
    return msgspec.Raw(_encode(value))


def write(type_: str, payload: Mapping[str, Any], id_: Any = "") -> bytes:
    """Return the JSON of an event. Its values may be Python values or raw values of a frame."""
    return _encode({"type": type_, "id": id_, "payload": payload})


def write_event(event: Event) -> bytes:
    """Return the JSON of an event that this process made, without checking it."""
    return _encode(event)

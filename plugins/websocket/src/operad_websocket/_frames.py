"""Frames as a hub reads them: by name, without looking into what it only passes on.

A value that goes through stays text: it is checked for being JSON and valid Unicode, and copied. What it holds
(whether a key is there twice, a number that no double holds) is for whoever reads it, so a large answer costs the
hub little more than its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from operad.plugin import Event
from operad_calls.transport import ProtocolError

Payload = dict[str, msgspec.Raw]

NOBODY = msgspec.Raw(b"null")
"""The ``to`` of a frame that has none, as most."""


class Frame(msgspec.Struct):
    """An event whose values are text still; what is no part of an event is left out."""

    type: str
    payload: Payload
    id: msgspec.Raw = msgspec.Raw(b'""')
    to: msgspec.Raw = NOBODY


_frame = msgspec.json.Decoder(Frame).decode
_value = msgspec.json.Decoder().decode
text_of = msgspec.json.Decoder(str).decode
"""The text of a value; `msgspec.DecodeError`, a ``ValueError``, if it is no string."""
integer_of = msgspec.json.Decoder(int).decode
"""The integer of a value; `msgspec.DecodeError`, a ``ValueError``, if it is none."""
_encode = msgspec.json.Encoder().encode


def read(data: bytes | str) -> Frame:
    """The frame of a message. Raises `ProtocolError`."""
    try:
        if isinstance(data, str):
            data = data.encode()
        elif not data.isascii():
            data.decode()  # a text frame with anything else would end the connection of who gets it
        return _frame(data)
    except RecursionError:
        raise ProtocolError("nested too deeply") from None
    except ValueError as error:  # msgspec.DecodeError, UnicodeError
        raise ProtocolError(f"not JSON of the strict profile, or no event: {error}") from None


def value(payload: Mapping[str, msgspec.Raw], name: str) -> Any:
    """A value of a payload; ``None`` if it is not there, or is none that Python can hold."""
    raw = payload.get(name)
    if raw is None:
        return None
    try:
        return _value(raw)
    except (ValueError, RecursionError):
        return None


def string(raw: msgspec.Raw | None) -> str | None:
    """The text of a value, if it is a string."""
    if raw is None or raw is NOBODY:
        return None
    try:
        return text_of(raw)
    except ValueError:
        return None


def raw(value: Any) -> msgspec.Raw:
    """A value that this process made, as a payload holds it."""
    return msgspec.Raw(_encode(value))


def write(type_: str, payload: Mapping[str, Any], id_: Any = "") -> bytes:
    """The JSON of an event; values are of this process, or those of a frame."""
    return _encode({"type": type_, "id": id_, "payload": payload})


def write_event(event: Event) -> bytes:
    """The JSON of an event that this process made of checked parts."""
    return _encode(event)

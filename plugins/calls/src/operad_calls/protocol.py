"""The events of the call protocol, and their JSON.

An event is ``{"type": str, "id": str, "payload": dict}``, JSON in UTF-8. Four types make the original protocol
(``call.requested``, ``call.responded``, ``call.error``, ``call.aborted``), whose shapes never change;
``call.completed`` and ``call.credit`` are additions, and each side works when the other one lacks them.
Unknown types and fields are ignored. The JSON is of the strict profile of `operad.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import msgspec

from operad.envelopes import LocalResponseMeta, ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import Event
from operad.wire import from_json, no_json_form, to_json

REQUESTED = "call.requested"
RESPONDED = "call.responded"
ERROR = "call.error"
ABORTED = "call.aborted"
COMPLETED = "call.completed"
CREDIT = "call.credit"
LOST = "link.lost"
"""Made by a transport that detects the loss of peers, never by a peer: ``payload.peer`` is gone."""
STORED = "link.stored"
"""Made by a transport that stores requests, never by a peer: ``payload.requestId`` outlives the connection."""
REGISTERED = "link.registered"
"""The answer to a registration: ``payload.topics``, and ``payload.refused`` with ``{topic, reason}``. A link that
registers again by itself after a break passes the answer on: what is refused is not served until a later one."""

CHANGED = "operad.changed"
"""Topic and type of the event that tells that a handler (``payload.instance``) serves other operations now."""
DISCOVER = "operad.discover"
"""The question to everybody who serves: the one operation that runs when it is put to ``all:``."""

MAX_ID_LENGTH = 512
"""The longest request id that is accepted, in characters."""


class ProtocolError(ValueError):
    """What came is no event of the call protocol; the message says what was expected and where."""


def error_event(request_id: str, code: str, message: str = "", details: Any = None) -> Event:
    """A ``call.error``; ``details`` is any JSON value, ``None`` is left out."""
    payload: dict[str, Any] = {"requestId": request_id, "code": str(code), "message": message}
    if details is not None:
        payload["details"] = details
    return {"type": ERROR, "id": "", "payload": payload}


def call_error(payload: Mapping[str, Any]) -> CallError:
    """The `CallError` that the payload of a ``call.error`` stands for; without a usable code ``UNKNOWN_ERROR``."""
    code, message, details = payload.get("code"), payload.get("message"), payload.get("details")
    if not isinstance(code, str) or not code:
        return CallError(ErrorCode.UNKNOWN_ERROR, "the peer sent an error without a code", {"raw": dict(payload)})
    return CallError(code, "" if message is None else str(message), details)


# --- the codec -------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode
_LARGE = 16 * 1024
"""Bytes of an envelope's data from which on its JSON is sent as a part of its own instead of being copied."""
_HOLE = b"\0"
"""Stands for what is put into a text later: JSON has no such byte."""
_BYTES = (bytes, bytearray, memoryview)


@final
class Parts:
    """JSON in parts, to be written one after the other: a large text is copied nowhere to stand in a message."""

    __slots__ = ("pieces", "size")

    def __init__(self, *pieces: bytes | memoryview) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)


class Encoded(Event):
    """An event and its JSON: who counts bytes has encoded it already. `encode` does not do so again."""

    __slots__ = ("data", "fields", "size")

    def __init__(self, event: Event, data: bytes | Parts) -> None:
        dict.__init__(self, event)  # this is of every event on a wire, and super() is not free
        self.data = data
        """The JSON; that of another event if a link has put something into this one since, or taken it out."""
        self.size, self.fields = len(event), len(event["payload"])

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied and pickled it is an event as any other: a tap may keep one, and views of its JSON have no copy.
        return dict, (dict(self),)


def encoded(event: Event) -> Encoded:
    """The event with its JSON. Raises as `encode`."""
    return Encoded(event, encode(event))


def with_sent_bytes(event: Event, data: bytes | Parts, count: int) -> Encoded:
    """The event with ``payload.sentBytes``, which is the last thing in its JSON; ``data`` is the JSON without."""
    event["payload"]["sentBytes"] = count
    *before, last = data.pieces if isinstance(data, Parts) else (data,)
    return Encoded(event, Parts(*before, memoryview(last)[:-2], b',"sentBytes":%d}}' % count))


def encode(event: Event) -> bytes:
    """The JSON form of an event that this process made; an envelope in ``payload.output`` is converted.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` if a value has no form in the strict profile; the message says where.
    """
    data = encode_in_parts(event)
    return bytes(data) if type(data) is Parts else data


def encode_in_parts(event: Event) -> bytes | Parts:
    """As `encode`, for who writes the parts of a large event one after the other."""
    payload = event["payload"]
    if type(event) is Encoded and event.fields == len(payload) and event.size == len(event):
        return event.data
    output = payload.get("output")
    if isinstance(output, ResponseEnvelope):
        return _with_envelope(event, payload, output)
    return to_json(event)


def _with_envelope(event: Event, payload: dict[str, Any], output: ResponseEnvelope[Any]) -> bytes | Parts:
    """The JSON of an event with an envelope. Of the commonest kind, the data alone were made by somebody else, and
    are looked at."""
    meta, data = output.meta, output.data
    is_local = type(meta) is LocalResponseMeta and type(data) not in _BYTES
    if not (is_local and type(meta.operation_id) is str and type(meta.timestamp) is int):
        return to_json({**event, "payload": {**payload, "output": output.to_wire()}})
    said = {"source": "local", "operationId": meta.operation_id, "timestamp": meta.timestamp}
    inner = to_json(data)
    is_large = len(inner) > _LARGE
    # In place: a copy of both would cost as much as the rest.
    payload["output"] = {"data": msgspec.Raw(_HOLE if is_large else inner), "meta": said}
    try:
        text = _encode(event)
        if not is_large:
            return text
        before, _, after = text.partition(_HOLE)
        return Parts(before, inner, after)
    except ValueError as error:  # an id with half of a surrogate pair
        raise no_json_form(error) from error
    finally:
        payload["output"] = output


def encode_checked(event: Event) -> bytes:
    """As `encode`, for an event that came out of `decode`: nothing in it needs a check."""
    return _encode(event)


def decode(data: bytes | bytearray | memoryview | str) -> Event:
    """The event of a JSON text.

    Raises:
        ProtocolError: the text is not JSON of the strict profile, or not an event.
    """
    try:
        value = from_json(data)
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    if type(value) is dict and type(value.get("type")) is str and type(value.get("payload")) is dict:
        return value
    return checked(value)


def checked(event: Any) -> Event:
    """``event``, if it has the shape of one. Raises `ProtocolError`."""
    if type(event) is not dict:
        raise ProtocolError(f"expected an object with type and payload, got {type(event).__name__}")
    if type(event.get("type")) is not str:
        raise ProtocolError(f"$.type: expected a string, got {type(event.get('type')).__name__}")
    if type(event.get("payload")) is not dict:
        raise ProtocolError(f"$.payload: expected an object, got {type(event.get('payload')).__name__}")
    return event

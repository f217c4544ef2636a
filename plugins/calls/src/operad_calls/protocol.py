"""The events of the call protocol, and their encoding as JSON.

An event is ``{"type": str, "id": str, "payload": dict}``, JSON in UTF-8. The original protocol has four types:
``call.requested``, ``call.responded``, ``call.error`` and ``call.aborted``. Their shapes never change.
``call.completed`` and ``call.credit`` are additions; each side also works with a peer that does not know them.
Unknown types and fields are ignored. The JSON follows the strict profile of `operad.wire`.
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
"""The event of a transport, never of a peer, that reports that ``payload.peer`` was lost."""
STORED = "link.stored"
"""The event of a transport, never of a peer, that reports that the request ``payload.requestId`` is stored."""
REGISTERED = "link.registered"
"""The reply to a registration: ``payload.topics``, and ``payload.refused`` with ``{topic, reason}``. A link that
registers again after a lost connection passes it on. A refused topic is not served until a reply accepts it."""

CHANGED = "operad.changed"
"""The topic and type of the event that reports that the operations of the handler ``payload.instance`` changed."""
DISCOVER = "operad.discover"
"""The operation that every handler serves, and the only operation that can be called at ``all:``."""

MAX_ID_LENGTH = 512
"""The maximum length of a request id, in characters."""


class ProtocolError(ValueError):
    """Raised if a message is not an event of the call protocol. The text states what was expected and where."""


def error_event(request_id: str, code: str, message: str = "", details: Any = None) -> Event:
    """Return a ``call.error`` for a request. ``details`` is any JSON value; it is left out if ``None``."""
    payload: dict[str, Any] = {"requestId": request_id, "code": str(code), "message": message}
    if details is not None:
        payload["details"] = details
    return {"type": ERROR, "id": "", "payload": payload}


def call_error(payload: Mapping[str, Any]) -> CallError:
    """Return the error in the payload of a ``call.error``. If it has no code, the result is ``UNKNOWN_ERROR``."""
    code, message, details = payload.get("code"), payload.get("message"), payload.get("details")
    if not isinstance(code, str) or not code:
        return CallError(ErrorCode.UNKNOWN_ERROR, "the peer sent an error without a code", {"raw": dict(payload)})
    error = CallError(code, "" if message is None else str(message), details)
    if error.says_nothing_ran:  # such a code of a nested call does not leave a handler (`out_of_handler`)
        error.ran = False
    return error


# --- the codec -------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode
_LARGE = 16 * 1024
"""The size in bytes above which the JSON of data is sent as a separate part instead of being copied."""
_HOLE = b"\0"
"""A placeholder: JSON never has this byte."""
_BYTES = (bytes, bytearray, memoryview)


@final
class Parts:
    """A JSON text in parts that are written one after the other, so that a large text is never copied."""

    __slots__ = ("pieces", "size")

    def __init__(self, *pieces: bytes | memoryview) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)


class Encoded(Event):
    """An event with its JSON. It was encoded to count its bytes, and `encode` does not encode it again."""

    __slots__ = ("data", "fields", "size")

    def __init__(self, event: Event, data: bytes | Parts) -> None:
        dict.__init__(self, event)  # every event on a wire is one of these, and super() takes longer
        self.data = data
        """The JSON. It is ignored if a link has added or removed a field since."""
        self.size, self.fields = len(event), len(event["payload"])

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is a plain event: a tap may keep one, and views of its JSON cannot be copied.
        return dict, (dict(self),)


def with_sent_bytes(event: Event, data: bytes | Parts, count: int) -> Encoded:
    """Set ``payload.sentBytes`` of an event to ``count``, and return it. ``data`` is its JSON before that."""
    event["payload"]["sentBytes"] = count
    *before, last = data.pieces if isinstance(data, Parts) else (data,)
    return Encoded(event, Parts(*before, memoryview(last)[:-2], b',"sentBytes":%d}}' % count))


def encode(event: Event) -> bytes:
    """Return the JSON of an event that this process made. A `ResponseEnvelope` in its output is converted.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` if a value has no JSON form; the message states why.
    """
    data = encode_in_parts(event)
    return bytes(data) if type(data) is Parts else data


def encode_in_parts(event: Event) -> bytes | Parts:
    """Return the JSON of an event, as `Parts` if its data exceed 16 KiB. Raises the same errors as `encode`."""
    payload = event["payload"]
    if type(event) is Encoded and event.fields == len(payload) and event.size == len(event):
        return event.data
    output = payload.get("output")
    if isinstance(output, ResponseEnvelope):
        return _with_envelope(event, payload, output)
    return to_json(event)


def _with_envelope(event: Event, payload: dict[str, Any], output: ResponseEnvelope[Any]) -> bytes | Parts:
    """Return the JSON of an event with an envelope. If the envelope is local, only its data are checked."""
    meta, data = output.meta, output.data
    is_local = type(meta) is LocalResponseMeta and type(data) not in _BYTES
    if not (is_local and type(meta.operation_id) is str and type(meta.timestamp) is int):
        return to_json({**event, "payload": {**payload, "output": output.to_wire()}})
    fields = {"source": "local", "operationId": meta.operation_id, "timestamp": meta.timestamp}
    inner = to_json(data)
    is_large = len(inner) > _LARGE
    # In place: copying both would take as long as the rest.
    payload["output"] = {"data": msgspec.Raw(_HOLE if is_large else inner), "meta": fields}
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
    """Return the JSON of an event that `decode` returned, without checking its values."""
    return _encode(event)


def decode(data: bytes | bytearray | memoryview | str) -> Event:
    """Return the event in a JSON text. Raises `ProtocolError` if the text is not strict JSON or not an event."""
    try:
        value = from_json(data)
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    return checked(value)


def checked(event: Any) -> Event:
    """Return ``event`` if it has a ``type`` (str) and a ``payload`` (dict), else raise `ProtocolError`."""
    if type(event) is not dict:
        raise ProtocolError(f"expected an object with type and payload, got {type(event).__name__}")
    if type(event.get("type")) is not str:
        raise ProtocolError(f"$.type: expected a string, got {type(event.get('type')).__name__}")
    if type(event.get("payload")) is not dict:
        raise ProtocolError(f"$.payload: expected an object, got {type(event.get('payload')).__name__}")
    return event

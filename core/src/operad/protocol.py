"""The events of the call protocol, and the codec with its strict JSON profile.

An event is ``{"type": str, "id": str, "payload": dict}``, JSON in UTF-8. Four types make the original protocol
(``call.requested``, ``call.responded``, ``call.error``, ``call.aborted``), whose shapes never change;
``call.completed`` and ``call.credit`` are additions, and each side works when the other one lacks them.
Unknown types and fields are ignored.

The profile is narrower than what JSON parsers accept, so that every parser reads the same value: no NaN or
infinity, integers exact (up to 4,300 digits), keys are unique strings, text is valid Unicode, and nothing but
JSON's own types (RFC 8259, RFC 7493).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, final

from operad.envelopes import LocalResponseMeta, ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.transports import Event

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


def _encode_first(value: Any) -> bytes:
    _begin()
    return _encode(value)


def _decode_first(data: bytes | bytearray | memoryview) -> Any:
    _begin()
    return _decode(data)


def _raw_first(data: bytes) -> Any:
    _begin()
    return _raw(data)


def _begin() -> None:
    global _encode, _decode, _raw
    import msgspec

    _encode, _decode, _raw = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode, msgspec.Raw


# msgspec's, imported with the first JSON: calls within a process need none.
_encode: Callable[[Any], bytes] = _encode_first
_decode: Callable[[bytes | bytearray | memoryview], Any] = _decode_first
_raw: Callable[[bytes], Any] = _raw_first
_HOLE = b"\0"
"""Stands for what is put into a text later: JSON has no such byte."""
_BYTES = (bytes, bytearray, memoryview)
_SIMPLE = frozenset({str, int, bool, type(None)})


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
    payload["output"] = {"data": _raw(_HOLE if is_large else inner), "meta": said}
    try:
        text = _encode(event)
        if not is_large:
            return text
        before, _, after = text.partition(_HOLE)
        return Parts(before, inner, after)
    except _FORMLESS as error:  # an id with half of a surrogate pair
        raise _no_form(error) from error
    finally:
        payload["output"] = output


def to_json(value: Any) -> bytes:
    """The JSON form of a value that this process made, in UTF-8 and without white space.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` if a value has no form in the strict profile; the message says where.
    """
    try:
        data = _encode(value)
        if len(data) > _LARGE and _parts_of(value, len(data) // _EACH) is not None:
            return data
        # Where the encoder bent a value (NaN to null, a set to a list), it comes back as another one. Comparing
        # costs a fifth of looking at each value; a tuple comes back as a list, and is looked at.
        if _decode(data) != value:
            _check(value)
        return data
    except _FORMLESS as error:
        raise _no_form(error) from error


_FORMLESS = (RecursionError, TypeError, ValueError, OverflowError)  # UnicodeEncodeError is a ValueError


def _no_form(error: Exception) -> CallError:
    is_deep = isinstance(error, RecursionError)
    why = "a value is nested too deeply for JSON" if is_deep else f"a value has no JSON form: {error}"
    return CallError(ErrorCode.SERIALIZATION_ERROR, why)


def encode_checked(event: Event) -> bytes:
    """As `encode`, for an event that came out of `decode`: nothing in it needs a check."""
    return _encode(event)


def decode(data: bytes | bytearray | memoryview | str) -> Event:
    """The event of a JSON text.

    Raises:
        ProtocolError: the text is not JSON of the strict profile, or not an event.
    """
    value = from_json(data)
    if type(value) is dict and type(value.get("type")) is str and type(value.get("payload")) is dict:
        return value
    return checked(value)


def from_json(data: bytes | bytearray | memoryview | str) -> Any:
    """The value of a JSON text of the strict profile: a key that is there twice is an error.

    Raises:
        ProtocolError: the text is not JSON of the strict profile.
    """
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError as error:
            raise ProtocolError(f"not valid Unicode: {error}") from None
    try:
        value = _decode(data)
        parts = _parts_of(value, len(data) // _EACH) if len(data) > _LARGE else None
        if parts is not None and _is_shortest(len(data), *parts):
            return value
        if type(data) is memoryview:
            data = bytes(data)  # a view is compared item by item, which takes as long as all the rest
        if parts is not None and not _has_colons(data, len(parts[0]) + 1):
            return value
        # What a compact writer wrote comes out the same again; anything else might hide a key that is there twice.
        compact = _encode(value)
        if compact != data and _members(data) != (_members(compact) if parts is None else len(parts[0])):
            if len(data) > _NAMED:
                raise ProtocolError("a key is there twice in one object")
            json.loads(bytes(data), object_pairs_hook=_unique)  # which takes long, and names the key
    except RecursionError:
        raise ProtocolError("nested too deeply") from None
    except ProtocolError:
        raise
    except ValueError as error:  # msgspec.DecodeError, UnicodeDecodeError
        raise ProtocolError(f"not JSON of the strict profile: {error}") from None
    return value


def checked(event: Any) -> Event:
    """``event``, if it has the shape of one. Raises `ProtocolError`."""
    if type(event) is not dict:
        raise ProtocolError(f"expected an object with type and payload, got {type(event).__name__}")
    if type(event.get("type")) is not str:
        raise ProtocolError(f"$.type: expected a string, got {type(event.get('type')).__name__}")
    if type(event.get("payload")) is not dict:
        raise ProtocolError(f"$.payload: expected an object, got {type(event.get('payload')).__name__}")
    return event


_NAMED = 64 * 1024
"""Bytes of a text up to which a key that is there twice is named: to find it takes 0.3 s for each MB."""
_LARGE = 16 * 1024
"""Bytes of a text from which on it is worth a look whether it has few values."""
_EACH = 1024
"""Bytes of a text for each of its values, on average, from which on it is quicker to look at each of them."""


def _parts_of(value: Any, most: int) -> tuple[list[str], list[Any]] | None:
    """The keys of all objects in a value, and all values in it.

    ``None`` where it has more than ``most`` values, or one of which an encoder would make something else.
    """
    keys: list[str] = []
    values = [value]
    for item in values:  # which grows meanwhile
        kind = type(item)
        if kind is dict or kind is list:
            if len(values) + len(item) > most:
                return None
            if kind is list:
                values += item
            elif all(type(key) is str for key in item):
                keys += item
                values += item.values()
            else:
                return None
        elif kind not in _SIMPLE and not (kind is float and item - item == 0):
            return None
    return keys, values


def _is_shortest(size: int, keys: list[str], values: list[Any]) -> bool:
    """Whether no JSON text of these parts has fewer bytes: one of this size then has no room for a key that is
    twice. Not so where an escape, white space or another form of a number takes room."""
    least = sum(map(_bytes_of, keys)) + len(keys)  # with their colons
    for item in values:
        kind = type(item)
        if kind is str:
            least += _bytes_of(item)
        elif kind is dict or kind is list:
            least += 1 + (len(item) or 1)  # brackets, and commas
        elif kind is float:
            if abs(item) < 0.1 or item.is_integer():
                return False  # 0.00001 is 1e-5 as well, 1000000.0 is 1e6
            least += len(repr(item))
        elif kind is int and item.bit_length() > 64:
            return False  # to write thousands of digits takes four times as long as to read them
        else:
            least += 5 if item is False else 4 if item is None or item is True else len(str(item))
    return size == least


def _has_colons(text: bytes | bytearray, count: int) -> bool:
    """Whether there are so many; a text that has one for each of its keys alone has room for no other key."""
    at = -1
    for _ in range(count):
        at = text.find(b":", at + 1)  # to count them all takes thirty times as long
        if at < 0:
            return False
    return True


def _bytes_of(text: str) -> int:
    """The least that a JSON string takes."""
    return 2 + (len(text) if text.isascii() else len(text.encode()))


def _members(text: bytes | bytearray | memoryview) -> int:
    """How many members the objects of a JSON text have: its colons, but for those in strings."""
    data = bytes(text)
    if b"\\" in data:  # in strings alone, where it may hide the quote that ends one
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2]).count(b":")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # set.add is the "remember it" of the scan
        raise ProtocolError(f'the key "{twice}" is there twice in one object')
    return made


def _check(value: Any) -> None:
    """Raise `CallError` unless ``value`` is of the strict profile. What an encoder would bend is refused here."""
    kind = type(value)
    if kind in _SIMPLE:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(f"the key {key!r} is no string")
            _check(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item)
    elif isinstance(value, float):
        if value - value != 0:
            _refuse(f"{value} is no JSON number")
    elif not isinstance(value, (str, int)):
        _refuse(f"{kind.__name__} is no JSON type")


def _refuse(why: str) -> NoReturn:
    raise CallError(ErrorCode.SERIALIZATION_ERROR, f"a value has no JSON form: {why}", {"reason": why})

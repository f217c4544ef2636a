"""Format and escape values as the text of URLs, headers and cookies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

Encoder = Callable[[Any], str | None]


class SerializationError(ValueError):
    """The error for a value that cannot be sent in a request; the message states why."""


RESERVED = ":/?#[]@!$&'()*+,;="
_TRIPLE = re.compile(r"(%[0-9A-Fa-f]{2})")
_HEADER_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_COOKIE_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f;\ud800-\udfff]")

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
encode_ascii_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def percent_encode(text: str) -> str:
    """Return ``text`` with every byte outside the unreserved set (RFC 3986, 2.3) as ``%XX``.

    Raises `SerializationError` if the text contains half of a surrogate pair.
    """
    if text.isascii() and text.isalnum():
        return text
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise SerializationError("expected Unicode text for a URL, got half of a surrogate pair") from error


def reserved_encoder(allowed: str) -> Callable[[str], str]:
    """Return an encoder for reserved expansion (RFC 6570, 3.2.3), which keeps ``%XX`` and ``allowed``."""

    def encode(text: str) -> str:
        pieces = _TRIPLE.split(text)
        try:
            pieces[::2] = [quote(piece, safe=allowed) for piece in pieces[::2]]
        except UnicodeEncodeError as error:
            raise SerializationError("expected Unicode text for a URL, got half of a surrogate pair") from error
        return "".join(pieces)

    return encode


# Characters that would end the component of the value are always encoded: a "#" in a query (or a "/",
# "?" or "#" in a path) would never reach the server.
encode_reserved_query = reserved_encoder(RESERVED.replace("#", ""))
encode_reserved_path = reserved_encoder(re.sub(r"[/?#\[\]]", "", RESERVED))


def text_of(value: Any) -> str:
    """Return a value as text: exact integers, shortest floats, ``true``, ``false``, ``null``, else JSON.

    Raises `SerializationError` for NaN and infinity, and for values that JSON does not have.
    """
    if isinstance(value, str):
        return str(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return integer_text(value)
    if isinstance(value, float):
        if value - value != 0:
            raise SerializationError(f"expected a finite number, got {value}")
        return repr(value)
    if value is None:
        return "null"
    try:
        return encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"{type(value).__name__} cannot be converted to JSON: {error}") from error


def integer_text(value: int) -> str:
    """Return all decimal digits of an integer. Raises `SerializationError` beyond Python's limit of digits."""
    try:
        return int.__repr__(value)
    except ValueError as error:  # CPython's bound on the digits of an int
        raise SerializationError(f"the integer is too long: {error}") from error


def is_array(value: Any) -> bool:
    """Return True if ``value`` is a list or tuple, which is sent as an array."""
    return isinstance(value, (list, tuple))


def defined_members(value: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return the members of an object that are not null."""
    return [(str(key), item) for key, item in value.items() if item is not None]


def defined_items(value: Sequence[Any]) -> list[Any]:
    """Return the items of an array that are not null."""
    return [item for item in value if item is not None]


def check_header_value(text: str) -> str:
    """Return ``text`` unchanged. Raises `SerializationError` for a character that a header cannot contain."""
    if match := _HEADER_FORBIDDEN.search(text):
        raise SerializationError(f"expected a header value without the character {match[0]!r}; remove it")
    return text


def check_cookie_text(text: str) -> str:
    """Return ``text`` unchanged. Raises `SerializationError` for a character that a cookie cannot contain."""
    if match := _COOKIE_FORBIDDEN.search(text):
        raise SerializationError(f"expected a cookie without the character {match[0]!r}; remove it")
    return text

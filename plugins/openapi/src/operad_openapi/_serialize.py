"""How parameter values become path segments, query strings, headers and cookies.

Sources: OpenAPI 3.0.4, 3.1.1 and 3.2.0, "Parameter Object" and "Style Values"; RFC 6570 (URI Template), to
which they defer; Swagger 2.0, "collectionFormat".

`compile_parameter` turns a normalised parameter into an encoder once; calls only run the encoder. An encoder
returns ``None`` for what RFC 6570 calls undefined: null, and arrays and objects without a defined member.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import attrs

Encoder = Callable[[Any], str | None]


class SerializationError(ValueError):
    """A value has no serialisation as this parameter; the message says why."""


@attrs.frozen
class Parameter:
    """A parameter in normal form, whatever the version of its document."""

    name: str
    location: str
    """``path``, ``query``, ``header``, ``cookie`` or ``querystring``."""
    schema: Any = True
    required: bool = False
    style: str | None = None
    """``None``: the default of the location."""
    explode: bool | None = None
    """``None``: the default of the style."""
    allow_reserved: bool = False
    content_type: str | None = None
    """The media type of a ``content`` parameter."""
    collection_format: str | None = None
    """Swagger 2.0's; it replaces style and explode."""
    item_formats: tuple[str, ...] = ()
    """Swagger 2.0's collection formats of arrays within the array, outermost first."""
    description: str = ""
    deprecated: bool = False


_DEFAULT_STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
_STYLES = {
    "path": {"simple", "label", "matrix"},
    "header": {"simple"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "cookie": {"form", "cookie"},
}
_RESERVED = ":/?#[]@!$&'()*+,;="
_TRIPLE = re.compile(r"(%[0-9A-Fa-f]{2})")
_HEADER_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_COOKIE_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f;\ud800-\udfff]")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_COLLECTION_DELIMITERS = {"csv": ",", "ssv": " ", "tsv": "\t", "pipes": "|", "multi": ","}

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def percent_encode(text: str) -> str:
    """``text`` with every byte outside RFC 3986's unreserved set as ``%XX``."""
    if text.isascii() and text.isalnum():
        return text
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise SerializationError("the text holds half of a surrogate pair, which no URL can carry") from error


def _reserved_encoder(allowed: str) -> Callable[[str], str]:
    """RFC 6570's reserved expansion: ``allowed`` and ``%XX`` pass, anything else is encoded."""

    def encode(text: str) -> str:
        pieces = _TRIPLE.split(text)
        try:
            pieces[::2] = [quote(piece, safe=allowed) for piece in pieces[::2]]
        except UnicodeEncodeError as error:
            raise SerializationError("the text holds half of a surrogate pair") from error
        return "".join(pieces)

    return encode


# What would end the component in which the value stands is encoded all the same: a "#" in a query (or a "/",
# "?" or "#" in a path) that a server never sees is nobody's wish.
_encode_reserved_query = _reserved_encoder(_RESERVED.replace("#", ""))
_encode_reserved_path = _reserved_encoder(re.sub(r"[/?#\[\]]", "", _RESERVED))


def text_of(value: Any) -> str:
    """The text of a primitive: exact integers, shortest floats, ``true`` and ``false``, JSON for the rest."""
    if isinstance(value, str):
        return str(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return _integer_text(value)
    if isinstance(value, float):
        if value - value != 0:
            raise SerializationError(f"expected a finite number, got {value!r}")
        return repr(value)
    if value is None:
        return "null"
    try:
        return encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"{type(value).__name__} has no JSON form: {error}") from error


def _integer_text(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError as error:  # CPython's bound on the digits of an int
        raise SerializationError(f"the integer is too long: {error}") from error


def _is_array(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _members(value: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    return [(str(key), item) for key, item in value.items() if item is not None]


def _items(value: Sequence[Any]) -> list[Any]:
    return [item for item in value if item is not None]


def _flat(value: Any, encode: Callable[[str], str], delimiter: str, pair: str | None) -> str | None:
    """One string for ``value``; ``pair`` joins name and value of a member, ``None`` lists them in turn."""
    if value.__class__ is int:
        return _integer_text(value)  # nothing in it that needs encoding
    if isinstance(value, str):
        return encode(text_of(value))
    if value is None:
        return None
    if _is_array(value):
        items = [encode(text_of(item)) for item in _items(value)]
        return delimiter.join(items) if items else None
    if isinstance(value, Mapping):
        members = [(encode(key), encode(text_of(item))) for key, item in _members(value)]
        if not members:
            return None
        joint = delimiter if pair is None else pair
        return delimiter.join([key + joint + item for key, item in members])
    return encode(text_of(value))


def _pairs(
    name: str, value: Any, encode: Callable[[str], str], encode_name: Callable[[str], str] = percent_encode
) -> list[str]:
    """``name=value`` fragments of an exploded value."""
    if isinstance(value, (str, int, float)):
        return [f"{name}={encode(text_of(value))}"]
    if value is None:
        return []
    if _is_array(value):
        return [f"{name}={encode(text_of(item))}" for item in _items(value)]
    if isinstance(value, Mapping):
        return [f"{encode_name(key)}={encode(text_of(item))}" for key, item in _members(value)]
    return [f"{name}={encode(text_of(value))}"]


def deep_pairs(name: str, value: Any, encode: Callable[[str], str] = percent_encode) -> list[str]:
    """``deepObject``, and what OpenAPI leaves open as Rack, qs and PHP do it.

    ``name`` is encoded already. Members are ``a[b]``, deeper ones ``a[b][c]``, items ``a[]``, and items that
    are objects or arrays themselves ``a[0][b]``.
    """
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [
            pair
            for key, item in _members(value)
            for pair in deep_pairs(f"{name}%5B{percent_encode(key)}%5D", item, encode)
        ]
    if _is_array(value):
        items = _items(value)
        nested = any(isinstance(item, (Mapping, list, tuple)) for item in items)
        return [
            pair
            for index, item in enumerate(items)
            for pair in deep_pairs(f"{name}%5B{index if nested else ''}%5D", item, encode)
        ]
    return [f"{name}={encode(text_of(value))}"]


def _join(fragments: list[str], delimiter: str = "&") -> str | None:
    return delimiter.join(fragments) if fragments else None


def compile_parameter(parameter: Parameter) -> Encoder:
    """The encoder of ``parameter``.

    What it returns is the text in place of ``{name}`` for a path parameter, whole ``name=value&…`` fragments
    for a query or cookie parameter (``; `` between those of a cookie), and the value of a header.

    Raises:
        SerializationError: the parameter itself cannot be used (a header's name that is no token, say).
    """
    location = parameter.location
    if location == "header" and not _TOKEN.match(parameter.name):
        raise SerializationError(f"{parameter.name!r} is not a header name")
    if parameter.content_type is not None:
        return _content_encoder(parameter)
    if parameter.collection_format is not None:
        return _collection_encoder(parameter)
    style = parameter.style
    if style not in _STYLES[location]:
        style = _DEFAULT_STYLES[location]
    explode = parameter.explode
    if explode is None:
        explode = style in ("form", "cookie")
    if location == "path":
        return _path_encoder(parameter, style, explode)
    if location == "header":
        return _header_encoder("=" if explode else None)
    if location == "cookie":
        return _cookie_encoder(parameter, style, explode)
    return _query_encoder(parameter, style, explode)


def _path_encoder(parameter: Parameter, style: str, explode: bool) -> Encoder:
    encode = _encode_reserved_path if parameter.allow_reserved else percent_encode
    pair = "=" if explode else None
    if style == "simple":
        return lambda value: _flat(value, encode, ",", pair)
    if style == "label":

        def label(value: Any) -> str | None:
            text = _flat(value, encode, "." if explode else ",", pair)
            return None if text is None else "." + text

        return label
    name = percent_encode(parameter.name)

    def matrix(value: Any) -> str | None:
        if explode:
            fragments = _pairs(name, value, encode)
        else:
            text = _flat(value, encode, ",", None)
            fragments = [] if text is None else [f"{name}={text}"]
        # RFC 6570 3.2.7: ";" leaves out the "=" of an empty value.
        return "".join([";" + fragment.removesuffix("=") for fragment in fragments]) or None

    return matrix


def _query_encoder(parameter: Parameter, style: str, explode: bool) -> Encoder:
    name = percent_encode(parameter.name)
    encode = _encode_reserved_query if parameter.allow_reserved else percent_encode
    if style == "deepObject":
        return lambda value: _join(deep_pairs(name, value, encode))
    if explode:

        def exploded(value: Any) -> str | None:
            if value.__class__ is int:
                return f"{name}={_integer_text(value)}"  # nothing in it that needs encoding
            if isinstance(value, str):
                return f"{name}={encode(text_of(value))}"
            return _join(_pairs(name, value, encode))

        return exploded
    delimiter = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}[style]

    def delimited(value: Any) -> str | None:
        text = _flat(value, encode, delimiter, None)
        return None if text is None else f"{name}={text}"

    return delimited


def _header_encoder(pair: str | None) -> Encoder:
    def header(value: Any) -> str | None:
        text = _flat(value, str, ",", pair)
        return None if text is None else check_header_value(text)

    return header


def check_header_value(text: str) -> str:
    """``text`` as it is. Raises `SerializationError` if it would end the header or cannot stand in one."""
    if match := _HEADER_FORBIDDEN.search(text):
        raise SerializationError(f"a header value must not hold the character {match[0]!r}")
    return text


def _cookie_encoder(parameter: Parameter, style: str, explode: bool) -> Encoder:
    if style == "form":
        name = percent_encode(parameter.name)
        encode: Callable[[str], str] = percent_encode
        if parameter.allow_reserved:
            encode = _reserved_encoder(_RESERVED.replace(";", ""))
    else:
        name, encode = check_cookie_text(parameter.name), check_cookie_text

    def cookie(value: Any) -> str | None:
        if explode:
            return _join(_pairs(name, value, encode, encode), "; ")
        text = _flat(value, encode, ",", None)
        return None if text is None else f"{name}={text}"

    return cookie


def check_cookie_text(text: str) -> str:
    """``text`` as it is. Raises `SerializationError` if it would end the cookie or the header."""
    if match := _COOKIE_FORBIDDEN.search(text):
        raise SerializationError(f"a cookie must not hold the character {match[0]!r}")
    return text


@lru_cache(maxsize=1024)
def is_json(media_type: str) -> bool:
    """Whether ``media_type`` (without parameters, lower case) is JSON or one of the ``+json`` family."""
    return media_type == "application/json" or media_type.endswith("+json") or media_type == "text/json"


@lru_cache(maxsize=1024)
def essence(content_type: str) -> str:
    """The media type without parameters, in lower case (RFC 9110, 8.3.1)."""
    return content_type.partition(";")[0].strip().lower()


def form_encode(value: Any) -> str:
    """``application/x-www-form-urlencoded`` of an object: arrays repeat, nested objects are JSON."""
    if not isinstance(value, Mapping):
        raise SerializationError(f"expected an object, got {type(value).__name__}")
    return "&".join(
        fragment for key, item in _members(value) for fragment in form_pairs(percent_encode(key), item)
    )


def form_pairs(name: str, value: Any) -> list[str]:
    """The fragments of one form field, ``name`` encoded already."""
    if value is None:
        return []
    if _is_array(value):
        return [f"{name}={percent_encode(text_of(item))}" for item in _items(value)]
    return [f"{name}={percent_encode(text_of(value))}"]


def _content_text(content_type: str, value: Any, *, ascii_only: bool = False) -> str:
    media_type = essence(content_type)
    if media_type == "application/x-www-form-urlencoded":
        return form_encode(value)
    if is_json(media_type) or not isinstance(value, str):
        try:
            return _encode_ascii_json(value) if ascii_only else encode_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"{type(value).__name__} has no JSON form: {error}") from error
    return value


def _content_encoder(parameter: Parameter) -> Encoder:
    content_type = parameter.content_type or ""
    location, name = parameter.location, percent_encode(parameter.name)
    is_form = essence(content_type) == "application/x-www-form-urlencoded"

    def content(value: Any) -> str | None:
        if value is None:
            return None
        text = _content_text(content_type, value, ascii_only=location == "header")
        if location == "header":
            return check_header_value(text)
        if location == "querystring":
            # The whole query: a form is one already, all else is encoded into it.
            return (text if is_form else percent_encode(text)) or None
        text = percent_encode(text)
        return text if location == "path" else f"{name}={text}"

    return content


def _collection_encoder(parameter: Parameter) -> Encoder:
    """Swagger 2.0: arrays by ``collectionFormat``, everything else as text."""
    location, name = parameter.location, percent_encode(parameter.name)
    encode: Callable[[str], str] = str if location == "header" else percent_encode
    outer = parameter.collection_format or "csv"
    formats = (outer, *parameter.item_formats)

    def joined(value: Any, level: int) -> str:
        if not _is_array(value):
            return encode(text_of(value))
        delimiter = _COLLECTION_DELIMITERS.get(formats[level] if level < len(formats) else "csv", ",")
        # A comma is a legal delimiter in a URL, the other three are not.
        if location != "header" and delimiter != ",":
            delimiter = percent_encode(delimiter)
        return delimiter.join([joined(item, level + 1) for item in _items(value)])

    def collection(value: Any) -> str | None:
        if value is None or (_is_array(value) and not _items(value)):
            return None
        if location == "query" and outer == "multi" and _is_array(value):
            return _join([f"{name}={joined(item, 1)}" for item in _items(value)])
        text = joined(value, 0)
        if location == "header":
            return check_header_value(text)
        return text if location == "path" else f"{name}={text}"

    return collection


_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class PathTemplate:
    """A path with placeholders, filled in a single pass.

    A ``#fragment`` of the template is dropped; a fixed ``?query`` becomes `query`.

    Attributes:
        names: the placeholders, in order.
        query: the fixed query, encoded, or ``""``.
    """

    __slots__ = ("_pieces", "_rest", "names", "query")

    def __init__(self, template: str) -> None:
        path, _, _ = template.partition("#")
        path, _, query = path.partition("?")
        self.query = quote(query, safe="%" + _RESERVED)
        # Per segment with placeholders: the fixed segments before it; then its own parts, fixed texts at even
        # places, names of placeholders at odd ones.
        self._pieces: list[tuple[str, list[str]]] = []
        names: list[str] = []
        fixed = ""
        for number, segment in enumerate(path.split("/")):
            parts = _PLACEHOLDER.split(segment)
            parts[::2] = [quote(part, safe="%:@!$&'()*+,;=") for part in parts[::2]]
            if number:
                fixed += "/"
            if len(parts) == 1:
                fixed += parts[0]
                continue
            names += parts[1::2]
            self._pieces.append((fixed, parts))
            fixed = ""
        self._rest = fixed
        self.names = tuple(dict.fromkeys(names))

    def fill(self, values: Mapping[str, str]) -> str:
        """The path with the encoded ``values`` in place.

        Raises:
            SerializationError: a segment would be empty, ``.`` or ``..``, by which a value could reach
                another resource than the one that the document describes.
        """
        path = ""
        for fixed, parts in self._pieces:
            if len(parts) == 3:
                segment = parts[0] + values[parts[1]] + parts[2]
            else:
                segment = "".join([values[part] if index % 2 else part for index, part in enumerate(parts)])
            # "%2E%2E" is the longest text of dots.
            if len(segment) <= 6 and segment.strip("%2Ee.") == "":
                self._refuse_dots(segment, parts)
            path += fixed + segment
        return path + self._rest

    @staticmethod
    def _refuse_dots(segment: str, parts: list[str]) -> None:
        if segment.replace("%2E", ".").replace("%2e", ".") in ("", ".", ".."):
            raise SerializationError(
                f'the path segment {{{"}{".join(parts[1::2])}}} would be "{segment}"; '
                'expected a value that is not empty, "." or ".."'
            )

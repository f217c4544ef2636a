"""Encode values of parameters as path segments, query strings, headers and cookies.

Sources: OpenAPI 3.0.4, 3.1.1 and 3.2.0, "Parameter Object" and "Style Values"; RFC 6570 (URI Template), to
which they defer; Swagger 2.0, "collectionFormat".

`compile_parameter` turns a parameter into an encoder once; calls only run the encoder. An encoder returns ``None``
for values that RFC 6570 calls undefined: null, and arrays and objects without a defined member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from operad_openapi._document.mediatypes import essence, is_json
from operad_openapi._document.parameters import Parameter, is_token
from operad_openapi._request.text import (
    RESERVED,
    Encoder,
    SerializationError,
    check_cookie_text,
    check_header_value,
    defined_items,
    defined_members,
    encode_ascii_json,
    encode_json,
    encode_reserved_path,
    encode_reserved_query,
    integer_text,
    is_array,
    percent_encode,
    reserved_encoder,
    text_of,
)

_DEFAULT_STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
_STYLES = {
    "path": {"simple", "label", "matrix"},
    "header": {"simple"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "cookie": {"form", "cookie"},
}
_COLLECTION_DELIMITERS = {"csv": ",", "ssv": " ", "tsv": "\t", "pipes": "|", "multi": ","}


def _flat(value: Any, encode: Callable[[str], str], delimiter: str, pair: str | None) -> str | None:
    """Return ``value`` as one string; ``pair`` joins name and value of a member, ``None`` lists them in turn."""
    if value.__class__ is int:
        return integer_text(value)  # nothing in it that needs encoding
    if isinstance(value, str):
        return encode(text_of(value))
    if value is None:
        return None
    if is_array(value):
        items = [encode(text_of(item)) for item in defined_items(value)]
        return delimiter.join(items) if items else None
    if isinstance(value, Mapping):
        members = [(encode(key), encode(text_of(item))) for key, item in defined_members(value)]
        if not members:
            return None
        joint = delimiter if pair is None else pair
        return delimiter.join([key + joint + item for key, item in members])
    return encode(text_of(value))


def _pairs(
    name: str, value: Any, encode: Callable[[str], str], encode_name: Callable[[str], str] = percent_encode
) -> list[str]:
    """Return ``name=value`` fragments of an exploded value."""
    if isinstance(value, (str, int, float)):
        return [f"{name}={encode(text_of(value))}"]
    if value is None:
        return []
    if is_array(value):
        return [f"{name}={encode(text_of(item))}" for item in defined_items(value)]
    if isinstance(value, Mapping):
        return [f"{encode_name(key)}={encode(text_of(item))}" for key, item in defined_members(value)]
    return [f"{name}={encode(text_of(value))}"]


def deep_pairs(name: str, value: Any, encode: Callable[[str], str] = percent_encode) -> list[str]:
    """Return the fragments of a value in the style ``deepObject``, written as Rack, qs and PHP write them.

    ``name`` must be encoded already. Members are written as ``a[b]``, deeper members as ``a[b][c]``, items as
    ``a[]``, and items that are objects or arrays as ``a[0][b]``.
    """
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [
            pair
            for key, item in defined_members(value)
            for pair in deep_pairs(f"{name}%5B{percent_encode(key)}%5D", item, encode)
        ]
    if is_array(value):
        items = defined_items(value)
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
    """Return the encoder of ``parameter``.

    The encoder returns the text that replaces ``{name}`` for a path parameter, whole ``name=value&…`` fragments
    for a query parameter (separated by ``; `` for a cookie), and the value for a header; ``None`` to send nothing.

    Raises:
        SerializationError: the name of a header is not a token, or the name of a cookie cannot be sent.
    """
    location = parameter.location
    if location == "header" and not is_token(parameter.name):
        raise SerializationError(f"expected the name of a header, got {parameter.name!r}")
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
    encode = encode_reserved_path if parameter.allow_reserved else percent_encode
    if parameter.keeps_slashes:
        encode_segment = encode

        def encode(text: str) -> str:
            return "/".join([encode_segment(part) for part in text.split("/")])

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
    encode = encode_reserved_query if parameter.allow_reserved else percent_encode
    if style == "deepObject":
        return lambda value: _join(deep_pairs(name, value, encode))
    if explode:

        def exploded(value: Any) -> str | None:
            if value.__class__ is int:
                return f"{name}={integer_text(value)}"  # nothing in it that needs encoding
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


def _cookie_encoder(parameter: Parameter, style: str, explode: bool) -> Encoder:
    if style == "form":
        name = percent_encode(parameter.name)
        encode: Callable[[str], str] = percent_encode
        if parameter.allow_reserved:
            encode = reserved_encoder(RESERVED.replace(";", ""))
    else:
        name, encode = check_cookie_text(parameter.name), check_cookie_text

    def cookie(value: Any) -> str | None:
        if explode:
            return _join(_pairs(name, value, encode, encode), "; ")
        text = _flat(value, encode, ",", None)
        return None if text is None else f"{name}={text}"

    return cookie


def form_encode(value: Any) -> str:
    """Return an object as ``application/x-www-form-urlencoded``: arrays repeat the name, nested objects are JSON.

    Raises `SerializationError` if ``value`` is not an object, or a member cannot be encoded.
    """
    if not isinstance(value, Mapping):
        raise SerializationError(f"expected an object of form fields, got {type(value).__name__}")
    return "&".join(
        fragment for key, item in defined_members(value) for fragment in form_pairs(percent_encode(key), item)
    )


def form_pairs(name: str, value: Any) -> list[str]:
    """Return the ``name=value`` fragments of one form field; ``name`` must be encoded already."""
    if value is None:
        return []
    if is_array(value):
        return [f"{name}={percent_encode(text_of(item))}" for item in defined_items(value)]
    return [f"{name}={percent_encode(text_of(value))}"]


def extra_pairs(name: str, value: Any) -> list[str]:
    """Return the fragments of an undeclared query parameter: arrays repeat the name, objects use `deep_pairs`."""
    encoded = percent_encode(name)
    if isinstance(value, Mapping):
        return deep_pairs(encoded, value)
    return _pairs(encoded, value, percent_encode)


def _content_text(content_type: str, value: Any, *, ascii_only: bool = False) -> str:
    media_type = essence(content_type)
    if media_type == "application/x-www-form-urlencoded":
        return form_encode(value)
    if is_json(media_type) or not isinstance(value, str):
        try:
            return encode_ascii_json(value) if ascii_only else encode_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"{type(value).__name__} cannot be converted to JSON: {error}") from error
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
    """Return the encoder for Swagger 2.0: arrays by ``collectionFormat``, other values as text."""
    location, name = parameter.location, percent_encode(parameter.name)
    encode: Callable[[str], str] = str if location == "header" else percent_encode
    outer = parameter.collection_format or "csv"
    formats = (outer, *parameter.item_formats)

    def joined(value: Any, level: int) -> str:
        if not is_array(value):
            return encode(text_of(value))
        delimiter = _COLLECTION_DELIMITERS.get(formats[level] if level < len(formats) else "csv", ",")
        # A comma is a legal delimiter in a URL, the other three are not.
        if location != "header" and delimiter != ",":
            delimiter = percent_encode(delimiter)
        return delimiter.join([joined(item, level + 1) for item in defined_items(value)])

    def collection(value: Any) -> str | None:
        if value is None or (is_array(value) and not defined_items(value)):
            return None
        if location == "query" and outer == "multi" and is_array(value):
            return _join([f"{name}={joined(item, 1)}" for item in defined_items(value)])
        text = joined(value, 0)
        if location == "header":
            return check_header_value(text)
        return text if location == "path" else f"{name}={text}"

    return collection

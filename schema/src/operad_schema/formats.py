"""The `format` keyword, checked only if the caller of `from_schema` passes `formats=True`.

In JSON Schema, a format is an annotation by default (2020-12, validation, section 7.2.1). A server should check
the formats that it publishes, because clients are generated from them.

Most checks come from small libraries, the extra `operad-schema[formats]`. Each library is imported with the first
schema that has one of its formats. All checks run in time linear in the text. `regex` is not checked, because the
time to compile an untrusted pattern has no bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from operad_schema.values import is_type


class Format(NamedTuple):
    """The check of a format, and its description in errors. Values that are not of the type `kind` are valid."""

    expected: str
    kind: str
    accepts: Callable[[Any], bool]

    def fails(self, value: Any) -> bool:
        """Return True if a value is of the format's kind but does not match the format."""
        return is_type(value, self.kind) and not self.accepts(value)


@cache
def find(name: str) -> Format:
    """Return the check of a format in `CHECKED`.

    Raises `ModuleNotFoundError` if the library that it needs is not installed.
    """
    if name in _RANGES:
        low, high = _RANGES[name]
        article = "a" if name.startswith("u") else "an"
        return Format(f"{article} {name}, {low} to {high}", "number", lambda value: low <= value <= high)
    expected, make = _TEXTS[name]
    try:
        accepts = make()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the format {name!r} needs {error.name}, which is missing: pip install 'operad-schema[formats]'",
            name=error.name,
        ) from None

    def accepts_text(text: str) -> bool:
        try:
            return accepts(text)
        except ValueError:  # raised by ipaddress, idna and jsonpointer; UnicodeError is a subclass
            return False

    return Format(expected, "string", accepts_text)


_Check = Callable[[str], bool]


def _matches(pattern: str) -> Callable[[], _Check]:
    """Return a function that makes the check of a pattern. The patterns of this module do not backtrack."""

    def make() -> _Check:
        match = re.compile(pattern, re.ASCII).fullmatch
        return lambda text: match(text) is not None

    return make


# --- dates and times --------------------------------------------------------------------------------------

_LEAP = re.compile(r"(.{11}\d\d:\d\d:)60((?:\.\d+)?(?:Z|([+-])(\d\d):(\d\d)))", re.ASCII)


def _date() -> _Check:
    is_date_time = _date_time()
    return lambda text: len(text) == 10 and is_date_time(f"{text}T00:00:00Z")


def _date_time() -> _Check:
    from rfc3339_validator import validate_rfc3339  # type: ignore[import-untyped]  # it has no types

    def accepts(text: str) -> bool:
        text = text.upper()  # RFC 3339, section 5.6: "T" and "Z" may be lower case
        if (leap := _LEAP.fullmatch(text)) is not None:
            # A leap second is inserted at the end of a day of UTC; the library does not support it.
            sign = -1 if leap[3] == "-" else 1
            offset = sign * (int(leap[4] or 0) * 60 + int(leap[5] or 0))
            if (int(text[11:13]) * 60 + int(text[14:16]) - offset) % 1440 != 1439:
                return False
            text = f"{leap[1]}59{leap[2]}"
        return text[-1:] != "\n" and bool(validate_rfc3339(text))

    return accepts


def _time() -> _Check:
    is_date_time = _date_time()
    return lambda text: is_date_time(f"1970-01-01T{text}")


_CLOCK = r"(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
_DURATION = rf"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y(?![0-9]+D))?(?:[0-9]+M)?(?:[0-9]+D)?{_CLOCK})"
"""RFC 3339 allows neither PT0.5S nor PT1H3S; ISO 8601 does, and Python's libraries write them."""


# --- hosts and addresses ----------------------------------------------------------------------------------

_LONGEST_HOST = 253
_LONGEST_LOCAL = 64
"""The maximum length of an e-mail address before its `@` (RFC 5321, section 4.5.3.1)."""
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
"""Separators of the labels of an internationalized name (RFC 3490, section 3.1)."""


def _hostname() -> _Check:
    from fqdn import FQDN

    is_idn = _idn_hostname()

    def accepts(text: str) -> bool:
        # The library's pattern accepts digits of other scripts, a line feed and a dot at the end.
        if not text.isascii() or not text or text[-1] in "\n." or len(text) > _LONGEST_HOST:
            return False
        if not FQDN(text, min_labels=1).is_valid:
            return False
        labels = text.lower().split(".")
        # A label with hyphens in its third and fourth place must be Punycode (RFC 5891, section 4.2.3.1).
        return all(label[2:4] != "--" or (label.startswith("xn--") and is_idn(label)) for label in labels)

    return accepts


def _idn_hostname() -> _Check:
    import idna

    def accepts(text: str) -> bool:
        # Every character takes at least one byte, so a longer name is rejected without searching the tables.
        return 0 < len(text) <= _LONGEST_HOST and bool(idna.encode(_DOTS.sub(".", text)))

    return accepts


def _address(version: int) -> Callable[[], _Check]:
    def make() -> _Check:
        from ipaddress import IPv4Address, IPv6Address

        # A zone is not part of the format (RFC 4291).
        made: Any = IPv4Address if version == 4 else IPv6Address
        return lambda text: text.isascii() and len(text) <= 45 and "%" not in text and bool(made(text))

    return make


_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"
_LOCAL = rf'{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*"'


def _email(*, international: bool) -> Callable[[], _Check]:
    def make() -> _Check:
        letters = _LOCAL
        if international:  # RFC 6532, 3.2: any character beyond ASCII may be in an atom or a quoted text
            letters = letters.replace("[A-Za-z", "[\x80-\U0010ffffA-Za-z").replace("[ !#", "[\x80-\U0010ffff !#")
        is_local = re.compile(letters).fullmatch
        is_host = _idn_hostname() if international else _hostname()
        is_ipv4, is_ipv6 = _address(4)(), _address(6)()

        def accepts(text: str) -> bool:
            local, at, domain = text.rpartition("@")
            text.encode()  # a lone surrogate is not a character
            if not at or len(local) > _LONGEST_LOCAL or len(domain) > _LONGEST_HOST or not is_local(local):
                return False
            if domain[:1] == "[" and domain[-1:] == "]":
                literal = domain[1:-1]
                return is_ipv6(literal[5:]) if literal[:5].upper() == "IPV6:" else is_ipv4(literal)
            return is_host(domain)

        return accepts

    return make


# --- URIs, templates and pointers -------------------------------------------------------------------------

_BEYOND_URI = re.compile(
    "[\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(f"{chr(plane * 0x10000)}-{chr(plane * 0x10000 + 0xFFFD)}" for plane in range(1, 0xE))
    + "\U000e1000-\U000efffd]"
)
"""The characters that an IRI may have and a URI may not (RFC 3987, section 2.2), without the private ones."""
_LITERALS = r'(?:[^\x00-\x20"%<>\\^`{|}\x7f-\x9f\ud800-\udfff]|%[0-9A-Fa-f]{2})*'
_TEMPLATE = re.compile(rf"{_LITERALS}(?:\{{[^{{}}]*\}}{_LITERALS})*")


def _uri(rule: str, *, international: bool = False) -> Callable[[], _Check]:
    def make() -> _Check:
        from rfc3986_validator import validate_rfc3986  # type: ignore[import-untyped]  # it has no types

        def accepts(text: str) -> bool:
            # RFC 3987, section 3.1, maps an IRI to a URI: characters that a URI does not allow are
            # percent-encoded.
            uri = _BEYOND_URI.sub("%C3%A9", text) if international else text
            return uri[-1:] != "\n" and uri.isascii() and validate_rfc3986(uri, rule=rule) is not None

        return accepts

    return make


def _uri_template() -> _Check:
    from uri_template import validate

    # The library does not check literals (RFC 6570, 2.1), and takes quadratic time for unpaired braces.
    return lambda text: _TEMPLATE.fullmatch(text) is not None and bool(validate(text))


def _json_pointer() -> _Check:
    from jsonpointer import JsonPointer, JsonPointerException

    def accepts(text: str) -> bool:
        try:
            return bool(JsonPointer(text)) or True
        except JsonPointerException:
            return False

    return accepts


def _relative_json_pointer() -> _Check:
    is_pointer = _json_pointer()
    steps = re.compile(r"(?:0|[1-9][0-9]*)(?:[+-][1-9][0-9]*)?", re.ASCII)

    def accepts(text: str) -> bool:
        found = steps.match(text)
        return found is not None and (text[found.end() :] == "#" or is_pointer(text[found.end() :]))

    return accepts


_TEXTS: dict[str, tuple[str, Callable[[], _Check]]] = {
    "date": ("a date (RFC 3339) such as 2026-01-31", _date),
    "date-time": ("a date-time (RFC 3339) such as 2026-01-31T12:00:00Z", _date_time),
    "time": ("a time with its offset (RFC 3339) such as 12:00:00Z", _time),
    "duration": ("a duration (ISO 8601) such as PT1H30M", _matches(_DURATION)),
    "email": ("an e-mail address (RFC 5321)", _email(international=False)),
    "idn-email": ("an e-mail address (RFC 6531)", _email(international=True)),
    "hostname": ("a hostname (RFC 1123)", _hostname),
    "idn-hostname": ("a hostname (RFC 5890)", _idn_hostname),
    "ipv4": ("an IPv4 address", _address(4)),
    "ipv6": ("an IPv6 address (RFC 4291)", _address(6)),
    "uri": ("a URI (RFC 3986) with its scheme", _uri("URI")),
    "uri-reference": ("a URI or a relative reference (RFC 3986)", _uri("URI_reference")),
    "iri": ("an IRI (RFC 3987) with its scheme", _uri("URI", international=True)),
    "iri-reference": ("an IRI or a relative reference (RFC 3987)", _uri("URI_reference", international=True)),
    "uri-template": ("a URI template (RFC 6570)", _uri_template),
    "uuid": ("a UUID (RFC 9562)", _matches(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")),
    "json-pointer": ("a JSON Pointer (RFC 6901)", _json_pointer),
    "relative-json-pointer": ("a relative JSON Pointer", _relative_json_pointer),
    "byte": ("base64 text (RFC 4648)", _matches(r"[A-Za-z0-9+/_\-\s]*(?:={1,2}\s*)?")),
}
_RANGES: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
CHECKED = frozenset(_TEXTS) | frozenset(_RANGES)
"""The formats that are checked; any other is an annotation."""

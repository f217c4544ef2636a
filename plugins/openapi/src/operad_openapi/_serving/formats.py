"""Formats that the document says are kept to: inputs are checked for them, and what is not checked is not said.

For JSON Schema a ``format`` is an annotation (2020-12, validation, 7.2.1), so a registry lets every text pass. Who
reads an OpenAPI document takes it for a promise, and generates clients and tests from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from operad import Schema, from_schema

Json = dict[str, Any]
_Check = Callable[[Any, str], Iterator[Json]]
"""What is wrong with a value that stands at a path."""

_DATE = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_TIME = (
    r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    r"|23:59:60(?:\.[0-9]+)?[Zz])"
)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_CLOCK = r"(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"
_LOCAL = rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*")'
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = (
    rf"(?:(?:{_H16}:){{6}}{_LS32}|::(?:{_H16}:){{5}}{_LS32}|(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}"
    rf"|(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}|(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}"
    rf"|(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}|(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}"
    rf"|(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}|(?:(?:{_H16}:){{0,6}}{_H16})?::)"
)
_PCHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_USERINFO = r"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})*@)?"
_NAME = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
_AUTHORITY = rf"//{_USERINFO}(?:\[{_IPV6}\]|{_NAME})(?::[0-9]*)?(?:/{_PCHAR}*)*"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_HIERARCHY = rf"(?:{_AUTHORITY}|(?!//)(?:{_PCHAR}|/)*)"
_URI = rf"[A-Za-z][A-Za-z0-9+.\-]*:{_HIERARCHY}{_TAIL}"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

_TEXTS: Mapping[str, tuple[str, str]] = {
    "date": (_DATE, "a date (RFC 3339) such as 2026-01-31"),
    "date-time": (rf"{_DATE}[Tt]{_TIME}", "a date-time (RFC 3339) such as 2026-01-31T12:00:00Z"),
    "time": (_TIME, "a time with its offset (RFC 3339) such as 12:00:00Z"),
    "duration": (
        rf"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y(?![0-9]+D))?(?:[0-9]+M)?(?:[0-9]+D)?{_CLOCK})",
        "a duration (ISO 8601) such as PT1H30M",
    ),
    "email": (rf"{_LOCAL}@(?:{_HOST}|\[(?:{_IPV4}|[Ii][Pp][Vv]6:{_IPV6})\])", "an e-mail address (RFC 5321)"),
    "hostname": (rf"(?=.{{1,253}}$){_HOST}", "a hostname (RFC 1123)"),
    "ipv4": (_IPV4, "an IPv4 address"),
    "ipv6": (_IPV6, "an IPv6 address (RFC 4291)"),
    "uri": (_URI, "a URI (RFC 3986) with its scheme"),
    "uri-reference": (
        rf"(?:{_URI}|(?:{_AUTHORITY}|(?!//)(?![^/?#]*:)(?:{_PCHAR}|/)*){_TAIL})",
        "a URI or a relative reference (RFC 3986)",
    ),
    "uuid": (r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", "a UUID (RFC 9562)"),
    "json-pointer": (_POINTER, "a JSON Pointer (RFC 6901)"),
    "byte": (r"[A-Za-z0-9+/_\-\s]*(?:={1,2}\s*)?", "base64 text (RFC 4648)"),
}
_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in _TEXTS.items()}
_NUMBERS: Mapping[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
CHECKED = frozenset(_TEXTS) | frozenset(_NUMBERS)
"""Formats that are checked, and published; all others are hints (``password``, ``float``)."""
UNCHECKED = frozenset(
    {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "relative-json-pointer", "regex"}
)
"""Formats of JSON Schema that nothing here checks: they are not published."""
_MOST = 10_000
"""References that are followed for one value; alternatives that refer to themselves could double them for ever."""


class Formats:
    """The formats in a schema, to check values for that are valid without them.

    Args:
        schema: of JSON Schema 2020-12, bundled: its references lead into its own ``$defs``.
    """

    def __init__(self, schema: Json | bool) -> None:
        self._definitions: Json = schema.get("$defs", {}) if isinstance(schema, dict) else {}
        self._left = _MOST
        self._of_references: dict[str, _Check | None] = {}
        self._check = self._made(schema)

    @classmethod
    def of(cls, schema: Json | bool) -> Formats | None:
        """The formats of ``schema``; ``None`` if it has none that is checked."""
        return cls(schema) if _mentions(schema) else None

    def errors(self, value: Any) -> list[Json]:
        """What is wrong with ``value``: path, message and keyword of each text and number of another format."""
        self._left = _MOST
        try:
            return [] if self._check is None else list(self._check(value, "$"))
        except RecursionError:  # of a reference that leads to itself without a step into the value
            return []

    def _made(self, node: Any) -> _Check | None:
        if not isinstance(node, dict):
            return None
        parts = [*self._own(node), *self._of_properties(node), *self._of_items(node), *self._in_place(node)]
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]

        def check(value: Any, path: str) -> Iterator[Json]:
            for part in parts:
                yield from part(value, path)

        return check

    def _own(self, node: Json) -> Iterator[_Check]:
        name = node.get("format")
        if isinstance(name, str) and name in _TEXTS:
            yield _text_check(name)
        elif isinstance(name, str) and name in _NUMBERS:
            yield _number_check(name)

    def _of_properties(self, node: Json) -> Iterator[_Check]:
        named = {name: self._made(part) for name, part in _map(node, "properties").items()}
        patterns = [
            (from_schema({"pattern": pattern}), self._made(part))
            for pattern, part in _map(node, "patternProperties").items()
        ]
        others = self._made(node.get("additionalProperties"))
        if others is None and not any(named.values()) and not any(made for _, made in patterns):
            return

        def check(value: Any, path: str) -> Iterator[Json]:
            for name, item in value.items() if isinstance(value, dict) else ():
                matching = [made for pattern, made in patterns if pattern.is_valid(name)]
                known = [named[name]] if name in named else []
                for part in [*known, *matching] or [others]:
                    if part is not None:
                        yield from part(item, f"{path}.{name}")

        yield check

    def _of_items(self, node: Json) -> Iterator[_Check]:
        first = [self._made(part) for part in node.get("prefixItems", ())]
        rest = self._made(node.get("items"))
        if rest is None and not any(first):
            return

        def check(value: Any, path: str) -> Iterator[Json]:
            for index, item in enumerate(value if isinstance(value, list) else ()):
                part = first[index] if index < len(first) else rest
                if part is not None:
                    yield from part(item, f"{path}[{index}]")

        yield check

    def _in_place(self, node: Json) -> Iterator[_Check]:
        """What schemas say that apply to the same value."""
        if isinstance(node.get("$ref"), str):
            yield self._referred(node["$ref"])
        for part in node.get("allOf", ()):
            made = self._made(part)
            if made is not None:
                yield made
        for keyword in ("anyOf", "oneOf"):
            branches = [(self._whole(part), self._made(part)) for part in node.get(keyword, ())]
            if any(made for _, made in branches):
                yield _any_check(branches)
        then, otherwise = self._made(node.get("then")), self._made(node.get("else"))
        if "if" in node and (then or otherwise):
            yield _conditional(self._whole(node["if"]), then, otherwise)

    def _referred(self, reference: str) -> _Check:
        def check(value: Any, path: str) -> Iterator[Json]:
            self._left -= 1
            if self._left < 0:
                return
            # Made when it is first met: a schema may refer to itself.
            if reference not in self._of_references:
                token = unquote(reference.removeprefix("#/$defs/")).replace("~1", "/").replace("~0", "~")
                self._of_references[reference] = None
                self._of_references[reference] = self._made(self._definitions.get(token))
            made = self._of_references[reference]
            if made is not None:
                yield from made(value, path)

        return check

    def _whole(self, part: Any) -> Schema:
        """A part of the schema as one that stands alone."""
        return from_schema({"$defs": self._definitions, **part} if isinstance(part, dict) else part)


def _text_check(name: str) -> _Check:
    matches, expected = _PATTERNS[name].fullmatch, _TEXTS[name][1]

    def check(value: Any, path: str) -> Iterator[Json]:
        if isinstance(value, str) and not matches(value):
            yield _error(path, f"expected {expected}", value)

    return check


def _number_check(name: str) -> _Check:
    low, high = _NUMBERS[name]

    def check(value: Any, path: str) -> Iterator[Json]:
        if value.__class__ in (int, float) and not low <= value <= high:
            yield _error(path, f"expected an {name}, {low} to {high}", value)

    return check


def _any_check(branches: list[tuple[Schema, _Check | None]]) -> _Check:
    def check(value: Any, path: str) -> Iterator[Json]:
        found: list[Json] = []
        for schema, made in branches:
            if schema.is_valid(value):
                errors = [] if made is None else list(made(value, path))
                if not errors:
                    return
                found = found or errors
        yield from found

    return check


def _conditional(condition: Schema, then: _Check | None, otherwise: _Check | None) -> _Check:
    def check(value: Any, path: str) -> Iterator[Json]:
        made = then if condition.is_valid(value) else otherwise
        if made is not None:
            yield from made(value, path)

    return check


def _error(path: str, expected: str, value: Any) -> Json:
    return {"path": path, "message": f"{expected}, got {str(value)[:100]!r} at {path}", "keyword": "format"}


def _map(node: Json, key: str) -> Json:
    found = node.get(key)
    return found if isinstance(found, dict) else {}


def _mentions(node: Any) -> bool:
    if isinstance(node, dict):
        name = node.get("format")
        return (isinstance(name, str) and name in CHECKED) or any(map(_mentions, node.values()))
    return isinstance(node, list) and any(map(_mentions, node))

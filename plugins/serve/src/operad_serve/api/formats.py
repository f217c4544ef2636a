"""Checks of formats. The document declares only formats that are checked, and inputs are checked for them.

For JSON Schema a ``format`` is an annotation (2020-12, validation, 7.2.1), so a registry accepts every text.
Readers of an OpenAPI document take it for a promise, and generate clients and tests from it.

jsonschema-rs checks one text at a time. It passes the whole official suite, and takes 0.1 us for usual texts and
0.13 s for the most hostile one of 4 MB (jsonschema's own checks: 14 wrong, 0.2 to 6 us, 1.5 s to import). This
module finds the texts in a value, because nothing stops jsonschema-rs in a schema that needs unbounded work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

from operad import Schema, from_schema

Json = dict[str, Any]
_Check = Callable[[Any, str], Iterator[Json]]
"""Yields the errors of a value at a path."""

_TEXTS: Mapping[str, str] = {
    "date": "a date (RFC 3339) such as 2026-01-31",
    "date-time": "a date-time (RFC 3339) such as 2026-01-31T12:00:00Z",
    "time": "a time with its offset (RFC 3339) such as 12:00:00Z",
    "duration": "a duration (ISO 8601) such as PT1H30M",
    "email": "an e-mail address (RFC 5321)",
    "idn-email": "an e-mail address (RFC 6531)",
    "hostname": "a hostname (RFC 1123)",
    "idn-hostname": "a hostname (RFC 5890)",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address (RFC 4291)",
    "uri": "a URI (RFC 3986) with its scheme",
    "uri-reference": "a URI or a relative reference (RFC 3986)",
    "iri": "an IRI (RFC 3987) with its scheme",
    "iri-reference": "an IRI or a relative reference (RFC 3987)",
    "uri-template": "a URI template (RFC 6570)",
    "uuid": "a UUID (RFC 9562)",
    "json-pointer": "a JSON Pointer (RFC 6901)",
    "relative-json-pointer": "a relative JSON Pointer",
    "byte": "base64 text (RFC 4648)",
}
_CLOCK = r"(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
_OWN: Mapping[str, re.Pattern[str]] = {
    "byte": re.compile(r"[A-Za-z0-9+/_\-\s]*(?:={1,2}\s*)?"),
    "duration": re.compile(
        rf"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y(?![0-9]+D))?(?:[0-9]+M)?(?:[0-9]+D)?{_CLOCK})", re.ASCII
    ),
}
"""Formats with a check of our own. ``byte`` is defined by OpenAPI. RFC 3339 allows neither PT0.5S nor PT1H3S as a
``duration``, but ISO 8601 does, and Python's libraries write them."""
_NUMBERS: Mapping[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
CHECKED = frozenset(_TEXTS) | frozenset(_NUMBERS)
"""Formats that are checked and published. All others are hints (``password``, ``float``)."""
UNCHECKED = frozenset({"regex"})
"""Formats that are not checked, and therefore not published: compiling a client's pattern has no bound."""
_MOST = 10_000
"""References that are followed for one value. Recursive alternatives could double them without end."""


class Formats:
    """The formats in a schema. Checks values that are valid otherwise.

    Args:
        schema: a bundled schema of JSON Schema 2020-12: its references lead to its own ``$defs``.
    """

    def __init__(self, schema: Json | bool) -> None:
        self._definitions: Json = schema.get("$defs", {}) if isinstance(schema, dict) else {}
        self._left = _MOST
        self._of_references: dict[str, _Check | None] = {}
        self._check = self._made(schema)

    @classmethod
    def of(cls, schema: Json | bool) -> Formats | None:
        """Return the formats of a schema; None if it has no format that is checked."""
        return cls(schema) if _mentions(schema) else None

    def errors(self, value: Any) -> list[Json]:
        """Return path, message and keyword of each text and number that is not of its format."""
        self._left = _MOST
        try:
            return [] if self._check is None else list(self._check(value, "$"))
        except RecursionError:  # a reference that leads to itself without a step into the value
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
        """Yield the checks of subschemas that apply to the same value."""
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
            # Made when it is first used: a schema may refer to itself.
            if reference not in self._of_references:
                token = unquote(reference.removeprefix("#/$defs/")).replace("~1", "/").replace("~0", "~")
                self._of_references[reference] = None
                self._of_references[reference] = self._made(self._definitions.get(token))
            made = self._of_references[reference]
            if made is not None:
                yield from made(value, path)

        return check

    def _whole(self, part: Any) -> Schema:
        """Return a subschema as a schema of its own."""
        return from_schema({"$defs": self._definitions, **part} if isinstance(part, dict) else part)


@cache
def _matcher(name: str) -> Callable[[str], object]:
    """Return a function that is true for the texts of a format."""
    if name in _OWN:
        return _OWN[name].fullmatch
    from jsonschema_rs import Draft202012Validator  # takes 25 ms, for the first operation with a format

    return Draft202012Validator({"format": name}, validate_formats=True).is_valid


def _text_check(name: str) -> _Check:
    matches = _matcher(name)

    def check(value: Any, path: str) -> Iterator[Json]:
        if isinstance(value, str) and not (matches(value) if value.isascii() else _matches_any(matches, value)):
            yield _error(path, f"expected {_TEXTS[name]}", value)

    return check


def _matches_any(matches: Callable[[str], object], value: str) -> object:
    try:
        return matches(value)
    except UnicodeEncodeError:  # half a surrogate pair
        return False


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

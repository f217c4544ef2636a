"""The search for errors, which visits only the parts of a value that the compiled checks reject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs

from operad_schema.checking import Checks
from operad_schema.keywords import types_of
from operad_schema.nodes import Body, Node
from operad_schema.patterns import WORK, TooMuchWorkError
from operad_schema.tags import decides
from operad_schema.values import CONTAINER, equal, is_type
from operad_schema.vocabulary import KEYWORDS


@attrs.define(eq=False, repr=False)
class Fault:
    """A keyword that a part of a value does not satisfy.

    `wanted` is the expectation of the keyword, and `path` has the names and positions that lead to the part.
    """

    keyword: str
    wanted: Any
    value: Any
    path: tuple[Any, ...]
    schema: Body
    branches: list[Fault] = attrs.field(factory=list)
    """The faults of the branches, if the keyword is a union."""


class _EnoughError(Exception):
    """The search has used all of its steps."""


def faults(checks: Checks, value: Any, body: Body) -> list[Fault]:
    """Return the faults of a value, at most `max_schema_errors`.

    After `max_error_steps`, the search ends with the faults found so far. For a value that is not JSON, it may
    raise any exception.
    """
    found: list[Fault] = []
    with suppress(_EnoughError, TooMuchWorkError):
        found.extend(islice(_Search(checks).of(value, body, ()), checks.limits.max_schema_errors))
    return found


class _Search:
    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.left = checks.limits.max_error_steps

    def of(self, value: Any, body: Body, path: tuple[Any, ...]) -> Iterator[Fault]:
        if isinstance(body, bool):
            if not body:
                yield Fault("false", None, value, path, body)
            return
        self.left -= 1
        if self.left < 0:
            raise _EnoughError
        WORK.step(1 + len(value) if isinstance(value, CONTAINER) else 1)
        if self.checks.of(body)(value):
            return
        for key, wanted in body.items():
            if (find := _FIND.get(key)) is not None:
                yield from find(self, key, value, body, path)
            elif (
                (word := KEYWORDS.get(key)) is not None
                and word.fails is not None
                and (not word.kind or is_type(value, word.kind))
                and word.fails(value, wanted)
            ):
                yield Fault(key, wanted, value, path, body)

    def each(self, pairs: Iterable[tuple[Any, Any]], body: Body, path: tuple[Any, ...]) -> Iterator[Fault]:
        for key, item in pairs:
            yield from self.of(item, body, (*path, key))

    def is_valid(self, value: Any, body: Body) -> bool:
        return self.checks.of(body)(value)


Find = Iterator[Fault]


def _type(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if not any(is_type(value, name) for name in types_of(body) or ()):
        yield Fault(key, body[key], value, path, body)


def _values(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if not any(equal(value, one) for one in (body[key] if key == "enum" else [body[key]])):
        yield Fault(key, body[key], value, path, body)


def _required(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    for name in body[key] if isinstance(value, dict) else ():
        if name not in value:
            yield Fault(key, name, value, path, body)


def _dependent_required(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    for name, needed in body[key].items() if isinstance(value, dict) else ():
        if name in value and not value.keys() >= set(needed):
            yield Fault(key, needed, value, path, body)


def _in_place(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if key == "$ref":
        assert body.ref is not None
        yield from search.of(value, body.ref.body, path)
    elif key == "allOf":
        for node in body[key]:
            yield from search.of(value, node, path)
    elif key == "if":
        chosen = "then" if search.is_valid(value, body["if"]) else "else"
        yield from search.of(value, body.get(chosen, True), path)
    elif key == "not":
        if search.is_valid(value, body["not"]):
            yield Fault(key, body["not"], value, path, body)
    elif isinstance(value, dict):
        for name, node in body["dependentSchemas"].items():
            if name in value:
                yield from search.of(value, node, path)


def _union(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    given: Any = body.get("discriminator")
    branches = body[key]
    if decides(given, key, value):
        name, tags = given["propertyName"], given["tags"]
        tag = value[name]
        if isinstance(tag, str) and tag in tags:
            yield from search.of(value, branches[tags[tag]], path)
        else:
            yield Fault("discriminator", sorted(tags), tag, (*path, name), body)
        return
    valid = sum(search.is_valid(value, branch) for branch in branches)
    if valid == 0:
        fault = Fault(key, branches, value, path, body)
        try:
            for branch in branches:
                fault.branches.extend(search.of(value, branch, path))
        finally:
            yield fault
    elif valid > 1 and key == "oneOf":
        yield Fault(key, branches, value, path, body)


def _properties(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if not isinstance(value, dict):
        return
    for name, node in body["properties"].items():
        if name in value:
            yield from search.of(value[name], node, (*path, name))


def _names(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    for name in value if isinstance(value, dict) else ():
        yield from search.of(name, body["propertyNames"], path)


def _patterns(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    for pattern, node in body[key].items() if isinstance(value, dict) else ():
        pairs = [(name, item) for name, item in value.items() if isinstance(name, str) and pattern.matches(name)]
        yield from search.each(pairs, node, path)


def _additional(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if isinstance(value, dict):
        patterns = body.get("patternProperties", ())
        known = body.get("properties", {})
        others = {
            name: item
            for name, item in value.items()
            if name not in known and not (isinstance(name, str) and any(one.matches(name) for one in patterns))
        }
        yield from _undeclared(search, key, others, value, body, path)


def _unevaluated(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    names = key == "unevaluatedProperties"
    if (
        not is_type(value, "object" if names else "array")
        or ("additionalProperties" if names else "items") in body
    ):
        return
    seen = search.checks.evaluation.of(body.less("unevaluatedProperties", "unevaluatedItems"))(value)
    if seen is not None:  # otherwise another keyword reports the error
        pairs = value.items() if names else enumerate(value)
        others = {name: item for name, item in pairs if name not in seen}
        yield from _undeclared(search, key, others, value, body, path)


def _undeclared(
    search: _Search, key: str, others: dict[Any, Any], value: Any, body: Node, path: tuple[Any, ...]
) -> Find:
    if body[key] is not False:
        yield from search.each(others.items(), body[key], path)
    elif others:
        yield Fault(key, list(others), value, path, body)


def _items(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if not isinstance(value, (list, tuple)):
        return
    if key == "prefixItems":
        for index, (item, node) in enumerate(zip(value, body[key], strict=False)):
            yield from search.of(item, node, (*path, index))
    else:
        start = len(body.get("prefixItems", ()))
        pairs = islice(enumerate(value), start, None)
        if body["items"] is False and len(value) > start:
            yield Fault(key, start, value, path, body)
        else:
            yield from search.each(pairs, body["items"], path)


def _contains(search: _Search, key: str, value: Any, body: Node, path: tuple[Any, ...]) -> Find:
    if isinstance(value, (list, tuple)):
        count = sum(search.is_valid(item, body["contains"]) for item in value)
        if count < (least := body.get("minContains", 1)):
            yield Fault("contains" if count == 0 else "minContains", least, value, path, body)
        elif count > body.get("maxContains", count):
            yield Fault("maxContains", body["maxContains"], value, path, body)


_FIND: dict[str, Callable[[_Search, str, Any, Node, tuple[Any, ...]], Find]] = {
    "type": _type,
    "const": _values,
    "enum": _values,
    "required": _required,
    "dependentRequired": _dependent_required,
    **dict.fromkeys(("$ref", "allOf", "if", "not", "dependentSchemas"), _in_place),
    **dict.fromkeys(("anyOf", "oneOf"), _union),
    "properties": _properties,
    "propertyNames": _names,
    "patternProperties": _patterns,
    "additionalProperties": _additional,
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), _unevaluated),
    **dict.fromkeys(("items", "prefixItems"), _items),
    "contains": _contains,
}

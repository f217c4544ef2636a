"""jsonschema-rs in the interpreter's place, where it is installed (`operad[rust]`) and known to be right.

It answers yes or no only, errors stay the interpreter's; and only for schemas and values that both read
alike. Its regular expressions are another engine's, a recursive schema could take it any number of steps,
and it sees a number in a `Decimal` and null in NaN: all of those are the interpreter's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from operad.schemas.nodes import Body, children_of, in_place, ref_name

MAX_EXPANDED = 10_000
"""The most subschemas, each counted wherever it is referred to: it may compile them as often as that."""
MAX_DEPTH = 100
"""The levels of a schema and of a value that it is given: it recurses on the stack, beyond Python's guard."""


MAX_EXPANDED_IN_ALL = 50_000
"""The same for all schemas of one document together, those that turned out to be unfit included."""


class _UnfitError(Exception):
    """This schema is not for it."""


class StandIns:
    """The stand-ins of a document's schemas, as long as making them is bounded work."""

    def __init__(self, bodies: Mapping[str, Body]) -> None:
        self.bodies = bodies
        self._left = MAX_EXPANDED_IN_ALL

    def check(self, body: Body, interpret: Callable[[Any], bool]) -> Callable[[Any], bool] | None:
        """The check of a schema by jsonschema-rs, or None; what it cannot answer is `interpret`'s."""
        validator_class = _library()
        if validator_class is None or isinstance(body, bool) or self._left <= 0:
            return None
        try:
            names: dict[str, tuple[int, int]] = {}
            self._left -= self._measure(body, names)[0]
            schema = {**body, "$defs": {name: self.bodies[name] for name in names}}
            is_valid = validator_class(schema, validate_formats=False, retriever=_refuse).is_valid
        except BaseException as error:
            if not _is_failure(error):
                raise
            return None
        return _guarded(is_valid, interpret)

    def _measure(self, body: Body, names: dict[str, tuple[int, int]]) -> tuple[int, int]:
        """The subschemas of a schema with all that it refers to and their nesting; raises where it is unfit."""
        self._left -= 1
        count, depth = 1, 0
        if isinstance(body, dict):
            if "pattern" in body or "patternProperties" in body:
                raise _UnfitError("a pattern")
            below = [self._measure(node, names) for node in _subschemas(body)]
            if "$ref" in body:
                name = ref_name(body)
                if name not in names:
                    names[name] = MAX_EXPANDED, 0  # while it is being counted: a reference back is too much
                    names[name] = self._measure(self.bodies[name], names)
                below.append(names[name])
            count += sum(one for one, _ in below)
            depth = 1 + max((one for _, one in below), default=0)
        if count > MAX_EXPANDED or depth > MAX_DEPTH or self._left <= 0:
            raise _UnfitError("too many subschemas, or too deep")
        return count, depth


def _guarded(is_valid: Callable[[Any], bool], interpret: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if not _is_plain(value):
            return interpret(value)
        try:
            return bool(is_valid(value))
        except BaseException as error:
            if not _is_failure(error):
                raise
            return interpret(value)

    return check


@cache
def _library() -> Any:
    try:
        from jsonschema_rs import (  # type: ignore[import-not-found,unused-ignore]  # an optional extra
            Draft202012Validator,
        )
    except ImportError:
        return None
    return Draft202012Validator


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri} is outside the document: nothing is fetched")


def _is_failure(error: BaseException) -> bool:
    # A panic of its code arrives as a BaseException whose class cannot be imported.
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _subschemas(body: dict[str, Any]) -> Iterator[Body]:
    yield from (child for child, _ in children_of(body))
    yield from in_place(body)
    if "propertyNames" in body:
        yield body["propertyNames"]


def _is_plain(value: Any) -> bool:
    """Whether a value is what a JSON parser makes, and not too deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            cls = item.__class__
            if cls is dict:
                below.extend(item.values())
            elif cls is list:
                below.extend(item)
            elif cls is float:
                if not math.isfinite(item):
                    return False
            elif cls not in _PLAIN:
                return False
        if not below:
            return True
        level = below
    return False


_PLAIN = {str, int, bool, type(None)}

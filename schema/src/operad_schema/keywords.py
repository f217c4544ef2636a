"""The checks of single keywords: of types, values, numbers, strings, counts, and how several checks are one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from operad_schema.nodes import Body, Node
from operad_schema.patterns import Pattern
from operad_schema.values import (
    ARRAY,
    CLASSES,
    CONTAINER,
    MAX_PARTS,
    count_parts,
    frozen,
    is_multiple,
    is_type,
)

Check = Callable[[Any], bool]


def types_of(body: Node) -> list[str] | None:
    types = body.get("type")
    return [types] if isinstance(types, str) else types


def exact(body: Body) -> frozenset[type]:
    """The classes whose every instance is valid."""
    if isinstance(body, bool) or not body.keys() <= {"type", "default"}:
        return frozenset()
    return frozenset(cls for name in types_of(body) or () for cls in CLASSES[name])


def check_values(body: Node) -> Check:
    """Whether a value is the `const` and one of the `enum`."""
    checks = [_is_one_of([body["const"]])] if "const" in body else []
    if "enum" in body:
        checks.append(_is_one_of(body["enum"]))
    return checks[0] if len(checks) == 1 else all_of(checks)


def _is_one_of(values: list[Any]) -> Check:
    known = frozenset(map(frozen, values))
    largest = max((count_parts(value, MAX_PARTS) for value in values if isinstance(value, CONTAINER)), default=0)

    def check(value: Any) -> bool:
        # What is larger than each of them is none of them, and not walked through.
        if isinstance(value, CONTAINER) and count_parts(value, largest + 1) > largest:
            return False
        try:
            return frozen(value) in known
        except TypeError:  # a Python object that cannot be hashed: it is no JSON, and only itself
            return False

    if all(isinstance(value, str) for value in values):
        texts = frozenset(values)
        return lambda value: value in texts if value.__class__ is str else check(value)
    return check


def check_types(types: list[str] | None, parts: dict[type, Check]) -> Check:
    """The check of the types, and of what a schema says about values of each of them."""
    objects, items = parts.get(dict), parts.get(list)
    strings, numbers = parts.get(str), parts.get(int)
    if types == ["object"] and objects is not None:
        return lambda value: isinstance(value, dict) and objects(value)
    if types == ["array"] and items is not None:
        return lambda value: isinstance(value, ARRAY) and items(value)
    if types == ["string"] and strings is not None:
        return lambda value: isinstance(value, str) and strings(value)

    def check(value: Any) -> bool:
        if types is not None and not any(is_type(value, name) for name in types):
            return False
        if isinstance(value, dict):
            return objects is None or objects(value)
        if isinstance(value, ARRAY):
            return items is None or items(value)
        if isinstance(value, str):
            return strings is None or strings(value)
        return numbers is None or not is_type(value, "number") or numbers(value)

    if parts:
        return check
    classes = frozenset(cls for name in types or () for cls in CLASSES[name])
    return lambda value: value.__class__ in classes or check(value)


def check_string(body: Node, patterns: Mapping[str, Pattern]) -> Check:
    least, most = body.get("minLength", 0), body.get("maxLength", math.inf)
    if "pattern" not in body:
        return lambda value: least <= len(value) <= most
    matches = patterns[body["pattern"]].matches
    return lambda value: least <= len(value) <= most and matches(value)


def check_number(body: Node) -> Check:
    least, most = body.get("minimum", -math.inf), body.get("maximum", math.inf)
    above, below = body.get("exclusiveMinimum"), body.get("exclusiveMaximum")
    factor = body.get("multipleOf")

    def check(value: Any) -> bool:
        # As two comparisons that fail: not a number (NaN) is below and above nothing.
        if value < least or value > most:
            return False
        if (above is not None and value <= above) or (below is not None and value >= below):
            return False
        return factor is None or is_multiple(value, factor)

    return check


def check_count(body: Node, fewest: str, largest: str) -> Check:
    least, most = body.get(fewest, 0), body.get(largest, math.inf)
    return lambda value: least <= len(value) <= most


def check_unique(value: Any) -> bool:
    """Whether no two items are equal."""
    try:
        return len(set(map(frozen, value))) == len(value)
    except TypeError:  # see above
        return True


def all_of(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # a generator would double the frames of every level
            if not one(value):
                return False
        return True

    return check


def any_of(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # see above
            if one(value):
                return True
        return False

    return check


def one_of(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        found = False
        for one in checks:
            if one(value):
                if found:
                    return False
                found = True
        return found

    return check

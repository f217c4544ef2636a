"""The checks of keywords that hold no schemas, and functions that combine several checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operad_schema.nodes import Body, Node
from operad_schema.values import ARRAY, CLASSES, CONTAINER, MAX_PARTS, count_parts, frozen, is_type
from operad_schema.vocabulary import KEYWORDS

Check = Callable[[Any], bool]


def types_of(body: Node) -> list[str] | None:
    """Return the types in the `type` of a schema; None if it has no `type`."""
    types = body.get("type")
    return [types] if isinstance(types, str) else types


def exact(body: Body) -> frozenset[type]:
    """Return the Python classes whose instances are all valid; empty if any keyword but `type` tests values."""
    if isinstance(body, bool) or not body.keys() <= {"type", "default"}:
        return frozenset()
    return frozenset(cls for name in types_of(body) or () for cls in CLASSES[name])


def check_values(body: Node) -> Check:
    """Return the check of `const` and `enum`."""
    checks = [_is_one_of([body["const"]])] if "const" in body else []
    if "enum" in body:
        checks.append(_is_one_of(body["enum"]))
    return all_of(checks)


def _is_one_of(values: list[Any]) -> Check:
    known = frozenset(map(frozen, values))
    largest = max((count_parts(value, MAX_PARTS) for value in values if isinstance(value, CONTAINER)), default=0)

    def check(value: Any) -> bool:
        # A container larger than every member cannot be equal to one, so it is not compared.
        if isinstance(value, CONTAINER) and count_parts(value, largest + 1) > largest:
            return False
        try:
            return frozen(value) in known
        except TypeError:  # a Python object that cannot be hashed is not JSON, and not a member
            return False

    if all(isinstance(value, str) for value in values):
        texts = frozenset(values)
        return lambda value: value in texts if value.__class__ is str else check(value)
    return check


def check_types(types: list[str] | None, parts: dict[str, Check]) -> Check:
    """Return the check of `types` (None if any is allowed) and of `parts`, the checks for values of each kind."""
    objects, items = parts.get("object"), parts.get("array")
    strings, numbers = parts.get("string"), parts.get("number")
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


def check_plain(body: Node, kind: str) -> list[Check]:
    """Return a list with the check of all plain keywords for `kind`; empty if `body` has no such keyword."""
    rules = []
    for key, wanted in body.items():
        word = KEYWORDS.get(key)
        if word is not None and word.kind == kind and word.fails is not None:
            rules.append((word.fails, wanted))
    if len(rules) == 1:
        fails, wanted = rules[0]
        return [lambda value: not fails(value, wanted)]

    def check(value: Any) -> bool:
        for fails, wanted in rules:  # noqa: SIM110  # a generator would double the frames of every level
            if fails(value, wanted):
                return False
        return True

    return [check] if rules else []


def all_of(checks: list[Check]) -> Check:
    """Return a check that accepts a value if all `checks` accept it."""
    if len(checks) == 1:
        return checks[0]

    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # see above
            if not one(value):
                return False
        return True

    return check


def any_of(checks: list[Check]) -> Check:
    """Return a check that accepts a value if at least one of `checks` accepts it."""

    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # see above
            if one(value):
                return True
        return False

    return check


def one_of(checks: list[Check]) -> Check:
    """Return a check that accepts a value if exactly one of `checks` accepts it."""

    def check(value: Any) -> bool:
        found = False
        for one in checks:
            if one(value):
                if found:
                    return False
                found = True
        return found

    return check

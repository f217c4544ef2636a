"""The interpreter of a normal form: `jsonschema`, with JSON's own equality and bounded work."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

from operad.schemas.nodes import Body
from operad.schemas.values import ARRAY, CLASSES, equal, is_type

MAX_ERRORS = 20
"""`max_schema_errors`: the errors that are collected for one value."""

_call = threading.local()


def errors_of(
    bodies: Mapping[str, Body], body: Body, value: Any, memo: dict[Any, Any] | None, most: int = MAX_ERRORS
) -> list[Any]:
    """What is wrong, as `jsonschema` errors; `memo` is what one call remembers, where schemas recurse.

    Raises what `jsonschema` raises for what is no JSON.
    """
    import referencing

    schema = body if isinstance(body, bool) else {**body, "$defs": bodies}
    validator = _interpreter()(schema, registry=referencing.Registry())
    before = getattr(_call, "state", None)
    _call.state = (bodies, memo)
    try:
        return list(islice(validator.iter_errors(value), most))
    finally:
        _call.state = before


def _frozen(value: Any) -> Any:
    """A hashable stand-in that is equal where two JSON values are."""
    if isinstance(value, dict):
        return "o", frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, ARRAY):
        return "a", tuple(map(_frozen, value))
    return (bool, value) if isinstance(value, bool) else value


def _unique_items(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if unique and isinstance(instance, list | tuple):
        try:
            distinct = len({_frozen(item) for item in instance})
        except TypeError:  # a Python object that cannot be hashed: it is no JSON, and only itself
            distinct = len(instance)
        if distinct < len(instance):
            yield ValidationError("has non-unique items")


def _multiple_of(validator: Any, factor: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not is_type(instance, "number"):
        return
    if isinstance(instance, float) and not math.isfinite(instance):
        failed = True
    else:
        # As decimals, the way they are written: 19.01 is a multiple of 0.01.
        failed = (Fraction(repr(instance)) / Fraction(repr(factor))).denominator != 1
    if failed:
        yield ValidationError(f"{instance!r} is not a multiple of {factor}")


def _ref(validator: Any, ref: str, instance: Any, schema: Any) -> Iterator[Any]:
    """A reference of the normal form; remembered within a call where schemas branch as they recurse."""
    bodies, memo = _call.state
    body = bodies[ref[8:]]
    if memo is None:
        yield from validator.descend(instance, body)
        return
    from jsonschema.exceptions import ValidationError

    key = "errors", ref, id(instance)
    known = memo.get(key)
    if known is None:
        # No more than are ever shown: schemas that branch as they recurse double them with every level.
        known = memo[key] = (instance, list(islice(validator.descend(instance, body), MAX_ERRORS)))
    for error in known[1]:
        # A copy: whoever passes an error on adds to its path.
        yield ValidationError.create_from(error)


@cache
def _interpreter() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    checker = Draft202012Validator.TYPE_CHECKER
    for name in CLASSES:
        checker = checker.redefine(name, lambda _checker, value, name=name: is_type(value, name))
    own = {"$ref": _ref, "uniqueItems": _unique_items, "multipleOf": _multiple_of, "const": _const, "enum": _enum}
    validator = extend(Draft202012Validator, own, type_checker=checker)
    descend = validator.descend

    def descend_with_path(self: Any, instance: Any, schema: Any, path: Any = None, **options: Any) -> Any:
        if schema is not False:
            return descend(self, instance, schema, path=path, **options)
        # The library leaves out where: it answers for `false` before it looks at the path.
        error = ValidationError("", validator=None, validator_value=None, instance=instance, schema=False)
        if path is not None:
            error.path.appendleft(path)
        return iter([error])

    validator.descend = descend_with_path
    return validator


def _const(validator: Any, const: Any, instance: Any, schema: Any) -> Iterator[Any]:
    yield from _enum(validator, [const], instance, schema)


def _enum(validator: Any, values: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not any(equal(instance, value) for value in values):
        yield ValidationError(f"{instance!r:.60} is not one of the allowed values")

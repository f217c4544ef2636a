"""The interpreter of a normal form: `jsonschema`, with JSON's own equality and bounded work."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Protocol

from operad.schemas.limits import Limits
from operad.schemas.nodes import Body
from operad.schemas.patterns import Pattern
from operad.schemas.tags import decides
from operad.schemas.values import ARRAY, CLASSES, equal, is_multiple, is_type


class Checking(Protocol):
    """What the interpreter takes from the checks of a document."""

    bodies: dict[str, Body]
    patterns: dict[str, Pattern]
    limits: Limits

    def of(self, body: Body) -> Callable[[Any], bool]:
        """Whether a value is valid by a schema."""


class _State(threading.local):
    checks: Checking | None = None
    memo: dict[Any, Any] | None = None
    steps = math.inf


_call = _State()


class _EnoughError(Exception):
    """The search for errors has taken all of its steps."""


def errors_of(checks: Checking, body: Body, value: Any, memo: dict[Any, Any] | None, most: int) -> list[Any]:
    """What is wrong, as `jsonschema` errors; `memo` is what one call remembers, where schemas recurse.

    A search for more than one error leaves out what the compiled checks find valid, and ends after
    `max_error_steps` with what it has. Raises what `jsonschema` raises for what is no JSON.
    """
    import referencing

    schema = body if isinstance(body, bool) else {**body, "$defs": checks.bodies}
    validator = _interpreter()(schema, registry=referencing.Registry())
    before = _call.checks, _call.memo, _call.steps
    _call.checks, _call.memo, _call.steps = checks, memo, math.inf if most == 1 else checks.limits.max_error_steps
    found: list[Any] = []
    try:
        found.extend(islice(validator.iter_errors(value), most))
    except _EnoughError:
        pass
    finally:
        _call.checks, _call.memo, _call.steps = before
    return found


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

    if is_type(instance, "number") and not is_multiple(instance, factor):
        yield ValidationError("is not a multiple")


def _pattern(validator: Any, source: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    assert _call.checks is not None
    if isinstance(instance, str) and not _call.checks.patterns[source].matches(instance):
        yield ValidationError("does not match")


def _union(keyword: str) -> Callable[[Any, Any, Any, Any], Iterator[Any]]:
    """`anyOf` or `oneOf`, decided by a discriminator where there is one that decides."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

    plain = Draft202012Validator.VALIDATORS[keyword]

    def check(validator: Any, branches: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
        given = schema.get("discriminator")
        if not decides(given, keyword, instance):
            yield from plain(validator, branches, instance, schema)
            return
        tag = instance[given["propertyName"]]
        position = given["tags"].get(tag) if isinstance(tag, str) else None
        if position is not None:
            yield from validator.descend(instance, branches[position], schema_path=position)
            return
        yield ValidationError("is no known tag", validator="discriminator", validator_value=sorted(given["tags"]),
                              instance=tag, schema=schema, path=[given["propertyName"]])  # fmt: skip

    return check


def _ref(validator: Any, ref: str, instance: Any, schema: Any) -> Iterator[Any]:
    """A reference of the normal form; remembered within a call where schemas branch as they recurse."""
    assert _call.checks is not None
    memo = _call.memo
    body = _call.checks.bodies[ref[8:]]
    if memo is None:
        yield from validator.descend(instance, body)
        return
    from jsonschema.exceptions import ValidationError

    key = "errors", ref, id(instance)
    known = memo.get(key)
    if known is None:
        # No more than are ever shown: schemas that branch as they recurse double them with every level.
        known = memo[key] = (
            instance,
            list(islice(validator.descend(instance, body), _call.checks.limits.max_schema_errors)),
        )
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
    own = {"$ref": _ref, "uniqueItems": _unique_items, "multipleOf": _multiple_of, "pattern": _pattern,
           "anyOf": _union("anyOf"), "oneOf": _union("oneOf"), "const": _const, "enum": _enum}  # fmt: skip
    validator = extend(Draft202012Validator, own, type_checker=checker)
    descend = validator.descend

    def descend_with_path(self: Any, instance: Any, schema: Any, path: Any = None, **options: Any) -> Any:
        if schema is not False:
            _call.steps -= 1
            if _call.steps < 0:
                raise _EnoughError
            if _call.steps != math.inf and _call.checks is not None and _call.checks.of(schema)(instance):
                return iter(())
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

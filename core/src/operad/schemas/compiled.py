"""What a `Schema` becomes when it is first used: its normal form, its check, its cast."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from operad.schemas.casting import Casting
from operad.schemas.checking import Checks
from operad.schemas.explaining import filled_up, invented, readable, too_deep
from operad.schemas.limits import DEFAULT
from operad.schemas.members import Call
from operad.schemas.patterns import WORK
from operad.schemas.reader import Closure, SchemaLimitError, Store
from operad.schemas.references import dialect_of, parse_pointer
from operad.schemas.schema import SchemaError
from operad.schemas.values import MAX_DATA_DEPTH, is_deeper

__all__ = ["Compiled", "Store", "closure_of", "dialect_of"]

logger = logging.getLogger("operad.schemas.schema")


def closure_of(store: Store, raw: Any, pointer: str, *, detached: bool) -> Closure:
    """The normal form of a schema with all that it reaches; unknown, with the reason, where there is none."""
    try:
        return store.closure((), raw) if detached else store.closure(parse_pointer(pointer))
    except LookupError as error:
        reason = f"the document has nothing at {pointer!r} ({error})"
    except SchemaLimitError as error:
        reason = str(error)
    except RecursionError:
        reason = "nested too deeply to be read"
    nothing = Store(True, "2020-12").closure(())
    return replace(nothing, warnings=(f"{reason}: the schema is unknown",))


Traced = tuple[Any, bool, bool, bool]
"""A cast value; whether nothing about it is worth a warning, whether anything was dropped, or invented."""


class Compiled:
    """The check and the cast of one schema with all that it reaches."""

    __slots__ = (
        "_cast",
        "_checks",
        "_counts",
        "_root",
        "_said_exhausted",
        "caster",
        "closure",
        "errors",
        "is_recursive",
        "is_unknown",
        "mismatches",
        "normalizer",
        "validator",
    )

    def __init__(self, closure: Closure) -> None:
        self.closure = closure
        self._counts = any(not pattern.is_cheap for pattern in closure.patterns.values())
        self._said_exhausted = False
        self.errors: Callable[[Any], list[SchemaError]] = self._errors
        self.mismatches: Callable[[Any], list[SchemaError]] = self._mismatches
        casting = _casting(closure.store)
        self._checks = casting.checks
        self._root = root = closure.bodies[closure.root]
        with casting.lock:
            self._cast = casting.node([root])
        members, impossible = casting.flatten([root])
        self.is_unknown = not impossible and all(set(member) <= {"default"} for member in members)
        self.is_recursive = not closure.store.recursive.isdisjoint(closure.names)
        if not closure.store.heavy.isdisjoint(closure.names):
            self._cast = self._checks.remembering(self._cast)
        self.validator = self._validator(closure)
        self.caster, self.normalizer = self._callables()
        if self._counts:
            self.validator, self.caster = self._counted(self.validator), self._counted(self.caster)
            self.normalizer = self._counted(self.normalizer)
            self.errors, self.mismatches = self._counted(self.errors), self._counted(self.mismatches)

    def _counted(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`function`, with a budget for the work of patterns."""

        def run(value: Any) -> Any:
            with WORK.call(DEFAULT.max_pattern_steps) as work:
                result = function(value)
                exhausted = work.exhausted
            if exhausted and not self._said_exhausted:
                self._said_exhausted = True
                text = "patterns beyond max_pattern_steps = %d in one call: strings from there on count as matches"
                logger.warning(text, DEFAULT.max_pattern_steps)
            return result

        return run

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was ignored in the schema."""
        return self.closure.warnings

    @property
    def engine(self) -> str:
        """How values are checked."""
        return self._checks.engine([self.closure.bodies[name] for name in self.closure.names])

    def _validator(self, closure: Closure) -> Callable[[Any], bool]:
        if self.is_unknown:
            return lambda _value: True
        check = self._checks.of(self._root)
        if not closure.store.heavy.isdisjoint(closure.names):
            check = self._checks.remembering(check)

        def validate(value: Any) -> bool:
            try:
                return check(value)
            except Exception:  # noqa: BLE001  # RecursionError, or what the methods of an odd Python object raise
                return False

        return _bounded(validate) if self.is_recursive else validate

    def _callables(self) -> tuple[Callable[[Any], Any], Callable[[Any], tuple[Any, bool]]]:
        if self.is_unknown:
            return (lambda value: value), (lambda value: (value, True))
        inner, recursive = self._cast, self.is_recursive

        def cast(value: Any) -> Any:
            if recursive and is_deeper(value, MAX_DATA_DEPTH):
                logger.warning("a value is beyond max_data_depth = %d: it is not cast", MAX_DATA_DEPTH)
                return value
            try:
                return inner(value, Call())
            except Exception as error:  # noqa: BLE001  # a cast never raises, whatever a value's own methods do
                logger.warning("a value cannot be cast (%s): it is left as it is", type(error).__name__)
                return value

        traced = self.tracer()

        def normalize(value: Any) -> tuple[Any, bool]:
            return traced(value)[:2]

        return cast, normalize

    def tracer(self, *, keeps: bool = False) -> Callable[[Any], Traced]:
        """Cast and check in one, saying what the cast did; with `keeps`, one that drops and invents nothing."""
        if self.is_unknown:
            return lambda value: (value, True, False, False)
        check, recursive, inner = self.validator, self.is_recursive, self._cast
        if keeps:
            casting = _casting(self.closure.store, keeps=True)
            with casting.lock:
                inner = casting.node([self._root])
            if not self.closure.store.heavy.isdisjoint(self.closure.names):
                inner = self._checks.remembering(inner)

        def trace(value: Any) -> Traced:
            if recursive and is_deeper(value, MAX_DATA_DEPTH):
                logger.warning("a value is beyond max_data_depth = %d: it is not cast", MAX_DATA_DEPTH)
                return value, False, False, False
            call = Call()
            try:
                out = inner(value, call)
            except Exception as error:  # noqa: BLE001  # a cast never raises, whatever a value's own methods do
                logger.warning("a value cannot be cast (%s): it is left as it is", type(error).__name__)
                return value, False, False, False
            invented = call.invented is not None
            return out, not invented and check(out), call.dropped, invented

        return self._counted(trace) if self._counts else trace

    def _errors(self, value: Any) -> list[SchemaError]:
        """What is wrong with a value."""
        if self.validator(value):
            return []
        if self.is_recursive and is_deeper(value, MAX_DATA_DEPTH):
            return [too_deep(MAX_DATA_DEPTH)]
        try:
            found = self._checks.remembering(self._checks.found)(value, self._root)
        except Exception as error:  # noqa: BLE001  # RecursionError on deep values, TypeError on what is no JSON
            if isinstance(error, RecursionError):
                return [too_deep(MAX_DATA_DEPTH)]
            text = f"expected a JSON value, got one that cannot be checked ({error}) at $"
            return [SchemaError("$", text, "", "a JSON value", type(value).__name__)]
        return readable(found, self.closure.patterns) or [
            SchemaError(
                "$", "expected a value of the schema at $", "", "a value of the schema", type(value).__name__
            )
        ]

    def _mismatches(self, value: Any) -> list[SchemaError]:
        """What is worth a warning once a value is cast."""
        call = Call()
        out = value
        if not (self.is_recursive and is_deeper(value, MAX_DATA_DEPTH)):
            try:
                out = self._cast(value, call)
            except Exception:  # noqa: BLE001  # a cast never raises; the errors below then speak of the value
                call = Call()
        found = invented(out, call.invented or [])
        if call.filled > DEFAULT.max_filled:
            # The rest stays absent, so that there are as many errors; one says it for all.
            return [filled_up(DEFAULT.max_filled), *found[: DEFAULT.max_schema_errors]]
        return found + self._errors(out)


def _bounded(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: not is_deeper(value, MAX_DATA_DEPTH) and check(value)


def _casting(store: Store, *, keeps: bool = False) -> Casting:
    """The checks and casts of a document, shared by all of its schemas."""
    with store.lock:
        if store.checks is None:
            store.checks = Checks(store.bodies, store.heavy, store.patterns)
        if keeps not in store.castings:
            store.castings[keeps] = Casting(store.checks, keeps=keeps)
        casting: Casting = store.castings[keeps]
        return casting

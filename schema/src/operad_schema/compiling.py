"""The compiled form of a `Schema`: its normal form, its check and its cast. Equal schemas share one."""

from __future__ import annotations

import json
import logging
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from operad_schema.casting import Casting
from operad_schema.checking import Checks
from operad_schema.conjunctions import Call, Caster, flatten
from operad_schema.nodes import Closure, SchemaLimitError, Store
from operad_schema.patterns import WORK, TooMuchWorkError
from operad_schema.reader import read
from operad_schema.records import Mode, Origin, SchemaError
from operad_schema.references import References, dialect_of, parse_pointer
from operad_schema.values import MAX_PARTS, count_parts, is_deeper

logger = logging.getLogger("operad_schema")

STEPS_OF_A_PART = 15
"""The steps that each part of a value adds to `max_check_steps`."""

Traced = tuple[Any, bool, bool, bool]
"""(value, clean, dropped, invented): see `operad_schema.schema.Schema.tracer`."""


class Compiled:
    """The check and the cast of one schema with everything that it refers to."""

    def __init__(self, closure: Closure) -> None:
        store = closure.store
        self.closure = closure
        self.warnings = closure.warnings
        self.limits = store.limits
        self.checks: Checks = _made(store, "checks", lambda: Checks(store))
        self.root = closure.root.body
        members, impossible = flatten([self.root])
        self.is_unknown = not impossible and all(set(member) <= {"default"} for member in members)
        reached = closure.definitions
        self.unchecked = tuple(text for one in reached for text in one.unchecked)
        # A cast may read further schemas later, which may recurse, be heavy and need counting.
        has_kinds = any(one.has_kinds for one in reached)
        self._is_recursive = has_kinds or any(one.is_recursive for one in reached)
        self._is_heavy = has_kinds or any(one.is_heavy for one in reached)
        self._counts = store.has_costly_patterns
        self._counts_steps = has_kinds or any(one.counts for one in reached)
        self._tracers: dict[Mode, Callable[[Any], Traced]] = {}
        self._casters: dict[Mode, Callable[[Any], Any]] = {}

    # `operad_schema.schema.Schema` describes the next three. Each is made when first used, because most schemas
    # are only checked, or only cast. They are on the hot path, so they have no wrapper unless they need one.

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        """The compiled check. It returns True if a value is valid; no value makes it raise an exception."""
        return self._counted(self._validator())

    @cached_property
    def normalizer(self) -> Callable[[Any], tuple[Any, bool]]:
        return self._counted(self._normalizer())

    @cached_property
    def errors(self) -> Callable[[Any], list[SchemaError]]:
        return self._counted(self._errors)

    def _is_too_deep(self, value: Any) -> bool:
        return self._is_recursive and is_deeper(value, self.limits.max_data_depth)

    def _counted(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `function`, with a budget for the work of a call if it needs one."""
        if not self._counts and not self._counts_steps:
            return function
        patterns, steps = self.limits.max_pattern_steps, self.limits.max_check_steps

        def run(value: Any) -> Any:
            allowed = steps + STEPS_OF_A_PART * count_parts(value, MAX_PARTS) if self._counts_steps else math.inf
            with WORK.call(patterns, allowed):
                return function(value)

        return run

    def _validator(self) -> Callable[[Any], bool]:
        if self.is_unknown:
            return lambda _value: True
        check = self.checks.of(self.root)
        if self._is_heavy:
            check = self.checks.remembering(check)

        def validate(value: Any) -> bool:
            try:
                return check(value)
            except Exception:  # noqa: BLE001  # RecursionError, or what the methods of an odd Python object raise
                return False

        if not self._is_recursive:
            return validate
        return lambda value: not self._is_too_deep(value) and validate(value)

    def _inner(self, mode: Mode) -> Caster:
        casting = _made(self.closure.store, ("casting", mode), lambda: Casting(self.checks, mode))
        with casting.lock:
            cast: Caster = casting.node([self.root])
        return self.checks.remembering(cast) if self._is_heavy else cast

    def caster(self, mode: Mode) -> Callable[[Any], Any]:
        """Return the cast in a mode. The cast never raises and never changes its argument."""
        if mode not in self._casters:
            self._casters[mode] = self._counted(self._caster(mode))
        return self._casters[mode]

    def _caster(self, mode: Mode) -> Callable[[Any], Any]:
        if self.is_unknown:
            return lambda value: value
        inner, recursive, depth = self._inner(mode), self._is_recursive, self.limits.max_data_depth

        def cast(value: Any) -> Any:
            if recursive and is_deeper(value, depth):
                return self._left(value, None)
            call = Call()
            call.value = value
            try:
                return inner(value, call)
            except Exception as error:  # noqa: BLE001  # a cast never raises, whatever a value's own methods do
                return self._left(value, error)

        return cast

    def _left(self, value: Any, error: Exception | None) -> Any:
        """Log why a value is returned unchanged, and return it."""
        if error is None:
            most = self.limits.max_data_depth
            text = "expected a value of at most %d levels (max_data_depth), got more: it is not cast"
            logger.warning(text, most)
        else:
            bound = "max_check_steps" if WORK.steps < 0 else "max_pattern_steps"
            why = type(error).__name__
            if isinstance(error, TooMuchWorkError):
                why = f"beyond {bound}, which [registry.limits] can raise"
            logger.warning("a value cannot be cast (%s): it is returned unchanged", why)
        return value

    def tracer(self, mode: Mode) -> Callable[[Any], Traced]:
        """Return a function that both casts and checks a value; see `operad_schema.schema.Schema.tracer`."""
        if mode not in self._tracers:
            self._tracers[mode] = self._tracer(mode)
        return self._tracers[mode]

    def _tracer(self, mode: Mode) -> Callable[[Any], Traced]:
        if self.is_unknown:
            return lambda value: (value, True, False, False)
        inner = self._inner(mode)
        recursive, depth = self._is_recursive, self.limits.max_data_depth
        check = self.validator if self._is_heavy else self.checks.of(self.root)

        def trace(value: Any) -> Traced:
            if recursive and is_deeper(value, depth):
                return self._left(value, None), False, False, False
            call = Call()
            call.value = value
            try:
                out = inner(value, call)
            except Exception as error:  # noqa: BLE001  # see above
                return self._left(value, error), False, False, False
            if call.invented is not None:
                return out, False, call.dropped, True
            try:
                clean = check(out)
            except Exception:  # noqa: BLE001  # see above
                clean = False
            return out, clean, call.dropped, False

        return self._counted(trace)

    def _normalizer(self) -> Callable[[Any], tuple[Any, bool]]:
        trace = self.tracer("cast")

        def normalize(value: Any) -> tuple[Any, bool]:
            out, clean, _, _ = trace(value)
            return out, clean

        return normalize

    def _errors(self, value: Any) -> list[SchemaError]:
        """Return the errors of a value."""
        if self.validator(value):
            return []
        # Imported with the first invalid value: most programs need neither module.
        from operad_schema.explaining import beyond, readable
        from operad_schema.finding import faults

        if self._is_too_deep(value):
            return [beyond("max_data_depth", self.limits)]
        kind = type(value).__name__
        if self._counts:
            WORK.left = self.limits.max_pattern_steps  # the check that failed has drawn on it
        try:
            found = self.checks.remembering(faults)(self.checks, value, self.root)
        except RecursionError:
            return [beyond("max_data_depth", self.limits)]
        except Exception as error:  # noqa: BLE001  # TypeError on what is no JSON
            text = f"expected a JSON value, got {kind}, which cannot be checked ({error!r}) at $"
            return [SchemaError("$", text, "", "a JSON value", kind)]
        text = f"expected a value that matches the schema, got {kind} at $"
        generic = SchemaError("$", text, "", "a value that matches the schema", kind)
        if not found and (WORK.steps < 0 or WORK.left < 0):
            return [beyond("max_check_steps" if WORK.steps < 0 else "max_pattern_steps", self.limits)]
        return readable(found) or [generic]

    def mismatches(self, value: Any, mode: Mode) -> list[SchemaError]:
        """Return the errors of a value after its cast in a mode; see `operad_schema.schema.Schema.mismatches`."""
        found: list[SchemaError] = self._counted(lambda value: self._mismatches(value, mode))(value)
        return found

    def _mismatches(self, value: Any, mode: Mode) -> list[SchemaError]:
        from operad_schema.explaining import beyond, invented

        call = Call()
        call.value = out = value
        if not self.is_unknown and not self._is_too_deep(value):
            try:
                out = self._inner(mode)(value, call)
            except Exception:  # noqa: BLE001  # a cast never raises; the errors below then speak of the value
                call = Call()
        found = invented(out, call.invented or [])
        if call.filled > self.limits.max_filled:
            # The rest stays absent; a single error reports that.
            return [beyond("max_filled", self.limits), *found[: self.limits.max_schema_errors]]
        return found + self._errors(out)


def _made(store: Store, key: Any, make: Callable[[], Any]) -> Any:
    """Return an object that all schemas of a document share; `make` is called once."""
    with store.lock:
        if key not in store.made:
            store.made[key] = make()
        return store.made[key]


# --- what is shared ------------------------------------------------------------------------------------

MAX_CACHED = 512
"""The number of compiled schemas that are kept for equal schemas. Those of a `Schema` in use are kept anyway."""

MAX_WARNED = 1_000
"""The number of unchecked patterns for which repeated warnings are suppressed."""
_patterns_warned: set[str] = set()

_lock = threading.Lock()
_cache: OrderedDict[Any, Compiled] = OrderedDict()
_LONG = 1_000
"""A schema with more characters than this is identified by the digest of its text."""
_stores: weakref.WeakValueDictionary[Any, Store] = weakref.WeakValueDictionary()


def compiled(origin: Origin) -> Compiled:
    """Return the compiled form of a schema; equal schemas share one.

    A standalone schema is identified by its text, a schema in a document by its definition in the document's
    normal form.
    """
    if origin.document is not None:
        store = _store(origin.document, dialect(origin), origin)
        closure = closure_of(store, origin)
        _warn(closure, origin)
        of_document: Compiled = _made(store, closure.root, lambda: Compiled(closure))
        return of_document
    key = _text_key(origin)
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    closure = closure_of(new_store(origin), origin)
    _warn(closure, origin)
    made = Compiled(closure)
    if key is not None:
        with _lock:
            made = _cache.setdefault(key, made)
            while len(_cache) > MAX_CACHED:
                _cache.popitem(last=False)
    return made


def dialect(origin: Origin) -> str:
    """Return the dialect by the `$schema` of a schema or its document, else `origin.dialect`, else 2020-12."""
    return dialect_of(origin.raw) or dialect_of(origin.document) or origin.dialect or "2020-12"


def new_store(origin: Origin, *, annotations: bool = False) -> Store:
    """Return an empty store for the schemas of a document, or for a schema without a document."""
    document = origin.raw if origin.document is None else origin.document
    roots = ((),) if origin.document is None else _roots(document)
    used = dialect(origin)
    references = References(document, used, roots, origin.limits.max_schema_indexed)
    return Store(references, read, used, limits=origin.limits, annotations=annotations, formats=origin.formats,
                 unchecked=origin.unchecked)  # fmt: skip


def closure_of(store: Store, origin: Origin) -> Closure:
    """Return the normal form of a schema with everything that it refers to.

    If the schema cannot be read, the result accepts any value and has a warning with the reason.
    """
    try:
        if origin.document is not None and not origin.pointer:
            return store.closure((), origin.raw)
        return store.closure(parse_pointer(origin.pointer))
    except LookupError as error:
        reason = f"the document has nothing at {origin.pointer!r} ({error})"
    except SchemaLimitError as error:
        reason = str(error)
    except RecursionError:
        reason = "the schema is nested too deeply to be read"
    nothing = new_store(Origin(True, None, None, "", store.limits)).closure(())
    nothing.warnings = (f"{reason}: any value is valid",)
    return nothing


def _warn(closure: Closure, origin: Origin) -> None:
    for warning in closure.warnings:
        warned, said = closure.store.warned, warning
        if " is not checked: " in warning:  # a pattern, which many schemas may have
            warned, said = _patterns_warned, warning.partition(": ")[2]
        if said not in warned:  # not yet logged for another schema of the document that reaches it
            warned.add(said)
            logger.warning("schema%s: %s", f" {origin.pointer}" if origin.pointer else "", warning)
    if len(_patterns_warned) > MAX_WARNED:
        _patterns_warned.clear()


def _text_key(origin: Origin) -> Any:
    try:
        text = json.dumps(origin.raw, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None
    known: str | bytes = text
    if len(text) > _LONG:
        import hashlib  # imports OpenSSL, which takes longer than compiling the schemas of a small application

        known = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return known, dialect(origin), origin.limits, origin.formats, origin.unchecked


def _store(document: Any, used: str, origin: Origin) -> Store:
    """Return the normal form of a document, shared by its schemas while one of them is compiled."""
    key = id(document), used, origin.limits, origin.formats, origin.unchecked
    with _lock:
        found = _stores.get(key)
        # The store holds its document, so the id is not reused while the store exists.
        if found is None or found.references.document is not document:
            found = _stores[key] = new_store(origin)
        return found


def _roots(document: Any) -> tuple[tuple[Any, ...], ...]:
    """Return the locations of the schemas in a document: its root, and each schema in `components` of OpenAPI."""
    components = document.get("components") if isinstance(document, Mapping) else None
    named = components.get("schemas") if isinstance(components, Mapping) else None
    roots: list[tuple[Any, ...]] = [()]
    if isinstance(named, Mapping):
        roots += [("components", "schemas", name) for name in named]
    return tuple(roots)

"""Validation of the normal form. Three engines behind one table: each schema goes to the first that takes it.

1. Closures, compiled where a value first reaches a schema and shared by everything that refers to it: the
   common keywords.
2. fastjsonschema, in a draft-7 form that holds nothing but what it gets right (`generated`).
3. jsonschema (`interpreting`), which also finds every list of errors.

All three read the normal form, in which nothing can be fetched and every pattern is bounded.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from operad.schemas.generated import Generator, UnsupportedError
from operad.schemas.interpreting import errors_of
from operad.schemas.nodes import Body, Definition, Node, Store
from operad.schemas.tags import decides
from operad.schemas.values import ARRAY, CLASSES, CONTAINER, equal, is_multiple, is_type

Check = Callable[[Any], bool]

_TYPED = {"type", "default"}
_VALUES = {"enum", "const"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_STRINGS = {"minLength", "maxLength", "pattern"}
_ARRAYS = {"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"}
_OBJECTS = {"properties", "required", "additionalProperties", "patternProperties", "unevaluatedProperties"}
_UNIONS = {"$ref", "allOf", "anyOf", "oneOf", "not"}
_CLOSED = _TYPED | _VALUES | _NUMBERS | _STRINGS | _ARRAYS | _OBJECTS | _UNIONS | {"$siblings", "discriminator"}


class Checks:
    """The checks of a document's schemas, each made when first needed and kept by its node."""

    def __init__(self, store: Store) -> None:
        self.bodies = store.bodies
        self.patterns = store.patterns
        self.limits = store.limits
        self._generator = Generator(store.patterns, store.limits)
        self._local = threading.local()
        self._engines: tuple[tuple[str, Callable[[Node], Check]], ...] = (
            ("closures", self._closures),
            ("generated", self._generated),
            ("interpreted", self._interpreted),
        )

    def of(self, body: Body) -> Check:
        """The check of a schema; it answers for any value, and raises `RecursionError` on one that is too deep."""
        if isinstance(body, bool):
            return _everything if body else _nothing
        return body.check or self._make(body)

    def _make(self, body: Node) -> Check:
        why = ""
        for name, engine in self._engines:
            try:
                check = engine(body)
            except UnsupportedError as error:
                why = str(error)
            else:
                body.why = name if name != "interpreted" else f"{name}: {why}"
                body.check = check
                break
        return check

    def _interpreted(self, body: Node) -> Check:
        return lambda value: self.interpret(value, body)

    def _closures(self, body: Node) -> Check:
        if not _is_closed(body):
            raise UnsupportedError("keywords of other engines")
        types = _types(body)
        checks: list[Check] = []
        if not body.keys().isdisjoint(_VALUES):
            checks.append(_check_values(body))
        parts: dict[type, Check] = {}
        if not body.keys().isdisjoint(_OBJECTS):
            parts[dict] = self._object(body)
        if not body.keys().isdisjoint(_ARRAYS):
            parts[list] = self._array(body)
        if not body.keys().isdisjoint(_STRINGS):
            parts[str] = _check_string(body, self.patterns)
        if not body.keys().isdisjoint(_NUMBERS):
            parts[int] = _check_number(body)
        if parts or types is not None:
            checks.insert(0, _check_types(types, parts))
        checks.extend(self._unions(body))
        return checks[0] if len(checks) == 1 else _every(checks)

    def lazy(self, body: Body) -> Check:
        """The check of a schema, made when first called."""
        if isinstance(body, bool) or body.keys() <= _TYPED | _VALUES:
            return self.of(body)
        return lambda value: (body.check or self._make(body))(value)

    def _ref(self, definition: Definition) -> Check:
        check = self.lazy(definition.body)
        if not definition.is_heavy:
            return check

        def remember(value: Any) -> bool:
            memo = getattr(self._local, "memo", None)
            if memo is None or not isinstance(value, CONTAINER):
                return check(value)
            key = definition, id(value)
            found: tuple[Any, bool] | None = memo.get(key)
            if found is None:
                # With the value, so that its id stays its own for as long as it is remembered.
                found = memo[key] = (value, check(value))
            return found[1]

        return remember

    def remembering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, for schemas that recurse: within a call no schema looks at the same part of a value twice.

        Without it, two schemas that refer to both of themselves take 2**depth steps.
        """
        local = self._local

        def run(*arguments: Any) -> Any:
            if getattr(local, "memo", None) is not None:
                return function(*arguments)
            local.memo = {}
            try:
                return function(*arguments)
            finally:
                local.memo = None

        return run

    def _unions(self, body: Node) -> Iterator[Check]:
        if body.ref is not None:
            yield self._ref(body.ref)
        for node in body.get("allOf", ()):
            yield self.lazy(node)
        if "anyOf" in body:
            branches = [self.lazy(node) for node in body["anyOf"]]
            yield _tagged(body, "anyOf", branches, _any(branches))
        if "oneOf" in body:
            branches = [self.lazy(node) for node in body["oneOf"]]
            yield _tagged(body, "oneOf", branches, _one(branches))
        if "not" in body:
            excluded = self.lazy(body["not"])
            yield lambda value: not excluded(value)

    def _object(self, body: Node) -> Check:
        properties = body.get("properties", {})
        needed = set(body.get("required", ()))
        rows = [(name, _exact(node), self.lazy(node), name in needed) for name, node in properties.items()]
        undeclared = tuple(needed - properties.keys())
        others = self._others(body)

        def check_object(value: Any) -> bool:
            for name, exact, check, required in rows:
                if name in value:
                    item = value[name]
                    if item.__class__ not in exact and not check(item):
                        return False
                elif required:
                    return False
            for name in undeclared:
                if name not in value:
                    return False
            return others is None or others(value)

        return check_object

    def _others(self, body: Node) -> Check | None:
        """The check of what `properties` does not name; of `unevaluatedProperties` where that is simple."""
        rest = body.get("additionalProperties", body.get("unevaluatedProperties", True))
        rest = True if isinstance(rest, Node) and not rest else rest
        hides = "additionalProperties" in body or "unevaluatedProperties" not in body
        seen = [body] if hides else _seen(body)
        names = {name for one in seen for name in one.get("properties", ())}
        patterns = [
            (self.patterns[source].matches, self.lazy(node) if one is body else _everything)
            for one in seen
            for source, node in one.get("patternProperties", {}).items()
        ]
        if not patterns and isinstance(rest, bool):
            return None if rest else lambda value: value.keys() <= names
        further = self.lazy(rest)

        def check_others(value: Any) -> bool:
            for name, item in value.items():
                matched = False
                for matches, check in patterns:
                    if isinstance(name, str) and matches(name):
                        matched = True
                        if not check(item):
                            return False
                if not matched and name not in names and not further(item):
                    return False
            return True

        return check_others

    def _array(self, body: Node) -> Check:
        prefix = [self.lazy(node) for node in body.get("prefixItems", ())]
        item = body.get("items", body.get("unevaluatedItems", True))
        exact, check = _exact(item), self.lazy(item)
        least, most = body.get("minItems", 0), body.get("maxItems", math.inf)
        start = len(prefix)
        if "items" not in body:
            start = max(len(one.get("prefixItems", ())) for one in _seen(body))
        is_bounded = least > 0 or most != math.inf

        def check_array(value: Any) -> bool:
            if is_bounded and not least <= len(value) <= most:
                return False
            if prefix:
                for one, part in zip(prefix, value):  # noqa: B905  # an array may be shorter, or longer
                    if not one(part):
                        return False
            if item is not True:
                for part in value[start:] if start else value:
                    if part.__class__ not in exact and not check(part):
                        return False
            return True

        return check_array

    def _generated(self, body: Node) -> Check:
        function = self._generator.check(body)

        def check(value: Any) -> bool:
            try:
                return function(value)
            except Exception:  # noqa: BLE001  # generated code leaks KeyError, OverflowError, RecursionError…
                return self.interpret(value, body)

        return check

    def interpret(self, value: Any, body: Node) -> bool:
        """The interpreter's answer. Raises `RecursionError`; what is no JSON is not valid."""
        memo = getattr(self._local, "memo", None)
        key = body, id(value)
        if memo is not None and key in memo:
            return bool(memo[key][1])
        try:
            valid = not self.found(value, body, 1)
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001  # TypeError, AttributeError: a Python object that is no JSON
            valid = False
        if memo is not None:
            memo[key] = value, valid
        return valid

    def found(self, value: Any, body: Body, most: int) -> list[Any]:
        """What is wrong, as `jsonschema` errors. Raises what `jsonschema` raises for what is no JSON."""
        return errors_of(self, body, value, getattr(self._local, "memo", None), most)

    def engine(self, bodies: list[Body]) -> str:
        """How the given schemas are checked: the slowest of what each of their parts says."""
        engines = set()
        stack = list(bodies)
        while stack:
            node = stack.pop()
            if isinstance(node, Node):
                self.of(node)
                engines.add(node.why)
                # What is in a schema that is no matter of closures is a matter of the same engine.
                stack.extend([*node.here(), *node.parts()] if node.why == "closures" else ())
        why = sorted(engine.partition(": ")[2] for engine in engines if engine.startswith("interpreted"))
        if why:
            return f"interpreted: {', '.join(why)}"
        return "generated" if "generated" in engines else "closures"


def _everything(_value: Any) -> bool:
    return True


def _nothing(_value: Any) -> bool:
    return False


def _is_closed(body: Node) -> bool:
    if not body.keys() <= _CLOSED:
        return False
    # `unevaluated*` is simple where every schema that can see the value is a part of this one without condition.
    return all(
        body.get(key, True) is True
        or other in body
        or all(one.keys() <= (_CLOSED - _MARKS if one is body else _PLAIN) for one in _seen(body))
        for key, other in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items"))
    )


_MARKS = {"anyOf", "oneOf"}
_PLAIN = _CLOSED - _MARKS - {"additionalProperties", "items", "unevaluatedProperties", "unevaluatedItems"}


def _seen(body: Node) -> list[Node]:
    """A schema, what it refers to and its `allOf`, each with theirs: all that see a value beside it."""
    out = [body]
    for one in out:
        parts = [*one.get("allOf", ()), *([one.ref.body] if one.ref is not None else ())]
        out.extend(part for part in parts if isinstance(part, Node) and part not in out)
    return out


def _exact(body: Body) -> frozenset[type]:
    """The classes whose every instance is valid."""
    if isinstance(body, bool) or not body.keys() <= _TYPED:
        return frozenset()
    return frozenset(cls for name in _types(body) or () for cls in CLASSES[name])


def _check_values(body: Node) -> Check:
    lists = [[body["const"]]] if "const" in body else []
    if "enum" in body:
        lists.append(body["enum"])

    def check(value: Any) -> bool:
        return all(any(equal(value, one) for one in values) for values in lists)

    if len(lists) == 1 and all(isinstance(value, str) for value in lists[0]):
        texts = frozenset(lists[0])
        return lambda value: value in texts if value.__class__ is str else check(value)
    return check


def _check_types(types: list[str] | None, parts: dict[type, Check]) -> Check:
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
    exact = frozenset(cls for name in types or () for cls in CLASSES[name])
    return lambda value: value.__class__ in exact or check(value)


def _check_string(body: Node, patterns: Mapping[str, Any]) -> Check:
    least, most = body.get("minLength", 0), body.get("maxLength", math.inf)
    if "pattern" not in body:
        return lambda value: least <= len(value) <= most
    matches = patterns[body["pattern"]].matches
    return lambda value: least <= len(value) <= most and matches(value)


def _check_number(body: Node) -> Check:
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


def _every(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # a generator would double the frames of every level
            if not one(value):
                return False
        return True

    return check


def _any(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        for one in checks:  # noqa: SIM110  # see above
            if one(value):
                return True
        return False

    return check


def _one(checks: list[Check]) -> Check:
    def check(value: Any) -> bool:
        count = 0
        for one in checks:
            if one(value):
                count += 1
                if count > 1:
                    return False
        return count == 1

    return check


def _tagged(body: Node, keyword: str, branches: list[Check], plain: Check) -> Check:
    """The check of a union that a discriminator decides; `plain` where it does not."""
    given = body.get("discriminator")
    if given is None or not given["decides"] or given["union"] != keyword:
        return plain
    name, tags = given["propertyName"], given["tags"]

    def check(value: Any) -> bool:
        if not decides(given, keyword, value):
            return plain(value)
        tag = value[name]
        return isinstance(tag, str) and tag in tags and branches[tags[tag]](value)

    return check


def _types(body: Node) -> list[str] | None:
    types = body.get("type")
    return [types] if isinstance(types, str) else types

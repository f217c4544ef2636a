"""Validation of a normal form: closures for the common keywords, generated code and an interpreter for the rest.

Closures are compiled per schema, when a value first reaches it, and shared by everything that refers to it.
A schema with other keywords goes to fastjsonschema, in a draft-7 form that holds nothing but what it gets
right, and what it gets wrong (`unevaluated*`, `minContains`) to `jsonschema`, which also builds every list
of errors. All three read the normal form, in which nothing can be fetched and every pattern is bounded.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from operad.schemas.generated import Generator, UnsupportedError
from operad.schemas.interpreting import MAX_ERRORS, errors_of
from operad.schemas.nodes import Body, children_of, decides, in_place, ref_name
from operad.schemas.patterns import Pattern
from operad.schemas.values import ARRAY, CLASSES, CONTAINER, equal, is_multiple, is_type

Check = Callable[[Any], bool]


_TYPED = {"type", "default"}
_VALUES = {"enum", "const"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_STRINGS = {"minLength", "maxLength", "pattern"}
_ARRAYS = {"items", "prefixItems", "minItems", "maxItems"}
_OBJECTS = {"properties", "required", "additionalProperties", "patternProperties"}
_UNIONS = {"$ref", "allOf", "anyOf", "oneOf", "not"}
_PRIVATE = {"$siblings", "discriminator"}
_CLOSED = _TYPED | _VALUES | _NUMBERS | _STRINGS | _ARRAYS | _OBJECTS | _UNIONS | _PRIVATE


class Checks:
    """The checks of a document's schemas, each made when first needed."""

    def __init__(self, bodies: Mapping[str, Body], heavy: set[str], patterns: Mapping[str, Pattern]) -> None:
        self.bodies = bodies
        self.heavy = heavy
        self.patterns = patterns
        self._generator = Generator(bodies, heavy, patterns)
        self._known: dict[int, tuple[Body, Check]] = {}
        self._reasons: dict[int, str] = {}
        self._local = threading.local()

    def of(self, body: Body) -> Check:
        """The check of a schema; it answers for any value, and raises `RecursionError` on one that is too deep."""
        known = self._known.get(id(body))
        if known is None:
            # The body is kept with its check, so that its id stays its own.
            known = self._known[id(body)] = (body, self._make(body))
        return known[1]

    def _make(self, body: Body) -> Check:
        if isinstance(body, bool):
            return lambda _value: body
        if _is_closed(body):
            return self._closures(body)
        try:
            return self._generated(body)
        except UnsupportedError as error:
            return self._interpreted(body, str(error))

    def _interpreted(self, body: Body, why: str) -> Check:
        def interpret(value: Any) -> bool:
            return self.interpret(value, body)

        self._reasons[id(body)] = f"interpreted: {why}"
        return interpret

    def _closures(self, body: dict[str, Any]) -> Check:
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
        made: list[Check] = []

        def check(value: Any) -> bool:
            if not made:
                made.append(self.of(body))
            return made[0](value)

        return check

    def _ref(self, name: str) -> Check:
        body = self.bodies[name]
        check = self.lazy(body)

        def remember(value: Any) -> bool:
            memo = getattr(self._local, "memo", None)
            if memo is None or not isinstance(value, CONTAINER):
                return check(value)
            key = name, id(value)
            found: tuple[Any, bool] | None = memo.get(key)
            if found is None:
                # With the value, so that its id stays its own for as long as it is remembered.
                found = memo[key] = (value, check(value))
            return found[1]

        return remember if name in self.heavy else check

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

    def _unions(self, body: dict[str, Any]) -> Iterator[Check]:
        if "$ref" in body:
            yield self._ref(ref_name(body))
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

    def _object(self, body: dict[str, Any]) -> Check:
        properties = body.get("properties", {})
        needed = set(body.get("required", ()))
        rows = [(name, _exact(node), self.lazy(node), name in needed) for name, node in properties.items()]
        undeclared = tuple(needed - properties.keys())
        others = self._others(body, properties)

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

    def _others(self, body: dict[str, Any], properties: Mapping[str, Body]) -> Check | None:
        """The check of what `properties` does not name."""
        rest = body.get("additionalProperties", True)
        patterns = [
            (self.patterns[source].matches, self.lazy(node))
            for source, node in body.get("patternProperties", {}).items()
        ]
        if not patterns:
            if rest is True or rest == {}:
                return None
            if rest is False:
                return lambda value: value.keys() <= properties.keys()
        further = self.lazy(rest)

        def check_others(value: Any) -> bool:
            for name, item in value.items():
                matched = False
                for matches, check in patterns:
                    if isinstance(name, str) and matches(name):
                        matched = True
                        if not check(item):
                            return False
                if not matched and name not in properties and not further(item):
                    return False
            return True

        return check_others

    def _array(self, body: dict[str, Any]) -> Check:
        prefix = [self.lazy(node) for node in body.get("prefixItems", ())]
        item = body.get("items", True)
        exact, check = _exact(item), self.lazy(item)
        least, most = body.get("minItems", 0), body.get("maxItems", math.inf)
        start = len(prefix)
        is_bounded = least > 0 or most != math.inf

        def check_array(value: Any) -> bool:
            if is_bounded and not least <= len(value) <= most:
                return False
            if start:
                for one, part in zip(prefix, value):  # noqa: B905  # an array may be shorter, or longer
                    if not one(part):
                        return False
            if item is not True:
                for part in value[start:] if start else value:
                    if part.__class__ not in exact and not check(part):
                        return False
            return True

        return check_array

    def _generated(self, body: Body) -> Check:
        from fastjsonschema import JsonSchemaValueException

        function = self._generator.check(body)

        def check(value: Any) -> bool:
            try:
                function(value)
            except JsonSchemaValueException:
                return False
            except Exception:  # noqa: BLE001  # generated code leaks KeyError, OverflowError, RecursionError…
                return self.interpret(value, body)
            return True

        self._reasons[id(body)] = "generated"
        return check

    def interpret(self, value: Any, body: Body) -> bool:
        """The interpreter's answer. Raises `RecursionError`; what is no JSON is not valid."""
        memo = getattr(self._local, "memo", None)
        key = "interpreted", id(body), id(value)
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

    def found(self, value: Any, body: Body, most: int = MAX_ERRORS) -> list[Any]:
        """What is wrong, as `jsonschema` errors. Raises what `jsonschema` raises for what is no JSON."""
        memo = getattr(self._local, "memo", None)
        return errors_of(self, body, value, {} if memo is None and self.heavy else memo, most)

    def engine(self, bodies: list[Body]) -> str:
        """How the given schemas are checked: the slowest of what each of their parts says."""
        engines = {self._engine(node) for body in bodies for node in _walk(body)}
        if why := sorted(engine.partition(": ")[2] for engine in engines if engine.startswith("interpreted")):
            return f"interpreted: {', '.join(why)}"
        return "generated" if "generated" in engines else "closures"

    def _engine(self, body: Body) -> str:
        if isinstance(body, bool) or _is_closed(body):
            return "closures"
        self.of(body)
        return self._reasons[id(body)]


def _walk(body: Body) -> Iterator[Body]:
    """A schema and those in it, down to the first that is no matter of closures."""
    stack: list[Body] = [body]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, dict) and _is_closed(node):
            stack.extend(child for child, _ in children_of(node))
            stack.extend(in_place(node))


def _is_closed(body: dict[str, Any]) -> bool:
    return all(key in _CLOSED or (key.startswith("unevaluated") and body[key] is True) for key in body)


def _exact(body: Body) -> frozenset[type]:
    """The classes whose every instance is valid."""
    if not isinstance(body, dict) or not body.keys() <= _TYPED:
        return frozenset()
    return frozenset(cls for name in _types(body) or () for cls in CLASSES[name])


def _check_values(body: dict[str, Any]) -> Check:
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


def _check_string(body: dict[str, Any], patterns: Mapping[str, Pattern]) -> Check:
    least, most = body.get("minLength", 0), body.get("maxLength", math.inf)
    if "pattern" not in body:
        return lambda value: least <= len(value) <= most
    matches = patterns[body["pattern"]].matches
    return lambda value: least <= len(value) <= most and matches(value)


def _check_number(body: dict[str, Any]) -> Check:
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


def _tagged(body: dict[str, Any], keyword: str, branches: list[Check], plain: Check) -> Check:
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


def _types(body: dict[str, Any]) -> list[str] | None:
    types = body.get("type")
    return [types] if isinstance(types, str) else types

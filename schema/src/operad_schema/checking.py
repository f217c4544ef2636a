"""The checks of values: closures, each compiled when a value first reaches its schema.

Nothing is fetched, and every pattern is bounded. The cost of a schema is known in advance: if many schemas can
apply to one part of a value (`Definition.crowd`), each applied schema draws on one budget for the whole call
(`patterns.WORK`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from operad_schema.evaluating import Evaluation, is_plain, seen_by
from operad_schema.keywords import (
    Check,
    all_of,
    any_of,
    check_plain,
    check_types,
    check_values,
    exact,
    one_of,
    types_of,
)
from operad_schema.nodes import Body, Definition, Node, Store
from operad_schema.patterns import WORK, TooMuchWorkError
from operad_schema.tags import decides
from operad_schema.values import CONTAINER, MAX_PARTS, count_parts
from operad_schema.vocabulary import KEYWORDS

Answer = TypeVar("Answer")

_SMALL = {"type", "default", "enum", "const"}
_VALUES = {"enum", "const"}
_ITEMS = {"items", "prefixItems", "unevaluatedItems"}
_REST = {"additionalProperties", "patternProperties", "unevaluatedProperties"}
_LOOPS = {key for key, word in KEYWORDS.items() if word.applies == "each part"} | {"uniqueItems"}
SPARSE = 32
"""With at least this many declared properties, only the properties that a small object has are visited."""


class Checks:
    """The checks of a document's schemas, each compiled when first needed and kept by its node."""

    def __init__(self, store: Store) -> None:
        self.limits = store.limits
        self.kind = store.kind
        self._local = threading.local()
        self.evaluation = Evaluation(self)

    def of(self, body: Body) -> Check:
        """Return a schema's check. It may raise `RecursionError`, or `TooMuchWorkError` beyond the budget."""
        if isinstance(body, bool):
            return _everything if body else _nothing
        return body.check or self._make(body)

    def _make(self, body: Node) -> Check:
        if is_plain(body):
            body.check = self.counted(body, self.but_unevaluated(body))
        else:
            evaluate = self.evaluation.of(body)
            body.check = self.counted(body, lambda value: evaluate(value) is not None)
        return body.check

    def counted(self, body: Node, check: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
        """Return `check`. If many schemas can apply to one part of a value, it draws on the budget of the call."""
        if not body.counts or _is_leaf(body):
            return check
        deep = "uniqueItems" in body
        breadth = len(body.get("patternProperties", ())) + (not _LOOPS.isdisjoint(body))
        own = 1 + sum(_is_leaf(one) for one in body.here())
        work = WORK

        def counted(value: Any) -> Answer:
            count = own
            if breadth and isinstance(value, CONTAINER):
                count += breadth * len(value) + (count_parts(value, MAX_PARTS) if deep else 0)
            work.steps = left = work.steps - count
            if left < 0:
                raise TooMuchWorkError
            return check(value)

        return counted

    def but_unevaluated(self, body: Node, *, in_place: bool = True) -> Check:
        """Return the check of a schema whose `unevaluated*` means the same as `additionalProperties` or `items`.

        If `in_place` is False, the check ignores the subschemas that apply to the same value.
        """
        types = types_of(body)
        checks: list[Check] = []
        parts: dict[str, Check] = {}
        for kind in {KEYWORDS[key].kind for key in body if key in KEYWORDS} - {""}:
            found = check_plain(body, kind)
            if kind == "object":
                found += self._object(body, in_place=in_place)
            elif kind == "array":
                found += self._array(body)
            if found:
                parts[kind] = all_of(found)
        if parts or types is not None:
            checks.append(check_types(types, parts))
        checks += check_plain(body, "")
        if not body.keys().isdisjoint(_VALUES):
            checks.append(check_values(body))
        if "not" in body:
            excluded = self.lazy(body["not"])
            checks.append(lambda value: not excluded(value))
        if in_place:
            checks.extend(self._unions(body))
        return all_of(checks)

    def lazy(self, body: Body) -> Check:
        """Return the check of a schema, compiled when first called."""
        if isinstance(body, bool) or body.keys() <= _SMALL:
            return self.of(body)
        return lambda value: (body.check or self._make(body))(value)

    def remembered(self, definition: Definition, check: Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
        """Return `check`; for a heavy definition, a wrapper that remembers its results until the call ends.

        The wrapper runs `check` at most once for each array or object in the value. `what` names the kind of
        result, because those of checks and of evaluations are remembered separately.
        """
        if not definition.is_heavy:
            return check

        def remember(value: Any) -> Any:
            memo = getattr(self._local, "memo", None)
            if memo is None or not isinstance(value, CONTAINER):
                return check(value)
            WORK.step(1)
            key = definition, what, id(value)
            found = memo.get(key)
            if found is None:
                # Keep the value as well, so that its id is not reused while it is remembered.
                found = memo[key] = (value, check(value))
            return found[1]

        return remember

    def remembering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, wrapped so that each call has a memory for the results of `remembered`.

        Without that memory, a schema that refers to itself twice takes 2**depth steps.
        """
        local = self._local

        def run(*arguments: Any) -> Any:
            local.memo = {}
            try:
                return function(*arguments)
            finally:
                local.memo = None

        return run

    def _unions(self, body: Node) -> Iterator[Check]:
        if body.ref is not None:
            yield self.remembered(body.ref, self.lazy(body.ref.body), "valid")
        for node in body.get("allOf", ()):
            yield self.lazy(node)
        for key, combine in (("anyOf", any_of), ("oneOf", one_of)):
            if key in body:
                branches = [self.lazy(node) for node in body[key]]
                yield _tagged(body, key, branches, combine(branches))
        if "then" in body or "else" in body:
            condition, then, otherwise = (self.lazy(body.get(key, True)) for key in ("if", "then", "else"))
            yield lambda value: then(value) if condition(value) else otherwise(value)

    def _object(self, body: Node, *, in_place: bool) -> list[Check]:
        checks: list[Check] = []
        if "properties" in body or "required" in body:
            checks.append(self._properties(body))
        if (others := self._others(body)) is not None:
            checks.append(others)
        if "propertyNames" in body:
            name_check = self.lazy(body["propertyNames"])
            checks.append(lambda value: all(map(name_check, value)))
        if "dependentRequired" in body:
            needs = [(name, set(others)) for name, others in body["dependentRequired"].items()]
            checks.append(lambda value: all(name not in value or value.keys() >= others for name, others in needs))
        if in_place and "dependentSchemas" in body:
            rows = [(name, self.lazy(node)) for name, node in body["dependentSchemas"].items()]
            checks.append(lambda value: all(name not in value or check(value) for name, check in rows))
        return checks

    def _properties(self, body: Node) -> Check:
        properties = body.get("properties", {})
        needed = set(body.get("required", ()))
        rows = [(name, exact(node), self.lazy(node), name in needed) for name, node in properties.items()]
        undeclared = tuple(needed - properties.keys())

        def check_object(value: Any) -> bool:
            for name, classes, check, required in rows:
                if name in value:
                    item = value[name]
                    if item.__class__ not in classes and not check(item):
                        return False
                elif required:
                    return False
            for name in undeclared:  # noqa: SIM110  # a generator would be slower
                if name not in value:
                    return False
            return True

        if len(rows) < SPARSE:
            return check_object
        by_name = {name: check for name, _, check, _ in rows}

        def check_sparse(value: Any) -> bool:
            if len(value) * 4 > len(rows):
                return check_object(value)
            if not needed <= value.keys():
                return False
            return all(name not in by_name or by_name[name](item) for name, item in value.items())

        return check_sparse

    def _others(self, body: Node) -> Check | None:
        """Return the check of properties that `properties` does not declare; None if there is nothing to check."""
        if body.keys().isdisjoint(_REST):
            return None
        simple = is_plain(body)
        rest = body.get("additionalProperties", body.get("unevaluatedProperties", True) if simple else True)
        rest = True if isinstance(rest, Node) and not rest else rest
        hides = "additionalProperties" in body or "unevaluatedProperties" not in body or not simple
        seen = [body] if hides else seen_by(body)
        names = {name for one in seen for name in one.get("properties", ())}
        patterns = [
            (pattern.matches, self.lazy(node) if one is body else _everything)
            for one in seen
            for pattern, node in one.get("patternProperties", {}).items()
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

    def _array(self, body: Node) -> list[Check]:
        checks: list[Check] = []
        if not body.keys().isdisjoint(_ITEMS):
            checks.append(self._items(body))
        if "contains" in body:
            least, most, contained = (
                body.get("minContains", 1),
                body.get("maxContains"),
                self.lazy(body["contains"]),
            )
            if most is None and least <= 1:
                checks.append(lambda value: least == 0 or any(map(contained, value)))
            else:
                top = math.inf if most is None else most
                checks.append(lambda value: least <= sum(map(contained, value)) <= top)
        return checks

    def _items(self, body: Node) -> Check:
        prefix = [self.lazy(node) for node in body.get("prefixItems", ())]
        simple = is_plain(body)
        item = body.get("items", body.get("unevaluatedItems", True) if simple else True)
        classes, check = exact(item), self.lazy(item)
        start = len(prefix)
        if "items" not in body and simple:
            start = max(len(one.get("prefixItems", ())) for one in seen_by(body))

        def check_array(value: Any) -> bool:
            if prefix:
                for one, part in zip(prefix, value):  # noqa: B905  # an array may be shorter, or longer
                    if not one(part):
                        return False
            if item is not True:
                for part in value[start:] if start else value:
                    if part.__class__ not in classes and not check(part):
                        return False
            return True

        return check_array


def _is_leaf(body: Body) -> bool:
    """Return True if a schema holds no schema. The schema around it then counts it together with itself."""
    if isinstance(body, bool):
        return True
    holds = body.ref is not None or "uniqueItems" in body
    return not holds and next(body.here(), None) is None and next(body.parts(), None) is None


def _everything(_value: Any) -> bool:
    return True


def _nothing(_value: Any) -> bool:
    return False


def _tagged(body: Node, keyword: str, branches: list[Check], plain: Check) -> Check:
    """Return the check of a union whose discriminator selects the branch; `plain` if it does not."""
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

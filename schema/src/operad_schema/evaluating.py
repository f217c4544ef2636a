"""The checks of `unevaluatedProperties` and `unevaluatedItems` (JSON Schema 2020-12, core, section 11).

They need to know which parts of a value the schemas beside them evaluated. One pass computes both whether a value
is valid and which parts were evaluated, so that nested schemas do not run again at each level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from operad_schema.nodes import Body, Definition, Node
from operad_schema.tags import decides
from operad_schema.values import ARRAY

Seen = set[Any]
"""The evaluated names of an object's properties, or positions of an array."""
Evaluate = Callable[[Any], Seen | None]
"""A check that returns the evaluated parts of a value; None if the value is invalid."""


class Checking(Protocol):
    """The part of `operad_schema.checking.Checks` that evaluations use."""

    def lazy(self, body: Body) -> Callable[[Any], bool]:
        """Return the check of a schema, compiled when first called."""

    def but_unevaluated(self, body: Node, *, in_place: bool) -> Callable[[Any], bool]:
        """Return the check without `unevaluated*`; see `operad_schema.checking.Checks.but_unevaluated`."""

    def counted(self, body: Node, check: Evaluate) -> Evaluate:
        """Return `check`. If `body.counts`, it draws on the budget of the call."""

    def remembered(self, definition: Definition, check: Evaluate, what: str) -> Evaluate:
        """Return `check`, run once in a call for each part of a value if `definition.is_heavy`."""


_NONE: Seen = set()


def seen_by(body: Node) -> list[Node]:
    """Return a schema and, recursively, the schemas of its `$ref` and `allOf`, which apply to the same value."""
    out = [body]
    for one in out:
        parts = [*one.get("allOf", ()), *([one.ref.body] if one.ref is not None else ())]
        out.extend(part for part in parts if isinstance(part, Node) and part not in out)
    return out


def is_plain(body: Node) -> bool:
    """Return True if `unevaluated*` means the same as `additionalProperties` or `items`.

    This is the case if every schema that applies to the same value does so unconditionally.
    """
    return all(
        body.get(key, True) is True
        or other in body
        or (
            body.keys().isdisjoint(_CONDITIONS)
            and all(one is body or one.keys().isdisjoint(_MARKS) for one in seen_by(body))
        )
        for key, other in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items"))
    )


_CONDITIONS = {"anyOf", "oneOf", "if", "dependentSchemas", "contains"}
_MARKS = _CONDITIONS | {"additionalProperties", "items", "unevaluatedProperties", "unevaluatedItems"}


class Evaluation:
    """The evaluations of a document's schemas, each compiled when first needed."""

    def __init__(self, checks: Checking) -> None:
        self.checks = checks
        self._made: dict[Node, Evaluate] = {}

    def of(self, body: Body) -> Evaluate:
        """Return the evaluation of a schema: a check that also returns the evaluated parts."""
        if isinstance(body, bool):
            return (lambda _value: _NONE) if body else (lambda _value: None)
        made = self._made.get(body)
        if made is None:
            made = self._made[body] = self._make(body)
        return made

    def _lazy(self, body: Body) -> Evaluate:
        return lambda value: self.of(body)(value)

    def _make(self, body: Node) -> Evaluate:
        own = self.checks.but_unevaluated(body, in_place=False)
        others = list(self._others(body))
        names, items = self._names(body), self._items(body)

        def evaluate(value: Any) -> Seen | None:
            if not own(value):
                return None
            seen: Seen = set()
            for other in others:
                found = other(value)
                if found is None:
                    return None
                seen |= found
            if isinstance(value, dict):
                return names(value, seen)
            return items(value, seen) if isinstance(value, ARRAY) else seen

        return self.checks.counted(body, evaluate)

    def _others(self, body: Node) -> Iterator[Evaluate]:
        """Yield the evaluations of the subschemas that apply to the same value."""
        if body.ref is not None:
            yield self.checks.remembered(body.ref, self._lazy(body.ref.body), "seen")
        for node in body.get("allOf", ()):
            yield self._lazy(node)
        for key in ("anyOf", "oneOf"):
            if key in body:
                yield _union(body, key, [self._lazy(node) for node in body[key]])
        if "if" in body:
            yield _conditional(*(self._lazy(body.get(key, True)) for key in ("if", "then", "else")))
        for name, node in body.get("dependentSchemas", {}).items():
            yield _dependent(name, self._lazy(node))

    def _names(self, body: Node) -> Callable[[dict[Any, Any], Seen], Seen | None]:
        properties = frozenset(body.get("properties", ()))
        patterns = [pattern.matches for pattern in body.get("patternProperties", ())]
        closed = "additionalProperties" in body
        rest = None if closed else body.get("unevaluatedProperties")
        check = None if rest is None else self.checks.lazy(rest)

        def names(value: dict[Any, Any], seen: Seen) -> Seen | None:
            if closed:
                return set(value)
            seen |= properties & value.keys()
            if patterns:
                texts = [name for name in value if isinstance(name, str) and name not in seen]
                seen.update(name for name in texts if any(matches(name) for matches in patterns))
            if check is None:
                return seen
            return set(value) if all(name in seen or check(item) for name, item in value.items()) else None

        return names

    def _items(self, body: Node) -> Callable[[Any, Seen], Seen | None]:
        length = len(body.get("prefixItems", ()))
        contained = self.checks.lazy(body["contains"]) if "contains" in body else None
        closed = "items" in body
        rest = None if closed else body.get("unevaluatedItems")
        check = None if rest is None else self.checks.lazy(rest)

        def items(value: Any, seen: Seen) -> Seen | None:
            every = range(len(value))
            if closed:
                return set(every)
            seen.update(every[:length])
            if contained is not None:
                seen.update(index for index, item in enumerate(value) if index not in seen and contained(item))
            if check is None:
                return seen
            return set(every) if all(index in seen or check(value[index]) for index in every) else None

        return items


def _union(body: Node, keyword: str, branches: list[Evaluate]) -> Evaluate:
    given: Any = body.get("discriminator")

    def evaluate(value: Any) -> Seen | None:
        if decides(given, keyword, value):
            tag = value[given["propertyName"]]
            position = given["tags"].get(tag) if isinstance(tag, str) else None
            return None if position is None else branches[position](value)
        seen: Seen = set()
        count = 0
        for branch in branches:
            found = branch(value)
            if found is not None:
                count += 1
                seen |= found
        return seen if count == 1 or (count and keyword == "anyOf") else None

    return evaluate


def _conditional(condition: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    def evaluate(value: Any) -> Seen | None:
        holds = condition(value)
        found = otherwise(value) if holds is None else then(value)
        return found if holds is None or found is None else found | holds

    return evaluate


def _dependent(name: str, evaluate: Evaluate) -> Evaluate:
    return lambda value: evaluate(value) if isinstance(value, dict) and name in value else _NONE

"""The cast of unions, which selects the branch that a value is meant to match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operad_schema.conjunctions import (
    ABSENT,
    Call,
    Caster,
    Casts,
    Members,
    allowed_values,
    common_types,
    flatten,
    node_types,
)
from operad_schema.nodes import FEW, Body, Node
from operad_schema.patterns import WORK
from operad_schema.values import CONTAINER, equal, is_type, json_type
from operad_schema.vocabulary import TYPES


class Union:
    """The cast of one `anyOf` or `oneOf`. It selects a branch for a value, and casts by that branch.

    The siblings of the union, which are the rest of the conjunction that contains it, take part in the cast.
    """

    def __init__(self, casting: Casts, members: Members, member: Node, key: str) -> None:
        self.casting = casting
        self.members = members
        self.is_exclusive = key == "oneOf"
        self.branches: list[Body] = member[key]
        self.siblings = tuple(one.less(key) if one is member else one for one in members)
        self.tag, self.tags, self.decides = self._discriminator(member, key)
        count = len(self.branches)
        self.casts: list[Caster | None] = [None] * count
        self.checks: list[Callable[[Any], bool] | None] = [None] * count
        self.scores: list[list[tuple[str, list[Callable[[Any], bool]], list[Any]]] | None] = [None] * count
        types = [branch_types(branch) for branch in self.branches]
        self.fits = {name: [i for i, allowed in enumerate(types) if _fits(name, allowed)] for name in TYPES}

    def _discriminator(self, member: Node, key: str) -> tuple[str | None, dict[str, int | None], bool]:
        given = member.get("discriminator")
        if given is None or given["union"] != key:
            return None, {}, False
        return given["propertyName"], given["tags"], given["decides"]

    def cast(self, value: Any, call: Call) -> Any:
        """Return a value cast by its branch, again if the cast changes the branch; unchanged if no branch fits."""
        mark = call.mark()
        tag = value.get(self.tag) if self.tag is not None and isinstance(value, dict) else None
        if isinstance(tag, str) and (chosen := self.tags.get(tag)) is not None:
            out = (self.casts[chosen] or self.branch(chosen))(value, call)
            if self.decides and isinstance(out, dict) and out.get(self.tag) == tag:
                return out  # a shortcut for the hot path: the rest would choose the same branch
        else:
            chosen, out, _ = self.choose(value, call)
            if chosen is None:
                return value
            if out is ABSENT:
                out = (self.casts[chosen] or self.branch(chosen))(value, call)
        fits, tried = None, {chosen}
        while out is not value:
            again, _, fits = self.choose(out, call, chosen)
            if again == chosen or again is None:
                break
            # The cast value belongs to another branch: cast it by that branch. If branches keep passing it on,
            # return the value unchanged.
            call.recasts += 1
            if again in tried or call.recasts > self.casting.checks.limits.max_recasts:
                call.forget(mark)
                return value
            tried.add(again)
            chosen = again
            before, out = out, self.branch(chosen)(out, call)
            call.moved(mark, before, out)
        if self.is_exclusive and fits != 1 and self._is_spoilt(value, out):
            call.forget(mark)
            return value
        return out

    def _is_spoilt(self, value: Any, out: Any) -> bool:
        """Return True if a container is valid and its cast is not: one branch accepts it, two accept its cast."""
        if out is value or not isinstance(value, CONTAINER) or out == value:
            return False
        checks = [self.casting.checks.of(member) for member in self.members]
        return not all(check(out) for check in checks) and all(check(value) for check in checks)

    def choose(self, value: Any, call: Call, before: int | None = None) -> tuple[int | None, Any, int | None]:
        """Return (branch, cast value, count) for a value.

        `branch` is the index of the branch that fits, or `None`. `count` is the number of branches that accept the
        value; `None` if unknown. If no branch fits the value as it is, casts are tried, and the cast value is the
        result of the first that succeeds; otherwise it is `ABSENT`. With `before`, the index of the branch that
        made the value by an earlier cast, no cast is tried.
        """
        if self.tag is not None and isinstance(value, dict):
            tag = value.get(self.tag)
            if isinstance(tag, str) and (tagged := self.tags.get(tag)) is not None:
                return tagged, ABSENT, None
        name = json_type(value)
        if name is None:
            return None, ABSENT, None
        fitting = self.fits[name]
        if len(fitting) == 1:
            return fitting[0], ABSENT, 1
        if not fitting:
            return (None, ABSENT, None) if before is not None else self._try(value, call)
        if len(fitting) > FEW:
            WORK.step(len(fitting))
        valid = [index for index in fitting if self.check(index)(value)]
        ranked = valid or fitting
        if len(ranked) > 1 and isinstance(value, dict):
            return max(ranked, key=lambda index: (self.score(index, value), -index)), ABSENT, len(valid)
        return ranked[0], ABSENT, len(valid)

    def _try(self, value: Any, call: Call) -> tuple[int | None, Any, int | None]:
        mark = call.mark()
        if len(self.branches) > FEW:
            WORK.step(len(self.branches))
        for index in range(len(self.branches)):
            if self.branches[index] is False:
                continue
            out = self.branch(index)(value, call)
            if out is not value and self.check(index)(out):
                return index, out, None
            call.forget(mark)
        return None, ABSENT, None

    def branch(self, index: int) -> Caster:
        """Return the cast by the branch at a position and the union's siblings."""
        cast = self.casts[index]
        if cast is None:
            with self.casting.lock:
                cast = self.casts[index] = self.casting.node([*self.siblings, self.branches[index]])
        return cast

    def check(self, index: int) -> Callable[[Any], bool]:
        """Return the check of the branch at a position."""
        check = self.checks[index]
        if check is None:
            with self.casting.lock:
                check = self.checks[index] = self.casting.checks.of(self.branches[index])
        return check

    def score(self, index: int, value: dict[Any, Any]) -> int:
        """Return how much an object resembles a branch.

        Each declared property that the object has adds 1, and 10 more if its value is valid, and 100 more if the
        property allows only that value.
        """
        rows = self.scores[index]
        if rows is None:
            with self.casting.lock:
                rows = self.scores[index] = self._rows(index)
        total = 0
        for name, checks, tags in rows:
            if name in value:
                item = value[name]
                total += 1
                if all(check(item) for check in checks):
                    total += 10
                if any(equal(item, tag) for tag in tags):
                    total += 100
        return total

    def _rows(self, index: int) -> list[tuple[str, list[Callable[[Any], bool]], list[Any]]]:
        members, _ = flatten([self.branches[index]])
        properties: dict[str, list[Body]] = {}
        for member in members:
            for name, schema in member.get("properties", {}).items():
                properties.setdefault(name, []).append(schema)
        rows = []
        for name, schemas in properties.items():
            values = allowed_values(flatten(schemas)[0])
            tags = values if values is not None and len(values) == 1 else []
            rows.append((name, [self.casting.checks.of(schema) for schema in schemas], tags))
        return rows


def branch_types(branch: Body, depth: int = 0) -> set[str] | None:
    """Return the JSON types that a schema allows by `type`, `enum`, `const` and unions; None if it allows all."""
    if branch is False:
        return set()
    members, impossible = flatten([branch])
    if impossible:
        return set()
    given = node_types(members)
    allowed = None if given is None else set(given)
    values = allowed_values(members)
    if values is not None:
        names = {name for value in values for name in TYPES if is_type(value, name)}
        allowed = names if allowed is None else {name for name in names if name in allowed or name == "integer"}
    for member in members:
        for key in ("anyOf", "oneOf"):
            if key in member and depth < 8:
                below = [branch_types(one, depth + 1) for one in member[key]]
                if all(one is not None for one in below):
                    union = {name for one in below if one is not None for name in one}
                    allowed = union if allowed is None else set(common_types(sorted(allowed), sorted(union)))
    return allowed


def _fits(name: str, allowed: set[str] | None) -> bool:
    return allowed is None or name in allowed or (name == "integer" and "number" in allowed)

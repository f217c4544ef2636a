"""The casts of objects, compiled into one row for each declared property of a conjunction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from operad_schema.conjunctions import ABSENT, Call, Caster, Casts, Fills, Lazy, Members, Row, flatten, identity
from operad_schema.nodes import FEW, Body, Node
from operad_schema.patterns import WORK, Pattern

OBJECT_KEYWORDS = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties")


class ObjectShape:
    """The keywords of a conjunction that concern objects, and the cast made from them."""

    def __init__(
        self, casting: Casts, members: Members, row: Callable[[str, list[Body], bool], Row | None]
    ) -> None:
        self.casting = casting
        self.says = any(key in member for member in members for key in OBJECT_KEYWORDS)
        self.required = {name for member in members for name in member.get("required", ())}
        self.patterns: list[tuple[Pattern, Body]] = [
            pair for member in members for pair in member.get("patternProperties", {}).items()
        ]
        self.properties: dict[str, list[Body]] = {}
        for member in members:
            for name, schema in member.get("properties", {}).items():
                self.properties.setdefault(name, []).append(schema)
        for name, schemas in self.properties.items():
            schemas.extend(schema for pattern, schema in self.patterns if pattern.matches(name))
            schemas.extend(_undeclared(name, members))
        rests = [member.get("additionalProperties", member.get("unevaluatedProperties")) for member in members]
        self.rest = [schema for schema in rests if schema is not None and schema is not False]
        self.closed = any(schema is False for schema in rests)
        self.kept, self.kept_patterns = self._conditional(members)
        self.kept |= self.required
        made = [row(name, schemas, name in self.required) for name, schemas in self.properties.items()]
        self.rows = [one for one in made if one is not None]

    def _conditional(self, members: Members) -> tuple[set[str], list[Pattern]]:
        """Return the names and patterns of properties that are declared under a condition.

        Such properties are kept, because a cast does not evaluate conditions.
        """
        names: set[str] = set()
        patterns: list[Pattern] = []
        stack: list[Body] = [body for member in members for body in conditions(member, names)]
        seen: set[Node] = set()
        while stack:
            flat, _ = flatten([stack.pop()])
            for member in flat:
                if member not in seen:
                    seen.add(member)
                    names.update(member.get("properties", ()), member.get("required", ()))
                    patterns.extend(member.get("patternProperties", ()))
                    stack.extend(conditions(member, names))
                    for key in ("anyOf", "oneOf"):
                        stack.extend(member.get(key, ()))
        return names, patterns

    def caster(self, types: list[str] | None) -> Caster | None:
        """Return the cast of an object; None if the conjunction has neither types nor keywords for objects."""
        if not self.says:
            return None if types is None else copy_object
        rows = self._patchable()
        extras = self._extras()
        if extras is None:
            return closed_object(rows)
        # A property whose schema is `false` has no row.
        declared = {row[0] for row in rows} if self.casting.keeps else self.properties
        hidden = frozenset(self.properties.keys() - {row[0] for row in rows})
        return open_object(rows, frozenset(declared), hidden, extras)

    def _patchable(self) -> list[Row]:
        rows = list(self.rows)
        for position, (name, exact, cast, fill) in enumerate(rows):
            if isinstance(cast, Lazy):

                def put(real: Caster, position: int = position, name: str = name, exact: frozenset[type] = exact,
                        fill: Fills | None = fill) -> None:  # fmt: skip
                    rows[position] = (name, exact, real, fill)

                cast.put = put
        return rows

    def _extras(self) -> Callable[[Any, Any, Call], Any] | None:
        """Return the cast of undeclared properties; None if all of them are dropped."""
        patterns, kept_patterns = self.patterns, self.kept_patterns
        kept = self.kept - self.properties.keys()
        keep_all = not self.properties and not patterns and not self.closed
        rest = None
        if self.rest:
            rest = identity if all(schema is True for schema in self.rest) else self.casting.lazy(self.rest)
        casting = self.casting
        if casting.keeps:
            keep_all = True
        elif not (patterns or kept or kept_patterns or keep_all or rest):
            return None

        def extra(name: Any, value: Any, call: Call) -> Any:
            if isinstance(name, str):
                if len(patterns) > FEW:
                    WORK.step(len(patterns))
                matching = [schema for pattern, schema in patterns if pattern.matches(name)]
                if matching:
                    if False in matching:
                        return value if casting.keeps else ABSENT
                    with casting.lock:
                        cast = casting.node(matching)
                    return cast(value, call)
            if rest is not None:
                return rest(value, call)
            if keep_all or name in kept:
                return value
            if isinstance(name, str) and any(pattern.matches(name) for pattern in kept_patterns):
                return value
            return ABSENT

        return extra


def _undeclared(name: str, members: Members) -> Iterator[Node]:
    """Yield the schemas that members of a conjunction apply to a property that only other members declare."""
    for member in members:
        rest = member.get("additionalProperties")
        declares = name in member.get("properties", ())
        if isinstance(rest, Node) and not declares:
            patterns: Iterable[Pattern] = member.get("patternProperties", ())
            yield from [] if any(pattern.matches(name) for pattern in patterns) else [rest]


def conditions(member: Node, names: set[str]) -> Iterator[Body]:
    for key in ("if", "then", "else"):
        if key in member:
            yield member[key]
    yield from member.get("dependentSchemas", {}).values()
    names.update(member.get("dependentSchemas", ()))
    for name, needed in member.get("dependentRequired", {}).items():
        names.add(name)
        names.update(needed)


def copy_object(value: Any, _call: Call) -> Any:
    return dict(value) if isinstance(value, dict) else value


def closed_object(rows: list[Row], *, notes: bool = True) -> Caster:
    """Return a cast of an object that keeps declared properties only.

    With `notes`, the call records whether a property was dropped.
    """

    def cast(value: Any, call: Call) -> Any:
        if value.__class__ is not dict and not isinstance(value, dict):
            return value
        out: dict[Any, Any] = {}
        # Checked for each object, so that the work ends soon after the limit.
        filled, has_room = 0, not call.is_full
        for name, exact, cast_one, fill in rows:
            if name in value:
                item = value[name]
                out[name] = item if item.__class__ in exact else cast_one(item, call)
            elif fill is not None and has_room:
                filled += fill(out, name, call)
        if notes and len(out) - filled != len(value):
            call.dropped = True
        return out

    return cast


def open_object(rows: list[Row], declared: frozenset[str], hidden: frozenset[str],
                 extra: Callable[[Any, Any, Call], Any]) -> Caster:  # fmt: skip
    known = closed_object(rows, notes=False)

    def cast(value: Any, call: Call) -> Any:
        if not isinstance(value, dict):
            return value
        out = known(value, call)
        for name, item in value.items():
            if name not in declared:
                kept = extra(name, item, call)
                if kept is ABSENT:
                    call.dropped = True
                else:
                    out[name] = kept
            elif name in hidden:
                call.dropped = True
        return out

    return cast

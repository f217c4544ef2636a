"""`cast`: a value in its schema's shape, without losing what cannot be placed.

Strips what is not declared, fills defaults and what is required, converts scalars without loss. A value
that fits nowhere is kept, so that validation can say what is wrong with it. Closures are compiled from the
normal form when first needed: one per *node*, the conjunction of a schema, its reference and its `allOf`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from operad.schemas.checking import Check, Checks
from operad.schemas.members import (
    ABSENT,
    Call,
    Caster,
    Members,
    allowed_values,
    further_items,
    identity,
    is_fragile,
    node_types,
    position_schemas,
)
from operad.schemas.nodes import Body, ref_name
from operad.schemas.objects import Row, closed_object, conditions, copy_object, open_object
from operad.schemas.patterns import Pattern
from operad.schemas.scalars import EXACT, scalar_cast
from operad.schemas.unions import Union
from operad.schemas.values import ARRAY, CONTAINER
from operad.schemas.zeros import Fill, Zeros


class Casting:
    """The casts of a document's schemas, each made when first needed. One that `keeps` converts and fills in
    declared defaults; it drops nothing and invents nothing."""

    def __init__(self, checks: Checks, *, keeps: bool = False) -> None:
        self.keeps = keeps
        self.bodies = checks.bodies
        self.checks = checks
        self.lock = threading.RLock()
        self.busy: list[Fill] = []
        self._nodes: dict[tuple[int, ...], tuple[Members, Caster]] = {}
        self._reduced: dict[tuple[int, str], tuple[dict[str, Any], dict[str, Any]]] = {}
        self._fills: dict[tuple[int, ...], tuple[Members, Fill]] = {}
        self.zeros = Zeros(self)

    def flatten(self, schemas: Iterable[Body]) -> tuple[Members, bool]:
        """The members of a conjunction, each once, and whether one of them is `false`."""
        members: list[dict[str, Any]] = []
        seen: set[int] = set()
        stack = list(schemas)[::-1]
        impossible = False
        while stack:
            body = stack.pop()
            if isinstance(body, bool):
                impossible = impossible or not body
                continue
            if id(body) in seen:
                continue
            seen.add(id(body))
            if bare := self.bare(body):
                members.append(bare)
            stack.extend(reversed(body.get("allOf", ())))
            if "$ref" in body:
                stack.append(self.bodies[ref_name(body)])
            if "$siblings" in body:
                stack.append(body["$siblings"])
        return tuple(members), impossible

    def node(self, schemas: Iterable[Body]) -> Caster:
        """The cast of a conjunction of schemas."""
        members, impossible = self.flatten(schemas)
        return identity if impossible else self.of(members)

    def of(self, members: Members) -> Caster:
        """The cast of a node's members."""
        key = tuple(map(id, members))
        known = self._nodes.get(key)
        if known is None:
            # The members are kept, so that their ids stay their own.
            known = self._nodes[key] = (members, self._faithful(members, self._compile(members)))
        return known[1]

    def lazy(self, schemas: list[Body]) -> Caster:
        """The cast of a conjunction, compiled when first called."""
        return _Lazy(self, schemas)

    def _faithful(self, members: Members, cast: Caster) -> Caster:
        """`cast`, but a container that is valid and would not be once cast stays as it is."""
        if not is_fragile(members):
            return cast
        checks: list[Check] = []

        def is_valid(value: Any) -> bool:
            if not checks:
                with self.lock:
                    checks.extend(self.checks.of(member) for member in members)
            return all(check(value) for check in checks)

        def keep(value: Any, call: Call) -> Any:
            if not isinstance(value, CONTAINER):
                return cast(value, call)
            mark = call.mark()
            out = cast(value, call)
            if not is_valid(out) and is_valid(value):
                call.forget(mark)
                return value
            return out

        return keep

    def _compile(self, members: Members) -> Caster:
        for member in members:
            for key in ("anyOf", "oneOf"):
                if key in member:
                    return Union(self, members, member, key).cast
        types = node_types(members)
        shape = self.shape(members) if types is None or "object" in types else None
        items = _items(self, members) if types is None or "array" in types else None
        scalar = scalar_cast(members, types)
        objects = None if shape is None else shape.caster(types)
        if items is None and scalar is None:
            return objects or identity
        return _dispatch(objects, items, scalar)

    def bare(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a schema says itself: without what `flatten` makes members of their own."""
        return self._less(body, "$ref", "allOf", "$siblings")

    def reduced(self, member: dict[str, Any], key: str) -> dict[str, Any]:
        """A member without one of its unions."""
        return self._less(member, key)

    def _less(self, body: dict[str, Any], *keys: str) -> dict[str, Any]:
        """A schema without some keywords: the same object every time, because nodes are known by identity."""
        if body.keys().isdisjoint(keys):
            return body
        known = self._reduced.get((id(body), keys[0]))
        if known is None:
            # The body is kept, so that its id stays its own.
            known = (body, {name: value for name, value in body.items() if name not in keys})
            self._reduced[id(body), keys[0]] = known
        return known[1]

    def fill(self, schemas: list[Body], *, zero: bool, required: bool) -> Fill:
        """What is filled in where something with these schemas is missing: one object, wherever it is missing."""
        members, _ = self.flatten(schemas)
        key = (zero, required, *map(id, members))
        known = self._fills.get(key)
        if known is None:
            # The members are kept, so that their ids stay their own.
            known = self._fills[key] = (members, Fill(self, schemas, zero=zero, required=required))
        return known[1]

    def position_fill(self, schemas: list[Body]) -> Fill:
        """What is filled in where a position of an array is missing."""
        members, _ = self.flatten(schemas)
        zero = not any("default" in member for member in members)
        return self.fill(schemas, zero=zero, required=True)

    def shape(self, members: Members) -> ObjectShape:
        """What a node says about objects."""
        return ObjectShape(self, members)

    def pattern(self, source: str) -> Pattern:
        """A pattern of the normal form."""
        return self.checks.patterns[source]


class _Lazy:
    """A cast that is compiled when first called; `put` puts it where this stood."""

    __slots__ = ("casting", "put", "schemas")

    def __init__(self, casting: Casting, schemas: list[Body]) -> None:
        self.casting = casting
        self.schemas = schemas
        self.put: Callable[[Caster], None] | None = None

    def __call__(self, value: Any, call: Call) -> Any:
        with self.casting.lock:
            cast = self.casting.node(self.schemas)
        if self.put is not None:
            self.put(cast)
        return cast(value, call)


def _dispatch(objects: Caster | None, items: Caster | None, scalar: Caster | None) -> Caster:
    def cast(value: Any, call: Call) -> Any:
        if isinstance(value, dict):
            return value if objects is None else objects(value, call)
        if isinstance(value, ARRAY):
            return value if items is None else items(value, call)
        return value if scalar is None else scalar(value, call)

    return cast


# --- objects --------------------------------------------------------------------------------------------

_OBJECT_KEYWORDS = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties")


class ObjectShape:
    """What a node says about objects."""

    def __init__(self, casting: Casting, members: Members) -> None:
        self.casting = casting
        self.says = any(key in member for member in members for key in _OBJECT_KEYWORDS)
        self.required = {name for member in members for name in member.get("required", ())}
        self.patterns = [
            (casting.pattern(source), schema)
            for member in members
            for source, schema in member.get("patternProperties", {}).items()
        ]
        self.properties: dict[str, list[Body]] = {}
        for member in members:
            for name, schema in member.get("properties", {}).items():
                self.properties.setdefault(name, []).append(schema)
        for name, schemas in self.properties.items():
            schemas.extend(schema for pattern, schema in self.patterns if pattern.matches(name))
        rests = [member.get("additionalProperties", member.get("unevaluatedProperties")) for member in members]
        self.rest = [schema for schema in rests if schema is not None and schema is not False]
        self.closed = any(schema is False for schema in rests)
        self.kept, self.kept_patterns = self._conditional(members)
        self.kept |= self.required
        self.rows = [row for name in self.properties if (row := self._row(name)) is not None]

    def _row(self, name: str) -> Row | None:
        schemas = self.properties[name]
        members, impossible = self.casting.flatten(schemas)
        if impossible:
            return None
        fill = None
        if any("default" in member for member in members):
            fill = self.casting.fill(schemas, zero=False, required=name in self.required)
        elif name in self.required and not self.casting.keeps:
            fill = self.casting.fill(schemas, zero=True, required=True)
        exact, cast = _leaf(members)
        return name, exact, cast or self.casting.lazy(schemas), fill

    def _conditional(self, members: Members) -> tuple[set[str], list[Pattern]]:
        """What is declared under a condition: kept, because the condition is not evaluated."""
        names: set[str] = set()
        patterns: list[Pattern] = []
        stack: list[Body] = [body for member in members for body in conditions(member, names)]
        seen: set[int] = set()
        while stack:
            flat, _ = self.casting.flatten([stack.pop()])
            for member in flat:
                if id(member) not in seen:
                    seen.add(id(member))
                    names.update(member.get("properties", ()), member.get("required", ()))
                    patterns.extend(map(self.casting.pattern, member.get("patternProperties", ())))
                    stack.extend(conditions(member, names))
                    for key in ("anyOf", "oneOf"):
                        stack.extend(member.get(key, ()))
        return names, patterns

    def caster(self, types: list[str] | None) -> Caster | None:
        """The cast of an object; None when the node says nothing about objects."""
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
            if isinstance(cast, _Lazy):

                def put(real: Caster, position: int = position, name: str = name, exact: frozenset[type] = exact,
                        fill: Fill | None = fill) -> None:  # fmt: skip
                    rows[position] = (name, exact, real, fill)

                cast.put = put
        return rows

    def _extras(self) -> Callable[[Any, Any, Call], Any] | None:
        """What becomes of a property that is not declared; None when every one is dropped."""
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


_NONE: frozenset[type] = frozenset()


def _leaf(members: Members) -> tuple[frozenset[type], Caster | None]:
    """The classes of the values that need no cast, and the cast of a node of scalars; None for other nodes."""
    if not members:
        return _NONE, identity
    if any(key in member for member in members for key in ("anyOf", "oneOf")):
        return _NONE, None
    types = node_types(members)
    values = allowed_values(members)
    if types is None and values is None:
        return _NONE, None
    if types is not None and ("object" in types or "array" in types):
        return _NONE, None
    if types is None and any(isinstance(value, (dict, list)) for value in values or ()):
        return _NONE, None
    if types is None and any(key in _OBJECT_KEYWORDS or "tems" in key for member in members for key in member):
        return _NONE, None
    scalar = scalar_cast(members, types) or identity

    def cast(value: Any, call: Call) -> Any:
        return value if isinstance(value, CONTAINER) else scalar(value, call)

    if values is not None:
        # A string that is no member cannot become one when all are strings.
        return (frozenset({str}) if all(isinstance(value, str) for value in values) else _NONE), cast
    return frozenset(cls for name in types or () for cls in EXACT.get(name, ())), cast


# --- arrays ---------------------------------------------------------------------------------------------


def _items(casting: Casting, members: Members) -> Caster | None:
    """The cast of an array; None when the node says nothing about arrays."""
    length = max((len(member.get("prefixItems", ())) for member in members), default=0)
    rests = further_items(members, length)
    if not length and not rests:
        return _copy_array if any("type" in member for member in members) else None
    limit = min((start for start, schema in rests if schema is False and not casting.keeps), default=None)
    schemas: list[Body] = [schema for _, schema in rests if schema is not False]
    inner, impossible = casting.flatten(schemas)
    exact, scalar = (_NONE, None) if impossible else _leaf(inner)
    further = [scalar or _unless_true(casting, schemas)]
    if isinstance(further[0], _Lazy):
        further[0].put = lambda real: further.__setitem__(0, real)
    if not length:
        return _all_items(further, exact, closed=limit is not None)
    positions = [casting.lazy(position_schemas(members, index)) for index in range(length)]
    least = min(max(member.get("minItems", 0) for member in members), length)
    fills = [casting.position_fill(position_schemas(members, index)) for index in range(least)]

    def cast(value: Any, call: Call) -> Any:
        if limit is not None and len(value) > limit:
            call.dropped = True
        out = []
        rest = further[0]
        for index, item in enumerate(value[:limit]):
            out.append(positions[index](item, call) if index < length else rest(item, call))
        for index in range(len(out), least):
            before = len(out)
            fills[index](out, index, call)
            if len(out) == before:
                break
        return out

    return cast


def _copy_array(value: Any, _call: Call) -> Any:
    return list(value)


def _all_items(further: list[Caster], exact: frozenset[type], *, closed: bool) -> Caster:
    def cast(value: Any, call: Call) -> Any:
        if closed:
            call.dropped = call.dropped or bool(value)
            return []
        rest = further[0]
        return [item if item.__class__ in exact else rest(item, call) for item in value]

    return cast


def _unless_true(casting: Casting, schemas: list[Body]) -> Caster:
    return identity if all(schema is True for schema in schemas) else casting.lazy(schemas)

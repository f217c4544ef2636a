"""The cast: it converts a value to the shape of a schema, and keeps the parts that it cannot convert.

A cast drops undeclared properties, fills in declared defaults and converts scalars without loss. In the mode
`complete` it also fills in zero values for missing required properties. In the mode `keep` it drops nothing. Every
cast follows these rules:

- It never changes its argument, and never raises on data; containers in the result are new.
- A value that cannot be converted is kept, so that validation can report it.
- A valid value stays valid: if its cast would be invalid, the value is returned unchanged (see `is_fragile`).
- Casting twice is the same as casting once: zero values and defaults are themselves cast, and if the cast value of
  a union belongs to another branch, it is cast again by that branch.
- Recursion is driven by the data, so it always ends.

A cast is a closure, compiled from the normal form when first needed, one for each conjunction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from operad_schema.conjunctions import (
    Call,
    Caster,
    Checking,
    Lazy,
    Members,
    Row,
    allowed_values,
    flatten,
    further_items,
    identity,
    is_fragile,
    node_types,
    position_schemas,
)
from operad_schema.kinds import KINDS, Kinds, settled
from operad_schema.nodes import Body
from operad_schema.objects import OBJECT_KEYWORDS, ObjectShape
from operad_schema.records import Mode
from operad_schema.scalars import EXACT, scalar_cast
from operad_schema.values import ARRAY, CONTAINER
from operad_schema.zeros import Fill, Zeros


class Casting:
    """The casts of a document's schemas in one mode, each compiled when first needed."""

    def __init__(self, checks: Checking, mode: Mode = "cast") -> None:
        self.keeps, self.completes = mode == "keep", mode == "complete"
        self.checks = checks
        self.lock = threading.RLock()
        self.busy: list[Any] = []
        self.kinds = 0
        self._casts: dict[Members, Caster] = {}
        self._fills: dict[tuple[bool, bool, Members], Fill] = {}
        self._zeros = Zeros(self)

    def node(self, schemas: Iterable[Body]) -> Caster:
        """Return the cast of a conjunction; equal conjunctions share one."""
        members, impossible = flatten(schemas)
        if impossible:
            return identity
        members = settled(members)
        cast = self._casts.get(members)
        if cast is None:
            cast = self._casts[members] = self._compile(members)
        return cast

    def lazy(self, schemas: list[Body]) -> Lazy:
        """Return the cast of a conjunction, compiled when first called."""
        return Lazy(self, schemas)

    def rows(self, members: Members) -> list[Row]:
        """Return a row for each declared property of a conjunction, except those whose schema is `false`."""
        return self._shape(members).rows

    def _shape(self, members: Members) -> ObjectShape:
        return ObjectShape(self, members, self._row)

    def _row(self, name: str, schemas: list[Body], required: bool) -> Row | None:
        members, impossible = flatten(schemas)
        if impossible:
            return None
        fill = None
        declared = any("default" in member for member in members)
        if declared or (required and self.completes):
            fill = self._fill(schemas, zero=not declared, required=required)
        exact, cast = _leaf(members)
        return name, exact, cast or self.lazy(schemas), fill

    def _fill(self, schemas: list[Body], *, zero: bool, required: bool) -> Fill:
        """Return the fill for a conjunction; equal conjunctions share one."""
        key = zero, required, flatten(schemas)[0]
        known = self._fills.get(key)
        if known is None:
            known = self._fills[key] = Fill(self, self._zeros, schemas, zero=zero, required=required)
        return known

    def position_fill(self, schemas: list[Body]) -> Fill:
        """Return the fill for a missing item of an array that `minItems` requires."""
        zero = not any("default" in member for member in flatten(schemas)[0])
        return self._fill(schemas, zero=zero, required=True)

    def _faithful(self, members: Members, cast: Caster) -> Caster:
        """Return `cast`, except that a valid container whose cast would be invalid stays as it is.

        So does a valid scalar, if it is cast by a schema that validation does not see.
        """
        seen = [member for member in members if not member.is_hidden]
        hides = len(seen) < len(members)

        def is_valid(value: Any) -> bool:
            return all(self.checks.of(member)(value) for member in seen)

        def keep(value: Any, call: Call) -> Any:
            if not (hides or isinstance(value, CONTAINER)):
                return cast(value, call)
            mark = call.mark()
            out = cast(value, call)
            # Equal except for the types of numbers: what one allows, the other allows, too.
            if (out is not value if hides else out != value) and not is_valid(out) and is_valid(value):
                call.forget(mark)
                return value
            return out

        return keep

    def _compile(self, members: Members) -> Caster:
        for member in members:
            if KINDS in member:
                kinds = Kinds(self, members, member)
                return self._faithful(kinds.rest, kinds.cast) if is_fragile(kinds.rest) else kinds.cast
        for member in members:
            for key in ("anyOf", "oneOf"):
                if key in member:
                    from operad_schema.unions import Union  # with the first one

                    union = Union(self, members, member, key)
                    # What its `oneOf` rejects, the union handles itself.
                    return self._faithful(members, union.cast) if is_fragile(union.siblings) else union.cast
        cast = self._plain(members)
        return self._faithful(members, cast) if is_fragile(members) else cast

    def _plain(self, members: Members) -> Caster:
        """Return the cast of a node without unions."""
        types = node_types(members)
        objects = self._shape(members).caster(types) if types is None or "object" in types else None
        items = _items(self, members) if types is None or "array" in types else None
        scalar = scalar_cast(members, types)
        if items is None and scalar is None:
            return objects or identity
        return _dispatch(objects, items, scalar)


def _dispatch(objects: Caster | None, items: Caster | None, scalar: Caster | None) -> Caster:
    def cast(value: Any, call: Call) -> Any:
        if isinstance(value, dict):
            return value if objects is None else objects(value, call)
        if isinstance(value, ARRAY):
            return value if items is None else items(value, call)
        return value if scalar is None else scalar(value, call)

    return cast


_NONE: frozenset[type] = frozenset()


def _leaf(members: Members) -> tuple[frozenset[type], Caster | None]:
    """Return the classes of values that need no cast, and the cast of a node of scalars; None for others."""
    if not members:
        return _NONE, identity
    if any(member.is_hidden or "anyOf" in member or "oneOf" in member for member in members):
        return _NONE, None
    types = node_types(members)
    values = allowed_values(members)
    if types is None and values is None:
        return _NONE, None
    if types is not None and ("object" in types or "array" in types):
        return _NONE, None
    if types is None and any(key in OBJECT_KEYWORDS or "tems" in key for member in members for key in member):
        return _NONE, None
    scalar = scalar_cast(members, types) or identity

    def cast(value: Any, call: Call) -> Any:
        return value if isinstance(value, CONTAINER) else scalar(value, call)

    if values is not None:
        # If all members are strings, a string that is not a member cannot become one.
        return (frozenset({str}) if all(isinstance(value, str) for value in values) else _NONE), cast
    return frozenset(cls for name in types or () for cls in EXACT.get(name, ())), cast


# --- arrays ---------------------------------------------------------------------------------------------


def _items(casting: Casting, members: Members) -> Caster | None:
    """Return the cast of an array; None if the node has no keyword for arrays."""
    length = max((len(member.get("prefixItems", ())) for member in members), default=0)
    rests = further_items(members, length)
    if not length and not rests:
        return _copy_array if any("type" in member for member in members) else None
    limit = min((start for start, schema in rests if schema is False and not casting.keeps), default=None)
    schemas: list[Body] = [schema for _, schema in rests if schema is not False]
    inner, impossible = flatten(schemas)
    exact, scalar = (_NONE, None) if impossible else _leaf(inner)
    further = [scalar or (identity if all(schema is True for schema in schemas) else casting.lazy(schemas))]
    if isinstance(further[0], Lazy):
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
            if not fills[index](out, index, call):
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

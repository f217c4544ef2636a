"""`cast`: a value in its schema's shape, without losing what cannot be placed.

Strips what is not declared, fills defaults and what is required, converts scalars without loss. A value
that fits nowhere is kept, so that validation can say what is wrong with it. Closures are compiled from the
normal form when first needed: one per *node*, the conjunction of a schema, its reference and its `allOf`.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from operad._normalize import Body, ref_name
from operad._validate import Check, Checks
from operad._values import ARRAY, CONTAINER, equal, is_type

logger = logging.getLogger("operad.schemas")

MAX_FILL = 10_000
"""`max_fill`: the parts of a value that a default or a zero value may have; a larger one is not filled in."""
MAX_FILLED = 1_000_000
"""`max_filled`: the parts that defaults and zero values may add in one cast; what is beyond stays absent."""
MAX_RECASTS = 100
"""How often, in one cast, a union may change its mind about the branch of a value that it has cast."""
MAX_NUMBER = 330
"""The longest string, in characters, that is read as a number."""

_ABSENT: Any = object()
_INFINITE: Any = object()
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_EXACT: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (float, int),
    "string": (str,),
}
_SCALARS = ("boolean", "integer", "number", "string")

Members = tuple[dict[str, Any], ...]


class Call:
    """What one cast keeps: the zero values it invented, as (container, key), and its budget."""

    invented: list[tuple[Any, Any]] | None = None
    recasts = 0
    filled = 0


Caster = Callable[[Any, Call], Any]
_Row = tuple[str, frozenset[type], Caster, "_Fill | None"]


def identity(value: Any, _call: Call) -> Any:
    """The cast of a schema that says nothing."""
    return value


class Casting:
    """The casts of a document's schemas, each made when first needed."""

    def __init__(self, checks: Checks) -> None:
        self.bodies = checks.bodies
        self.checks = checks
        self.patterns: dict[str, re.Pattern[str]] = {}
        self.lock = threading.RLock()
        self.busy: list[_Fill] = []
        self._nodes: dict[tuple[int, ...], tuple[Members, Caster]] = {}
        self._reduced: dict[tuple[int, str], tuple[dict[str, Any], dict[str, Any]]] = {}
        self._fills: dict[tuple[int, ...], tuple[Members, _Fill]] = {}
        self.zeros = _Zeros(self)

    # --- nodes

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
            known = self._nodes[key] = (members, self._compile(members))
        return known[1]

    def lazy(self, schemas: list[Body]) -> Caster:
        """The cast of a conjunction, compiled when first called."""
        return _Lazy(self, schemas)

    def _compile(self, members: Members) -> Caster:
        for member in members:
            for key in ("anyOf", "oneOf"):
                if key in member:
                    return _Union(self, members, member, key).cast
        types = node_types(members)
        shape = ObjectShape(self, members) if types is None or "object" in types else None
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

    def fill(self, schemas: list[Body], *, zero: bool) -> _Fill:
        """What is filled in where something with these schemas is missing: one object, wherever it is missing."""
        members, _ = self.flatten(schemas)
        key = (zero, *map(id, members))
        known = self._fills.get(key)
        if known is None:
            # The members are kept, so that their ids stay their own.
            known = self._fills[key] = (members, _Fill(self, schemas, zero=zero))
        return known[1]

    def position_fill(self, schemas: list[Body]) -> _Fill:
        """What is filled in where a position of an array is missing."""
        members, _ = self.flatten(schemas)
        return self.fill(schemas, zero=not any("default" in member for member in members))

    def pattern(self, source: str) -> re.Pattern[str]:
        """A compiled pattern of the normal form."""
        found = self.patterns.get(source)
        if found is None:
            found = self.patterns[source] = re.compile(source)
        return found


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


def node_types(members: Members) -> list[str] | None:
    """The JSON types that every member allows, in the first one's order; None when none says."""
    types: list[str] | None = None
    for member in members:
        given = member.get("type")
        if given is None:
            continue
        names = [given] if isinstance(given, str) else given
        types = names if types is None else _both(types, names)
    return types


def _both(left: list[str], right: list[str]) -> list[str]:
    out = []
    for name in left:
        if name in right or (name == "integer" and "number" in right):
            out.append(name)
        elif name == "number" and "integer" in right:
            out.append("integer")
    return out


def allowed_values(members: Members) -> list[Any] | None:
    """The values of `enum` and `const`, as far as every member allows them; None when none says."""
    values: list[Any] | None = None
    for member in members:
        for given in ([member["const"]] if "const" in member else None, member.get("enum")):
            if given is not None:
                values = (
                    given if values is None else [one for one in values if any(equal(one, two) for two in given)]
                )
    return values


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
            schemas.extend(schema for pattern, schema in self.patterns if pattern.search(name))
        rests = [member.get("additionalProperties", member.get("unevaluatedProperties")) for member in members]
        self.rest = [schema for schema in rests if schema is not None and schema is not False]
        self.closed = any(schema is False for schema in rests)
        self.kept, self.kept_patterns = self._conditional(members)
        self.kept |= self.required
        self.rows = [row for name in self.properties if (row := self._row(name)) is not None]

    def _row(self, name: str) -> _Row | None:
        schemas = self.properties[name]
        members, impossible = self.casting.flatten(schemas)
        if impossible:
            return None
        fill = None
        if any("default" in member for member in members):
            fill = self.casting.fill(schemas, zero=False)
        elif name in self.required:
            fill = self.casting.fill(schemas, zero=True)
        exact, cast = _leaf(members)
        return name, exact, cast or self.casting.lazy(schemas), fill

    def _conditional(self, members: Members) -> tuple[set[str], list[re.Pattern[str]]]:
        """What is declared under a condition: kept, because the condition is not evaluated."""
        names: set[str] = set()
        patterns: list[re.Pattern[str]] = []
        stack: list[Body] = [body for member in members for body in _conditions(member, names)]
        seen: set[int] = set()
        while stack:
            flat, _ = self.casting.flatten([stack.pop()])
            for member in flat:
                if id(member) not in seen:
                    seen.add(id(member))
                    names.update(member.get("properties", ()), member.get("required", ()))
                    patterns.extend(map(self.casting.pattern, member.get("patternProperties", ())))
                    stack.extend(_conditions(member, names))
                    for key in ("anyOf", "oneOf"):
                        stack.extend(member.get(key, ()))
        return names, patterns

    def caster(self, types: list[str] | None) -> Caster | None:
        """The cast of an object; None when the node says nothing about objects."""
        if not self.says:
            return None if types is None else _copy_object
        rows = self._patchable()
        extras = self._extras()
        if extras is None:
            return _closed_object(rows)
        return _open_object(rows, frozenset(self.properties), extras)

    def _patchable(self) -> list[_Row]:
        rows = list(self.rows)
        for position, (name, exact, cast, fill) in enumerate(rows):
            if isinstance(cast, _Lazy):

                def put(real: Caster, position: int = position, name: str = name, exact: frozenset[type] = exact,
                        fill: _Fill | None = fill) -> None:  # fmt: skip
                    rows[position] = (name, exact, real, fill)

                cast.put = put
        return rows

    def _extras(self) -> Callable[[Any, Any, Call], Any] | None:
        """What becomes of a property that is not declared; None when every one is dropped."""
        patterns, kept, kept_patterns = self.patterns, self.kept, self.kept_patterns
        keep_all = not self.properties and not patterns and not self.closed
        rest = None
        if self.rest:
            rest = identity if all(schema is True for schema in self.rest) else self.casting.lazy(self.rest)
        if not (patterns or kept or kept_patterns or keep_all or rest):
            return None
        casting = self.casting

        def extra(name: Any, value: Any, call: Call) -> Any:
            if isinstance(name, str):
                matching = [schema for pattern, schema in patterns if pattern.search(name)]
                if matching:
                    if False in matching:
                        return _ABSENT
                    with casting.lock:
                        cast = casting.node(matching)
                    return cast(value, call)
            if rest is not None:
                return rest(value, call)
            if keep_all or name in kept:
                return value
            if isinstance(name, str) and any(pattern.search(name) for pattern in kept_patterns):
                return value
            return _ABSENT

        return extra


def _conditions(member: dict[str, Any], names: set[str]) -> Iterator[Body]:
    for key in ("if", "then", "else"):
        if key in member:
            yield member[key]
    yield from member.get("dependentSchemas", {}).values()
    names.update(member.get("dependentSchemas", ()))
    for name, needed in member.get("dependentRequired", {}).items():
        names.add(name)
        names.update(needed)


def _copy_object(value: Any, _call: Call) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _closed_object(rows: list[_Row]) -> Caster:
    def cast(value: Any, call: Call) -> Any:
        if value.__class__ is not dict and not isinstance(value, dict):
            return value
        out: dict[Any, Any] = {}
        for name, exact, cast_one, fill in rows:
            if name in value:
                item = value[name]
                out[name] = item if item.__class__ in exact else cast_one(item, call)
            elif fill is not None:
                fill(out, name, call)
        return out

    return cast


def _open_object(rows: list[_Row], declared: frozenset[str], extra: Callable[[Any, Any, Call], Any]) -> Caster:
    known = _closed_object(rows)

    def cast(value: Any, call: Call) -> Any:
        if not isinstance(value, dict):
            return value
        out = known(value, call)
        for name, item in value.items():
            if name not in declared:
                kept = extra(name, item, call)
                if kept is not _ABSENT:
                    out[name] = kept
        return out

    return cast


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
    return frozenset(cls for name in types or () for cls in _EXACT.get(name, ())), cast


# --- arrays ---------------------------------------------------------------------------------------------


def _items(casting: Casting, members: Members) -> Caster | None:
    """The cast of an array; None when the node says nothing about arrays."""
    length = max((len(member.get("prefixItems", ())) for member in members), default=0)
    rests = _rests(members, length)
    if not length and not rests:
        return _copy_array if any("type" in member for member in members) else None
    limit = min((start for start, schema in rests if schema is False), default=None)
    schemas: list[Body] = [schema for _, schema in rests if schema is not False]
    further = [_unless_true(casting, schemas)]
    if isinstance(further[0], _Lazy):
        further[0].put = lambda real: further.__setitem__(0, real)
    if not length:
        return _all_items(further, closed=limit is not None)
    positions = [casting.lazy(_position(members, index)) for index in range(length)]
    least = min(max(member.get("minItems", 0) for member in members), length)
    fills = [casting.position_fill(_position(members, index)) for index in range(least)]

    def cast(value: Any, call: Call) -> Any:
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


def _all_items(further: list[Caster], *, closed: bool) -> Caster:
    def cast(value: Any, call: Call) -> Any:
        rest = further[0]
        return [] if closed else [rest(item, call) for item in value]

    return cast


def _unless_true(casting: Casting, schemas: list[Body]) -> Caster:
    return identity if all(schema is True for schema in schemas) else casting.lazy(schemas)


def _rests(members: Members, length: int) -> list[tuple[int, Body]]:
    """For each member that says something about further elements: from which one on, and its schema."""
    rests: list[tuple[int, Body]] = [
        (len(member.get("prefixItems", ())), member["items"]) for member in members if "items" in member
    ]
    if rests:
        return rests
    if any("contains" in member for member in members):
        return []  # it marks what it matches as evaluated, so `false` would not mean every further element
    return [(length, member["unevaluatedItems"]) for member in members if "unevaluatedItems" in member]


def _position(members: Members, index: int) -> list[Body]:
    schemas: list[Body] = []
    for member in members:
        prefix = member.get("prefixItems", ())
        if index < len(prefix):
            schemas.append(prefix[index])
        elif "items" in member:
            schemas.append(member["items"])
    return schemas


# --- scalars --------------------------------------------------------------------------------------------


def scalar_cast(members: Members, types: list[str] | None) -> Caster | None:
    """The cast of a scalar; None when the node says nothing about scalars."""
    values = allowed_values(members)
    if values is not None:
        return lambda value, _call: _to_member(value, values, types)
    if not types or not any(name in _SCALARS for name in types):
        return None
    fitting = {cls for name in types for cls in _EXACT.get(name, ())}

    def cast(value: Any, _call: Call) -> Any:
        return value if value.__class__ in fitting else to_type(value, types)

    return cast


def _to_member(value: Any, values: list[Any], types: list[str] | None) -> Any:
    for one in values:
        if equal(value, one):
            return value if isinstance(one, dict | list) or one.__class__ is value.__class__ else one
    for one in values:
        for name in ("string", "boolean", "integer", "number"):
            if is_type(one, name) and (types is None or any(is_type(one, other) for other in types)):
                converted = _convert(value, name)
                if converted is not _ABSENT and equal(converted, one):
                    return one
    return value


def to_type(value: Any, types: list[str]) -> Any:
    """A scalar as the first of `types` that it can be without loss; itself when it can be none."""
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        return int(value)
    if any(is_type(value, name) for name in types):
        return value
    for name in types:
        converted = _convert(value, name)
        if converted is not _ABSENT:
            return converted
    return value


def _convert(value: Any, name: str) -> Any:
    if name == "string":
        return _to_string(value)
    if name == "boolean":
        if isinstance(value, str):
            return _BOOLEANS.get(value.lower() if len(value) < 6 else "", _ABSENT)
        return bool(value) if isinstance(value, (int, float)) and value in (0, 1) else _ABSENT
    if name in ("integer", "number"):
        return _to_number(value, whole=name == "integer")
    return _ABSENT


def _to_string(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # Longer ones are refused by Python itself (sys.set_int_max_str_digits).
        return int.__repr__(value) if value.bit_length() < 4096 else _ABSENT
    if isinstance(value, float) and math.isfinite(value):
        return int.__repr__(int(value)) if value.is_integer() else float.__repr__(value)
    return _ABSENT


def _to_number(value: Any, *, whole: bool) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if whole and value.is_integer() else _ABSENT
    if not isinstance(value, str) or len(value) > MAX_NUMBER:
        return _ABSENT
    found = _JSON_NUMBER.fullmatch(value)
    if found is None:
        return _ABSENT
    if found[1] is None and found[2] is None:
        return int(value)
    number = float(value)
    if not math.isfinite(number):
        return _ABSENT
    if not whole:
        return number
    # The exponent is at most 308 here, or the number would be infinite.
    exact = Decimal(value)
    return int(exact) if exact == exact.to_integral_value() else _ABSENT


# --- what is filled in ------------------------------------------------------------------------------------


class _Fill:
    """The value of a missing property: its default, or the zero value that being required asks for."""

    __slots__ = ("casting", "default", "invents", "known", "looped", "schemas", "size", "value")

    def __init__(self, casting: Casting, schemas: list[Body], *, zero: bool) -> None:
        members, _ = casting.flatten(schemas)
        self.casting = casting
        self.schemas = schemas
        self.invents = zero
        self.known = False
        self.looped = False
        self.size = 0
        self.value: Any = _ABSENT
        self.default = next((member["default"] for member in members if "default" in member), _ABSENT)

    def __call__(self, out: Any, key: Any, call: Call) -> None:
        value = self.value if self.known else self.template()
        if value is _ABSENT:
            return
        if isinstance(value, (dict, list)):
            call.filled += self.size
            if call.filled > MAX_FILLED:
                return
            value = _copied(value)
        if isinstance(out, list):
            out.append(value)
        else:
            out[key] = value
        if self.invents:
            if call.invented is None:
                call.invented = []
            call.invented.append((out, key))

    def template(self) -> Any:
        """The value, made once. One that would contain itself, at any distance, is absent."""
        with self.casting.lock:
            if self.known:
                return self.value
            busy = self.casting.busy
            if self in busy:
                for fill in busy[busy.index(self) :]:
                    fill.looped = True
                return _ABSENT
            busy.append(self)
            try:
                value = self._zero() if self.invents else self._default()
            except RecursionError:
                value = _ABSENT
            finally:
                busy.pop()
            self.size = 0 if value is _ABSENT else count_parts(value, MAX_FILL + 1)
            if self.looped or self.size > MAX_FILL:
                value = _ABSENT
            self.value = value
            self.known = True
            return value

    def _zero(self) -> Any:
        return self.casting.zeros.of(self.schemas)

    def _default(self) -> Any:
        return self.casting.node(self.schemas)(_copied(self.default), Call())


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def count_parts(value: Any, most: int) -> int:
    """The parts of a value, counted up to `most`."""
    stack = [value]
    count = 0
    while stack and count < most:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return count


class _Zeros:
    """Zero values: the smallest value of a type. One that would contain itself does not exist."""

    def __init__(self, casting: Casting) -> None:
        self.casting = casting
        self.known: dict[tuple[int, ...], tuple[Members, Any]] = {}
        self.stack: list[tuple[int, ...]] = []
        self.lowest = 0
        self.steps = 0

    def of(self, schemas: list[Body]) -> Any:
        """The zero value of a conjunction, or `_ABSENT`."""
        self.stack, self.steps = [], 0
        self.lowest = 0
        value = self._of(schemas)
        return _ABSENT if value is _INFINITE else value

    def _of(self, schemas: Iterable[Body]) -> Any:
        members, impossible = self.casting.flatten(schemas)
        if impossible or not members:
            return _ABSENT
        key = tuple(map(id, members))
        if key in self.known:
            return self.known[key][1]
        if key in self.stack:
            self.lowest = min(self.lowest, self.stack.index(key))
            return _INFINITE
        self.steps += 1
        if self.steps > MAX_FILL:
            return _ABSENT
        before, self.lowest = self.lowest, len(self.stack)
        self.stack.append(key)
        value = self._value(members)
        self.stack.pop()
        if value is not _INFINITE and value is not _ABSENT and count_parts(value, MAX_FILL + 1) > MAX_FILL:
            value = _ABSENT
        # What was found while something below was still being made may be different without it.
        if self.lowest >= len(self.stack) and self.steps <= MAX_FILL:
            self.known[key] = (members, value)
        self.lowest = min(before, self.lowest)
        return value

    def _value(self, members: Members) -> Any:
        types = node_types(members)
        values = allowed_values(members)
        if values is not None and len(values) == 1:
            return _copied(values[0])
        nullable = (types is not None and "null" in types) or (types is None and self._has_null_branch(members))
        if nullable and (values is None or None in values):
            return None
        if values:
            return _copied(values[0])
        for member in members:
            for key in ("anyOf", "oneOf"):
                if key in member:
                    return self._union(members, member, key)
        return self._typed(types[0], members) if types else _ABSENT

    def _has_null_branch(self, members: Members) -> bool:
        for member in members:
            for key in ("anyOf", "oneOf"):
                for branch in member.get(key, ()):
                    flat, _ = self.casting.flatten([branch])
                    if "null" in (node_types(flat) or ()) or (allowed_values(flat) == [None]):
                        return True
        return False

    def _union(self, members: Members, member: dict[str, Any], key: str) -> Any:
        infinite = False
        for branch in member[key]:
            rest = [self.casting.reduced(one, key) if one is member else one for one in members]
            value = self._of([*rest, branch])
            if value is not _ABSENT and value is not _INFINITE:
                return value
            infinite = infinite or value is _INFINITE
        return _INFINITE if infinite else _ABSENT

    def _typed(self, name: str, members: Members) -> Any:
        if name in ("integer", "number"):
            least = max([0, *(member["minimum"] for member in members if "minimum" in member)])
            return math.ceil(least) if name == "integer" else least
        if name == "object":
            return self._object(members)
        return {"string": "", "boolean": False, "array": [], "null": None}[name]

    def _object(self, members: Members) -> Any:
        out: dict[str, Any] = {}
        for name, _exact, _cast, fill in ObjectShape(self.casting, members).rows:
            if fill is None:
                continue
            if fill.invents:
                value = self._of(fill.schemas)
                if value is _INFINITE:
                    return _INFINITE
            else:
                state = self.stack, self.lowest, self.steps
                value = fill.template()
                self.stack, self.lowest, self.steps = state
            if value is not _ABSENT:
                out[name] = _copied(value)
        return out


# --- unions ---------------------------------------------------------------------------------------------

_NAMES = ("null", "boolean", "integer", "number", "string", "array", "object")


class _Union:
    """One `anyOf` or `oneOf` of a node: chooses a branch for a value, then casts by it and its siblings."""

    def __init__(self, casting: Casting, members: Members, member: dict[str, Any], key: str) -> None:
        self.casting = casting
        self.branches: list[Body] = member[key]
        self.siblings = [casting.reduced(one, key) if one is member else one for one in members]
        self.tag, self.tags = self._discriminator(member, key)
        count = len(self.branches)
        self.casts: list[Caster | None] = [None] * count
        self.checks: list[Check | None] = [None] * count
        self.scores: list[list[tuple[str, list[Check], list[Any]]] | None] = [None] * count
        types = [branch_types(casting, branch) for branch in self.branches]
        self.fits = {name: [i for i, allowed in enumerate(types) if _fits(name, allowed)] for name in _NAMES}

    def _discriminator(self, member: dict[str, Any], key: str) -> tuple[str | None, dict[str, int]]:
        given = member.get("discriminator")
        if given is None or given["union"] != key:
            return None, {}
        return given["propertyName"], given["tags"]

    def cast(self, value: Any, call: Call) -> Any:
        """The value, cast by the branch that it is, or that its cast form is."""
        chosen, out = self.choose(value, call)
        if chosen is None:
            return value
        if out is _ABSENT:
            out = self.branch(chosen)(value, call)
        tried = {chosen}
        while out is not value:
            again, _ = self.choose(out, call, chosen)
            if again == chosen or again is None:
                break
            # What was stripped, filled or converted made it another branch's value: settle there,
            # or, if the branches pass it round for ever, leave it as it came.
            call.recasts += 1
            if again in tried or call.recasts > MAX_RECASTS:
                return value
            tried.add(again)
            chosen = again
            out = self.branch(chosen)(out, call)
        return out

    def choose(self, value: Any, call: Call, before: int | None = None) -> tuple[int | None, Any]:
        """The branch of a value, and the cast value where finding it took a cast."""
        if self.tag is not None and isinstance(value, dict):
            tag = value.get(self.tag)
            if isinstance(tag, str) and tag in self.tags:
                return self.tags[tag], _ABSENT
        name = _json_type(value)
        if name is None:
            return None, _ABSENT
        fitting = self.fits[name]
        if len(fitting) == 1:
            return fitting[0], _ABSENT
        if not fitting:
            return (None, _ABSENT) if before is not None else self._try(value, call)
        valid = [index for index in fitting if self.check(index)(value)]
        ranked = valid or fitting
        if len(ranked) > 1 and isinstance(value, dict):
            return max(ranked, key=lambda index: (self.score(index, value), -index)), _ABSENT
        return ranked[0], _ABSENT

    def _try(self, value: Any, call: Call) -> tuple[int | None, Any]:
        for index in range(len(self.branches)):
            if self.branches[index] is False:
                continue
            out = self.branch(index)(value, call)
            if out is not value and self.check(index)(out):
                return index, out
        return None, _ABSENT

    def branch(self, index: int) -> Caster:
        """The cast by one branch and the union's siblings."""
        cast = self.casts[index]
        if cast is None:
            with self.casting.lock:
                cast = self.casts[index] = self.casting.node([*self.siblings, self.branches[index]])
        return cast

    def check(self, index: int) -> Check:
        """Whether a value is valid by one branch."""
        check = self.checks[index]
        if check is None:
            with self.casting.lock:
                check = self.checks[index] = self.casting.checks.of(self.branches[index])
        return check

    def score(self, index: int, value: dict[Any, Any]) -> int:
        """How much an object looks like a branch: 1 for a declared property, 10 for a valid one, 100 for a tag."""
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

    def _rows(self, index: int) -> list[tuple[str, list[Check], list[Any]]]:
        members, _ = self.casting.flatten([self.branches[index]])
        properties: dict[str, list[Body]] = {}
        for member in members:
            for name, schema in member.get("properties", {}).items():
                properties.setdefault(name, []).append(schema)
        rows = []
        for name, schemas in properties.items():
            values = allowed_values(self.casting.flatten(schemas)[0])
            tags = values if values is not None and len(values) == 1 else []
            rows.append((name, [self.casting.checks.of(schema) for schema in schemas], tags))
        return rows


def branch_types(casting: Casting, branch: Body, depth: int = 0) -> set[str] | None:
    """The JSON types that a schema allows; None for all of them."""
    if branch is False:
        return set()
    members, impossible = casting.flatten([branch])
    if impossible:
        return set()
    given = node_types(members)
    allowed = None if given is None else set(given)
    values = allowed_values(members)
    if values is not None:
        names = {name for value in values for name in _NAMES if is_type(value, name)}
        allowed = names if allowed is None else {name for name in names if name in allowed or name == "integer"}
    for member in members:
        for key in ("anyOf", "oneOf"):
            if key in member and depth < 8:
                below = [branch_types(casting, one, depth + 1) for one in member[key]]
                if all(one is not None for one in below):
                    union = {name for one in below if one is not None for name in one}
                    allowed = union if allowed is None else set(_both(sorted(allowed), sorted(union)))
    return allowed


def _fits(name: str, allowed: set[str] | None) -> bool:
    return allowed is None or name in allowed or (name == "integer" and "number" in allowed)


def _json_type(value: Any) -> str | None:
    return next((name for name in _NAMES if is_type(value, name)), None)

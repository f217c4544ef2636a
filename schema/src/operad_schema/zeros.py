"""The values that a cast fills in for missing parts: defaults and, in the mode `complete`, zero values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from operad_schema.conjunctions import (
    ABSENT,
    SCALARS,
    Call,
    Casts,
    Members,
    allowed_values,
    flatten,
    node_types,
)
from operad_schema.nodes import Body, Node
from operad_schema.values import count_parts

_INFINITE: Any = object()


class Fill:
    """The value for a missing property or item: its default, or a zero value in the mode `complete`."""

    def __init__(self, casting: Casts, zeros: Zeros, schemas: list[Body], *, zero: bool, required: bool) -> None:
        members, _ = flatten(schemas)
        self.casting = casting
        self.zeros = zeros
        self.schemas = schemas
        self.invents = zero
        self.required = required
        self.known = False
        self.looped = False
        self.weight: int
        self.most = casting.checks.limits.max_filled
        self.many = SCALARS * self.most
        self.value: Any = ABSENT
        self.default = next((member["default"] for member in members if "default" in member), ABSENT)

    def __call__(self, out: Any, key: Any, call: Call) -> bool:
        value = self.value if self.known else self.template()
        if value is ABSENT:
            return False
        if weight := self.weight:
            call.filled += weight
            if call.filled > self.most:
                call.be_full()
                return False
            value = _copied(value)
        else:
            call.scalars += 1
            if call.scalars > self.many and (call.is_full or not call.is_plausible()):
                call.filled = self.most + 1
                call.be_full()
                return False
        if isinstance(out, list):
            out.append(value)
        else:
            out[key] = value
        if self.invents:
            if call.invented is None:
                call.invented = []
            call.invented.append((out, key))
        return True

    def template(self) -> Any:
        """Return the value, made once; `ABSENT` if it contains itself, exceeds `max_fill` or is not filled in."""
        with self.casting.lock:
            if self.known:
                return self.value
            busy = self.casting.busy
            if self in busy:
                for fill in busy[busy.index(self) :]:
                    fill.looped = True
                return ABSENT
            busy.append(self)
            try:
                value = self._default() if not self.invents else self._zero() if self.casting.completes else ABSENT
            except RecursionError:
                value = ABSENT
            finally:
                busy.pop()
            size = count_parts(value, self.zeros.most + 1)
            if self.looped or size > self.zeros.most:
                value = ABSENT
            self.value = value
            # Scalar defaults add at most as many parts as the schema has properties.
            self.weight = size if self.invents or isinstance(value, (dict, list)) else 0
            self.known = True
            return value

    def _zero(self) -> Any:
        value = self.zeros.of(self.schemas)
        # Cast it, because casting the result again must not change it.
        return value if value is ABSENT else self.casting.node(self.schemas)(_copied(value), Call())

    def _default(self) -> Any:
        value = self.casting.node(self.schemas)(_copied(self.default), Call())
        # For an optional part, nothing is better than a default that does not fit its own schema.
        valid = self.required or all(self.casting.checks.of(schema)(value) for schema in self.schemas)
        return value if valid else ABSENT


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


class Zeros:
    """The zero values of a document's schemas. A zero value is the smallest value of a type, such as 0."""

    def __init__(self, casting: Casts) -> None:
        self.casting = casting
        self.known: dict[Members, Any] = {}
        self.stack: list[Members] = []
        self.most = casting.checks.limits.max_fill
        self.lowest = 0
        self.steps = 0

    def of(self, schemas: list[Body]) -> Any:
        """Return the zero value; `ABSENT` if it contains itself, exceeds `max_fill` or its type is not known."""
        self.stack, self.steps = [], 0
        value = self._of(schemas)
        return ABSENT if value is _INFINITE else value

    def _of(self, schemas: Iterable[Body]) -> Any:
        members, impossible = flatten(schemas)
        if impossible:
            return ABSENT
        if members in self.known:
            return self.known[members]
        if members in self.stack:
            self.lowest = min(self.lowest, self.stack.index(members))
            return _INFINITE
        self.steps += 1
        if self.steps > self.most:
            return ABSENT
        before, self.lowest = self.lowest, len(self.stack)
        self.stack.append(members)
        value = self._value(members)
        self.stack.pop()
        if value is not _INFINITE and value is not ABSENT and count_parts(value, self.most + 1) > self.most:
            value = ABSENT
        # A value found while another one below is being made may differ later, so it is not kept.
        if self.lowest >= len(self.stack) and self.steps <= self.most:
            self.known[members] = value
        self.lowest = min(before, self.lowest)
        return value

    def _value(self, members: Members) -> Any:
        types = node_types(members)
        values = allowed_values(members)
        if values is not None and len(values) == 1:
            return _copied(values[0])
        nullable = None in (values or ()) or self._has_null_branch(members) if types is None else "null" in types
        if nullable and (values is None or None in values):
            return None
        if values:
            return _copied(values[0])
        for member in members:
            for key in ("anyOf", "oneOf"):
                if key in member:
                    return self._union(members, member, key)
        return self._typed(types[0], members) if types else ABSENT

    def _has_null_branch(self, members: Members) -> bool:
        for member in members:
            for key in ("anyOf", "oneOf"):
                for branch in member.get(key, ()):
                    flat, _ = flatten([branch])
                    if "null" in (node_types(flat) or ()) or (allowed_values(flat) == [None]):
                        return True
        return False

    def _union(self, members: Members, member: Node, key: str) -> Any:
        infinite = False
        for branch in member[key]:
            rest = [one.less(key) if one is member else one for one in members]
            value = self._of([*rest, branch])
            if value is not ABSENT and value is not _INFINITE:
                return value
            infinite = infinite or value is _INFINITE
        return _INFINITE if infinite else ABSENT

    def _typed(self, name: str, members: Members) -> Any:
        if name in ("integer", "number"):
            least = max([0, *(member["minimum"] for member in members if "minimum" in member)])
            return math.ceil(least) if name == "integer" else least
        if name == "object":
            return self._object(members)
        return {"string": "", "boolean": False, "array": [], "null": None}[name]

    def _object(self, members: Members) -> Any:
        out: dict[str, Any] = {}
        for name, _exact, _cast, fill in self.casting.rows(members):
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
            if value is not ABSENT:
                out[name] = _copied(value)
        return out

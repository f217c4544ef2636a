"""Conjunctions, and the state of a cast.

A conjunction is a schema with the target of its `$ref` and the schemas of its `allOf`. A cast treats them as one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from operad_schema.limits import Limits
from operad_schema.nodes import Body, Definition, Node, lists_containers
from operad_schema.references import Location
from operad_schema.values import MAX_PARTS, count_parts, equal
from operad_schema.vocabulary import KEYWORDS

ABSENT: Any = object()
"""The mark for a value that does not exist."""

SCALARS = 10
"""A cast may fill in this many scalar defaults times `max_filled`, or times the parts of the value if more."""

Members = tuple[Node, ...]
"""The schemas of a node's conjunction, without their references, `allOf` and `$siblings`."""


class Call:
    """The state of one cast: records of what it did, and its budgets.

    `invented` has the (container, key) of each zero value that the cast added; None if it added none. `dropped` is
    True if the cast dropped a part.
    """

    invented: list[tuple[Any, Any]] | None = None
    dropped = False
    recasts = 0
    filled = 0
    """The number of parts of defaults and zero values that were filled in, without scalar defaults."""
    scalars: float = 0
    """The number of scalar defaults that were filled in. Their limit grows with the size of the value."""
    is_full = False
    """Whether a limit is reached, so that further missing parts stay absent."""
    value: Any = None
    """The value that is cast."""

    def be_full(self) -> None:
        """Stop filling in values, including scalar defaults."""
        self.is_full, self.scalars = True, math.inf

    def is_plausible(self) -> bool:
        """Return True if at most 10 scalar defaults were filled in for each part of the value."""
        return self.scalars <= SCALARS * count_parts(self.value, MAX_PARTS)

    def mark(self) -> tuple[int, bool]:
        """Return the current state of the records, for `forget` and `moved`."""
        return len(self.invented or ()), self.dropped

    def forget(self, mark: tuple[int, bool]) -> None:
        """Remove the records since `mark`, because they are not about a part of the result."""
        self.dropped = mark[1]
        if self.invented is not None:
            del self.invented[mark[0] :]
            self.invented = self.invented or None

    def moved(self, mark: tuple[int, bool], before: Any, after: Any) -> None:
        """Move the records since `mark` from `before` to its cast value `after`; remove those of dropped parts."""
        start = mark[0]
        if self.invented is None or len(self.invented) <= start:
            return
        twins: dict[int, Any] = {}
        stack = [(before, after)]
        while stack:
            old, new = stack.pop()
            twins[id(old)] = new
            # No cast changes an array to an object or the reverse.
            if isinstance(old, dict):
                stack.extend((item, new[key]) for key, item in old.items() if key in new)
            elif isinstance(old, list):
                stack.extend(zip(old, new))  # noqa: B905  # what was cut off has no twin
        places = [(twins.get(id(container), container), key) for container, key in self.invented[start:]]
        self.invented[start:] = [(container, key) for container, key in places if has(container, key)]
        self.invented = self.invented or None


def has(container: Any, key: Any) -> bool:
    """Return True if an object has the property `key`, or an array the position `key`."""
    return key < len(container) if isinstance(container, list) else key in container


Caster = Callable[[Any, Call], Any]


class Fills(Protocol):
    """The interface of `operad_schema.zeros.Fill`: it fills in the value for a missing part."""

    invents: bool
    schemas: list[Body]

    def __call__(self, out: Any, key: Any, call: Call) -> bool:
        """Fill in the property or position `key` of `out`; return False if not possible, or at a limit."""

    def template(self) -> Any:
        """Return the value to fill in, which is made once; `ABSENT` if nothing is to be filled in."""


Row = tuple[str, frozenset[type], Caster, Fills | None]
"""A declared property: its name, the classes of values that need no cast, its cast, and its fill."""


class Checking(Protocol):
    """The part of `operad_schema.checking.Checks` that casts use."""

    limits: Limits

    def of(self, body: Body) -> Callable[[Any], bool]:
        """Return the compiled check of a schema."""

    def kind(self, location: Location) -> Definition | None:
        """Return the definition at a location that a tag names; None if it cannot be read."""


class Casts(Protocol):
    """The part of `operad_schema.casting.Casting` that unions, zero values and objects use."""

    keeps: bool
    completes: bool
    checks: Checking
    lock: threading.RLock
    busy: list[Any]
    kinds: int

    def node(self, schemas: Iterable[Body]) -> Caster:
        """Return the compiled cast of the conjunction of `schemas`."""

    def lazy(self, schemas: list[Body]) -> Caster:
        """Return the cast of the conjunction of `schemas`, compiled when first called."""

    def rows(self, members: Members) -> list[Row]:
        """Return a row for each declared property of a conjunction."""


class Lazy:
    """A cast that is compiled when first called. `put`, if it is set, then receives the compiled cast."""

    __slots__ = ("casting", "made", "put", "schemas")

    def __init__(self, casting: Casts, schemas: list[Body]) -> None:
        self.casting = casting
        self.schemas = schemas
        self.put: Callable[[Caster], None] | None = None
        self.made: Caster | None = None

    def __call__(self, value: Any, call: Call) -> Any:
        if self.made is None:
            with self.casting.lock:
                self.made = self.casting.node(self.schemas)
            if self.put is not None:
                self.put(self.made)
        return self.made(value, call)


def flatten(schemas: Iterable[Body]) -> tuple[Members, bool]:
    """Return the members of a conjunction, each once, and whether one of them is `false`.

    The members of a schema are the schema itself and the members of its `$ref`, its `allOf` and its `$siblings`.
    """
    members: list[Node] = []
    seen: set[Node] = set()
    stack = list(schemas)[::-1]
    impossible = False
    while stack:
        body = stack.pop()
        if isinstance(body, bool):
            impossible = impossible or not body
        elif body not in seen:
            seen.add(body)
            if bare := body.less("$ref", "allOf", "$siblings"):
                members.append(bare)
            below = [*([body["$siblings"].hidden()] if "$siblings" in body else ())]
            if body.ref is not None:
                below.append(body.ref.body)
            below += body.get("allOf", ())
            hides = body.is_hidden
            stack.extend(one.hidden() if hides and isinstance(one, Node) else one for one in reversed(below))
    return tuple(members), impossible


def identity(value: Any, _call: Call) -> Any:
    """Return the value unchanged: the cast by a schema without constraints."""
    return value


def node_types(members: Members) -> list[str] | None:
    """Return the JSON types that every member allows, in the order of the first `type`; None if any is allowed."""
    types: list[str] | None = None
    for member in members:
        given = member.get("type")
        if given is None:
            continue
        names = [given] if isinstance(given, str) else given
        types = names if types is None else common_types(types, names)
    return types


def common_types(left: list[str], right: list[str]) -> list[str]:
    out = []
    for name in left:
        if name in right or (name == "integer" and "number" in right):
            out.append(name)
        elif name == "number" and "integer" in right:
            out.append("integer")
    return out


def allowed_values(members: Members) -> list[Any] | None:
    """Return the values that every `enum` and `const` of the members allows; None if they have neither."""
    values: list[Any] | None = None
    for member in members:
        for given in ([member["const"]] if "const" in member else None, member.get("enum")):
            if given is not None:
                values = (
                    given if values is None else [one for one in values if any(equal(one, two) for two in given)]
                )
    return values


_FRAGILE = frozenset(key for key, word in KEYWORDS.items() if word.fragile)
_CLOSING = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems")


def is_fragile(members: Members) -> bool:
    """Return True if the cast of a valid array or object (with a hidden member: any value) may be invalid."""
    fragile = any(
        member.is_hidden or not _FRAGILE.isdisjoint(member) or lists_containers(member) for member in members
    )
    closed = len(members) > 1 and any(member.get(key) is False for member in members for key in _CLOSING)
    return fragile or closed


def further_items(members: Members, length: int) -> list[tuple[int, Body]]:
    """Return (first position, schema) for each member that constrains the items after the first `length`."""
    rests: list[tuple[int, Body]] = [
        (len(member.get("prefixItems", ())), member["items"]) for member in members if "items" in member
    ]
    if rests:
        return rests
    if any("contains" in member for member in members):
        return []  # it marks what it matches as evaluated, so `false` would not mean every further element
    return [(length, member["unevaluatedItems"]) for member in members if "unevaluatedItems" in member]


def position_schemas(members: Members, index: int) -> list[Body]:
    schemas: list[Body] = []
    for member in members:
        prefix = member.get("prefixItems", ())
        if index < len(prefix):
            schemas.append(prefix[index])
        elif "items" in member:
            schemas.append(member["items"])
    return schemas

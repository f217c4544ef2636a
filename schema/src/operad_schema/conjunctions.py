"""Conjunctions: a schema with its reference and its `allOf`, which a cast reads as one; the state of a call."""

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
"""Marks a value that does not exist."""

SCALARS = 10
"""The number of scalar defaults that may be filled in for each other part, and for each part of the value."""

Members = tuple[Node, ...]
"""The schemas of a node's conjunction, without their references, `allOf` and `$siblings`."""


class Call:
    """The state of one cast.

    It has the zero values that the cast invented, as (container, key), whether it dropped anything, and its
    budgets.
    """

    invented: list[tuple[Any, Any]] | None = None
    dropped = False
    recasts = 0
    filled = 0
    """The number of parts of defaults and zero values that were filled in, without scalar defaults."""
    scalars: float = 0
    """The number of scalar defaults. There may be far more of them: as many as are plausible for the value."""
    is_full = False
    """Whether the limit is reached, so that further missing parts stay absent."""
    value: Any = None
    """The value that is cast."""

    def be_full(self) -> None:
        """Stop filling in values, including scalar defaults."""
        self.is_full, self.scalars = True, math.inf

    def is_plausible(self) -> bool:
        """Return True if the number of scalar defaults is in proportion to the size of the value."""
        return self.scalars <= SCALARS * count_parts(self.value, MAX_PARTS)

    def mark(self) -> tuple[int, bool]:
        """Return the current position in the notes, for `forget` and `moved`."""
        return len(self.invented or ()), self.dropped

    def forget(self, mark: tuple[int, bool]) -> None:
        """Drop the notes since `mark`, because they are not about a part of the result."""
        self.dropped = mark[1]
        if self.invented is not None:
            del self.invented[mark[0] :]
            self.invented = self.invented or None

    def moved(self, mark: tuple[int, bool], before: Any, after: Any) -> None:
        """Move the notes about `before` to `after`, its cast value; notes about dropped parts are removed."""
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
    """Return True if an object has a property, or an array a position."""
    return key < len(container) if isinstance(container, list) else key in container


Caster = Callable[[Any, Call], Any]


class Fills(Protocol):
    """Fills in missing values; see `operad_schema.zeros`."""

    invents: bool
    schemas: list[Body]

    def __call__(self, out: Any, key: Any, call: Call) -> bool:
        """Fill in a property or the next position; return True if something was filled in."""

    def template(self) -> Any:
        """Return the value to fill in, made once; `ABSENT` without one."""


Row = tuple[str, frozenset[type], Caster, Fills | None]
"""A declared property: its name, the classes of values that need no cast, its cast, and its fill."""


class Checking(Protocol):
    """What casts use of the checks of a document."""

    limits: Limits

    def of(self, body: Body) -> Callable[[Any], bool]:
        """Return the check of a schema."""

    def kind(self, location: Location) -> Definition | None:
        """Return the schema at a location that a tag names; None if it cannot be read."""


class Casts(Protocol):
    """What unions, zero values and objects use of the casts of a document."""

    keeps: bool
    completes: bool
    checks: Checking
    lock: threading.RLock
    busy: list[Any]
    kinds: int

    def node(self, schemas: Iterable[Body]) -> Caster:
        """Return the cast of a conjunction."""

    def lazy(self, schemas: list[Body]) -> Caster:
        """Return the cast of a conjunction, compiled when first called."""

    def rows(self, members: Members) -> list[Row]:
        """Return the declared properties of a conjunction."""


class Lazy:
    """A cast that is compiled when first called; `put` then replaces it by the compiled one."""

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

    The members of a schema are itself, and the members of its reference, its `allOf`, and `$siblings`.
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
    """Cast by a schema without constraints: return the value."""
    return value


def node_types(members: Members) -> list[str] | None:
    """Return the JSON types that every member allows, in the order of the first; None for any type."""
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
    """Return the values of `enum` and `const` that every member allows; None for any value."""
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
    """Return True if a valid value's cast may be invalid. For scalars, this is so if a member is hidden."""
    fragile = any(
        member.is_hidden or not _FRAGILE.isdisjoint(member) or lists_containers(member) for member in members
    )
    closed = len(members) > 1 and any(member.get(key) is False for member in members for key in _CLOSING)
    return fragile or closed


def further_items(members: Members, length: int) -> list[tuple[int, Body]]:
    """Return, for each member that constrains further elements, the first position and the schema."""
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

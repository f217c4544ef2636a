"""What casts share: the members of a node, what their conjunction allows, and the state of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operad.schemas.nodes import Body
from operad.schemas.values import CONTAINER, equal

ABSENT: Any = object()
"""In the place of a value: there is none."""

Members = tuple[dict[str, Any], ...]
"""The schemas whose conjunction is a node, without their references, `allOf` and `$siblings`."""


class Call:
    """What one cast keeps: the zero values it invented, as (container, key), whether it dropped anything, and
    its budgets."""

    invented: list[tuple[Any, Any]] | None = None
    dropped = False
    recasts = 0
    filled = 0

    def mark(self) -> tuple[int, bool]:
        """Where the notes are, for `forget` and `moved`."""
        return len(self.invented or ()), self.dropped

    def forget(self, mark: tuple[int, bool]) -> None:
        """Drop what was noted since `mark`: it is about no part of the result."""
        self.dropped = mark[1]
        if self.invented is not None:
            del self.invented[mark[0] :]
            self.invented = self.invented or None

    def moved(self, mark: tuple[int, bool], before: Any, after: Any) -> None:
        """Note the places of `before` as those of `after`, which was cast from it; what was dropped has none."""
        start = mark[0]
        if self.invented is None or len(self.invented) <= start:
            return
        twins: dict[int, Any] = {}
        stack = [(before, after)]
        while stack:
            old, new = stack.pop()
            twins[id(old)] = new
            if isinstance(old, dict) and isinstance(new, dict):
                stack.extend((item, new[key]) for key, item in old.items() if key in new)
            elif isinstance(old, list) and isinstance(new, list):
                stack.extend(zip(old, new))  # noqa: B905  # what was cut off has no twin
        places = [(twins.get(id(container), container), key) for container, key in self.invented[start:]]
        self.invented[start:] = [(container, key) for container, key in places if has(container, key)]
        self.invented = self.invented or None


Caster = Callable[[Any, Call], Any]


def has(container: Any, key: Any) -> bool:
    """Whether an object has a property, or an array a position."""
    return key < len(container) if isinstance(container, list) else key in container


def identity(value: Any, _call: Call) -> Any:
    """The cast of a schema that says nothing."""
    return value


def node_types(members: Members) -> list[str] | None:
    """The JSON types that every member allows, in the first one's order; None when none says."""
    types: list[str] | None = None
    for member in members:
        given = member.get("type")
        if given is None:
            continue
        names = [given] if isinstance(given, str) else given
        types = names if types is None else both(types, names)
    return types


def both(left: list[str], right: list[str]) -> list[str]:
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


_FRAGILE = {"not", "if", "contains", "minProperties", "maxProperties", "uniqueItems", "dependentRequired",
            "dependentSchemas", "propertyNames", "oneOf"}  # fmt: skip
"""What can be true of a value and false of its cast."""
_CLOSING = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems")


def _lists_containers(member: dict[str, Any]) -> bool:
    return any(isinstance(value, CONTAINER) for value in [member.get("const"), *member.get("enum", ())])


def is_fragile(members: Members) -> bool:
    """Whether a container can be valid by a node, and its cast not."""
    fragile = any(not _FRAGILE.isdisjoint(member) or _lists_containers(member) for member in members)
    closed = len(members) > 1 and any(member.get(key) is False for member in members for key in _CLOSING)
    return fragile or closed


def further_items(members: Members, length: int) -> list[tuple[int, Body]]:
    """For each member that says something about further elements: from which one on, and its schema."""
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

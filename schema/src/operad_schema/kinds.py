"""OpenAPI's `discriminator` on a base schema: its tag names one of the schemas that include the base, its kinds.

`Pet` has `discriminator: {propertyName: kind, mapping: {cat: Cat}}`, and `Cat` is `allOf: [Pet, …]`. A value of
`Pet` with the tag `cat` is cast by both, so that properties declared only by `Cat` are kept. Validation ignores
kinds (OpenAPI 3.0.4 and 3.1.1, "Discriminator Object": a base "does not perform a search for child schemas").

The normal form stores the discriminator as `$kinds`, a dictionary:

- `propertyName`: the name of the property that holds the tag.
- `mapped`: the location of the schema for each tag of the mapping.
- `base`: the location of the base. The name of a schema beside the base that includes it is a tag, too.
- `other`: the location for any other tag (`defaultMapping` of OpenAPI 3.2), or None.

A kind is read when a tag first names it, because a base may have a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from operad_schema.conjunctions import Call, Caster, Casts, Members, flatten
from operad_schema.nodes import Body, Node
from operad_schema.references import Location

KINDS = "$kinds"
MOST = 1_000
"""The maximum number of casts for the kinds of one document; later kinds are unknown.

A schema with several bases needs a cast for each combination of their kinds, and values select the combinations.
"""

_OPEN = Node({"additionalProperties": True})


def settled(members: Members) -> Members:
    """Return the members of a conjunction without the `$kinds` of bases whose kind was already selected.

    A kind includes its base, so the base appears again with each kind. If the same base without `$kinds` is a
    member, the kind was selected before.
    """
    if not any(KINDS in member for member in members):
        return members
    known = set(members)
    return tuple(
        dict.fromkeys(bare if KINDS in one and (bare := one.less(KINDS)) in known else one for one in members)
    )


def derives(body: Body, location: Location) -> bool:
    """Return True if `body` includes the schema at a location by `$ref` or `allOf`, directly or indirectly."""
    stack, seen = [body], set[int]()
    while stack:
        one = stack.pop()
        if not isinstance(one, Node) or id(one) in seen:
            continue
        seen.add(id(one))
        stack.extend(one.get("allOf", ()))
        if one.ref is not None:
            if one.ref.target.location == location:
                return True
            stack.append(one.ref.body)
    return False


def _kept(name: str) -> Node:
    """Return a schema that accepts any value and declares a property, so that no cast drops the property."""
    return Node({"dependentRequired": {name: []}})


class Kinds:
    """The cast of a conjunction with a base schema. It casts a value by the kind that the value's tag names."""

    def __init__(self, casting: Casts, members: Members, member: Node) -> None:
        given: dict[str, Any] = member[KINDS]
        self.casting = casting
        self.read = casting.checks.kind
        self.tag: str = given["propertyName"]
        self.mapped: dict[str, Location] = given["mapped"]
        self.base: Location | None = given["base"]
        self.other: Location | None = given["other"]
        self.rest = tuple(one.less(KINDS) if one is member else one for one in members)
        self.strangers: set[Location] = set()
        self.casts: dict[Location | None, Caster] = {}
        self.keeping: Body = (
            True if any(self.tag in one.get("properties", ()) for one in members) else _kept(self.tag)
        )
        self.of_base: Caster = casting.lazy(list(self.rest))

    def cast(self, value: Any, call: Call) -> Any:
        """Return a value cast by its kind, and again if the cast changes the tag; unchanged if that never ends."""
        if not isinstance(value, dict):
            return self.of_base(value, call)
        mark = call.mark()
        kind, out, tried = self.kind(value), value, set[Location | None]()
        while True:
            before, out = out, (self.casts.get(kind) or self._caster(kind))(out, call)
            call.moved(mark, before, out)
            again = self.kind(out) if isinstance(out, dict) else kind
            if again == kind:
                return out
            tried.add(kind)
            if again in tried:  # each kind changes the tag to the other's
                call.forget(mark)
                return value
            kind = again

    def kind(self, value: dict[Any, Any]) -> Location | None:
        """Return the location of the kind that an object's tag names; `other` (None if missing) for other tags."""
        tag = value.get(self.tag)
        if not isinstance(tag, str):
            return self.other
        if (mapped := self.mapped.get(tag)) is not None:
            return mapped
        if self.base is None:
            return self.other
        named = (*self.base[:-1], tag)
        if named == self.base or named in self.casts:
            return named
        if named in self.strangers or (found := self.read(named)) is None:
            return self.other
        if derives(found.body, self.base):
            return named
        self.strangers.add(named)  # there are no more of these than names in the document
        return self.other

    def _caster(self, kind: Location | None) -> Caster:
        with self.casting.lock:
            if kind is not None and self.casting.kinds >= MOST:
                return self.casts.get(None) or self._caster(None)
            self.casting.kinds += kind is not None
            cast = self.casts[kind] = self.casting.node([*self._schemas(kind), self.keeping])
        return cast

    def _schemas(self, kind: Location | None) -> Iterable[Body]:
        if kind is not None and kind == self.base:
            return self.rest
        found = None if kind is None else self.read(kind)
        if found is not None and flatten([found.body])[0]:
            return *self.rest, found.body
        # Which properties are undeclared is not known, unless the base allows no others.
        is_closed = any(member.get("additionalProperties") is False for member in self.rest)
        return self.rest if is_closed else (*self.rest, _OPEN)

"""OpenAPI's `discriminator` of a union: a property whose value, the tag, selects the branch of a value.

The normal form stores it as a dictionary. A branch is identified by its position.

- `propertyName`: the name of the property.
- `union`: the keyword of the union, `anyOf` or `oneOf`.
- `names` and `mapped`: the branch for each name of a branch, and for each tag of the `mapping`.
- `tags`: the branch for each tag; None for a tag that several branches declare. Added by `settle_tags`.
- `closed`: whether no other tag is valid. Added by `settle_tags`.
- `decides`: whether the tag alone selects the branch in validation. Added by `settle_tags`.

A base schema, which other schemas include, may also have a `discriminator`; see `operad_schema.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from operad_schema.references import Location, References, Scope, Target

_DEEPEST = 8


def settle_tags(node: Any, *, decides: bool) -> None:
    """Add `tags`, `closed` and `decides` to the `discriminator` of a union, after its branches were read.

    The mapping takes precedence over a `const` or `enum` of the property in the branches, and these over the names
    of the branches. Many documents have no mapping and schemas whose names are not the tags, so using the names
    alone would reject values that the document describes.
    """
    given = node["discriminator"]
    branches = node[given["union"]]
    own: dict[str, int | None] = {}
    told = {*given["names"].values(), *given["mapped"].values()}
    closed = True
    for position, branch in enumerate(branches):
        values = _tags_of(branch, given["propertyName"], 0)
        closed = closed and (bool(values) or (values is not None and position in told))
        for value in values or ():
            own[value] = position if own.get(value, position) == position else None
    given.update(tags={**given["names"], **own, **given["mapped"]}, closed=closed, decides=decides)


def _tags_of(body: Any, name: str, depth: int) -> set[str] | None:
    """Return the tags that a branch declares; empty if it declares none, None if they cannot be determined."""
    if isinstance(body, bool) or depth > _DEEPEST:
        return None
    found: set[str] = set()
    for part in (*body.get("allOf", ()), *([body.ref.body] if body.ref else ())):
        below = _tags_of(part, name, depth + 1)
        if below is None:
            return None
        found = below or found
    if name in body.get("properties", {}):
        values = _values_of(body["properties"][name], depth)
        found = {value for value in values if isinstance(value, str)} or found
    for key in ("anyOf", "oneOf"):
        if key in body and not found:
            each = [_tags_of(branch, name, depth + 1) for branch in body[key]]
            if not all(each):
                return None
            found = {tag for tags in each for tag in tags or ()}
    return found


def _values_of(body: Any, depth: int) -> list[Any]:
    if isinstance(body, bool) or depth > _DEEPEST:
        return []
    if "const" in body:
        return [body["const"]]
    if "enum" in body:
        return list(body["enum"])
    return _values_of(body.ref.body, depth + 1) if body.ref else []


def decides(given: Mapping[str, Any] | None, keyword: str, value: Any) -> bool:
    """Return True if the tag of a value alone determines the branch that must match, or that no branch matches."""
    if given is None or not given.get("decides") or given["union"] != keyword:
        return False
    if not isinstance(value, dict) or given["propertyName"] not in value:
        return False
    tag = value[given["propertyName"]]
    if isinstance(tag, str) and tag in given["tags"]:
        return given["tags"][tag] is not None
    return bool(given["closed"])


def kinds_of(given: Any, base: Target, references: References, scope: Scope) -> dict[str, Any] | None:
    """Return the `$kinds` for the `discriminator` of a base schema; None if it is malformed."""
    if not isinstance(given, Mapping) or not isinstance(name := given.get("propertyName"), str):
        return None

    def place(target: Any) -> Location | None:
        """Return the location of a schema that a mapping names or refers to; None if it does not exist."""
        with suppress(LookupError, ValueError):
            if base.location and isinstance(target, str):
                return references.locate((*base.location[:-1], target)).location
        with suppress(LookupError, ValueError):
            return references.resolve(target, scope).location if isinstance(target, str) else None
        return None

    mapping = given.get("mapping")
    found = {tag: place(target) for tag, target in (mapping.items() if isinstance(mapping, Mapping) else ())}
    return {
        "propertyName": name,
        "mapped": {tag: location for tag, location in found.items() if location is not None},
        "base": base.location if base.location and isinstance(base.location[-1], str) else None,
        "other": place(given.get("defaultMapping")),
    }

"""Reading the normal form of a JSON Schema, as `operad.schemas.reader` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Body = dict[str, Any] | bool

IN_PLACE_ONE = ("not", "if", "then", "else", "$siblings")
IN_PLACE_LIST = ("allOf", "anyOf", "oneOf")


def in_place(body: Body) -> Iterator[Body]:
    """The subschemas of a normal form that apply to the same value as it does."""
    if isinstance(body, dict):
        for key in IN_PLACE_ONE:
            if key in body:
                yield body[key]
        for key in IN_PLACE_LIST:
            yield from body.get(key, ())
        yield from body.get("dependentSchemas", {}).values()


def in_place_refs(body: Body) -> list[str]:
    """The names that a normal form refers to in place; one that it refers to twice is in it twice."""
    found = []
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, dict) and "$ref" in node:
            found.append(ref_name(node))
        stack.extend(in_place(node))
    return found


def ref_name(body: Mapping[str, Any]) -> str:
    """The name behind a `$ref` of the normal form."""
    return str(body["$ref"])[8:]


def refs_of(body: Body) -> list[str]:
    """The names that a normal form refers to, wherever."""
    found = []
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                found.append(ref_name(node))
            stack.extend(child for child, _ in children_of(node))
            stack.extend(in_place(node))
            if "propertyNames" in node:
                stack.append(node["propertyNames"])
    return found


def children_of(body: Mapping[str, Any]) -> Iterator[tuple[Body, str]]:
    """The subschemas of parts of a value, each with the part: a property's name, `{}` or `[]`."""
    for name, node in body.get("properties", {}).items():
        yield node, "." + name
    for node in body.get("patternProperties", {}).values():
        yield node, "{}"
    for key in ("additionalProperties", "unevaluatedProperties"):
        if key in body:
            yield body[key], "{}"
    for node in body.get("prefixItems", ()):
        yield node, "[]"
    for key in ("items", "contains", "unevaluatedItems"):
        if key in body:
            yield body[key], "[]"


def without(body: Body, names: frozenset[str]) -> Body:
    """A normal form whose in-place references to `names` are unknown."""
    if not isinstance(body, dict):
        return body
    if "$ref" in body and ref_name(body) in names:
        return True
    out = dict(body)
    for key in IN_PLACE_ONE:
        if key in out:
            out[key] = without(out[key], names)
    for key in IN_PLACE_LIST:
        if key in out:
            out[key] = [without(node, names) for node in out[key]]
    if "dependentSchemas" in out:
        out["dependentSchemas"] = {key: without(node, names) for key, node in out["dependentSchemas"].items()}
    return out


def components(edges: Mapping[str, list[str]]) -> Iterator[frozenset[str]]:
    """The strongly connected groups of a graph, what is referred to first (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in edges:
        if start in order:
            continue
        work = [(start, iter(edges[start]))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            name, rest = work[-1]
            for ref in rest:
                if ref not in edges:
                    continue
                if ref not in order:
                    order[ref] = low[ref] = len(order)
                    stack.append(ref)
                    on_stack.add(ref)
                    work.append((ref, iter(edges[ref])))
                    break
                if ref in on_stack:
                    low[name] = min(low[name], order[ref])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    group = set()
                    while name not in group:
                        group.add(stack.pop())
                    on_stack -= group
                    yield frozenset(group)


def settle_tags(bodies: Mapping[str, Body], body: dict[str, Any], *, decides: bool) -> None:
    """Complete a union's `discriminator`: the branch of each tag, and whether there can be no other tag.

    A tag is what the mapping says, else what the branches' own `const` or `enum` of that property say, else
    a branch's name. `tags` has None for one that several branches claim: it decides nothing.
    """
    given = body["discriminator"]
    name = given["propertyName"]
    own: dict[str, int | None] = {}
    closed = True
    told = {*given["names"].values(), *given["mapped"].values()}
    for position, branch in enumerate(body[given["union"]]):
        values = _tags_of(bodies, branch, name, 0)
        closed = closed and (bool(values) or (values is not None and position in told))
        for value in values or ():
            own[value] = position if own.get(value, position) == position else None
    given["tags"] = {**given["names"], **own, **given["mapped"]}
    given["closed"] = closed
    given["decides"] = decides


def _tags_of(bodies: Mapping[str, Body], body: Body, name: str, depth: int) -> set[str] | None:
    """The tags that a branch declares, none for a property that takes any; None where that cannot be seen."""
    if isinstance(body, bool) or depth > 8:
        return None
    found: set[str] = set()
    for part in (*body.get("allOf", ()), *([bodies[ref_name(body)]] if "$ref" in body else ())):
        below = _tags_of(bodies, part, name, depth + 1)
        if below is None:
            return None
        found = below or found
    if name in body.get("properties", {}):
        values = _values_of(bodies, body["properties"][name], depth)
        found = {value for value in values if isinstance(value, str)} or found
    for key in ("anyOf", "oneOf"):
        if key in body and not found:
            each = [_tags_of(bodies, branch, name, depth + 1) for branch in body[key]]
            if not all(each):
                return None
            found = {tag for tags in each for tag in tags or ()}
    return found


def _values_of(bodies: Mapping[str, Body], body: Body, depth: int) -> list[Any]:
    if isinstance(body, bool) or depth > 8:
        return []
    if "const" in body:
        return [body["const"]]
    if "enum" in body:
        return list(body["enum"])
    return _values_of(bodies, bodies[ref_name(body)], depth + 1) if "$ref" in body else []


def decides(given: Mapping[str, Any] | None, keyword: str, value: Any) -> bool:
    """Whether a `discriminator` alone says which branch of a union a value has to be, or that it is none."""
    if given is None or not given.get("decides") or given["union"] != keyword:
        return False
    if not isinstance(value, dict) or given["propertyName"] not in value:
        return False
    tag = value[given["propertyName"]]
    if isinstance(tag, str) and tag in given["tags"]:
        return given["tags"][tag] is not None
    return bool(given["closed"])

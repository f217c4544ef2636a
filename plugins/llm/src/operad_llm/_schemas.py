"""Walk and rewrite JSON Schemas as all formats of tools need them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from operad import OperationSpec

Json = dict[str, Any]

INPUT = "input"
"""The name of a tool's only argument if the input of its operation is not an object."""

ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
       "unevaluatedItems", "unevaluatedProperties", "additionalItems")  # fmt: skip
"""Keywords with a schema as their value."""
MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords with a list of schemas as their value."""
NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords with an object of names and schemas as their value."""


def parameters(spec: OperationSpec) -> tuple[Json, bool]:
    """Return the object schema of a tool's arguments, and whether the input is wrapped in the property `INPUT`.

    All references point into the schema's own ``$defs``. The caller may change the schema.
    """
    schema = spec.input_schema.bundled()
    if isinstance(schema, bool):
        return {"type": "object", "properties": {}}, False
    definitions = schema.get("$defs", {})
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        inner = {key: value for key, value in schema.items() if key != "$defs"}
        wrapped: Json = {"type": "object", "properties": {INPUT: inner}, "required": [INPUT]}
        return ({**wrapped, "$defs": definitions} if definitions else wrapped), True
    if "$ref" in schema and not schema.get("properties"):  # formats want to see the root's properties
        target = resolve(schema, schema)
        if isinstance(target, Mapping) and target.get("type") == "object":
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    made = {**schema, "type": "object"}
    made.setdefault("properties", {})
    return made, False


def resolve(node: Any, root: Mapping[str, Any]) -> Any:
    """Return the target of the ``$ref`` of a schema within ``root``.

    Returns the schema itself if it has no ``$ref``, or if the target does not exist.
    """
    seen = 0
    while isinstance(node, Mapping) and isinstance(node.get("$ref"), str) and seen < 32:
        name = node["$ref"].removeprefix("#/$defs/")
        definitions = root.get("$defs", {})
        if node["$ref"] == "#":
            return root
        if name not in definitions:
            name = _unescaped(name)
        if name not in definitions:
            return node
        node, seen = definitions[name], seen + 1
    return node


def _unescaped(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name).replace("~1", "/").replace("~0", "~")


def children(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the place of each direct subschema, such as ``items`` or ``properties/name``, and the subschema."""
    for keyword in ONE:
        if isinstance(node.get(keyword), (Mapping, bool)):
            yield keyword, node[keyword]
    for keyword in MANY:
        if isinstance(node.get(keyword), list):
            yield from ((f"{keyword}/{index}", child) for index, child in enumerate(node[keyword]))
    for keyword in NAMED:
        if isinstance(node.get(keyword), Mapping):
            yield from ((f"{keyword}/{name}", child) for name, child in node[keyword].items())


def rebuilt(node: Mapping[str, Any], change: Callable[[Any], Any]) -> Json:
    """Return a copy of a schema in which ``change(subschema)`` replaces each direct subschema."""
    made = dict(node)
    for keyword in ONE:
        if isinstance(node.get(keyword), (Mapping, bool)):
            made[keyword] = change(node[keyword])
    for keyword in MANY:
        if isinstance(node.get(keyword), list):
            made[keyword] = [change(child) for child in node[keyword]]
    for keyword in NAMED:
        if isinstance(node.get(keyword), Mapping):
            made[keyword] = {name: change(child) for name, child in node[keyword].items()}
    return made


def without(node: Any, keywords: frozenset[str], dropped: set[str]) -> Any:
    """Return a schema without ``keywords``, at any depth, and add the removed keywords to ``dropped``."""
    if not isinstance(node, Mapping):
        return node
    dropped.update(keywords & node.keys())
    kept = {key: value for key, value in node.items() if key not in keywords}
    return rebuilt(kept, lambda child: without(child, keywords, dropped))


BOUNDS = frozenset(
    [
        "contains",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "uniqueItems",
    ]
)
"""Keywords that restrict the values of a type."""


def bounds(node: Any) -> set[str]:
    """Return the keywords in `BOUNDS` that a schema has at any depth."""
    if not isinstance(node, Mapping):
        return set()
    return set(BOUNDS & node.keys()).union(*(bounds(child) for _, child in children(node)))


def accepts_null(node: Any, root: Mapping[str, Any], depth: int = 8) -> bool:
    """Return True if a schema may accept ``null``. Schemas below ``depth`` levels are assumed to accept it."""
    node = resolve(node, root)
    if not isinstance(node, Mapping) or depth == 0:
        return node is not False
    if "type" in node:
        kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
        if "null" not in kinds:
            return False
    if isinstance(node.get("enum"), list) and None not in node["enum"]:
        return False
    if "const" in node and node["const"] is not None:
        return False
    for keyword in ("anyOf", "oneOf"):
        if isinstance(node.get(keyword), list):
            return any(accepts_null(child, root, depth - 1) for child in node[keyword])
    if isinstance(node.get("allOf"), list):
        return all(accepts_null(child, root, depth - 1) for child in node["allOf"])
    return True


def without_nulls(value: Any, node: Any, root: Mapping[str, Any]) -> Any:
    """Return a copy of ``value`` without the nulls of optional properties that do not accept null.

    Models send such nulls for properties that they mean to leave out. ``root`` has the ``$defs`` of ``node``.
    """
    node = resolve(node, root)
    if not isinstance(node, Mapping):
        return value
    if isinstance(value, list):
        items = node.get("items")
        return [without_nulls(item, items, root) for item in value] if items is not None else value
    if not isinstance(value, dict):
        return value
    fields = dict(_properties(node, root))
    required = node.get("required", ())
    made = {}
    for name, item in value.items():
        field = fields.get(name)
        if item is None and name not in required and field is not None and not accepts_null(field, root):
            continue
        made[name] = item if field is None else without_nulls(item, field, root)
    return made


def _properties(node: Mapping[str, Any], root: Mapping[str, Any], depth: int = 8) -> Iterator[tuple[str, Any]]:
    """Yield the properties of a schema, those of its branches first."""
    if depth:
        for keyword in ("allOf", "anyOf", "oneOf"):
            for child in node.get(keyword) or ():
                found = resolve(child, root)
                if isinstance(found, Mapping):
                    yield from _properties(found, root, depth - 1)
    properties = node.get("properties")
    if isinstance(properties, Mapping):
        yield from properties.items()


def short_definitions(schema: Json, limit: int) -> Json:
    """Return a schema whose definitions have names that APIs accept.

    Such a name has at most ``limit`` ASCII letters, digits, ``_`` and ``-``. If one name does not match, all
    definitions are renamed to ``d0``, ``d1``, ….
    """
    definitions = schema.get("$defs", {})
    if all(len(name) <= limit and _PLAIN.fullmatch(name) for name in definitions):
        return schema
    renamed = {name: f"d{number}" for number, name in enumerate(definitions)}

    def change(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        made = rebuilt(node, change)
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            name = reference.removeprefix("#/$defs/")
            name = name if name in renamed else _unescaped(name)
            made["$ref"] = f"#/$defs/{renamed.get(name, name)}"
        return made

    made: Json = change(schema)
    made["$defs"] = {renamed[name]: node for name, node in made["$defs"].items()}
    return made


_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def is_recursive(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema or one of its definitions contains itself, directly or through definitions."""
    definitions = schema.get("$defs", {})
    state: dict[str, int] = {}

    def visit(node: Any) -> bool:
        if not isinstance(node, Mapping):
            return False
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference == "#":
                return True
            name = reference.removeprefix("#/$defs/")
            name = name if name in definitions else _unescaped(name)
            if state.get(name) == 1:
                return True
            if state.get(name) is None and name in definitions:
                state[name] = 1
                if visit(definitions[name]):
                    return True
                state[name] = 2
        return any(
            visit(child) for place, child in children(node) if not place.startswith(("$defs", "definitions"))
        )

    return visit(schema)

"""Convert schemas to the strict subsets of model APIs.

The subset of OpenAI is described at https://platform.openai.com/docs/guides/structured-outputs ("Supported
schemas"). The subset of Anthropic is that of strict tool use, as ``transform_schema`` of its SDK implements it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from operad_llm._schemas import Json, accepts_null, children, is_recursive, rebuilt, resolve

MAX_PROPERTIES, MAX_DEPTH, MAX_ENUM, MAX_NAMES = 5_000, 10, 1_000, 120_000
_OPENAI_DROPPED = frozenset(
    [
        "default",
        "examples",
        "title",
        "$schema",
        "discriminator",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "xml",
        "externalDocs",
        "uniqueItems",
        "minProperties",
        "maxProperties",
    ]
)
"""Keywords that are left out: annotations, and restrictions that are checked when the model makes a call."""
_OPENAI_REFUSED = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "prefixItems",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
]
_OPENAI_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_ANTHROPIC_KEPT = frozenset({"type", "enum", "const", "anyOf", "allOf", "$ref", "$defs", "properties", "required",
                             "items", "description", "additionalProperties", "title"})  # fmt: skip
_ANTHROPIC_FORMATS = (*_OPENAI_FORMATS, "uri")
_UNTYPED = "expected a schema with a type, got one for any value; add a type"
_NO_ITEMS = "expected an array with items, got one without; add items"


class NotStrict(Exception):
    """The error for a schema that a strict subset does not support; the message states the reason."""


def openai_strict(schema: Json) -> Json:
    """Return the schema in OpenAI's subset. Optional properties become required properties that may be null.

    Raises:
        NotStrict: the root is a union, a part has an unsupported keyword, allows any value or is a map, or the
            schema exceeds a limit such as `MAX_DEPTH`.
    """
    if "anyOf" in schema or "oneOf" in schema or "allOf" in schema:
        found = next(key for key in ("anyOf", "oneOf", "allOf") if key in schema)
        raise NotStrict(f"expected an object at the root, got {found}; move it into a property")
    made: Json = _openai(schema, schema)
    _within_limits(made)
    return made


def _openai(node: Any, root: Mapping[str, Any]) -> Any:
    node = _closed(node)
    if "$ref" in node:
        return {"$ref": node["$ref"]}
    for keyword in _OPENAI_REFUSED:
        if keyword in node:
            raise NotStrict(f"expected a schema without {keyword}; remove the keyword")
    if len(node.get("allOf", ())) == 1:
        merged = {**resolve(node["allOf"][0], root), **{k: v for k, v in node.items() if k != "allOf"}}
        return _openai(merged, root)
    if "allOf" in node:
        raise NotStrict(f"expected one schema in allOf, got {len(node['allOf'])}; merge them")
    made = {key: value for key, value in node.items() if key not in _OPENAI_DROPPED and not key.startswith("x-")}
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if made.get("format") not in _OPENAI_FORMATS:
        made.pop("format", None)
    if _is_untyped(made):
        raise NotStrict(_UNTYPED)
    made.pop("additionalProperties", None)
    made = rebuilt(made, lambda child: _openai(child, root))
    if "properties" in made or _has_type(made, "object"):
        _no_map(node)
        required = made.get("required", [])
        made["properties"] = {
            name: child if name in required else _nullable(child, root)
            for name, child in made.get("properties", {}).items()
        }
        made["required"] = list(made["properties"])
        made["additionalProperties"] = False
    if _has_type(made, "array") and "items" not in made:
        raise NotStrict(_NO_ITEMS)
    return made


def anthropic_strict(schema: Json) -> Json:
    """Return the schema in Anthropic's subset; keywords outside the subset move into the description.

    Raises:
        NotStrict: the schema contains itself, or a part of it allows any value or is a map.
    """
    if is_recursive(schema):
        raise NotStrict("expected a schema that does not contain itself; limit its depth")
    made: Json = _anthropic(schema)
    return made


def _anthropic(node: Any) -> Any:
    node = _closed(node)
    if "$ref" in node:
        return {"$ref": node["$ref"]}
    made = {key: value for key, value in node.items() if key in _ANTHROPIC_KEPT}
    if "oneOf" in node:
        made["anyOf"] = node["oneOf"]
    if node.get("format") in _ANTHROPIC_FORMATS:
        made["format"] = node["format"]
    if node.get("minItems") in (0, 1):
        made["minItems"] = node["minItems"]
    if _is_untyped(made):
        raise NotStrict(_UNTYPED)
    told = {
        key: value
        for key, value in node.items()
        if key not in made and key not in ("oneOf", "$schema", "discriminator") and not key.startswith("x-")
    }
    if told:
        words = ", ".join(f"{key}: {value}" for key, value in told.items())
        made["description"] = f"{made.get('description', '')}\n\n{{{words}}}".strip()
    if "properties" in made or _has_type(made, "object"):
        _no_map(node)
        made.pop("additionalProperties", None)
        return {**rebuilt(made, _anthropic), "additionalProperties": False}
    if _has_type(made, "array") and "items" not in made:
        raise NotStrict(_NO_ITEMS)
    return rebuilt(made, _anthropic)


def _closed(node: Any) -> Json:
    if not isinstance(node, Mapping):
        raise NotStrict(_UNTYPED if node is True else "expected a schema that allows a value, got false; drop it")
    return dict(node)


def _no_map(node: Mapping[str, Any]) -> None:
    extra = node.get("additionalProperties", False if node.get("properties") else None)
    if extra is None:
        raise NotStrict("expected an object with properties, got one with any fields; declare its properties")
    if extra is not False and not (extra is True and node.get("properties")):
        raise NotStrict("expected an object with fixed properties, got a map of names; use a list of objects")


def _is_untyped(node: Mapping[str, Any]) -> bool:
    return not any(key in node for key in ("type", "enum", "const", "anyOf", "$ref", "properties"))


def _has_type(node: Mapping[str, Any], name: str) -> bool:
    kind = node.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


def _nullable(node: Any, root: Mapping[str, Any]) -> Any:
    """Return a schema that also accepts null."""
    if accepts_null(node, root):
        return node
    kind = node.get("type")
    if isinstance(kind, str) and "enum" not in node and "const" not in node:
        return {**node, "type": [kind, "null"]}
    if isinstance(kind, list) and "enum" not in node and "const" not in node:
        return {**node, "type": [*kind, "null"]}
    words = {"description": node["description"]} if isinstance(node.get("description"), str) else {}
    return {**words, "anyOf": [node, {"type": "null"}]}


def _within_limits(schema: Json) -> None:
    properties = enums = letters = 0
    for node, depth in _nodes(schema):
        names = node.get("properties", {})
        properties += len(names)
        letters += sum(map(len, names)) + sum(map(len, node.get("$defs", {})))
        values = node.get("enum", [])
        enums += len(values)
        letters += sum(len(value) for value in values if isinstance(value, str))
        if depth > MAX_DEPTH:
            raise NotStrict(f"expected at most {MAX_DEPTH} levels of nesting, got {depth}; flatten the schema")
    for count, limit, what in (
        (properties, MAX_PROPERTIES, "properties"),
        (enums, MAX_ENUM, "values of enumerations"),
        (letters, MAX_NAMES, "characters of names"),
    ):
        if count > limit:
            raise NotStrict(f"expected at most {limit} {what}, got {count}; make the schema smaller")


def _nodes(schema: Json, depth: int = 1) -> Iterator[tuple[Mapping[str, Any], int]]:
    yield schema, depth
    for place, child in children(schema):
        if isinstance(child, Mapping):
            deeper = place.startswith(("properties", "items"))
            yield from _nodes(dict(child), depth + 1 if deeper else depth)

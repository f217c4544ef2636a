"""Schemas as every reader of OpenAPI takes them: objects, where JSON Schema allows a bare boolean as well."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONE = frozenset({"items", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema"})
_OR_BOOLEAN = frozenset({"additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
"""Keywords whose bare booleans every reader knows."""

Json = dict[str, Any]


def plain(schema: Any, unsaid: Container[str] = ()) -> Any:
    """``schema`` with ``{}`` for true and ``{"not": {}}`` for false, wherever a generator expects an object.

    Args:
        schema: of JSON Schema 2020-12.
        unsaid: the formats to leave out.
    """

    def said(node: Json) -> Json:
        if node.get("format") in unsaid:
            return {key: value for key, value in node.items() if key != "format"}
        return node

    return mapped(_as_object(schema), said, _as_object)


def mapped(schema: Any, change: Callable[[Json], Json], place: Callable[[Any], Any] = lambda part: part) -> Any:
    """A copy of ``schema`` ``change`` made to each schema in it, ``place`` to all that stands for one."""
    if not isinstance(schema, dict):
        return schema
    out: Json = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: mapped(place(part), change, place) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            out[key] = [mapped(place(part), change, place) for part in value]
        elif key in _ONE:
            out[key] = mapped(place(value), change, place)
        elif key in _OR_BOOLEAN:
            out[key] = mapped(value, change, place)
        else:
            out[key] = value
    return change(out)


def _as_object(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema

"""Schemas for tools that expect an object where JSON Schema also allows a boolean."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONE = frozenset({"items", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema"})
_OR_BOOLEAN = frozenset({"additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
"""Keywords whose booleans every tool understands."""

Json = dict[str, Any]


def plain(schema: Any, omitted: Container[str] = ()) -> Any:
    """Return a copy of a schema with ``{}`` for true and ``{"not": {}}`` for false where tools expect an object.

    Args:
        schema: a schema of JSON Schema 2020-12.
        omitted: the formats to leave out.
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return _copied(schema, omitted)


def _copied(schema: Any, omitted: Container[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: Json = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: plain(part, omitted) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            out[key] = [plain(part, omitted) for part in value]
        elif key in _ONE:
            out[key] = plain(value, omitted)
        elif key in _OR_BOOLEAN:
            out[key] = _copied(value, omitted)
        elif key != "format" or value not in omitted:
            out[key] = value
    return out

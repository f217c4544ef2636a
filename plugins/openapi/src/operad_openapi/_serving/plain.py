"""Schemas as every reader of OpenAPI takes them: objects, where JSON Schema allows a bare boolean as well."""

from __future__ import annotations

from typing import Any

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONE = frozenset({"items", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema"})


def plain(schema: Any) -> Any:
    """``schema`` with ``{}`` for true and ``{"not": {}}`` for false, wherever a generator expects an object."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: plain(part) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            out[key] = [plain(part) for part in value]
        elif key in _ONE:
            out[key] = plain(value)
        else:
            out[key] = value
    return out

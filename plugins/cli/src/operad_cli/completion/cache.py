"""A cache for completion: the ids and input fields of operations that commands saw last, and values of enums."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from operad_auth.http import cache_files

_KIND = "completion"
_VALUES = 100
"""The largest enum that is completed, in values."""
_MANY = 300
"""With more operations, only the fields of the called ones are stored, because building schemas takes time."""


def remember(config: str, specs: Iterable[Any], operation_id: str | None) -> None:
    """Store the ids and input fields of operations.

    Args:
        config: the path of the configuration.
        specs: the specs of the operations.
        operation_id: the operation for which sources were opened. If None, ``specs`` has the operations of all
            sources, and other operations of the configuration are removed from the cache.
    """
    old = recall(config)
    specs = list(specs)
    known = {spec.id: old.get(spec.id, {}) for spec in specs}
    for spec in specs if len(specs) <= _MANY else [spec for spec in specs if spec.id == operation_id]:
        known[spec.id] = _fields(spec.input_schema.raw)
    if operation_id is not None:
        known = {**old, **known}
    if known != old:
        cache_files.remember(_KIND, os.path.realpath(config), None, known)


def recall(config: str) -> dict[str, dict[str, list[str]]]:
    """Return operation id -> input field -> possible values, as last stored for a configuration.

    The list of values is empty if a field may have any value or more than 100. Without a cache, return ``{}``.
    """
    found = cache_files.recall(_KIND, os.path.realpath(config), None)
    try:
        return {
            str(name): {str(field): [str(value) for value in values] for field, values in fields.items()}
            for name, fields in found.items()
        }
    except (AttributeError, TypeError):  # nothing, or another program's content
        return {}


def _fields(schema: Any) -> dict[str, list[str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: _values(shape, schema) for name, shape in properties.items()}


def _values(shape: Any, root: dict[str, Any], depth: int = 4) -> list[str]:
    """Return the values that a field may have, as they are written in ``KEY=VALUE``; none if they are many."""
    if not isinstance(shape, dict) or depth == 0:
        return []
    reference = shape.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        definitions = root.get("$defs")
        return _values(definitions.get(reference[8:]) if isinstance(definitions, dict) else None, root, depth - 1)
    if shape.get("type") == "boolean":
        return ["true", "false"]
    found = shape.get("enum", [shape["const"]] if "const" in shape else None)
    if isinstance(found, list):
        texts = [value if isinstance(value, str) else json.dumps(value) for value in found if value is not None]
        return texts if len(texts) <= _VALUES else []
    members = shape.get("anyOf") or shape.get("oneOf")
    if shape.get("type") == "array":
        members = [shape.get("items")]
    if isinstance(members, list):
        return [value for each in members for value in _values(each, root, depth - 1)]
    return []

"""The ids and input fields of operations that a command saw last, for completion."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from operad_auth.http import cache_files

_KIND = "completion"
_MANY = 300
"""With more operations only the fields of those in use are kept, because building schemas takes time."""


def remember(config: str, specs: Iterable[Any], operation_id: str | None) -> None:
    """Keep the ids and fields of operations.

    Args:
        config: the path of the configuration.
        specs: the specs of the operations.
        operation_id: the operation for which sources were opened. None: all sources are open, and other
            operations are forgotten.
    """
    old = recall(config)
    specs = list(specs)
    known = {spec.id: old.get(spec.id, []) for spec in specs}
    for spec in specs if len(specs) <= _MANY else [spec for spec in specs if spec.id == operation_id]:
        known[spec.id] = _fields(spec.input_schema.raw)
    if operation_id is not None:
        known = {**old, **known}
    if known != old:
        cache_files.remember(_KIND, os.path.realpath(config), None, known)


def recall(config: str) -> dict[str, list[str]]:
    """Return the fields of each operation by its id."""
    found = cache_files.recall(_KIND, os.path.realpath(config), None)
    try:
        return {str(name): [str(field) for field in fields] for name, fields in found.items()}
    except (AttributeError, TypeError):  # nothing, or another program's content
        return {}


def _fields(schema: Any) -> list[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []

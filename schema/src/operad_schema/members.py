"""The members of exported object schemas, for programs that convert them to something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def object_members(
    schema: Any, definitions: Mapping[str, Any], *, branches: bool = False
) -> tuple[dict[str, Any], set[str]]:
    """Return the properties of an exported object schema, and the names of those that are required.

    Properties from ``$ref`` and ``allOf`` are included.

    Args:
        schema: a schema that `Schema.bundled` returned.
        definitions: the ``$defs`` of the schema.
        branches: whether to include ``anyOf`` and ``oneOf``. A property that only they require is not required.
    """
    found: dict[str, Any] = {}
    required: set[str] = set()
    waiting, seen = [(schema, True)], set()
    while waiting:
        node, is_sure = waiting.pop(0)
        if not isinstance(node, Mapping):
            continue
        for name, value in node.get("properties", {}).items():
            found.setdefault(name, value)
        if is_sure:
            required.update(node.get("required", ()))
        reference = node.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append((definitions.get(definition_name(reference)), is_sure))
        waiting.extend((part, is_sure) for part in node.get("allOf", ()))
        if branches:
            waiting.extend((part, False) for key in ("anyOf", "oneOf") for part in node.get(key, ()))
    return found, required


def definition_name(reference: str) -> str:
    """Return the decoded name of the definition to which a reference such as ``#/$defs/name`` points."""
    return unquote(reference.removeprefix("#/$defs/")).replace("~1", "/").replace("~0", "~")

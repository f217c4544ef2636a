"""Input schemas of tools, made into what others want of them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def object_schema(schema: Any) -> Json:
    """An input schema as the protocol wants it: an object's. ``{}``, a missing one, nonsense: any object."""
    if not isinstance(schema, dict):
        return {"type": "object"}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def header_schema(schema: Any) -> Json:
    """An input schema with what the SDK reads of it, ``x-mcp-header`` (2026-07-28), and nothing that it refuses.

    The SDK's models refuse a listing in which one schema has ``required: "a"`` or ``properties: {"a": 5}``.
    """
    whole = object_schema(schema)
    if "x-mcp-header" not in repr(whole):
        return {"type": "object"}
    kept = {key: value for key, value in whole.items() if key not in ("$schema", "required", "properties")}
    properties = whole.get("properties")
    if isinstance(properties, dict):
        kept["properties"] = {name: part for name, part in properties.items() if isinstance(part, dict)}
    return kept

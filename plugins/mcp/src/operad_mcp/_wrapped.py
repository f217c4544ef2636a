"""Tools of a served registry: data that are no object come wrapped in one, for clients that know objects only.

Such a tool says so in its ``_meta``: ``"operad/wrapped": true``; ``"operad/id"`` is its operation's id there.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def inner_schema(tool: Json) -> Any:
    """The schema of the data in a tool's wrapped ``outputSchema``; ``None`` if the tool wraps nothing."""
    meta, output = tool.get("_meta"), tool.get("outputSchema")
    if not isinstance(meta, dict) or meta.get("operad/wrapped") is not True or not isinstance(output, dict):
        return None
    properties = output.get("properties")
    inner = properties.get("result") if isinstance(properties, dict) else None
    if not isinstance(inner, (dict, bool)):
        return None
    definitions = output.get("$defs")
    return {**inner, "$defs": definitions} if isinstance(inner, dict) and definitions else inner


def unwrapped(raw: Any) -> Any:
    """A tool's result with the data that it wraps; another one as it is."""
    structured = raw.get("structuredContent") if isinstance(raw, dict) else None
    if not isinstance(structured, dict) or "result" not in structured or raw.get("isError") is True:
        return raw
    return {**raw, "structuredContent": structured["result"]}


def own_name(tool: Json) -> str:
    """What a tool's operation is called where it comes from; its name, if that is no operad."""
    meta = tool.get("_meta")
    own = meta.get("operad/id") if isinstance(meta, dict) else None
    name: str = tool["name"]
    return own if isinstance(own, str) and own else name

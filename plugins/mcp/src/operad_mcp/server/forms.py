"""Operations as tools: their JSON, and the mapping of arguments and results. Does not need the SDK."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from operad import OperationSpec, OperationType, Schema
from operad_mcp.server.kinds import Json, mcp_metadata

WRAPPED = "result"
"""The field that holds data that are not an object, for clients that support objects only."""
INPUT = "input"
"""The argument that holds an input that is not an object."""


@attrs.frozen(eq=False)
class ToolForm:
    """An operation as a tool of one generation of the protocol."""

    spec: OperationSpec
    tool: Json
    """The entry of a listing."""
    wraps_input: bool
    """Whether the input is in the argument `INPUT`, because it is not an object."""
    wraps_output: bool
    """Whether data are in the field `WRAPPED`."""
    declares_output: bool
    has_headers: bool
    """Whether arguments are also sent as HTTP headers (``x-mcp-header``), which must be compared."""
    size: int = 0
    """The approximate size of the tool's JSON in bytes."""


def tool_form(name: str, spec: OperationSpec, *, handshake: bool, output_values: int) -> ToolForm:
    """Return the tool of an operation.

    Args:
        name: the tool's name.
        spec: the operation.
        handshake: whether it is for revisions before 2026-07-28, whose output schemas describe objects.
        output_values: the maximum of JSON values in an output schema; a larger one is left out.
    """
    input_schema, wraps_input = _input(spec.input_schema)
    tool: Json = {"name": name, "description": _description(spec), "inputSchema": input_schema}
    if spec.title:
        tool["title"] = spec.title
    metadata = mcp_metadata(spec)
    wraps_output = False
    declares = told(spec.output_schema, output_values)
    if spec.type is OperationType.SUBSCRIPTION and declares:
        tool["outputSchema"] = _items(spec.output_schema)
    elif declares:
        tool["outputSchema"], wraps_output = _output(spec.output_schema, handshake=handshake)
    tool["annotations"] = _annotations(spec)
    if isinstance(metadata.get("icons"), list):
        tool["icons"] = metadata["icons"]
    known = metadata.get("_meta")
    foreign = known if isinstance(known, Mapping) else {}
    own = {key: value for key, value in foreign.items() if not key.startswith("operad/")}  # of an operad behind it
    tool["_meta"] = {**own, "operad/id": spec.id}
    if wraps_output:
        tool["_meta"]["operad/wrapped"] = True
    properties = input_schema.get("properties")
    fields = properties.values() if isinstance(properties, Mapping) else ()
    has_headers = any(isinstance(field, Mapping) and "x-mcp-header" in field for field in fields)
    return ToolForm(spec, tool, wraps_input, wraps_output, declares, has_headers)


def bare_form(spec: OperationSpec) -> ToolForm:
    """Return the form for a call through another tool, which declares no output."""
    return ToolForm(spec, {}, False, False, False, False)


def told(schema: Schema, values: int) -> bool:
    """Return True if a schema is published: it has constraints, and at most ``values`` JSON values.

    The result of a large API's operation may refer to every type of the API: half a megabyte for each tool.
    """
    return not schema.is_larger(values) and not schema.is_unknown


def _embedded(schema: Schema) -> tuple[Json | bool, Json]:
    """Return a schema as a part of another one: itself, and the definitions to put beside the root."""
    bundled = schema.bundled()
    if isinstance(bundled, bool):
        return bundled, {}
    return {key: value for key, value in bundled.items() if key != "$defs"}, bundled.get("$defs", {})


def _description(spec: OperationSpec) -> str:
    text = spec.description or spec.title or f"The operation {spec.id}."
    return f"Deprecated. {text}" if spec.deprecated else text


def _annotations(spec: OperationSpec) -> Json:
    given = spec.metadata.get("annotations")
    if isinstance(given, Mapping):  # set by the server that it came from, or by the application
        return dict(given)
    if spec.type is OperationType.QUERY:
        return {"readOnlyHint": True}
    return {"readOnlyHint": False, "idempotentHint": spec.idempotent}


def _input(schema: Schema) -> tuple[Json, bool]:
    """Return the input schema of a tool, whose root must be that of an object."""
    published = schema.published()
    if isinstance(published, bool) or not published:
        return {"type": "object"}, False
    kind = published.get("type", "object")
    if kind == "object":
        return published if "type" in published else {"type": "object", **published}, False
    if isinstance(kind, list) and "object" in kind:
        return {**published, "type": "object"}, False
    return _wrapped(schema, INPUT), True


def _output(schema: Schema, *, handshake: bool) -> tuple[Json, bool]:
    """Return the output schema, and whether data are wrapped.

    Data that may not be an object are wrapped for older revisions; data that may be ``null`` are wrapped for all,
    because the SDKs drop ``null`` from a result.
    """
    published = schema.published()
    is_object = isinstance(published, dict) and published.get("type") == "object"
    if is_object or (isinstance(published, dict) and not handshake and not schema.is_valid(None)):
        assert isinstance(published, dict)
        return published, False
    return _wrapped(schema, WRAPPED), True


def _wrapped(schema: Schema, field: str) -> Json:
    """Return the schema of an object with one field."""
    inner, definitions = _embedded(schema)
    made: Json = {"type": "object", "properties": {field: inner}, "required": [field]}
    return {**made, "$defs": definitions} if definitions else made


def _items(schema: Schema) -> Json:
    """Return the schema of the result of a subscription: its items until it ended, or was ended."""
    made = _wrapped(schema, "items")
    fields = {
        "items": {"type": "array", "items": made["properties"]["items"]},
        "truncated": {"type": "boolean", "description": "The stream went on; these are its first items."},
    }
    return {**made, "properties": fields, "required": ["items", "truncated"]}

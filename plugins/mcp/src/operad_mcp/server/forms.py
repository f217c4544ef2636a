"""The forms of operations as tools: their JSON and its wrappers. This module does not import the SDK."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from operad import OperationSpec, OperationType, Schema
from operad_mcp.server.kinds import Json, mcp_metadata

WRAPPED = "result"
"""The field of structured content for data that may be ``null``, or before 2026-07-28 may not be an object."""
INPUT = "input"
"""The argument that holds an input that is not an object."""


@attrs.frozen
class ToolForm:
    """An operation as a tool, for the handshake revisions or for 2026-07-28."""

    spec: OperationSpec
    tool: Json
    """The JSON of the tool in a listing."""
    wraps_input: bool
    """Whether the input is in the argument `INPUT`, because it is not an object."""
    wraps_output: bool
    """Whether the data of a result is in the field `WRAPPED` of the structured content."""
    declares_output: bool
    """Whether the tool has an output schema."""
    has_headers: bool
    """Whether some arguments are also sent as HTTP headers (``x-mcp-header``), which must have the same values."""
    size: int = 0
    """The approximate size of the tool's JSON in bytes."""


def tool_form(name: str, spec: OperationSpec, *, handshake: bool, output_values: int) -> ToolForm:
    """Return the form of an operation as a tool.

    Args:
        name: the tool's name.
        spec: the operation.
        handshake: whether the form is for revisions before 2026-07-28, whose output schemas describe objects.
        output_values: the maximum number of JSON values in an output schema; a larger schema is left out.
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
    """Return the form of an operation that is called through the tool ``call``, which has no output schema."""
    return ToolForm(spec, {}, False, False, False, False)


def told(schema: Schema, values: int) -> bool:
    """Return True if a schema is shown to clients: it has constraints, and at most ``values`` JSON values.

    The output schema of an operation of a large API may refer to every type of the API, which can be half a
    megabyte.
    """
    return not schema.is_larger(values) and not schema.is_unknown


def _embedded(schema: Schema) -> tuple[Json | bool, Json]:
    """Return a schema as a part of another schema, and the definitions to put into ``$defs`` of the root."""
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
    """Return the input schema of a tool, which must describe an object, and whether the input is wrapped."""
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
    """Return the output schema of a tool, and whether data is wrapped.

    For older revisions, data that may not be an object is wrapped. For all revisions, data that may be ``null`` is
    wrapped, because the SDKs drop ``null`` from a result.
    """
    published = schema.published()
    is_object = isinstance(published, dict) and published.get("type") == "object"
    if is_object or (isinstance(published, dict) and not handshake and not schema.is_valid(None)):
        assert isinstance(published, dict)
        return published, False
    return _wrapped(schema, WRAPPED), True


def _wrapped(schema: Schema, field: str) -> Json:
    """Return the schema of an object with one field, which has the given schema."""
    inner, definitions = _embedded(schema)
    made: Json = {"type": "object", "properties": {field: inner}, "required": [field]}
    return {**made, "$defs": definitions} if definitions else made


def _items(schema: Schema) -> Json:
    """Return the schema of the result of a subscription: its items, and whether more items followed."""
    made = _wrapped(schema, "items")
    fields = {
        "items": {"type": "array", "items": made["properties"]["items"]},
        "truncated": {"type": "boolean", "description": "The stream went on; these are its first items."},
    }
    return {**made, "properties": fields, "required": ["items", "truncated"]}

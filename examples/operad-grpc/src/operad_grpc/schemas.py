"""JSON Schemas of protobuf messages in the form of ProtoJSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

_INT64 = r"^-?[0-9]{1,20}$"
_NOT_FINITE = {"enum": ["NaN", "Infinity", "-Infinity"]}
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_64_BIT = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)

_WELL_KNOWN: dict[str, Any] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Value": {},
    # Explicitly open: a cast to the schema would otherwise drop the fields.
    "google.protobuf.Any": {
        "type": "object",
        "properties": {"@type": {"type": "string"}},
        "required": ["@type"],
        "additionalProperties": True,
    },
}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)


def input_schema(message: Descriptor) -> dict[str, Any]:
    """Return the schema of an input. It also allows 64-bit integers as numbers, and one field of each oneof."""
    return _Builder(for_input=True).build(message)


def output_schema(message: Descriptor) -> dict[str, Any]:
    """Return the schema of a result."""
    return _Builder(for_input=False).build(message)


class _Builder:
    def __init__(self, *, for_input: bool) -> None:
        self._for_input = for_input
        self._definitions: dict[str, Any] = {}

    def build(self, message: Descriptor) -> dict[str, Any]:
        root = self._message(message)
        if self._definitions:
            root = {**root, "$defs": self._definitions}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root}

    def _message(self, message: Descriptor) -> dict[str, Any]:
        name = message.full_name
        if name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[name])
        if name in _WRAPPERS:
            return {"anyOf": [self._single(message.fields_by_name["value"]), {"type": "null"}]}
        if name not in self._definitions:
            self._definitions[name] = {}  # a message may hold itself
            self._definitions[name].update(self._object(message))
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, message: Descriptor) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {field.json_name: self._field(field) for field in message.fields},
            "additionalProperties": False,
        }
        if self._for_input:
            if required := [field.json_name for field in message.fields if _is_required(field)]:
                schema["required"] = required
            if exclusive := [_at_most_one(oneof) for oneof in message.oneofs if len(oneof.fields) > 1]:
                schema["allOf"] = exclusive
        return schema

    def _field(self, field: FieldDescriptor) -> dict[str, Any]:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return {
                "type": "object",
                "additionalProperties": self._single(entry.fields_by_name["value"]),
                "propertyNames": _key(entry.fields_by_name["key"]),
            }
        if _is_repeated(field):
            return {"type": "array", "items": self._single(field)}
        return self._single(field)

    def _single(self, field: FieldDescriptor) -> dict[str, Any]:
        if field.message_type is not None:
            return self._message(field.message_type)
        if field.enum_type is not None:
            return _enum(field.enum_type)
        return self._scalar(field)

    def _scalar(self, field: FieldDescriptor) -> dict[str, Any]:
        kind = field.cpp_type
        if kind in _INTEGERS:
            low, high = _INTEGERS[kind]
            integer = {"type": "integer", "minimum": low, "maximum": high}
            if kind not in _64_BIT:
                return integer
            text = {"type": "string", "pattern": _INT64}
            return {"anyOf": [text, integer]} if self._for_input else text
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return {"anyOf": [{"type": "number"}, _NOT_FINITE]}
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return {"type": "boolean"}
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {"type": "string", "contentEncoding": "base64"}
        return {"type": "string"}


def _enum(enum: EnumDescriptor) -> dict[str, Any]:
    if enum.full_name == "google.protobuf.NullValue":
        return {"type": "null"}
    # A newer peer may know more values; ProtoJSON writes those as numbers.
    return {"anyOf": [{"enum": [value.name for value in enum.values]}, {"type": "integer"}]}


def _key(field: FieldDescriptor) -> dict[str, Any]:
    if field.cpp_type in _INTEGERS:
        return {"pattern": _INT64}
    return {"enum": ["true", "false"]} if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else {}


def _at_most_one(oneof: OneofDescriptor) -> dict[str, Any]:
    each = [{"required": [field.json_name]} for field in oneof.fields]
    return {"oneOf": [*each, {"not": {"anyOf": each}}]}


def _is_repeated(field: FieldDescriptor) -> bool:
    # `label` is deprecated in newer protobuf, `is_repeated` unknown to older.
    repeated: bool | None = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if repeated is None else repeated


def _is_required(field: FieldDescriptor) -> bool:
    required: bool | None = getattr(field, "is_required", None)
    return field.label == FieldDescriptor.LABEL_REQUIRED if required is None else required

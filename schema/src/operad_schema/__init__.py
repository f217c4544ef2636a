"""JSON Schema, from draft 4 to 2020-12, as one compiled object. This package does not depend on operad."""

from operad_schema.limits import Limits
from operad_schema.members import definition_name, object_members
from operad_schema.records import Change, SchemaError
from operad_schema.schema import UNKNOWN, Schema, from_schema, lazy_schema

__all__ = [
    "UNKNOWN",
    "Change",
    "Limits",
    "Schema",
    "SchemaError",
    "definition_name",
    "from_schema",
    "lazy_schema",
    "object_members",
]

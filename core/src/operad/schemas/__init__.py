"""JSON Schema: one compiled object for a schema of any draft. Imports nothing else of operad."""

from operad.schemas.schema import UNKNOWN, Change, Schema, SchemaError, from_schema, lazy_schema

__all__ = ["UNKNOWN", "Change", "Schema", "SchemaError", "from_schema", "lazy_schema"]

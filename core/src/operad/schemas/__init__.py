"""JSON Schema: one compiled object for a schema of any draft. Imports nothing else of operad."""

from operad.schemas.limits import Limits
from operad.schemas.records import Change, SchemaError
from operad.schemas.schema import UNKNOWN, Schema, from_schema, lazy_schema

__all__ = ["UNKNOWN", "Change", "Limits", "Schema", "SchemaError", "from_schema", "lazy_schema"]

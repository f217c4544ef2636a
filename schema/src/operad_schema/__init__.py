"""JSON Schema of every draft as one compiled object. Does not need operad."""

from typing import TYPE_CHECKING, Any

from operad_schema.limits import Limits
from operad_schema.members import definition_name, object_members
from operad_schema.records import Change, SchemaError
from operad_schema.schema import UNKNOWN, Schema, from_schema, lazy_schema

if TYPE_CHECKING:
    from operad_schema.bundling import SharedDefinitions

__all__ = [
    "UNKNOWN",
    "Change",
    "Limits",
    "Schema",
    "SchemaError",
    "SharedDefinitions",
    "definition_name",
    "from_schema",
    "lazy_schema",
    "object_members",
]


def __getattr__(name: str) -> Any:
    """Import `SharedDefinitions` when it is first used: it brings the compiler along."""
    if name == "SharedDefinitions":
        from operad_schema.bundling import SharedDefinitions

        return SharedDefinitions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

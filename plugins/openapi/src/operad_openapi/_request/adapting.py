"""What Python callers and models give beside JSON, made into the JSON that an operation's input is checked as.

``None`` for what may be absent is absent: a parameter has no null (RFC 6570, to which OpenAPI defers), and where
the schema of a field of the body allows none, nothing else can be meant.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from operad_openapi._document.document import Json, PointerError
from operad_openapi._document.schemas import SchemaView
from operad_openapi._request.files import is_file_schema
from operad_openapi._request.inputs import Inputs

_PRESENT = frozenset({str, int, float, bool, bytes})
_PLAIN = _PRESENT | {type(None)}
_MAX_DEPTH = 64


class Adapter:
    """Adapts the inputs of one operation.

    Args:
        inputs: how its input is made up.
        view: what references of its schema resolve against.
        allows_null: whether a schema takes null.
    """

    def __init__(self, inputs: Inputs, view: SchemaView, allows_null: Callable[[Any], bool]) -> None:
        self._properties: Json = inputs.schema["properties"]
        self._required = frozenset(inputs.schema.get("required", ()))
        self._parameters = frozenset(slot.key for slot in inputs.slots)
        self._view = view
        self._allows_null = allows_null
        self._nullable: dict[str, bool] = {}

    def __call__(self, input: Any) -> Any:
        """``input`` as JSON; itself where it is that already."""
        # Asked by class first, and in a loop: most inputs are plain, and this is on the way of every call.
        if input.__class__ is not dict and not isinstance(input, Mapping):
            return input
        for value in input.values():
            if value.__class__ not in _PRESENT:
                break
        else:
            return input
        adapted = {}
        for key, value in input.items():
            if value is None and self._is_absent(key):
                continue
            plain = value.__class__ in _PLAIN
            adapted[key] = value if plain else self._plain(value, self._properties.get(key), 0)
        return adapted

    def _is_absent(self, key: str) -> bool:
        """Whether null for ``key`` can mean nothing but that it is not there."""
        if key in self._required or key not in self._properties:
            return False
        if key in self._parameters:
            return True
        if key not in self._nullable:
            self._nullable[key] = self._allows_null(self._properties[key])
        return not self._nullable[key]

    def _plain(self, value: Any, schema: Any, depth: int) -> Any:
        if value.__class__ in _PLAIN or depth > _MAX_DEPTH:
            return value
        schema = self._resolved(schema)
        if is_file_schema(schema):
            return _as_file(value)
        if isinstance(value, Mapping):
            properties = schema.get("properties") if isinstance(schema, dict) else None
            known = properties if isinstance(properties, dict) else {}
            return {str(key): self._plain(item, known.get(key), depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            items = schema.get("items") if isinstance(schema, dict) else None
            return [self._plain(item, items, depth + 1) for item in value]
        if isinstance(value, Enum):
            return self._plain(value.value, schema, depth + 1)
        return _scalar(value, schema)

    def _resolved(self, schema: Any) -> Any:
        try:
            return self._view.resolve(schema)
        except PointerError:
            return None


def _scalar(value: Any, schema: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    if isinstance(value, Decimal):
        if _is_text(schema):
            return str(value)
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _is_text(schema: Any) -> bool:
    declared = schema.get("type") if isinstance(schema, dict) else None
    types = declared if isinstance(declared, list) else [declared]
    return "string" in types and not {"number", "integer"} & {kind for kind in types if isinstance(kind, str)}


def _as_file(value: Any) -> Any:
    """A file as an object: ``(name, content)``, ``(name, content, type)``, and with headers as the fourth."""
    if not isinstance(value, tuple) or not 2 <= len(value) <= 4:
        return value
    name, content, *more = value
    file: Json = {"filename": name, "content": content}
    for key, item in zip(("contentType", "headers"), more, strict=False):
        if item is not None:
            file[key] = item
    return {key: item for key, item in file.items() if item is not None}

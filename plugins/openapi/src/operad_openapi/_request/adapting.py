"""Convert Python values in inputs, such as dates and files, to JSON, before the input is checked.

``None`` for an optional parameter means that it is absent, because parameters have no null (RFC 6570, to which
OpenAPI defers). An optional field of the body is also absent if it is ``None`` and its schema does not allow null.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from operad_openapi._document.document import Json, PointerError
from operad_openapi._document.schemas import SchemaView
from operad_openapi._request.files import is_file_schema
from operad_openapi._request.inputs import Inputs

_PRESENT = frozenset({str, int, float, bool})
_PLAIN = _PRESENT | {type(None)}
_MAX_DEPTH = 64
_MAX_PARTS = 4


class Adapter:
    """A function that converts the inputs of one operation to JSON.

    Args:
        inputs: the parts of the operation's input.
        view: resolves references of the input's schema.
        allows_null: returns True if a schema allows null.
    """

    def __init__(self, inputs: Inputs, view: SchemaView, allows_null: Callable[[Any], bool]) -> None:
        self._properties: Json = inputs.schema["properties"]
        self._required = frozenset(inputs.schema.get("required", ()))
        self._parameters = frozenset(slot.key for slot in inputs.slots)
        self._view = view
        self._allows_null = allows_null
        self._nullable: dict[str, bool] = {}
        self._seen: dict[int, list[Json]] = {}

    def __call__(self, input: Any) -> Any:
        """Return ``input`` as JSON; return ``input`` itself if it is JSON already."""
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
        """Return True if null for ``key`` can only mean that the value is absent."""
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
        parts = self._parts(schema)
        if any(map(is_file_schema, parts)):
            return _as_file(value)
        if isinstance(value, Mapping):
            fields = [part["properties"] for part in parts if isinstance(part.get("properties"), dict)]
            return {
                str(key): self._plain(
                    item, next((known[key] for known in fields if key in known), None), depth + 1
                )
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple, set, frozenset)):
            items = next((part["items"] for part in parts if "items" in part), None)
            return [self._plain(item, items, depth + 1) for item in value]
        if isinstance(value, Enum):
            return self._plain(value.value, schema, depth + 1)
        return _scalar(value, parts)

    def _parts(self, schema: Any) -> list[Json]:
        """Return a schema with its members of ``allOf`` and its alternatives; schemas outlive the adapter."""
        if not isinstance(schema, dict):
            return []
        if id(schema) not in self._seen:
            self._seen[id(schema)] = list(self._walk(schema, 0))
        return self._seen[id(schema)]

    def _walk(self, schema: Any, depth: int) -> Iterator[Json]:
        try:
            node = self._view.resolve(schema)
        except PointerError:
            return
        if not isinstance(node, dict):
            return
        yield node
        if depth < _MAX_PARTS and not is_file_schema(node):
            for word in ("allOf", "anyOf", "oneOf"):
                members = node.get(word)
                for member in members if isinstance(members, list) else ():
                    yield from self._walk(member, depth + 1)


def _scalar(value: Any, parts: list[Json]) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    if isinstance(value, Decimal):
        if any(map(_is_text, parts)):
            return format(value, "f")
        if not value.is_finite():
            return float(value)  # which JSON has not either: the request reports it
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _is_text(schema: Json) -> bool:
    """Return True if a schema allows text, which keeps every digit."""
    declared = schema.get("type")
    return "string" in declared if isinstance(declared, list) else declared == "string"


def _as_file(value: Any) -> Any:
    """Return a file as an object. It may be bytes, a path, an open file, or ``(name, content, type, headers)``."""
    is_bytes = isinstance(value, (bytes, bytearray, memoryview, PurePath))
    if is_bytes or hasattr(value, "read") or hasattr(value, "__aiter__"):
        return {"content": value}
    if not isinstance(value, tuple) or not 2 <= len(value) <= 4:
        return value
    name, content, *more = value
    file: Json = {"filename": name, "content": content}
    for key, item in zip(("contentType", "headers"), more, strict=False):
        if item is not None:
            file[key] = item
    return {key: item for key, item in file.items() if item is not None}

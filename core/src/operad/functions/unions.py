"""Unions of classes: choose the member that a value fits best."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args, get_origin

from operad.functions.kinds import Types, library
from operad.functions.shapes import Shapes
from operad.records import record
from operad_schema import Schema, from_schema

Structurer = Callable[[Any], Callable[[Any], Any] | None]


@record
class Member:
    """A member of a union: type name, schema, property names (``None`` for other types), and conversion."""

    name: str
    schema: Schema
    properties: frozenset[str] | None
    structure: Callable[[Any], Any]

    @classmethod
    def of(cls, hint: Any, types: Types, structurer: Structurer) -> Member:
        raw = Shapes(types, closed=True).schema(hint, str(hint))
        body = raw.get("$defs", {}).get(raw.get("$ref", "").rpartition("/")[2], raw)
        properties = frozenset(body["properties"]) if "properties" in body else None
        name = getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
        return cls(name, from_schema(raw), properties, structurer(hint) or (lambda value: value))


@record
class Union:
    """A converter of JSON values to a union of types; it uses the member whose schema accepts the value.

    If several members accept an object, it uses the member that declares the most keys of the object; of equal
    members, the first. If several accept a string, it uses the first to which the string can be converted. Calling
    it raises `ValueError` if no member accepts the value.
    """

    members: list[Member]

    @classmethod
    def of(cls, hint: Any, types: Types, structurer: Structurer) -> Union:
        return cls([Member.of(member, types, structurer) for member in get_args(hint)])

    def __call__(self, value: Any) -> Any:
        fitting = [member for member in self.members if member.schema.is_valid(value)]
        if isinstance(value, str) and len(fitting) > 1:
            for member in fitting:  # schemas do not check formats: only the conversion tells a date from a UUID
                with suppress(ValueError, library().ValidationError):
                    return member.structure(value)
            fitting = []
        if not fitting:
            names = " or ".join(member.name for member in self.members)
            raise ValueError(f"expected a value of type {names}, got {type(value).__name__}")
        if isinstance(value, dict):
            fitting.sort(key=lambda member: len(value.keys() - (member.properties or ())))
        return fitting[0].structure(value)

"""The casts of objects, compiled from the rows of their declared properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from operad.schemas.members import ABSENT, Call, Caster
from operad.schemas.nodes import Body

Row = tuple[str, frozenset[type], Caster, Any]
"""A declared property: its name, the classes of values that need no cast, its cast, and its `Fill`, if any."""


def conditions(member: dict[str, Any], names: set[str]) -> Iterator[Body]:
    for key in ("if", "then", "else"):
        if key in member:
            yield member[key]
    yield from member.get("dependentSchemas", {}).values()
    names.update(member.get("dependentSchemas", ()))
    for name, needed in member.get("dependentRequired", {}).items():
        names.add(name)
        names.update(needed)


def copy_object(value: Any, _call: Call) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _declared(rows: list[Row]) -> Caster:
    """The cast of an object's declared properties; the result has no other."""

    def cast(value: Any, call: Call) -> Any:
        out: dict[Any, Any] = {}
        for name, exact, cast_one, fill in rows:
            if name in value:
                item = value[name]
                out[name] = item if item.__class__ in exact else cast_one(item, call)
            elif fill is not None:
                fill(out, name, call)
        return out

    return cast


def closed_object(rows: list[Row]) -> Caster:
    """The same, which also notes when that drops a property; all in one loop, because it is the hot one."""

    def cast(value: Any, call: Call) -> Any:
        if value.__class__ is not dict and not isinstance(value, dict):
            return value
        out: dict[Any, Any] = {}
        filled = 0
        for name, exact, cast_one, fill in rows:
            if name in value:
                item = value[name]
                out[name] = item if item.__class__ in exact else cast_one(item, call)
            elif fill is not None:
                before = len(out)
                fill(out, name, call)
                filled += len(out) - before
        if len(out) - filled != len(value):
            call.dropped = True
        return out

    return cast


def open_object(rows: list[Row], declared: frozenset[str], hidden: frozenset[str],
                 extra: Callable[[Any, Any, Call], Any]) -> Caster:  # fmt: skip
    known = _declared(rows)

    def cast(value: Any, call: Call) -> Any:
        if not isinstance(value, dict):
            return value
        out = known(value, call)
        for name, item in value.items():
            if name not in declared:
                kept = extra(name, item, call)
                if kept is ABSENT:
                    call.dropped = True
                else:
                    out[name] = kept
            elif name in hidden:
                call.dropped = True
        return out

    return cast

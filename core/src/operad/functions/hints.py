"""Type hints: their JSON Schema, and what makes Python values of JSON values and JSON values of Python ones.

msgspec does all three, so that what the schema admits is what the structuring takes. It refuses two kinds of
hints, which are handled here, also inside lists, mappings and unions: a pydantic model answers for itself, and
of a union of several classes that one is taken whose schema a value matches.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin

import attrs
import msgspec

from operad.envelopes import ResponseEnvelope
from operad.errors import RegistrationError
from operad.schemas.schema import Schema, from_schema

Structure = Callable[[Any], Any]

_ARRAYS: dict[Any, type[Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
}
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def bare(hint: Any) -> Any:
    """The hint without its annotations."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


# --- JSON Schema -------------------------------------------------------------------------------------


def schema_of(hint: Any, at: str) -> dict[str, Any]:
    """The JSON Schema of a hint, what it refers to in ``$defs``. Raises `RegistrationError`, which says ``at``."""
    core = bare(hint)
    if not _is_ours(core):
        try:
            return msgspec.json.schema(_described(hint))
        except (TypeError, RuntimeError, NotImplementedError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[-1]
            raise RegistrationError(
                f"{at}: no JSON Schema can be made of {hint!r} ({reason}); give the schema yourself "
                "(input_schema=… or output_schema=…)"
            ) from error
    schema = _schema_of_ours(core, at)
    if text := _description(hint):
        schema["description"] = text
    return schema


def _schema_of_ours(hint: Any, at: str) -> dict[str, Any]:
    if _is_pydantic(hint):
        return _relocated(hint.model_json_schema(), hint.__name__)
    parts = [schema_of(member, at) for member in get_args(hint) if member is not ...]
    definitions: dict[str, Any] = {}
    for part in parts:
        definitions.update(part.pop("$defs", {}))
    origin = get_origin(hint)
    schema: dict[str, Any]
    if _is_union(hint):
        schema = {"anyOf": parts}
    elif origin in _OBJECTS:
        schema = {"type": "object", "additionalProperties": parts[1]}
    elif origin is tuple and get_args(hint)[1:] != (...,):
        schema = {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    else:
        schema = {"type": "array", "items": parts[0]}
    return {**schema, "$defs": definitions} if definitions else schema


def _relocated(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A root schema as a reference to a definition, so that its own ``#/$defs`` stay right inside another."""
    definitions = schema.pop("$defs", {})
    if "$ref" not in schema:
        definitions[name] = schema
        schema = {"$ref": f"#/$defs/{name}"}
    return {**schema, "$defs": definitions}


def _description(hint: Any) -> str:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return " ".join(extra for extra in extras if isinstance(extra, str))


def _described(hint: Any) -> Any:
    """``Annotated[int, "what it is"]`` in msgspec's spelling."""
    if get_origin(hint) is not Annotated:
        return hint
    core, *extras = get_args(hint)
    for extra in extras:
        if isinstance(extra, msgspec.Meta):
            core = Annotated[core, extra]
    if text := _description(hint):
        core = Annotated[core, msgspec.Meta(description=text)]
    return core


# --- which hints msgspec does not take ---------------------------------------------------------------


def _is_ours(hint: Any) -> bool:
    if _is_pydantic(hint) or _is_class_union(hint):
        return True
    container = get_origin(hint) in (*_ARRAYS, *_OBJECTS, tuple) or _is_union(hint)
    return container and any(_is_ours(bare(member)) for member in get_args(hint))


def _is_pydantic(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "model_json_schema") and hasattr(hint, "model_validate")


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (typing.Union, types.UnionType)


def _is_class_union(hint: Any) -> bool:
    classes = [member for member in get_args(hint) if _has_fields(member)] if _is_union(hint) else []
    return len(classes) > 1


def _has_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (
        attrs.has(hint) or hasattr(hint, "__dataclass_fields__") or typing.is_typeddict(hint)
    )


# --- values ------------------------------------------------------------------------------------------


def structurer(hint: Any) -> Structure | None:
    """What makes a Python value of a valid JSON value; ``None`` if they are the same."""
    hint = bare(hint)
    if hint in (str, bool, type(None), Any, object):
        return None
    if not _is_ours(hint):
        return partial(_convert, type=hint)
    if _is_pydantic(hint):
        validate: Structure = hint.model_validate
        return validate
    members = [structurer(member) or _unchanged for member in get_args(hint) if member is not ...]
    origin = get_origin(hint)
    if _is_union(hint):
        return _Union([_Member.of(member, make) for member, make in zip(get_args(hint), members, strict=True)])
    if origin in _OBJECTS:
        return lambda value: {key: members[1](item) for key, item in value.items()}
    if origin is tuple and get_args(hint)[1:] != (...,):
        return lambda value: tuple(make(item) for make, item in zip(members, value, strict=True))
    made: Callable[[Any], Any] = tuple if origin is tuple else _ARRAYS[origin]
    return lambda value: made(members[0](item) for item in value)


def _convert(value: Any, *, type: Any) -> Any:
    return msgspec.convert(value, type, strict=True)


def _unchanged(value: Any) -> Any:
    return value


@attrs.frozen
class _Member:
    """A member of a union: which values are its, and what becomes of them."""

    schema: Schema
    properties: frozenset[str] | None
    structure: Structure

    @classmethod
    def of(cls, hint: Any, structure: Structure) -> _Member:
        raw = schema_of(hint, str(hint))
        body = raw.get("$defs", {}).get(raw.get("$ref", "").rpartition("/")[2], raw)
        properties = frozenset(body["properties"]) if "properties" in body else None
        return cls(from_schema(raw), properties, structure)


@attrs.frozen
class _Union:
    """Takes the member that a value is valid for; of several classes, the one that knows most of its keys."""

    members: list[_Member]

    def __call__(self, value: Any) -> Any:
        fitting = [member for member in self.members if member.schema.is_valid(value)]
        if not fitting:
            raise ValueError(
                f"expected one of the {len(self.members)} types of a union, got {type(value).__name__}"
            )
        if isinstance(value, dict):
            fitting.sort(key=lambda member: len(value.keys() - (member.properties or ())))
        return fitting[0].structure(value)


def to_json(value: Any) -> Any:
    """The JSON value of what a typed function returns; an envelope stays one. Raises `TypeError`."""
    if value is None or isinstance(value, ResponseEnvelope):
        return value
    return (
        msgspec.to_builtins(value, enc_hook=_foreign_to_json)
        if not hasattr(value, "model_dump")
        else _dumped(value)
    )


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True)


def _foreign_to_json(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return _dumped(value)
    raise TypeError(f"a result has to be made of JSON values, got {type(value).__name__}")

"""Make JSON Schemas from type hints.

msgspec makes the schemas of single types, such as enums, dates and its own structs. This module makes all other
schemas, because msgspec does not know bounds of other libraries, pydantic models, registered types, and classes
whose constructor parameters differ from their fields.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

import attrs

from operad.errors import RegistrationError
from operad.functions.annotations import bounded, is_field, keywords
from operad.functions.kinds import ARRAYS, OBJECTS, Types, adapter, bare, fields_of, is_model, is_union, library

_FORMATS = {"datetime": "date-time", "time": "time"}
"""Formats that msgspec omits, because it also accepts times without an offset; they are hints for callers."""
_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean"}
_INTEGER_KEYS = {"pattern": "^(0|-?[1-9][0-9]*)$"}


class Shapes:
    """The schemas of one function's type hints, with common definitions.

    Args:
        types: the types with a JSON form, including the application's own.
        closed: whether the schemas of classes reject unknown keys. It is True for inputs, because unknown keys
            would otherwise be dropped silently.
    """

    def __init__(self, types: Types, closed: bool) -> None:
        self.types = types
        self.closed = closed
        self.definitions: dict[str, dict[str, Any]] = {}
        self._names: dict[Any, str] = {}

    def schema(self, hint: Any, at: str) -> dict[str, Any]:
        """Return the schema of a hint, with its definitions in ``$defs``.

        Raises `RegistrationError` for a hint without a JSON Schema; the message starts with ``at``.
        """
        shape = self.part(hint, at)
        return {**shape, "$defs": self.definitions} if self.definitions else shape

    def part(self, hint: Any, at: str) -> dict[str, Any]:
        """Return the schema of a hint, and add its definitions to `definitions`; for errors see `schema`."""
        if get_origin(hint) is Annotated:
            core, *extras = get_args(hint)
            shape = self.part(core, at)
            return bounded(shape, self._types_of(shape), keywords(extras, at), at)
        if isinstance(hint, type) and hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        hint = bare(hint)
        if get_origin(hint) is Annotated:  # an alias of an annotated hint
            return self.part(hint, at)
        if hint in (Any, object):
            return {}
        if hint in self.types.registered:
            return dict(self.types.registered[hint].schema)
        if is_model(hint):
            return self._model(hint, at)
        if is_union(hint):
            return {"anyOf": [self.part(member, at) for member in get_args(hint)]}
        if hint in (list, dict, tuple, set, frozenset):
            return {"type": "object" if hint is dict else "array"}
        if get_origin(hint) in ARRAYS:
            return {"type": "array", "items": self.part(get_args(hint)[0], at)}
        if get_origin(hint) in OBJECTS:
            return self._object(*get_args(hint), at=at)
        if get_origin(hint) is tuple:
            return self._tuple(get_args(hint), at)
        if isinstance(hint, type) and (
            attrs.has(hint) or hasattr(hint, "__dataclass_fields__") or typing.is_typeddict(hint)
        ):
            return self._class(hint, at)
        return self._leaf(hint, at)

    def _types_of(self, shape: Mapping[str, Any]) -> set[str] | None:
        """Return the JSON types that a schema accepts; ``None`` if it does not restrict them."""
        if isinstance(reference := shape.get("$ref"), str):
            return self._types_of(self.definitions.get(reference.removeprefix("#/$defs/"), {}))
        if isinstance(members := shape.get("anyOf"), list):
            each = [self._types_of(member) for member in members]
            return None if None in each else {name for one in each for name in one or ()}
        given = shape.get("type")
        return {given} if isinstance(given, str) else None if given is None else set(given)

    def _leaf(self, hint: Any, at: str) -> dict[str, Any]:
        if isinstance(hint, type) and issubclass(hint, enum.Enum) and not self.types.is_whole(hint):
            return {"enum": [self.types.to_json(member.value) for member in hint]}
        try:
            shape: dict[str, Any] = library().json.schema(hint)
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise RegistrationError(_no_schema(hint, at, error)) from error
        definitions = shape.pop("$defs", {})
        if isinstance(hint, type) and issubclass(hint, enum.Enum):  # msgspec sorts the values
            for definition in definitions.values():
                definition["enum"] = [member.value for member in hint]
        self.definitions.update(definitions)
        if name := _FORMATS.get(getattr(hint, "__name__", "")):
            shape.setdefault("format", name)
        return shape

    def _model(self, model: Any, at: str) -> dict[str, Any]:
        try:
            shape: dict[str, Any] = adapter(model).json_schema(
                mode="validation" if self.closed else "serialization"
            )
        except Exception as error:  # pydantic raises its own errors, and those of other types
            raise RegistrationError(_no_schema(model, at, error)) from error
        self.definitions.update(shape.pop("$defs", {}))
        if "$ref" in shape:  # a recursive one is a definition already
            return {"$ref": shape["$ref"]}
        if "properties" not in shape:
            return shape
        self.definitions[model.__name__] = shape
        return {"$ref": f"#/$defs/{model.__name__}"}

    def _object(self, keys: Any, values: Any, *, at: str) -> dict[str, Any]:
        shape = {"type": "object", "additionalProperties": self.part(values, at)}
        if bare(keys) is int:
            shape["propertyNames"] = _INTEGER_KEYS
        elif bare(keys) not in (str, Any):
            shape["propertyNames"] = self.part(keys, at)
        return shape

    def _tuple(self, members: tuple[Any, ...], at: str) -> dict[str, Any]:
        if members[1:] == (...,):
            return {"type": "array", "items": self.part(members[0], at)}
        parts = [self.part(member, at) for member in members]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}

    def _class(self, cls: Any, at: str) -> dict[str, Any]:
        name = self._names.get(cls)
        if name is None:
            name = cls.__name__
            if name in self.definitions:  # another class of that name
                name = re.sub(r"[^A-Za-z0-9.\-_]", "_", f"{cls.__module__}.{cls.__qualname__}")
            self._names[cls] = name
            self.definitions[name] = {}  # reserve the name, because a class may contain itself
            self.definitions[name] = self._shape(cls, at)
        return {"$ref": f"#/$defs/{name}"}

    def _shape(self, cls: Any, at: str) -> dict[str, Any]:
        properties, required = {}, []
        try:
            members = list(_members(cls))
        except Exception as error:  # evaluating a string annotation can raise anything
            reason = f"the type hints of {cls.__name__} cannot be read: {error}{import_hint(error)}"
            raise RegistrationError(f"{at}: {reason}") from error
        for name, hint, default in members:
            if is_field(default):
                raise RegistrationError(
                    f"{at}, field {cls.__name__}.{name}: {default!r:.80} would become the default value; write "
                    f"Annotated[<type>, {type(default).__name__}(…)] = <default>"
                )
            properties[name] = self.part(hint, f"{at}, field {cls.__name__}.{name}")
            if default is inspect.Parameter.empty:
                required.append(name)
            else:
                properties[name] = self.with_default(properties[name], default)
        shape: dict[str, Any] = {"title": cls.__name__, "type": "object", "properties": properties}
        if required:
            shape["required"] = required
        if text := _documentation(cls):
            shape["description"] = text
        if self.closed:
            shape["additionalProperties"] = False
        return shape

    def with_default(self, shape: dict[str, Any], default: Any) -> dict[str, Any]:
        """Return the schema with a default; unchanged if JSON cannot represent the default."""
        try:
            if default.__class__ in (bool, int, str, type(None)) and str(default).isascii():
                return {**shape, "default": default}
            value = self.types.to_json(default)
            library().json.encode(value)
        except (TypeError, ValueError):  # an integer of more than 4,300 digits is a ValueError, too
            return shape
        return {**shape, "default": value}


_LATER: Any = object()
"""Marks a default that is made for each instance, which the schema omits."""


def _members(cls: Any) -> Iterable[tuple[str, Any, Any]]:
    """Yield the JSON name, the hint and the default of each field of a class."""
    hints = fields_of(cls)
    if attrs.has(cls):
        taken = get_type_hints(cls.__init__, include_extras=True) if hasattr(cls, "__init__") else hints
        for field in attrs.fields(cls):
            if field.init:
                # The type that the constructor takes: for a field with a converter, the converter's parameter.
                hint = hints.get(field.name, Any) if field.converter is None else taken.get(field.alias, Any)
                later = hasattr(field.default, "takes_self")  # an attrs.Factory
                yield field.alias, hint, _default(field.default, attrs.NOTHING, later)
    elif typing.is_typeddict(cls):
        for name, hint in hints.items():
            yield name, hint, inspect.Parameter.empty if _is_required(cls, name, hint) else _LATER
    else:
        import dataclasses

        for one in dataclasses.fields(cls):
            if one.init:
                later = one.default_factory is not dataclasses.MISSING
                yield one.name, hints.get(one.name, Any), _default(one.default, dataclasses.MISSING, later)


def _is_required(cls: Any, name: str, hint: Any) -> bool:
    """Return whether a TypedDict requires a key. ``__required_keys__`` cannot know it of postponed annotations."""
    origin = get_origin(hint)
    return origin is Required if origin in (Required, NotRequired) else name in cls.__required_keys__


def _default(default: Any, nothing: Any, later: bool) -> Any:
    return _LATER if later else inspect.Parameter.empty if default is nothing else default


def _documentation(cls: Any) -> str:
    """Return the docstring that the author wrote; empty for the docstring that dataclasses generate."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def import_hint(error: Exception) -> str:
    """Return the end of a message about type hints that cannot be read: how to fix an unknown name."""
    is_name = isinstance(error, NameError)
    return "; define or import it at the top level of the module, not under TYPE_CHECKING" if is_name else ""


def _no_schema(hint: Any, at: str, error: Exception) -> str:
    reason = (str(error) or type(error).__name__).splitlines()[-1]
    origin = getattr(get_origin(hint) or hint, "__name__", "")
    if origin in ("Iterator", "Generator", "AsyncIterator", "AsyncGenerator"):
        return f"{at}: {hint!r} is a stream, which is supported only as the whole result of a function"
    if is_field(hint):
        return f"{at}: write Annotated[<type>, {type(hint).__name__}(…)]"
    return (
        f"{at}: {hint!r} has no JSON Schema ({reason}); register the type (Conversions.register), "
        "or give the schema yourself (input_schema=… or output_schema=…)"
    )

"""Classify type hints: containers, types that msgspec supports, and types that an application registered."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import attrs


@cache
def library() -> Any:
    """Return the module msgspec, imported at the first use.

    The import is slow, and a function of numbers and strings does not need it.
    """
    import msgspec

    return msgspec


@cache
def leaves() -> tuple[type[Any], ...]:
    """Return the classes whose instances are strings in JSON and are converted by msgspec."""
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal
    from uuid import UUID

    return datetime, date, time, timedelta, UUID, Decimal, bytes, bytearray


SCALARS = (str, int, float, bool, type(None))
ARRAYS: dict[Any, type[Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
}
OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class Registered(NamedTuple):
    """An application's own type: its JSON Schema, and the functions that convert from and to JSON."""

    schema: Mapping[str, Any]
    structure: Callable[[Any], Any]
    unstructure: Callable[[Any], Any]


_PATH = Registered({"type": "string", "format": "path"}, Path, str)


class Types:
    """The types with a JSON form: types that msgspec supports, and types that the application registered."""

    def __init__(self) -> None:
        self.registered: dict[Any, Registered] = {Path: _PATH, PurePath: _PATH}

    def to_json(self, value: Any) -> Any:
        """Return a Python value as JSON. Raises `TypeError` for a value that has no JSON form."""
        return library().to_builtins(value, enc_hook=self._foreign_to_json, str_keys=True)

    def _foreign_to_json(self, value: Any) -> Any:
        for cls in type(value).__mro__:
            if cls in self.registered:
                return self.registered[cls].unstructure(value)
        if is_model(type(value)):
            return dumped(value)
        raise TypeError(f"expected a JSON value, got {type(value).__name__}; see Conversions.register")

    def is_whole(self, hint: Any, seen: tuple[Any, ...] = ()) -> bool:
        """Return True if msgspec alone converts the hint; ``seen`` are the classes around it, which may recur."""
        hint = bare(hint)
        if hint in seen or hint in SCALARS or hint is Any or hint in leaves():
            return True
        if get_origin(hint) is typing.Literal:
            return True
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return {type(member.value) for member in hint} in ({str}, {int})
        seen = (*seen, hint)
        if has_fields(hint):
            return _is_plain_class(hint) and all(self.is_whole(part, seen) for part in fields_of(hint).values())
        parts = [part for part in get_args(hint) if part is not ...]
        if is_union(hint) and (sum(map(has_fields, map(bare, parts))) > 1 or not _takes(hint)):
            return False
        known = (
            is_union(hint) or hint in (list, dict, set, tuple) or get_origin(hint) in (*ARRAYS, *OBJECTS, tuple)
        )
        return known and all(self.is_whole(part, seen) for part in parts)


def bare(hint: Any) -> Any:
    """Return the type of a hint without ``Annotated``, ``Final``, aliases, ``NewType`` and type variables."""
    while True:
        if get_origin(hint) in (Annotated, typing.Required, typing.NotRequired, typing.Final):
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif isinstance(hint, typing.TypeVar):
            hint = typing.Union[hint.__constraints__] if hint.__constraints__ else hint.__bound__ or Any  # noqa: UP007  # of a tuple
        else:
            return hint


def is_model(hint: Any) -> bool:
    """Return True for a pydantic class: a model, a pydantic dataclass, or a type such as ``HttpUrl``."""
    return isinstance(hint, type) and any(hasattr(hint, name) for name in _OF_PYDANTIC)


_OF_PYDANTIC = ("__pydantic_core_schema__", "__get_pydantic_core_schema__")


@cache
def adapter(model: Any) -> Any:
    """Return pydantic's ``TypeAdapter`` for a class, made once. Raises pydantic's errors if it cannot be made."""
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def dumped(value: Any) -> Any:
    """Return the JSON value of an instance of a pydantic class."""
    cls: Any = type(value)
    return adapter(cls).dump_python(value, mode="json", by_alias=True)


def is_union(hint: Any) -> bool:
    """Return True for a union, written as ``A | B`` or as ``Union[A, B]``."""
    return get_origin(hint) in (typing.Union, types.UnionType)


def fields_of(cls: Any) -> dict[str, Any]:
    """Return the type hints of a class's fields, including ``Annotated``.

    Evaluating a hint that is a string can raise any exception.
    """
    return get_type_hints(cls, include_extras=True)


def has_class(hint: Any) -> bool:
    """Return True for an attrs class or a dataclass that is not a pydantic class."""
    return (
        isinstance(hint, type)
        and not is_model(hint)
        and (attrs.has(hint) or hasattr(hint, "__dataclass_fields__"))
    )


def is_struct(hint: Any) -> bool:
    """Return True for a subclass of ``msgspec.Struct``."""
    return isinstance(hint, type) and issubclass(hint, library().Struct)


def has_fields(hint: Any) -> bool:
    """Return True for an attrs class, dataclass, subclass of ``msgspec.Struct``, TypedDict or named tuple."""
    named = isinstance(hint, type) and hasattr(hint, "_fields")
    return has_class(hint) or is_struct(hint) or typing.is_typeddict(hint) or named


def _is_plain_class(cls: Any) -> bool:
    """Return True if making an instance only sets its fields."""
    if attrs.has(cls):
        return not hasattr(cls, "__attrs_pre_init__") and all(
            field.init and field.alias == field.name and field.converter is None and field.validator is None
            for field in attrs.fields(cls)
        )
    if hasattr(cls, "__dataclass_fields__"):
        from dataclasses import fields  # already imported by the module of such a class

        taken = list(inspect.signature(cls).parameters)
        return taken == [field.name for field in fields(cls)]  # no InitVar, nothing set later
    return True


def _takes(hint: Any) -> bool:
    try:
        library().json.Decoder(hint)
    except TypeError:
        return False
    return True

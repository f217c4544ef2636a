"""Convert tables of a configuration to attrs classes with cattrs, if `structuring` alone cannot convert them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, mapping_structure_factory

from operad.config.keys import unknown_key
from operad.config.variables import SECRET_LENGTH

Structure = Callable[[Any, Any], Any]


class Unusable(ValueError):
    """Raised for a value that does not fit its key; the message does not quote the value."""


def formatter(table: Mapping[str, Any]) -> Callable[[BaseException, type[Any] | None], str]:
    """Return a function that describes an error of cattrs or a validator without quoting values of ``table``."""
    values = sorted(set(_strings(table)), key=len, reverse=True)

    def text(error: BaseException, _: type[Any] | None) -> str:
        if isinstance(error, KeyError):
            return f"missing key {error}"
        message = str(error)
        if isinstance(error, Unusable):
            return message
        for value in values:
            message = message.replace(repr(value), "…").replace(f'"{value}"', "…")
            if len(value) >= SECRET_LENGTH:
                message = message.replace(value, "…")
        return message

    return text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _strings(item)


_WORDS = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "a table",
}
_UNQUOTED = {
    bool: "; write true or false, without quotes",
    **dict.fromkeys((int, float), "; write a number such as 30, without quotes or a unit"),
}


def _got(value: Any) -> str:
    return _WORDS.get(type(value), type(value).__name__)


def _checked(value: Any, *types: type[Any]) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        hint = _UNQUOTED.get(types[0], "") if isinstance(value, str) else ""
        raise Unusable(f"expected {_WORDS[types[0]]}, got {_got(value)}{hint}")
    return value


def _exactly(expected: type[Any], *also: type[Any]) -> Structure:
    def take(value: Any, _: Any) -> Any:
        checked = _checked(value, expected, *also)
        return expected(checked) if also else checked

    return take


def _choice(choices: tuple[Any, ...], value: Any) -> Unusable:
    got = "another string" if isinstance(value, str) else _got(value)
    return Unusable(f"expected one of {', '.join(repr(choice) for choice in choices)}, got {got}")


def _is_literal(hint: Any) -> bool:
    return get_origin(hint) is Literal


def _literal(value: Any, hint: Any) -> Any:
    choices = get_args(hint)
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        raise _choice(choices, value)
    return value


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _enum(value: Any, hint: Any) -> Any:
    try:
        return hint(value)
    except ValueError:
        raise _choice(tuple(member.value for member in hint), value) from None


_LISTS = (list, tuple, set, frozenset)


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return origin in _LISTS and (origin is not tuple or get_args(hint)[1:] == (...,))


def _list(value: Any, hint: Any) -> Any:
    """Convert a list. A string is rejected, because Python would take it as a list of its letters."""
    if not isinstance(value, _LISTS):
        raise Unusable(f"expected a list, got {_got(value)}")
    member = get_args(hint)[0]
    made: type[Any] = get_origin(hint)
    return made(CONVERTER.structure(item, member) for item in value)


_MAPPINGS = (dict, Mapping, MutableMapping)


def _is_mapping(hint: Any) -> bool:
    return (get_origin(hint) or hint) in _MAPPINGS


def _mapping(hint: Any) -> Structure:
    make = mapping_structure_factory(hint, CONVERTER, structure_to=dict)

    def take(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Unusable(f"expected a table, got {_got(value)}")
        return make(value, hint)

    return take


def _is_record(hint: Any) -> bool:
    return attrs.has(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def _object(cls: type[Any]) -> Structure:
    make: Any = make_dict_structure_fn(cls, CONVERTER)  # published without a complete type
    if attrs.has(cls):
        known = {str(field.alias) for field in attrs.fields(cls) if field.init}
    else:
        known = {field.name for field in dataclasses.fields(cls)}

    def take(value: Any, _: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise Unusable(f"expected a table, got {_got(value)}")
        if unknown := [unknown_key(cls, str(key), known) for key in value if key not in known]:
            raise Unusable("; ".join(unknown))
        return make(value, cls)

    return take


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _union(hint: Any) -> Structure:
    members = get_args(hint)
    names = " or ".join(dict.fromkeys(_named(member) for member in members if member is not type(None)))

    def take(value: Any, _: Any) -> Any:
        if any(member is Any or (isinstance(member, type) and _is_one(value, member)) for member in members):
            return value
        errors = []
        for member in members:
            if member is type(None):
                continue
            try:
                return CONVERTER.structure(value, member)
            except Exception as error:  # the next member may accept it
                errors.append(error)
                if (_is_literal(member) and isinstance(value, str)) or (
                    _is_mapping(member) and isinstance(value, Mapping)
                ):
                    raise
        tables = [m for m in members if _is_record(m)]
        if len(errors) == 1 or (len(tables) == 1 and isinstance(value, Mapping)):
            # Only one member can be meant: its error states more than "no member fits".
            raise errors[0]
        got = "a table that does not fit" if tables and isinstance(value, Mapping) else _got(value)
        raise Unusable(f"expected {names}, got {got}")

    return take


def _named(member: Any) -> str:
    if _is_literal(member):
        return " or ".join(repr(choice) for choice in get_args(member))
    if _is_list(member) or _is_mapping(member):
        return "a list" if _is_list(member) else "a table"
    name = getattr(member, "__name__", str(member))
    return f"a table of {name}" if _is_record(member) else _WORDS.get(member, name)


def _is_one(value: Any, member: type[Any]) -> bool:
    return isinstance(value, member) and not (isinstance(value, bool) and member is not bool)


_STRUCTURED = frozenset(
    {"builtins", "collections", "enum", "pathlib", "datetime", "types", "typing", "uuid", "operad"}
)


def _is_opaque(hint: Any) -> bool:
    """Return True for types whose instances only Python code passes: callables, and classes unknown to cattrs."""
    origin = get_origin(hint) or hint
    if getattr(origin, "__name__", "") == "Callable":
        return True
    return isinstance(origin, type) and origin.__module__.partition(".")[0] not in _STRUCTURED


CONVERTER = Converter()
"""The cattrs converter from configuration tables to attrs classes, which rejects unknown keys."""
for plain in (str, bool, int):
    CONVERTER.register_structure_hook(plain, _exactly(plain))
CONVERTER.register_structure_hook(float, _exactly(float, int))
CONVERTER.register_structure_hook(Path, lambda value, _: Path(_checked(value, str, Path)))
CONVERTER.register_structure_hook_func(_is_opaque, lambda value, _: value)  # the hooks below come before it
CONVERTER.register_structure_hook_func(_is_literal, _literal)
CONVERTER.register_structure_hook_func(_is_enum, _enum)
CONVERTER.register_structure_hook_func(_is_list, _list)
CONVERTER.register_structure_hook_factory(_is_mapping, _mapping)
CONVERTER.register_structure_hook_factory(_is_union, _union)
CONVERTER.register_structure_hook_factory(_is_record, _object)

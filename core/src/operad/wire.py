"""The JSON form of attrs classes: camelCase names, absent values left out. Derived by cattrs, never by hand.

`json_safe` gives anything else a form that JSON can hold.
"""

from __future__ import annotations

import collections.abc
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import attrs

from operad.words import encodable, text_of

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


def camel_case(name: str) -> str:
    """``elapsed_ms`` -> ``elapsedMs``."""
    head, *tail = name.strip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)


def wire_name(field: attrs.Attribute[Any]) -> str:
    """The JSON name of an attrs field: its metadata's ``wire``, else its name in camelCase."""
    name: str = field.metadata.get("wire") or camel_case(field.name)
    return name


@lru_cache(maxsize=1)
def wire_converter() -> Converter:
    """The converter between attrs classes and their JSON form."""
    # cattrs costs 29 ms to import, msgspec 15: an application that never leaves its process does without.
    import msgspec
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = Converter()

    def overrides(cls: type[Any]) -> dict[str, Any]:
        return {field.name: override(rename=wire_name(field)) for field in attrs.fields(cls)}

    def unstructure(cls: type[Any]) -> Callable[[Any], Any]:
        # A part of a meta may know its own JSON form, such as one that keeps unknown names.
        if hasattr(cls, "to_wire"):
            return lambda value: value.to_wire()
        # cattrs publishes these two without complete types.
        to_dict: Any = make_dict_unstructure_fn(cls, converter, **overrides(cls))
        optional = frozenset(wire_name(field) for field in attrs.fields(cls) if field.default is None)
        source = getattr(cls, "source", None)

        def to_wire(value: Any) -> dict[str, Any]:
            wire = {
                name: item
                for name, item in to_dict(value).items()
                if item is not msgspec.UNSET and not (item is None and name in optional)
            }
            return wire if source is None else {"source": source, **wire}

        return to_wire

    def structure(cls: type[Any]) -> Callable[[Any, Any], Any]:
        own: Callable[[Any], Any] | None = getattr(cls, "from_wire", None)
        if own is not None:
            return lambda wire, _: own(wire)
        from_dict: Any = make_dict_structure_fn(cls, converter, **overrides(cls))
        return lambda wire, _: from_dict(wire, cls)

    converter.register_unstructure_hook_factory(attrs.has, unstructure)
    converter.register_structure_hook_factory(attrs.has, structure)
    return converter


def meta_to_wire(meta: Any) -> dict[str, Any]:
    """The JSON form of a meta object, ``source`` first."""
    wire: dict[str, Any] | None = _plain_to_wire(meta)
    if wire is None:
        wire = wire_converter().unstructure(meta)
    return wire


_SCALARS = (str, int, float, bool, type(None))


def _plain_to_wire(meta: Any) -> dict[str, Any] | None:
    """The same without cattrs, of an object of scalars, and of texts by name or in a row; else ``None``."""
    cls = type(meta)
    if not attrs.has(cls) or hasattr(cls, "to_wire"):
        return None
    source = getattr(cls, "source", None)
    wire: dict[str, Any] = {} if source is None else {"source": source}
    for field in attrs.fields(cls):
        value = getattr(meta, field.name)
        if type(value) is dict and all(type(part) is str for item in value.items() for part in item):
            value = dict(value)
        elif type(value) is list and all(type(item) is str for item in value):
            value = list(value)
        elif type(value) not in _SCALARS:
            return None
        if value is not None or field.default is not None:
            wire[wire_name(field)] = value
    return wire


def meta_from_wire(meta_type: type[T], wire: Mapping[str, Any]) -> T:
    """The meta object of a JSON form; unknown names are ignored. Raises what cattrs raises."""
    return wire_converter().structure(wire, meta_type)


def meta_schemas(meta_types: Iterable[type[Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """JSON Schemas of meta types: one reference each, and the definitions they point to, with JSON names."""
    import msgspec

    types = list(meta_types)
    references, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    definitions = dict(components)
    for cls in {cls for meta_type in types for cls in _classes(meta_type)}:
        # msgspec tells classes of one name apart by their module.
        full = re.sub(r"[^A-Za-z0-9.\-_]", "_", f"{cls.__module__}.{cls.__qualname__}")
        definition = definitions.get(full) or definitions[cls.__name__]
        _rename(definition, {field.name: wire_name(field) for field in attrs.fields(cls)})
    for meta_type, reference in zip(types, references, strict=True):
        definition = definitions[reference["$ref"].rpartition("/")[2]]
        definition["properties"] = {
            "source": {"const": meta_type.source},
            **definition.get("properties", {}),
            "encoding": {"const": "base64"},
        }
        definition["required"] = ["source", *definition.get("required", ())]
    return list(references), definitions


def _classes(hint: Any, seen: frozenset[Any] = frozenset()) -> Iterator[type[Any]]:
    """The attrs classes that a type hint is made of."""
    if hint in seen:
        return
    if isinstance(hint, type) and attrs.has(hint):
        yield hint
        parts = tuple(get_type_hints(hint).values())
    else:
        parts = get_args(hint)
    for part in parts:
        if isinstance(part, collections.abc.Hashable):
            yield from _classes(part, seen | {hint})


def _rename(definition: dict[str, Any], names: Mapping[str, str]) -> None:
    properties = definition.get("properties", {})
    definition["properties"] = {names.get(name, name): schema for name, schema in properties.items()}
    if "required" in definition:
        definition["required"] = [names.get(name, name) for name in definition["required"]]


_MAX_DEPTH = 32
_MAX_NODES = 10_000


def json_safe(value: Any) -> Any:
    """A copy of ``value`` that JSON can hold.

    Other objects, and whatever is below depth 32 or comes after 10,000 values, become text; so it ends, and
    soon, for data that hold themselves.
    """
    return _json_safe(value, _MAX_DEPTH, itertools.count().__next__)


def _json_safe(value: Any, depth: int, number: Callable[[], int]) -> Any:
    if value is None or value is True or value is False or type(value) is int:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, str):
        return encodable(str(value))  # str(): a StrEnum, say
    if isinstance(value, int):
        return int(value)
    if depth == 0 or number() >= _MAX_NODES:
        return text_of(value)
    try:
        if isinstance(value, Mapping):
            return {text_of(key): _json_safe(item, depth - 1, number) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_json_safe(item, depth - 1, number) for item in value]
    except Exception:  # noqa: BLE001, S110  # a container of somebody's own that cannot be read; it has a text
        pass
    return text_of(value)

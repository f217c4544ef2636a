"""JSON: the strict codec, and the JSON form of attrs classes.

`to_json` and `from_json` accept a narrower profile than JSON parsers do, so that every parser reads the same
value: no NaN or infinity, exact integers, keys are strings, text is valid Unicode, and only JSON's own types (RFC
8259, RFC 7493). If an object has a key twice, the last one wins.

The JSON form of an attrs class has its field names in camelCase and leaves absent values out; cattrs makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs

from operad.errors import CallError, ErrorCode

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

# --- the strict codec ----------------------------------------------------------------------------------

_NO_FORM = (RecursionError, TypeError, ValueError, OverflowError)  # UnicodeEncodeError is a ValueError
_LARGE, _FEW = 64 * 1024, 256
"""The size of a large JSON text in bytes, and the number of values that are faster to check one by one than by
reading such a text again.
"""
_SIMPLE = frozenset({str, int, bool, type(None)})


@lru_cache(maxsize=1)
def _codec() -> tuple[Callable[[Any], bytes], Callable[[bytes | bytearray | memoryview], Any]]:
    import msgspec  # takes 15 ms to import, which a program that writes no JSON saves

    return msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


def to_json(value: Any) -> bytes:
    """Return the JSON form of a value made by this process, in UTF-8 and without white space.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` if a value has no form in the strict profile.
    """
    encode, decode = _codec()
    try:
        data = encode(value)
        # msgspec converts some values instead of rejecting them (NaN to null, a set to a list). Reading the text
        # again returns other values then. That is five times as fast as checking each value in Python, except for
        # a large text with few values, such as a document.
        if (len(data) > _LARGE and _has_few_values(value)) or decode(data) != value:
            _check(value)
        return data
    except _NO_FORM as error:
        raise no_json_form(error) from error


def no_json_form(error: Exception) -> CallError:
    """Return the ``SERIALIZATION_ERROR`` for an exception that an encoder raised."""
    is_deep = isinstance(error, RecursionError)
    why = "a value is nested too deeply for JSON" if is_deep else f"a value has no JSON form: {error}"
    return CallError(ErrorCode.SERIALIZATION_ERROR, why)


def from_json(data: bytes | bytearray | memoryview | str) -> Any:
    """Return the value of a JSON text of the strict profile.

    Raises:
        ValueError: the text is not JSON of the strict profile, or is nested too deeply.
    """
    try:
        return _codec()[1](data.encode() if isinstance(data, str) else data)
    except RecursionError:
        raise ValueError("not JSON of the strict profile: it is nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"not JSON: the text is not valid Unicode: {error}") from None
    except ValueError as error:  # msgspec.DecodeError, UnicodeDecodeError
        raise ValueError(f"not JSON of the strict profile: {error}") from None


def _has_few_values(value: Any) -> bool:
    """Return True if a value consists of at most `_FEW` values."""
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        seen += 1
        if seen + len(waiting) > _FEW:
            return False
    return True


def _check(value: Any) -> None:
    """Raise `CallError` unless ``value`` is of the strict profile.

    Values that an encoder would convert are rejected.
    """
    kind = type(value)
    if kind in _SIMPLE:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(f"the key {key!r:.60} is not a string")
            _check(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item)
    elif isinstance(value, float):
        if value - value != 0:
            _refuse(f"{value} is not a JSON number")
    elif not isinstance(value, (str, int)):
        _refuse(f"{kind.__name__} is not a JSON type")


def _refuse(why: str) -> NoReturn:
    raise CallError(ErrorCode.SERIALIZATION_ERROR, f"a value has no JSON form: {why}", {"reason": why})


# --- attrs classes -------------------------------------------------------------------------------------


def camel_case(name: str) -> str:
    """Return a name in camelCase: ``elapsed_ms`` -> ``elapsedMs``."""
    head, *tail = name.strip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)


def wire_name(field: attrs.Attribute[Any]) -> str:
    """Return the JSON name of an attrs field: ``wire`` of its metadata, else its name in camelCase."""
    name: str = field.metadata.get("wire") or camel_case(field.name)
    return name


def _of(value: Any, *types: type[Any]) -> Any:
    """Return ``value`` if it is of one of ``types``, else raise `TypeError`; cattrs would convert 5 to ``"5"``."""
    if type(value) not in types:
        raise TypeError(f"expected {types[0].__name__}, got {type(value).__name__}")
    return value


def _exactly(value: Any, cls: type[Any]) -> Any:
    return _of(value, cls, int) if cls is float else _of(value, cls)


@lru_cache(maxsize=1)
def wire_converter() -> Converter:
    """Return the converter between attrs classes and their JSON form."""
    # cattrs takes 29 ms to import, msgspec 15, which an application that stays in its process saves.
    import msgspec
    from cattrs import Converter
    from cattrs.cols import is_sequence, list_structure_factory
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = Converter(detailed_validation=False)
    for plain in (str, int, float, bool):
        converter.register_structure_hook(plain, _exactly)

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

    def listed(hint: Any) -> Callable[[Any, Any], Any]:
        take: Any = list_structure_factory(hint, converter)
        return lambda value, _: take(_of(value, list), hint)

    converter.register_structure_hook_factory(is_sequence, listed)
    converter.register_unstructure_hook_factory(attrs.has, unstructure)
    converter.register_structure_hook_factory(attrs.has, structure)
    return converter


def meta_to_wire(meta: Any) -> dict[str, Any]:
    """Return the JSON form of the metadata of an envelope, ``source`` first."""
    own: Callable[[], dict[str, Any]] | None = getattr(meta, "to_wire", None)
    wire: dict[str, Any] = wire_converter().unstructure(meta) if own is None else own()
    return wire


def meta_from_wire(meta_type: type[T], wire: Mapping[str, Any]) -> T:
    """Return a ``meta_type`` from its JSON form; ignore unknown names. Raises cattrs' errors for other forms."""
    return wire_converter().structure(wire, meta_type)

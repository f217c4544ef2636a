"""Read ``Annotated[...]``: descriptions and bounds as keywords of JSON Schema.

Annotations are recognised by their attributes, not by their class, so that neither annotated_types nor pydantic
need be installed: ``Ge Gt Le Lt MultipleOf MinLen MaxLen`` and their groups (annotated_types), ``Field``,
``Query``, ``Body`` (pydantic, FastAPI), ``msgspec.Meta``, ``typing_extensions.Doc``, and a bare string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from operad.errors import RegistrationError
from operad.functions.kinds import library

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LENGTHS = {"min_length": ("minLength", "minItems", "minProperties"),
            "max_length": ("maxLength", "maxItems", "maxProperties")}  # fmt: skip
_WORDS = ("title", "description", "examples")
_OF_OTHERS = frozenset({"annotated_types", "pydantic", "pydantic_core"})
"""Libraries whose annotations are checks. A check that JSON Schema cannot express must not be dropped silently."""
_HANDED_IN = frozenset({"Depends", "Security", "InjectedToolArg"})
"""Classes of FastAPI, FastMCP and LangChain that hide a parameter from callers: a framework injects its value."""
_SAYS_OF = {
    "minLength": "string", "maxLength": "string", "pattern": "string", "minItems": "array", "maxItems": "array",
    "minProperties": "object", "maxProperties": "object",
    **dict.fromkeys((*_BOUNDS.values(), "multipleOf"), "number"),
}  # fmt: skip
"""The JSON type of the values to which a bound applies."""


def is_field(value: Any) -> bool:
    """Return True for an object that pydantic's ``Field`` or FastAPI's ``Query`` has returned."""
    return all(hasattr(value, name) for name in ("annotation", "default_factory", "metadata", "json_schema_extra"))


def is_handed_in(extra: Any) -> bool:
    """Return True if ``extra``, an annotation or a default, marks a parameter that a framework injects."""
    cls = extra if isinstance(extra, type) else type(extra)
    return not _HANDED_IN.isdisjoint(base.__name__ for base in cls.__mro__)


def handed_in(extra: Any, at: str) -> RegistrationError:
    """Return the error for a parameter that a framework would inject; ``at`` is the place, for the message."""
    name = getattr(extra, "__name__", type(extra).__name__)
    return RegistrationError(
        f"{at}: {name} marks an injected parameter, but operad does not inject it, so callers could set it; "
        "take an OperationContext, or bind the parameter with functools.partial"
    )


def bounded(shape: Mapping[str, Any], types: set[str] | None, found: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return a schema with the keywords of its annotations, except lengths that are for other types.

    Args:
        shape: the schema.
        types: the JSON types that the schema accepts; ``None`` for all.
        found: the keywords that the function `keywords` returned.
        at: the place of the hint, for messages.

    Raises:
        RegistrationError: a bound does not apply to values of these types, so that it would never be checked.
    """
    numbers = {"number" if name == "integer" else name for name in types or ()}
    lost = {name for name in found if types is not None and _SAYS_OF.get(name, "") not in {"", *numbers}}
    for name in lost:
        group = next((one for one in _LENGTHS.values() if name in one), (name,))
        if lost.issuperset(group):
            kind = " or ".join(sorted(types or ()))
            raise RegistrationError(
                f"{at}: {group[0]} does not apply to a JSON {kind}, so it would never be checked; "
                "check it in the function"
            )
    return {**shape, **{name: value for name, value in found.items() if name not in lost}}


def keywords(extras: Iterable[Any], at: str) -> dict[str, Any]:
    """Return the JSON Schema keywords of ``extras``, the arguments of an ``Annotated`` after its type.

    Raises:
        RegistrationError: JSON Schema cannot express a bound or a check. The message starts with ``at``.
    """
    found: dict[str, Any] = {}
    words = []
    for extra in extras:
        if is_handed_in(extra):
            raise handed_in(extra, at)
        if isinstance(extra, str):
            words.append(extra)
        elif isinstance(documentation := getattr(extra, "documentation", None), str):
            words.append(documentation)
        else:
            found.update(_keywords(extra, at))
    if words:
        found["description"] = " ".join(words)
    return found


def _keywords(extra: Any, at: str) -> dict[str, Any]:
    if isinstance(extra, library().Meta):
        names = (*_BOUNDS, *_LENGTHS, *_WORDS, "multiple_of", "pattern")
        own = {name: value for name in names if (value := getattr(extra, name)) is not None}
        return {**_plain(own, at), **(extra.extra_json_schema or {})}
    if is_field(extra):
        return _of_field(extra, at)
    members = list(extra) if hasattr(type(extra), "__iter__") and _foreign(extra) else None
    if members is not None:  # Interval, Len: a group of bounds
        return keywords(members, at)
    own = {name: value for name, value in _attributes(extra) if value is not None}
    if not own.keys() & {*_BOUNDS, *_LENGTHS, "multiple_of", "pattern"}:
        if _foreign(extra) and own:
            raise RegistrationError(
                f"{at}: {extra!r:.80} has no form in JSON Schema, so it would never be checked; check it "
                "in the function"
            )
        return {}  # an annotation that is meant for another library
    return _plain(own, at)


def _of_field(field: Any, at: str) -> dict[str, Any]:
    if field.alias is not None:
        raise RegistrationError(f"{at}: expected no alias, got {field.alias!r}; give the parameter that name")
    if field.default_factory is not None or type(field.default).__name__ not in (
        "PydanticUndefinedType",
        "ellipsis",
    ):
        raise RegistrationError(f"{at}: expected no default inside Annotated; write Annotated[…] = <default>")
    found = keywords(field.metadata, at)
    found.update({name: value for name in _WORDS if (value := getattr(field, name, None))})
    if isinstance(field.json_schema_extra, Mapping):
        found.update(field.json_schema_extra)
    return found


def _foreign(extra: Any) -> bool:
    return type(extra).__module__.partition(".")[0] in _OF_OTHERS


def _attributes(extra: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a small object, whichever way its class stores them."""
    if hasattr(type(extra), "__dataclass_fields__"):
        yield from ((name, getattr(extra, name)) for name in type(extra).__dataclass_fields__)
    elif attrs.has(type(extra)):
        yield from ((field.name, getattr(extra, field.name)) for field in attrs.fields(type(extra)))
    else:
        yield from getattr(extra, "__dict__", {}).items()


def _plain(values: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return bounds and descriptions, given by their Python names, as keywords."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in _BOUNDS or name == "multiple_of":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise RegistrationError(
                    f"{at}: expected a number as the bound {name}, got {value!r:.80}, because JSON Schema bounds "
                    "numbers only; check it in the function"
                )
            found[_BOUNDS.get(name, "multipleOf")] = value
        elif name in _LENGTHS:
            # Each applies to its own type of value only; for other types it has no effect.
            found.update(dict.fromkeys(_LENGTHS[name], value))
        elif name == "pattern":
            found["pattern"] = getattr(value, "pattern", value)
        elif name in _WORDS:
            found[name] = list(value) if name == "examples" else value
    return found

"""For people: the errors of a value, and what a cast did to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from operad.schemas.patterns import Pattern
from operad.schemas.records import Change, SchemaError
from operad.schemas.values import equal, shown

_NAME = re.compile(r"[^\W\d]\w*")
_WIDTH = 80


def path_of(parts: Iterable[Any]) -> str:
    """A path such as `$.items[3].id`; a name that is no word is quoted: `$["a b"]`."""
    out = "$"
    for part in parts:
        if isinstance(part, int):
            out += f"[{part}]"
        elif isinstance(part, str) and _NAME.fullmatch(part):
            out += f".{part}"
        else:
            text = str(part).replace("\\", "\\\\").replace('"', '\\"')
            out += f'["{text}"]'
    return out


def _short(value: Any) -> str:
    return shown(value, _WIDTH)


def _written(patterns: Mapping[str, Pattern], source: str) -> str:
    return patterns[source].written if source in patterns else source


def _type_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _any_of(values: Iterable[Any]) -> str:
    shown = [_short(value) for value in values]
    return shown[0] if len(shown) == 1 else "one of " + ", ".join(shown[:10]) + (", …" if len(shown) > 10 else "")


def _type(error: Any) -> tuple[str, str]:
    types = error.validator_value
    return types if isinstance(types, str) else " or ".join(types), _type_name(error.instance)


def _length(error: Any) -> tuple[str, str]:
    units = {"Length": "character", "Items": "item", "Properties": "propertie"}
    unit = units[error.validator[3:]]
    count = error.validator_value
    plural = "properties" if unit == "propertie" else f"{unit}s"
    singular = "property" if unit == "propertie" else unit
    least = "at least" if error.validator.startswith("min") else "at most"
    return f"{least} {count} {singular if count == 1 else plural}", str(len(error.instance))


def _bound(error: Any) -> tuple[str, str]:
    sign = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}[error.validator]
    return f"a number {sign} {shown(error.validator_value, _WIDTH)}", _short(error.instance)


def _required(error: Any) -> tuple[str, str]:
    missing = [name for name in error.validator_value if name not in error.instance]
    named = [name for name in missing if error.message.startswith(repr(name))] or missing
    return f"the property {named[0]!r}" if named else "the required properties", "none"


def _undeclared(error: Any) -> tuple[str, str]:
    known = error.schema.get("properties", {})
    extra = [name for name in error.instance if name not in known]
    return "no undeclared property", ", ".join(map(_short, extra[:5])) or "one"


_TEXTS: dict[str, Callable[[Any], tuple[str, str]]] = {
    "type": _type,
    "enum": lambda error: (_any_of(error.validator_value), _short(error.instance)),
    "const": lambda error: (_short(error.validator_value), _short(error.instance)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _length),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _bound),
    "multipleOf": lambda error: (f"a multiple of {shown(error.validator_value, _WIDTH)}", _short(error.instance)),
    "required": _required,
    "additionalProperties": _undeclared,
    "unevaluatedProperties": lambda _error: ("no undeclared property", "one"),
    "unevaluatedItems": lambda _error: ("no further items", "some"),
    "uniqueItems": lambda _error: ("unique items", "the same item twice"),
    "contains": lambda _error: ("an array with a matching item", "none"),
    "not": lambda error: ("a value outside the excluded schema", _short(error.instance)),
    "dependentRequired": lambda _error: ("the properties that others depend on", "some missing"),
    "discriminator": lambda error: (_any_of(error.validator_value), _short(error.instance)),
    "False": lambda error: ("nothing here", _short(error.instance)),
}


def readable(errors: Iterable[Any], patterns: Mapping[str, Pattern]) -> list[SchemaError]:
    """`jsonschema` errors as ours; `patterns` gives a translated pattern as it was written."""
    return [_readable(error, patterns) for error in errors]


def _readable(error: Any, patterns: Mapping[str, Pattern]) -> SchemaError:
    keyword = str(error.validator) if error.validator is not None else "False"
    path = path_of(error.absolute_path)
    if keyword == "pattern":
        expected = f"a string that matches {_short(_written(patterns, error.validator_value))}"
        got = _short(error.instance)
    elif keyword in ("anyOf", "oneOf"):
        return _union(error, patterns, path)
    elif keyword in _TEXTS:
        expected, got = _TEXTS[keyword](error)
    else:
        expected, got = f"a value that {keyword} allows", _short(error.instance)
    name = "false" if keyword == "False" else keyword
    return SchemaError(path, f"expected {expected}, got {got} at {path}", name, expected, got)


def _union(error: Any, patterns: Mapping[str, Pattern], path: str) -> SchemaError:
    """A union's error says what came closest: the branch whose first mismatch is deepest."""
    count = len(error.validator_value)
    if error.validator == "oneOf" and not error.context:
        expected, got = f"exactly one of {count} alternatives", "a match of several"
        return SchemaError(path, f"expected {expected}, got {got} at {path}", "oneOf", expected, got)
    context = list(error.context or ())
    if context and all(one.validator == "type" and not one.path for one in context):
        names = dict.fromkeys(_type(one)[0] for one in context)
        expected, got = " or ".join(names), _type_name(error.instance)
        return SchemaError(path, f"expected {expected}, got {got} at {path}", str(error.validator), expected, got)
    expected, got = f"one of {count} alternatives", _short(error.instance)
    message = f"expected {expected}, got {got} at {path}"
    if context:
        closest = _readable(max(context, key=_closeness), patterns)
        message += f" (closest: {closest.message})"
    return SchemaError(path, message, str(error.validator), expected, got)


def _closeness(error: Any) -> tuple[bool, int]:
    """A branch that failed on its tag is further away than one that failed on its content."""
    return error.validator not in ("type", "const", "enum"), len(error.absolute_path)


def too_deep(limit: int) -> SchemaError:
    """The error of a value with too many levels."""
    expected, got = f"at most {limit} levels of arrays and objects (max_data_depth)", "more"
    return SchemaError("$", f"expected {expected}, got {got} at $", "max_data_depth", expected, got)


def filled_up(limit: int) -> SchemaError:
    """The error of a value in which more is missing than may be filled in."""
    expected, got = f"at most {limit} missing parts (max_filled)", "more"
    return SchemaError(
        "$", f"expected {expected}, got {got} at $: the rest stays absent", "max_filled", expected, got
    )


def invented(value: Any, places: list[tuple[Any, Any]]) -> list[SchemaError]:
    """The zero values that a cast put into `value`, each as an error of `required`."""
    if not places:
        return []
    wanted: dict[int, list[Any]] = {}
    for container, key in places:
        wanted.setdefault(id(container), []).append(key)
    out = []
    for parts, container in _containers(value):
        for key in wanted.pop(id(container), ()):
            path = path_of((*parts, key))
            expected, got = f"the property {key!r}" if isinstance(key, str) else f"item {key}", "none"
            text = f"expected {expected}, got none at {path_of(parts)}: {_short(container[key])} was filled in"
            out.append(SchemaError(path, text, "required", expected, got))
    return out


def _containers(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        parts, item = stack.pop()
        if isinstance(item, dict):
            yield parts, item
            stack.extend(((*parts, key), below) for key, below in reversed(list(item.items())))
        elif isinstance(item, list):
            yield parts, item
            stack.extend(((*parts, index), below) for index, below in reversed(list(enumerate(item))))


def changes(before: Any, after: Any) -> list[Change]:
    """The difference that a cast made."""
    found: list[Change] = []
    stack: list[tuple[tuple[Any, ...], Any, Any]] = [((), before, after)]
    while stack:
        parts, old, new = stack.pop()
        if old is new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            _object_changes(parts, old, new, found, stack)
        elif isinstance(old, list | tuple) and isinstance(new, list):
            pairs = zip(old, new, strict=False)
            stack.extend(reversed([((*parts, index), one, two) for index, (one, two) in enumerate(pairs)]))
            dropped, filled = range(len(new), len(old)), range(len(old), len(new))
            found.extend(Change(path_of((*parts, index)), "dropped", old[index], None) for index in dropped)
            found.extend(Change(path_of((*parts, index)), "filled", None, new[index]) for index in filled)
        elif old.__class__ is not new.__class__ or not equal(old, new):
            found.append(Change(path_of(parts), "converted", old, new))
    return found


def _object_changes(parts: tuple[Any, ...], old: dict[Any, Any], new: dict[Any, Any], found: list[Change],
                    stack: list[tuple[tuple[Any, ...], Any, Any]]) -> None:  # fmt: skip
    for key, value in old.items():
        if key not in new:
            found.append(Change(path_of((*parts, key)), "dropped", value, None))
    for key, value in new.items():
        if key not in old:
            found.append(Change(path_of((*parts, key)), "filled", None, value))
    stack.extend(((*parts, key), old[key], new[key]) for key in reversed(list(new)) if key in old)

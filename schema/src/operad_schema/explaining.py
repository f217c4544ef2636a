"""The texts of errors, and the list of the changes that a cast made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from operad_schema.finding import Fault
from operad_schema.limits import Limits
from operad_schema.nodes import Node
from operad_schema.records import Change, SchemaError
from operad_schema.values import equal, short, type_name
from operad_schema.vocabulary import KEYWORDS

_NAME = re.compile(r"[^\W\d]\w*")
_WIDTH = 80
_LOOKED_AT = 64
"""The number of declared properties that are compared with an undeclared one to suggest a name."""


def path_of(parts: Iterable[Any]) -> str:
    """Return a path such as `$.items[3].id`; a name that is not a word is quoted: `$["a b"]`."""
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


def readable(found: Iterable[Fault]) -> list[SchemaError]:
    """Return a `SchemaError` with readable texts for each fault that the search found."""
    return [_readable(fault) for fault in found]


def _readable(fault: Fault) -> SchemaError:
    path = path_of(fault.path)
    if fault.keyword in ("anyOf", "oneOf"):
        return _union(fault, path)
    words = KEYWORDS[fault.keyword].words if fault.keyword in KEYWORDS else None
    # Only the schema `false` fails without a keyword.
    expected, got = ("nothing here", short(fault.value)) if words is None else words(fault.wanted, fault.value)
    meant = _meant(fault) if fault.keyword == "additionalProperties" else ""
    return SchemaError(path, f"expected {expected}, got {got} at {path}{meant}", fault.keyword, expected, got)


def _meant(fault: Fault) -> str:
    """Return a hint with the declared property that the first undeclared one resembles, or an empty text."""
    from difflib import get_close_matches  # with the first one

    name = fault.wanted[0]
    declared = fault.schema.get("properties", {}) if isinstance(fault.schema, Node) else {}
    missing = [one for one in islice(declared, _LOOKED_AT) if one not in fault.value and len(one) <= _WIDTH]
    near = get_close_matches(name, missing, 1, 0.7) if isinstance(name, str) and len(name) <= _WIDTH else []
    return f"; did you mean {short(near[0])}?" if near else ""


def _union(fault: Fault, path: str) -> SchemaError:
    """Return the error of a union. It names the closest branch: the one whose first mismatch is deepest."""
    count = len(fault.wanted)
    branches = fault.branches
    if fault.keyword == "oneOf" and not branches:
        expected, got = f"exactly one of {count} alternatives", "a match of several"
        return SchemaError(path, f"expected {expected}, got {got} at {path}", "oneOf", expected, got)
    if branches and all(one.keyword == "type" and one.path == fault.path for one in branches):
        names = dict.fromkeys(_readable(one).expected for one in branches)
        expected, got = " or ".join(names), type_name(fault.value)
        return SchemaError(path, f"expected {expected}, got {got} at {path}", fault.keyword, expected, got)
    expected, got = f"one of {count} alternatives", short(fault.value)
    message = f"expected {expected}, got {got} at {path}"
    if branches:
        closest = _readable(max(branches, key=_closeness))
        message += f" (closest: {closest.message})"
    return SchemaError(path, message, fault.keyword, expected, got)


def _closeness(fault: Fault) -> tuple[bool, int]:
    """Return the sort key of a branch: one that failed on its tag is further away than one on its content."""
    return fault.keyword not in ("type", "const", "enum"), len(fault.path)


_BEYOND = {
    "max_check_steps": (
        "a value that takes at most {} steps of checking (max_check_steps)",
        "; [registry.limits] can raise it",
    ),
    "max_pattern_steps": (
        "a value whose patterns take at most {} steps (max_pattern_steps)",
        "; [registry.limits] can raise it",
    ),
    "max_data_depth": ("at most {} levels of arrays and objects (max_data_depth)", ""),
    "max_filled": ("at most {} missing parts (max_filled)", ": the rest stays absent"),
}


def beyond(bound: str, limits: Limits) -> SchemaError:
    """Return the error of a value that exceeds the limit whose name is `bound`."""
    text, note = _BEYOND[bound]
    expected = text.format(getattr(limits, bound))
    return SchemaError("$", f"expected {expected}, got more at ${note}", bound, expected, "more")


def invented(value: Any, places: list[tuple[Any, Any]]) -> list[SchemaError]:
    """Return an error of `required` for each zero value that a cast filled in.

    Args:
        value: the result of the cast.
        places: the container and the key of each zero value.
    """
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
            text = f"expected {expected}, got none at {path_of(parts)}: {short(container[key])} was filled in"
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
    """Return the changes from `before` to `after`, its cast value."""
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

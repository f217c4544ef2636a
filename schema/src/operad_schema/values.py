"""JSON values as Python objects: their types, their equality, their depth."""

from __future__ import annotations

import math
from typing import Any

MAX_BITS = 14_000
"""The bits of an integer that Python still writes out (`sys.set_int_max_str_digits`, 4,300 digits)."""

MAX_PARTS = 1_000_000
"""Up to which number the parts of a value are counted."""

ARRAY = (list, tuple)
CONTAINER = (dict, list, tuple)
CLASSES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "string": (str,),
    "array": ARRAY,
    "object": (dict,),
    "integer": (int,),
    "number": (int, float),
}


def is_type(value: Any, name: str) -> bool:
    """Whether a value is of a JSON type; 3.0 is an integer, True is no number, a tuple is an array."""
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, CLASSES[name]) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


_NAMES = {cls: name for name, classes in CLASSES.items() if name != "number" for cls in classes}


def json_type(value: Any) -> str | None:
    """The first JSON type of a value, ``"integer"`` before ``"number"``; None for what is no JSON."""
    return _NAMES.get(value.__class__) or next((name for name in CLASSES if is_type(value, name)), None)


def equal(left: Any, right: Any) -> bool:
    """JSON equality: 1 is 1.0 and is not True, at every level."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if isinstance(left, ARRAY) and isinstance(right, ARRAY):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def frozen(value: Any) -> Any:
    """A hashable stand-in that is equal where two JSON values are."""
    if isinstance(value, dict):
        return "o", frozenset((key, frozen(item)) for key, item in value.items())
    if isinstance(value, ARRAY):
        return "a", tuple(map(frozen, value))
    return (bool, value) if isinstance(value, bool) else value


def is_deeper(value: Any, limit: int) -> bool:
    """Whether a value has more than `limit` levels of arrays and objects."""
    level = [value]
    for _ in range(limit):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, ARRAY):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, CONTAINER) for item in level)


def count_parts(value: Any, most: int) -> int:
    """The parts of a value, counted up to `most`."""
    stack = [value]
    count = 0
    while stack and count < most:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, ARRAY):
            stack.extend(item)
    return count


def is_number(value: Any) -> bool:
    """Whether a Python object is a number that JSON can hold and that can be written out."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value.bit_length() <= MAX_BITS
    return isinstance(value, float) and math.isfinite(value)


def is_multiple(value: Any, factor: Any) -> bool:
    """Whether a number is a multiple of another, as decimals, the way they are written: 19.01 is one of 0.01."""
    if isinstance(value, int) and isinstance(factor, int):
        return not value % factor
    if isinstance(value, float) and not math.isfinite(value):
        return False
    from fractions import Fraction  # of the rare schema that asks for multiples of a fraction

    return (Fraction(repr(value)) / Fraction(repr(factor))).denominator == 1


def shown(value: Any, width: int) -> str:
    """The repr of a value, cut to `width` characters; an object whose repr fails is named by its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # an integer beyond sys.set_int_max_str_digits, or an object of its own mind
        text = f"<{type(value).__name__}>"
    return text if len(text) <= width else text[: width - 1] + "…"

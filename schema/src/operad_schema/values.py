"""Functions for JSON values as Python objects: types, equality, size, and texts for errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

MAX_BITS = 14_000
"""The bits of an integer that Python can still write out (`sys.set_int_max_str_digits`, 4,300 digits)."""

MAX_PARTS = 1_000_000
"""The number at which counting the parts of a value stops."""

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
    """Return True if a value has a JSON type. 3.0 is an integer, a tuple is an array, and True is not a number."""
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, CLASSES[name]) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


_NAMES = {cls: name for name, classes in CLASSES.items() if name != "number" for cls in classes}


def json_type(value: Any) -> str | None:
    """Return the JSON type of a value, ``"integer"`` for a whole number such as 3.0; None if it is not JSON."""
    return _NAMES.get(value.__class__) or next((name for name in CLASSES if is_type(value, name)), None)


def equal(left: Any, right: Any) -> bool:
    """Return True if two JSON values are equal. At every level, 1 equals 1.0 but not True."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if isinstance(left, ARRAY) and isinstance(right, ARRAY):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def frozen(value: Any) -> Any:
    """Return a hashable form of a JSON value. Two forms are equal if and only if their values are `equal`."""
    if isinstance(value, dict):
        return "o", frozenset((key, frozen(item)) for key, item in value.items())
    if isinstance(value, ARRAY):
        return "a", tuple(map(frozen, value))
    return (bool, value) if isinstance(value, bool) else value


def is_deeper(value: Any, limit: int) -> bool:
    """Return True if a value has more than `limit` levels of arrays and objects."""
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
    """Return the number of JSON values in a value, including the value itself. Counting stops at `most`."""
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
    """Return True if a Python object is a number that JSON can represent and Python can write as text."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value.bit_length() <= MAX_BITS
    return isinstance(value, float) and math.isfinite(value)


def is_multiple(value: Any, factor: Any) -> bool:
    """Return True if `value` is a multiple of `factor`, both read as decimals: 19.01 is a multiple of 0.01."""
    if isinstance(value, int) and isinstance(factor, int):
        return not value % factor
    if isinstance(value, float) and not math.isfinite(value):
        return False
    from fractions import Fraction  # few schemas need multiples of a fraction

    return (Fraction(repr(value)) / Fraction(repr(factor))).denominator == 1


def has_duplicates(value: Any, _wanted: Any = True) -> bool:
    """Return True if two items of an array are equal. Return False if an item is not JSON."""
    try:
        return len(set(map(frozen, value))) < len(value)
    except TypeError:  # a Python object that cannot be hashed is not JSON
        return False


def short(value: Any, width: int = 80) -> str:
    """Return the repr of a value, cut to `width` characters; if the repr fails, the name of the value's type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # an integer beyond sys.set_int_max_str_digits, or a faulty __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= width else text[: width - 1] + "…"


def type_name(value: Any) -> str:
    """Return the name of a value's Python type, such as `str`; `null` for None."""
    return "null" if value is None else type(value).__name__


def any_of(values: Iterable[Any]) -> str:
    """Return a text such as `one of 1, 2, 3`, or the only value. Further values after 10 are shown as `…`."""
    texts = [short(value) for value in values]
    if len(texts) < 2:
        return texts[0] if texts else "no value (the enum is empty)"
    return "one of " + ", ".join(texts[:10]) + (", …" if len(texts) > 10 else "")

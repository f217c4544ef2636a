"""JSON values as Python objects: their types, their equality, their depth."""

from __future__ import annotations

from typing import Any

MAX_DATA_DEPTH = 200
"""`max_data_depth`: the levels of a value that are checked and cast."""

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


def equal(left: Any, right: Any) -> bool:
    """JSON equality: 1 is 1.0 and is not True, at every level."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if isinstance(left, ARRAY) and isinstance(right, ARRAY):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def is_deeper(value: Any, limit: int) -> bool:
    """Whether a value has more than `limit` levels of arrays and objects."""
    level = [value]
    for _ in range(limit + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, ARRAY):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, (dict, list, tuple)) for item in level)

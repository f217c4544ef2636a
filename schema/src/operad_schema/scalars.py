"""The cast of scalars: conversions between types that lose nothing."""

from __future__ import annotations

import math
import re
from typing import Any

from operad_schema.conjunctions import ABSENT, Call, Caster, Members, allowed_values
from operad_schema.values import CONTAINER, frozen, is_type

MAX_NUMBER = 330
"""The longest string, in characters, that is read as a number: a longer one is unlikely to be finite."""

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
EXACT: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (float, int),
    "string": (str,),
}
_SCALARS = ("boolean", "integer", "number", "string")


def scalar_cast(members: Members, types: list[str] | None) -> Caster | None:
    """Return the cast of a scalar; None if neither `types` nor an `enum` or `const` of the members allows one."""
    values = allowed_values(members)
    if values is not None:
        return _member_cast(values, types)
    if not types or not any(name in _SCALARS for name in types):
        return None
    fitting = {cls for name in types for cls in EXACT.get(name, ())}

    def cast(value: Any, _call: Call) -> Any:
        return value if value.__class__ in fitting else to_type(value, types)

    return cast


def _member_cast(values: list[Any], types: list[str] | None) -> Caster:
    """Return the cast to the first of `values` that a value can be converted to."""
    scalars: dict[Any, int] = {}
    for position, one in enumerate(values):
        if not isinstance(one, CONTAINER):
            scalars.setdefault(frozen(one), position)

    def fits(position: int) -> bool:
        return types is None or any(is_type(values[position], name) for name in types)

    def cast(value: Any, _call: Call) -> Any:
        position = scalars.get(frozen(value))
        if position is not None:
            one = values[position]
            return value if one.__class__ is value.__class__ else one
        found = [scalars.get(frozen(_convert(value, name))) for name in _SCALARS]
        best = min((at for at in found if at is not None and fits(at)), default=None)
        return value if best is None else values[best]

    return cast


def to_type(value: Any, types: list[str]) -> Any:
    """Return a scalar converted to the first of `types` that is possible without loss, else unchanged."""
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        return int(value)
    if any(is_type(value, name) for name in types):
        return value
    for name in types:
        converted = _convert(value, name)
        if converted is not ABSENT:
            return converted
    return value


def _convert(value: Any, name: str) -> Any:
    if name == "string":
        return _to_string(value)
    if name == "boolean":
        if isinstance(value, str):
            return _BOOLEANS.get(value.lower(), ABSENT)
        return bool(value) if isinstance(value, (int, float)) and value in (0, 1) else ABSENT
    if name in ("integer", "number"):
        return _to_number(value, whole=name == "integer")
    return ABSENT


def _to_string(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # Python itself rejects longer ones (sys.set_int_max_str_digits).
        return int.__repr__(value) if value.bit_length() < 4096 else ABSENT
    if isinstance(value, float) and math.isfinite(value):
        return int.__repr__(int(value)) if value.is_integer() else float.__repr__(value)
    return ABSENT


def _to_number(value: Any, *, whole: bool) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if whole and value.is_integer() else ABSENT
    if not isinstance(value, str) or len(value) > MAX_NUMBER:
        return ABSENT
    found = _JSON_NUMBER.fullmatch(value)
    if found is None:
        return ABSENT
    if found[1] is None and found[2] is None:
        return int(value)
    number = float(value)
    if not math.isfinite(number):
        return ABSENT
    if not whole:
        return number
    # The exponent is at most 308 here, or the number would be infinite.
    from decimal import Decimal  # rarely needed: only if a string was converted to a number

    exact = Decimal(value)
    return int(exact) if exact == exact.to_integral_value() else ABSENT

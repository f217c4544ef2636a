"""Equality, hash and text of records, written once."""

from __future__ import annotations

from reprlib import recursive_repr
from typing import Any

import attrs


def _fields(record: Any) -> Any:
    return attrs.fields(type(record))


def _compared(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, field.name) for field in _fields(record) if field.eq)


class Shown:
    """Gives attrs classes the text that attrs would give them; they are equal to nothing but themselves."""

    __slots__ = ()

    @recursive_repr()
    def __repr__(self) -> str:
        parts = []
        for field in _fields(self):
            if field.repr:
                show = repr if field.repr is True else field.repr
                parts.append(f"{field.name}={show(getattr(self, field.name))}")
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(parts)})"


class Record(Shown):
    """Gives attrs classes the equality, the hash and the text that attrs would give them.

    attrs writes and compiles these anew for each class, which is more than half of what making one takes; a
    command that ends soon makes sixty. A class that is a `Record` says ``@attrs.frozen(eq=False, repr=False)``;
    what its fields say of ``eq`` and ``repr`` counts.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _compared(self) == _compared(other)

    def __hash__(self) -> int:
        return hash((type(self), _compared(self)))

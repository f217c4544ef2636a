"""Records: frozen attrs classes that share one implementation of equality, hash and repr."""

from __future__ import annotations

from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs

__all__ = ["record"]


def _compared(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, field.name) for field in attrs.fields(type(value)) if field.eq)


def _eq(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash((type(self), _compared(self)))


@recursive_repr()
def _repr(self: Any) -> str:
    parts = []
    for field in attrs.fields(type(self)):
        if field.repr:
            show = repr if field.repr is True else field.repr
            parts.append(f"{field.name}={show(getattr(self, field.name))}")
    return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(parts)})"


def _record(cls: type[Any] | None = None, *, eq: bool = True, **options: Any) -> Any:
    """Make a frozen attrs class that respects ``eq`` and ``repr`` of its fields.

    attrs compiles equality, hash and repr for each class separately, which is more than half of the time that
    making a class takes. A short command makes some sixty of them, so these three are written once, above.

    Args:
        cls: the class to decorate.
        eq: False for a class whose instances are compared by identity.
        options: other options of `attrs.frozen`, such as ``kw_only``.
    """

    def make(cls: type[Any]) -> type[Any]:
        made: Any = cls
        if made.__repr__ is object.__repr__:
            made.__repr__ = _repr
        if eq and made.__eq__ is object.__eq__:
            made.__eq__, made.__hash__ = _eq, _hash
        return attrs.frozen(cls, eq=False, repr=False, **options)

    return make if cls is None else make(cls)


if TYPE_CHECKING:
    from attrs import frozen as record  # type checkers recognise attrs by this name
else:
    record: Callable[..., Any] = _record

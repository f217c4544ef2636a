"""Ranked search over the operations of a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_search.index import RankedIndex

__all__ = ["RankedIndex"]


def __getattr__(name: str) -> Any:
    # Imported when first used: finding plugins imports this package for its entry point alone.
    if name != "RankedIndex":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from operad_search.index import RankedIndex

    return RankedIndex

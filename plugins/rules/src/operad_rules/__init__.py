"""Rules for calls, as interceptors: idempotency keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_rules.first_results import FirstResults, MemoryResults, ResultStore

__all__ = ["FirstResults", "MemoryResults", "ResultStore"]


def __getattr__(name: str) -> Any:
    # Imported when first used: finding plugins imports this package for its entry point alone.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from operad_rules import first_results

    return getattr(first_results, name)

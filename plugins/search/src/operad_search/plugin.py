"""The entry point: ranked search for every registry. The index is imported with the first search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad import OperationSpec
    from operad_search.index import RankedIndex


def ranked(specs: Iterable[OperationSpec]) -> RankedIndex:
    """Return an index of ``specs`` that ranks results by BM25."""
    from operad_search.index import RankedIndex

    return RankedIndex(specs)


@hookimpl(trylast=True)
def operad_search() -> object:
    """Return the function that makes the index of a registry. An index of any other plugin takes precedence."""
    return ranked

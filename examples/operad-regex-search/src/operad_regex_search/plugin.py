"""The entry point: the class of the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad_regex_search.index import RegexIndex


@hookimpl
def operad_search() -> type[RegexIndex]:
    """Return what makes the index of a registry."""
    from operad_regex_search.index import RegexIndex  # imports RE2

    return RegexIndex

"""The plugin ``regex-search``: the class of the search index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad_regex_search.index import RegexIndex


@hookimpl
def operad_search() -> type[RegexIndex]:
    """Return the class of the index, of which each registry makes an instance."""
    from operad_regex_search.index import RegexIndex  # imports RE2

    return RegexIndex

"""Ranking operations for a query: BM25 over the words of id, title, tags and description."""

from __future__ import annotations

from collections.abc import Sequence

from operad.operations import OperationSpec


class SearchIndex:
    """An index over a fixed list of specs."""

    def __init__(self, specs: Sequence[OperationSpec]) -> None:
        self._specs = specs

    def search(self, query: str, limit: int) -> list[OperationSpec]:
        """The best ``limit`` specs."""
        words = query.casefold().split()
        found = []
        for spec in self._specs:
            text = f"{spec.id} {spec.title or ''} {spec.description} {' '.join(spec.tags)}".casefold()
            score = sum(word in text for word in words)
            if score:
                found.append((-score, spec.id, spec))
        return [spec for _, _, spec in sorted(found)[:limit]]

"""Search indexes: the interface for plugins, and the simple index of a registry without such a plugin."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from operad.operations import OperationSpec

logger = logging.getLogger("operad")


class SearchIndex(Protocol):
    """An index of specs. The registry adds and removes specs, and makes a new index after many changes."""

    def add(self, spec: OperationSpec) -> None:
        """Add a spec, in place of one with the same id."""

    def remove(self, operation_id: str) -> None:
        """Remove the spec with this id, if it exists."""

    def search(self, query: str, limit: int) -> Sequence[str]:
        """Return the ids of at most ``limit`` operations that match ``query``, best first."""


MakeIndex = Callable[[Iterable[OperationSpec]], SearchIndex]


class WordIndex:
    """An index that ranks by the number of query words in id (weighted twice), title and description."""

    def __init__(self, specs: Iterable[OperationSpec] = ()) -> None:
        self._texts: dict[str, tuple[str, str]] = {}
        for spec in specs:
            self.add(spec)

    def add(self, spec: OperationSpec) -> None:
        text = f"{spec.id} {spec.title or ''} {spec.description}"
        self._texts[spec.id] = spec.id.casefold(), text.casefold()

    def remove(self, operation_id: str) -> None:
        self._texts.pop(operation_id, None)

    def search(self, query: str, limit: int) -> list[str]:
        words = query.casefold().split()
        found = []
        for operation_id, (name, text) in self._texts.items():
            score = sum((word in text) + (word in name) for word in words)
            if score:
                found.append((-score, operation_id))
        return [operation_id for _, operation_id in heapq.nsmallest(limit, found)]


def index_maker(hooks: Iterable[Callable[[], Any]]) -> MakeIndex:
    """Return the first result of ``operad_search`` that is not ``None``, else `WordIndex`; log exceptions."""
    for hook in hooks:
        try:
            make: MakeIndex | None = hook()
        except Exception:
            logger.exception("%s failed; another search index is used", getattr(hook, "__qualname__", "a plugin"))
            continue
        if make is not None:
            return make
    return WordIndex

"""The index: the text of each operation, searched by RE2."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import re2

from operad import OperationSpec

MAX_QUERY = 200
"""The maximum number of characters of a query; the rest is ignored."""
MAX_TEXT = 2_000
"""The number of characters of a title and description that are searched."""
MAX_MEMORY = 64 * 1024
"""The maximum size of a compiled pattern in bytes. A larger one is searched as plain text."""
MAX_SECONDS = 1.0
"""The maximum time of a search, in seconds. It then returns the matches found so far."""


class RegexIndex:
    """A search index that finds operations by regular expression. Matching ids precede matching descriptions.

    RE2 does not backtrack: its time grows at most with the length of the pattern times that of the text. The
    bounds above keep each step short, and the clock is read between steps.
    """

    def __init__(self, specs: Iterable[OperationSpec] = ()) -> None:
        self._texts: dict[str, str] = {}
        for spec in specs:
            self.add(spec)

    def add(self, spec: OperationSpec) -> None:
        """Add a spec, or replace the one with the same id."""
        self._texts[spec.id] = readable(f"{spec.title or ''} {spec.description}", MAX_TEXT)

    def remove(self, operation_id: str) -> None:
        """Remove an operation, if the index has it."""
        self._texts.pop(operation_id, None)

    def search(self, query: str, limit: int) -> list[str]:
        """Return at most `limit` ids, best first. Never raises."""
        pattern = compiled(readable(query, MAX_QUERY))
        ends = time.monotonic() + MAX_SECONDS
        by_id, by_text = [], []
        for operation_id, text in sorted(self._texts.items()):
            if time.monotonic() > ends:
                break
            if pattern.search(readable(operation_id, MAX_TEXT)):
                by_id.append(operation_id)
            elif pattern.search(text):
                by_text.append(operation_id)
        return (by_id + by_text)[:limit]


def compiled(query: str) -> Any:
    """Return the compiled pattern of a query. A query that RE2 rejects is compiled as plain text."""
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, MAX_MEMORY
    try:
        return re2.compile(query, options)
    except re2.error:
        return re2.compile(re2.escape(query), options)


def readable(text: str, length: int) -> str:
    """Return the beginning of a text, without the lone surrogates that UTF-8 cannot hold."""
    return text[:length].encode("utf-8", "replace").decode()

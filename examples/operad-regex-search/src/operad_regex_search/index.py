"""The index: the text of each operation, searched by RE2."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import re2

from operad import OperationSpec

MAX_QUERY = 200
"""Characters of a query that are read."""
MAX_TEXT = 2_000
"""Characters of an operation's description that are searched."""
MAX_MEMORY = 64 * 1024
"""Bytes of a compiled pattern. A pattern that needs more is searched as plain text."""
MAX_SECONDS = 1.0
"""A search returns what it has found by then."""


class RegexIndex:
    """Finds operations by regular expression: first those with a matching id, then by their description.

    RE2 does not backtrack: no pattern makes its time grow faster than the length of pattern and text. The bounds
    above keep each step short, and the clock is read between steps.
    """

    def __init__(self, specs: Iterable[OperationSpec] = ()) -> None:
        self._texts: dict[str, str] = {}
        for spec in specs:
            self.add(spec)

    def add(self, spec: OperationSpec) -> None:
        """Add a spec, or replace the one with the same id."""
        self._texts[spec.id] = readable(f"{spec.title or ''} {spec.description}", MAX_TEXT)

    def remove(self, operation_id: str) -> None:
        """Remove an operation, if it is there."""
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
    """Return the pattern of a query; of one that RE2 rejects, the pattern of its plain text."""
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, MAX_MEMORY
    try:
        return re2.compile(query, options)
    except re2.error:
        return re2.compile(re2.escape(query), options)


def readable(text: str, length: int) -> str:
    """Return the beginning of a text, without the lone surrogates that UTF-8 cannot hold."""
    return text[:length].encode("utf-8", "replace").decode()

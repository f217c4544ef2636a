"""`pattern` and `patternProperties`: ECMA-262 regular expressions, run only in time linear in the text.

Python's `re` backtracks and holds the GIL: `^(a+)+$` takes seconds on 26 characters. A small scanner therefore
reads each pattern (`operad_schema.translating`, imported with the first pattern). Patterns that the scanner can
prove to be linear run in `re`, which is fast on short text. All others run in RE2 (google-re2, the extra
`operad-schema[patterns]`), which never backtracks. RE2 supports neither look-around nor back-references. Patterns
that neither can run are not checked; `Schema.unchecked` lists them. See docs/decisions/0017-patterns.md.

The possible cost of a match is drawn from one budget for a whole call (`Work`). A value that exceeds it is
invalid.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

FREE = 5_000
"""A match of at most this many possible steps is not counted. Most matches need fewer."""
CHEAP = 8
"""A pattern of at most this many steps per character is never counted."""


class TooMuchWorkError(Exception):
    """Raised if a call takes more pattern steps, or applies more schemas, than its limits allow."""


class Work(threading.local):
    """The remaining budget of one call: pattern steps, and schemas applied to parts of a value."""

    left = math.inf
    steps = math.inf
    depth = 0

    @contextmanager
    def call(self, patterns: float, steps: float) -> Iterator[Work]:
        """Set the budget of a call inside the block. A nested call draws on the budget of the outer call."""
        if self.depth == 0:
            self.left, self.steps = patterns, steps
        self.depth += 1
        try:
            yield self
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.left = self.steps = math.inf

    def step(self, count: int) -> None:
        """Draw `count` schemas from the budget. Raises `TooMuchWorkError` if it is exhausted."""
        self.steps -= count
        if self.steps < 0:
            raise TooMuchWorkError

    def match(self, count: int) -> None:
        """Draw `count` pattern steps from the budget. Raises `TooMuchWorkError` if it is exhausted."""
        self.left -= count
        if self.left < 0:
            raise TooMuchWorkError


WORK = Work()


@attrs.define(eq=False, repr=False)
class Pattern:
    """A pattern with the search of the engine that runs it."""

    written: str
    """The pattern as it is in the schema."""
    search: Callable[[Any], Any]
    """The search of the engine; it returns None if the text (or bytes, see `of_bytes`) does not match."""
    weight: int
    """The maximum number of steps that a match can take per character."""
    of_bytes: bool = False
    """Whether `search` takes UTF-8 bytes instead of text."""
    longest: float = math.inf
    """The length in characters of the longest text on which the pattern is run; longer text does not match."""

    @property
    def is_cheap(self) -> bool:
        """Whether matches are never counted, because each takes at most `CHEAP` steps per character."""
        return self.weight <= CHEAP

    def matches(self, text: str) -> bool:
        """Return True if `text` matches. Raises `TooMuchWorkError` if the match exceeds the budget of the call."""
        length = len(text)
        if length > self.longest:
            return False
        if (cost := self.weight * length) > FREE:
            WORK.match(cost)
        # RE2 accepts the bytes that `surrogatepass` makes from a lone surrogate as one character.
        part = text.encode("utf-8", "surrogatepass") if self.of_bytes else text
        return self.search(part) is not None

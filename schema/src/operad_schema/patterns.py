"""`pattern` and `patternProperties`: ECMA-262 regular expressions, run only in time linear in the text.

Python's `re` backtracks and holds the GIL: `^(a+)+$` takes seconds on 26 characters. A small scanner therefore
reads each pattern (`operad_schema.translating`, imported for the first one). Patterns that the scanner can prove
to be linear run in `re`, which is fast on short text. All others run in RE2 (google-re2, the extra
`operad-schema[patterns]`), which never backtracks. Look-around and back-references, which RE2 does not support,
are not checked: the schema lists such patterns (`Schema.unchecked`), and the caller decides. See
docs/decisions/0017-patterns.md.

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
"""A match with fewer possible steps is not counted: most strings, with most patterns."""
CHEAP = 8
"""The steps per character up to which a pattern is never counted."""


class TooMuchWorkError(Exception):
    """A call has taken more pattern steps, or applied more schemas, than its limits allow."""


class Work(threading.local):
    """The remaining budget of one call: pattern steps, and schemas applied to parts of a value."""

    left = math.inf
    steps = math.inf
    depth = 0

    @contextmanager
    def call(self, patterns: float, steps: float) -> Iterator[Work]:
        """Set the budget of a call; a call within a call draws on the outer one's."""
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
        """Draw on the budget of schemas; raise `TooMuchWorkError` if it is exhausted."""
        self.steps -= count
        if self.steps < 0:
            raise TooMuchWorkError

    def match(self, count: int) -> None:
        """Draw on the budget of patterns; raise `TooMuchWorkError` if it is exhausted."""
        self.left -= count
        if self.left < 0:
            raise TooMuchWorkError


WORK = Work()


@attrs.define(eq=False, repr=False)
class Pattern:
    """A pattern that is run."""

    written: str
    """The pattern as it is in the schema."""
    search: Callable[[Any], Any]
    """Returns None for text, or for bytes, that does not match."""
    weight: int
    """The steps that a match can take for each character, at worst."""
    of_bytes: bool = False
    """Whether it is run on UTF-8."""
    longest: float = math.inf
    """The length in characters of the longest text that it is run on; longer text does not match."""

    @property
    def is_cheap(self) -> bool:
        """Whether no text costs enough to be counted."""
        return self.weight <= CHEAP

    def matches(self, text: str) -> bool:
        """Return True if `text` matches; raise `TooMuchWorkError` if that exceeds the budget of the call."""
        length = len(text)
        if length > self.longest:
            return False
        if (cost := self.weight * length) > FREE:
            WORK.match(cost)
        # RE2 accepts the bytes that `surrogatepass` makes from a lone surrogate as one character.
        part = text.encode("utf-8", "surrogatepass") if self.of_bytes else text
        return self.search(part) is not None

"""`pattern` and `patternProperties`: ECMA-262 regular expressions, run only where their work is bounded.

Python's `re` backtracks and holds the GIL: `^(a+)+$` takes seconds on 26 characters. A pattern from a schema
is therefore read by a small scanner (`operad_schema.translating`, imported for the first pattern there is),
which translates it to Python, refuses what can backtrack without bound, and counts what is left: how many
steps a match of a string of n characters can take at worst. What a string costs is drawn from one budget for
a whole call (`Work`), so that many strings, or many patterns, cost no more than one. A refused pattern is an
annotation; a string that is not looked at matches.

Why not an engine of linear time: its wheels leave out platforms, each match costs twenty times as much, a
budget is needed all the same (bounded repeats multiply its states), and it runs no pattern of the documents
tried that this scanner refuses.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import attrs

FREE = 5_000
"""A match that may take fewer steps is not counted: most strings, with most patterns."""


class TooMuchWorkError(Exception):
    """A call has applied more schemas than it may."""


class Work(threading.local):
    """What one call may still cost: worst-case steps of backtracking, and schemas applied to parts of a value."""

    left: float = 0
    steps = math.inf
    depth = 0
    exhausted = False

    @contextmanager
    def call(self, patterns: float, steps: float) -> Iterator[Work]:
        """Set the budget of a call; a call within a call draws on the outer one's."""
        if self.depth == 0:
            self.left, self.steps, self.exhausted = patterns, steps, False
        self.depth += 1
        try:
            yield self
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.steps = math.inf

    def step(self, count: int) -> None:
        """Draw on the budget of schemas; raise `TooMuchWorkError` if it is exhausted."""
        self.steps -= count
        if self.steps < 0:
            raise TooMuchWorkError


WORK = Work()


@attrs.define(eq=False, repr=False, slots=False)
class Pattern:
    """A pattern that may be run."""

    written: str
    """The pattern as it is in the schema."""
    body: str
    """The same in the syntax of Python."""
    longest: int
    """The characters of the longest string that it is run on."""
    factors: Sequence[tuple[int, bool]]
    """The choices that a match can make, each with whether the string's length bounds it too."""
    repeats: bool
    """Whether it repeats something without bound and has more to match after that."""
    anchored: bool
    """Whether a match can begin only at the start of a string."""
    start: str
    """The character that every match begins with; empty if that is not known."""

    def cost(self, text: str) -> int:
        """Return the worst-case steps of a match of `text`, except those that are linear in its length."""
        length = len(text) + 1
        starts = 1 if self.anchored else text.count(self.start) + 1 if self.start else length
        return self._cost(length, starts)

    def _cost(self, length: int, starts: int) -> int:
        steps = starts * (length if self.repeats else 1)
        for factor, grows in self.factors:
            steps *= min(factor, length) if grows else factor
        return steps

    @cached_property
    def is_cheap(self) -> bool:
        """Whether no string costs enough to be counted."""
        return self._cost(self.longest + 1, 1 if self.anchored else self.longest + 1) <= FREE

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled Python pattern."""
        return re.compile(self.body)

    def matches(self, text: str) -> bool:
        """Return True if `text` matches, or is longer than `longest`, or would exceed the budget of the call."""
        if len(text) > self.longest:
            return True
        if not self.is_cheap and (cost := self.cost(text)) > FREE:
            if cost > WORK.left:
                WORK.exhausted = True
                return True
            WORK.left -= cost
        return self.compiled.search(text) is not None

    def of_names(self) -> Pattern:
        """Return the pattern for names of properties, never counted: a name that could cost too much matches."""
        longest = self.longest
        while longest > 16 and self._cost(longest + 1, 1 if self.anchored else longest + 1) > FREE:
            longest //= 2
        return attrs.evolve(self, longest=longest)

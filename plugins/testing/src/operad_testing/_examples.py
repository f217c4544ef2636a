"""Examples for the suites: sample calls and their expected results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn
from unittest import SkipTest

import attrs


class _Anything:
    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING: Final = _Anything()
"""Data that the suite does not check."""


@attrs.frozen
class Example:
    """A call that a suite makes.

    Args:
        name: the operation's name, without its namespace.
        input: its input.
        data: the data that it returns; the first items, as a list, for a subscription.
        error: the code of the `CallError` that it raises instead.
    """

    name: str
    input: Mapping[str, Any] = attrs.field(factory=dict)
    data: Any = ANYTHING
    error: str | None = None

    def id(self, namespace: str) -> str:
        """Return the operation's id."""
        return f"{namespace}.{self.name}"


def given(example: Example | None, declared: bool, suite: object, name: str) -> Example:
    """Return the example of a declared capability. Skip the test if the capability is not declared."""
    if not declared:
        skip(f"{type(suite).__name__} does not declare {name}")
    assert example is not None, (
        f"{type(suite).__name__} declares this capability: set {name} = Example(name, input, …)"
    )
    return example


def skip(reason: str) -> NoReturn:
    """Skip the test, by an exception that every test runner supports."""
    raise SkipTest(reason)


def equal(got: Any, expected: Any, what: str) -> None:
    """Check a value.

    The message shows both values, because test runners do not rewrite assertions of a library.
    """
    assert got == expected, f"{what}: expected {expected!r}, got {got!r}"
